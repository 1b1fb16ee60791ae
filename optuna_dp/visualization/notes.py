"""The words beside the figures: what a study's page says, for the curator and for everybody."""

from __future__ import annotations

import math

from optuna.study import Study

from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.errors import OptunaDPError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.evidence.markdown import METHODS, two_columns
from optuna_dp.evidence.procedures import description_of, procedure_of, releases_all_runs
from optuna_dp.evidence.reading import read_evidence
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import output, score
from optuna_dp.releasing.release import Release
from optuna_dp.utilities.choice import (
    candidate_trials,
    final_choice,
    read_trace,
    utilities_of,
)
from optuna_dp.utilities.doubling import DoublingPlan
from optuna_dp.utilities.second_evaluations import with_utilities
from optuna_dp.utilities.settings import UtilitySettings
from optuna_dp.visualization.targets import (
    candidates_of,
    pilots_of,
    plan_of,
    record_of,
    target_of,
)

_PUBLIC = """**Safe to show.** This study holds nothing but a private release: the choice (its
one trial; none if nothing was chosen) and what is guaranteed of it.{besides}

"""
_IN_THE_OPEN = """# In the open

**The hyperparameters and scores of all runs, and how each of them ended, are paid for: they may be
shown**, in tables and plots, also while the study runs.{unscored}

**Keep back what nobody has paid for:** how long runs took and when they began and ended (the
timeline, durations, dates), logs, and reported values and user attributes, unless they are part of
what a run is stated to output. This page has them all, so for a page that is safe as a whole
publish the release: `odp.publish(odp.release(study), storage, name)`.
"""
_UNSCORED = """ Not the last run's score: it is not paid for."""
_FOR_THE_CURATOR = """# For the curator only

**Do not share this page, a screenshot of it, or this storage.** It shows {shows};
whoever sees it is not covered by any guarantee. To show the result, publish the
release: `odp.publish(odp.release(study), storage, name)`.
"""
_WITH_ITS_PILOTS = """ The pilots that were paid for are the trials before the last one."""
_PILOTS = """ The pilots' hyperparameters and scores are part of
the release: the trial's attribute `pilots`."""
_NO_SCORE = """ No score is released, and Optuna has
no completed trial without one: the trial is shown as pruned, which it was not."""


def curators_note(study: Study) -> str:
    """Returns what a private study's page says, in Markdown. **For the curator only.**

    Raises:
        PlanError: If the study has no plan, or what a run costs is not recorded.
    """
    plan = plan_of(study)
    (guarantee, delta), record = target_of(study), record_of(study)
    procedure = procedure_of(plan.design)
    epsilon = guarantee.epsilon(delta)
    promise = (
        "no finite epsilon"
        if math.isinf(epsilon)
        else f"epsilon = {rounded_up(epsilon)} at delta = {delta:g}"
    )
    relation = description_of(plan.design).relations[record.neighboring_relation]
    if procedure.releases_all_runs:
        scored = BudgetSettings.of(plan.design).scores_last_run
        head = _IN_THE_OPEN.format(unscored="" if scored else _UNSCORED)
        stands = _rungs(study, plan)
    elif procedure.runs_are_private:
        head = _FOR_THE_CURATOR.format(shows="every run, and how many\nthere were")
        stands = _runs(study, plan)
    else:
        head = _FOR_THE_CURATOR.format(shows="utilities, which are\nnot private")
        stands = _choice(study, plan)
    what, whatever = "release** is", "what this page shows"
    if procedure.releases_all_runs:
        what, whatever = "outputs of all runs together** are", "which of them are shown"
    facts = {
        **description_of(plan.design).facts(plan.design, guarantee),
        "Accounting": METHODS.get(guarantee.method(delta), ""),
    }
    return f"""{head}
## What is guaranteed

The **{what} differentially private with **{promise}**, with respect to
{relation}. That does not depend on {whatever}.

{two_columns(facts)}

## How the study stands

{two_columns({**stands, "Can be released": _can_be_released(study, plan)})}

The plots are on the study's first page, under the history.
"""


def published_note(release: Release) -> str:
    """Returns what a published study's page says, in Markdown. **Public.**"""
    opened = releases_all_runs(release.design)
    shown = _WITH_ITS_PILOTS if opened else _PILOTS
    besides = shown if "pilots" in release.attributes else ""
    besides += _NO_SCORE if release.params is not None and release.value is None else ""
    return _PUBLIC.format(besides=besides) + release.statement()


def _runs(study: Study, plan: StudyPlan) -> dict[str, str]:
    done = candidates_of(study, plan)
    pilots = pilots_of(plan)
    first = sum(trial.number < pilots for trial in done)
    without = sum(score(trial) is None for trial in done)
    rows = {"Pilots ended": f"{first} of {pilots}"} if pilots else {}
    name = "Selection runs ended" if pilots else "Runs ended"
    return {
        **rows,
        name: f"{len(done) - first} of {plan.slots - pilots} (secret)",
        "Runs without a score": f"{without} (failed, pruned or NaN: the lowest outcome)",
    }


def _rungs(study: Study, plan: StudyPlan) -> dict[str, str]:
    settings = BudgetSettings.of(plan.design)
    done = candidates_of(study, plan)
    rows = {}
    for i, size in enumerate(settings.plan.rung_sizes):
        ended = sum(settings.rung_of(trial.number) == i for trial in done)
        name = "Pilots" if len(settings.plan.rungs) == 1 else f"Pilots, rung {i + 1}"
        rows[f"{name} ended"] = f"{ended} of {size}"
    last = [trial for trial in done if trial.number >= settings.pilots]
    scored = any(output(trial) is not None for trial in last)
    failed = f"failed {len(last)} of {settings.paid} times" if last else "not ended yet"
    rows["The last run"] = "ended with a result" if scored else failed
    return rows


def _choice(study: Study, plan: StudyPlan) -> dict[str, str]:
    settings = UtilitySettings.from_json(plan.design.settings)
    done = candidates_of(study, plan)
    of = (
        f"{len(done)}, {settings.count} in each batch"
        if settings.kind == "proposed"
        else f"{len(done)} of {settings.count}"
    )
    without = sum(score(trial) is None for trial in done)
    rows = {"Candidates evaluated": of}
    if without:
        rows["Candidates without a utility"] = f"{without} (each blocks the choice)"
    if isinstance(settings.plan, DoublingPlan):
        used, most = len(read_trace(study)), settings.plan.iteration_bound
        rows["Iterations"] = f"{used}, and all {most} that there may be are paid for"
    choice = final_choice(study, plan)
    if choice is None:
        rows["Choice"] = "not made yet: after the last candidate, or by the release"
    elif choice.chosen is None:
        rows["Choice"] = "made: no candidate (no threshold was reached)"
    else:
        rows["Choice"] = f"made: the candidate of trial {choice.chosen}"
    return rows


def _can_be_released(study: Study, plan: StudyPlan) -> str:
    procedure = procedure_of(plan.design)
    try:
        read_evidence(study)
        if not procedure.runs_are_private and final_choice(study, plan) is None:
            # The release would make the choice; nothing is drawn here.
            settings = UtilitySettings.from_json(plan.design.settings)
            for stage in range(settings.stages):
                trials = candidate_trials(study, plan, stage)
                if trials:
                    tested = with_utilities(study, plan, trials)
                    utilities_of(tested, settings, plan.design.direction)
    except UnfinishedStudyError as error:
        return f"not yet: {error.reason} {error.fix or ''}"
    except ReleaseRefusedError as error:
        where = "" if error.trial_number is None else f"trial {error.trial_number}: "
        return f"NO: {where}{error.reason} {error.fix or ''}"
    except OptunaDPError as error:
        return f"NO: {error}"
    return "yes: `odp.release(study)`"
