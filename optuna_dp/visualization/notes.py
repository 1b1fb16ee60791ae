"""The note on a study's page in Optuna Dashboard, for the curator and for everybody."""

from __future__ import annotations

import math

from optuna.study import Study

from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.errors import OptunaDPError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.evidence.layout import two_columns
from optuna_dp.evidence.procedures import description_of
from optuna_dp.evidence.reading import OpenedStudy, read_evidence
from optuna_dp.releasing.callbacks import renyi_in_words
from optuna_dp.releasing.markdown import METHODS
from optuna_dp.releasing.release import Release
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import output, score, trials_of
from optuna_dp.visualization.targets import opened, runs_of, target_of

_BUDGET = """# All runs may be shown

**You may show the hyperparameters and scores of all runs, and how each of them ended**, also while
the study runs. They are charged for.{unscored}

**Do not show the rest:** durations and dates, logs, and reported values and user attributes that
are not stated outputs of a run. This page shows all of them. For a page that is safe as a whole,
publish the release: `odp.publish(odp.release(study), storage, name)`.
"""
_CURATOR = """# For the curator only

**Do not share this page, a screenshot of it, or this storage.** It shows {shows}, which no
guarantee covers. To show the result, publish the release:
`odp.publish(odp.release(study), storage, name)`.
"""
_PUBLIC = """**Safe to show.** This study holds only a private release: the choice (its last
trial; none if nothing was chosen), everything else that is released, and the
guarantee.{pruned}

"""
_PRUNED = """ No score is released. Optuna has no completed trial without a score, so the
trial is shown as pruned, but it was not pruned."""


def curators_note(study: Study) -> str:
    """Returns what a private study's page says, in Markdown, for the curator only.

    Raises:
        PlanError: If the study has no plan.
        ReleaseRefusedError: If nobody said what a run costs.
    """
    opened_study = opened(study)
    plan, procedure, words = (
        opened_study.plan,
        opened_study.procedure,
        description_of(opened_study.plan.design),
    )
    guarantee, delta = target_of(study)
    subject, disclosure = "release", "what this page shows"
    if procedure.releases_all_runs:
        subject, disclosure = "outputs of all runs together", "which of them are shown"
        settings = BudgetSettings.of(plan.design)
        unscored = "" if settings.scores_last_run else " The last run's score is not."
        head, stands = _BUDGET.format(unscored=unscored), _of_budget(study, settings)
    elif procedure.runs_are_private:
        head = _CURATOR.format(shows="every run, and how many there were")
        stands = _of_selection(study, plan)
    else:
        head = _CURATOR.format(shows="utilities that are not private")
        stands = _of_choice(study, plan)
    epsilon = guarantee.epsilon(delta)
    promise = (
        "no finite epsilon"
        if math.isinf(epsilon)
        else f"epsilon = {rounded_up(epsilon)} at delta = {delta:g}"
    )
    relation = words.relations[guarantee.neighboring_relation]
    accounting = METHODS.get(guarantee.method(delta), "")
    facts = {
        **{fact.name: fact.text for fact in words.facts(plan.design, guarantee)},
        "Accounting": accounting,
        "Renyi divergence": renyi_in_words(guarantee, delta),
    }
    return f"""{head}
## What is guaranteed

Differential privacy of the {subject}: **{promise}**, with respect to {relation}. That does
not depend on {disclosure}.

{two_columns(facts)}

## How the study stands

{two_columns({**stands, "Can be released": _can_be_released(study, opened_study)})}

The plots are on the study's first page, under the history.
"""


def published_note(release: Release) -> str:
    """Returns what a published study's page says, in Markdown, for everybody."""
    has_score = release.value is not None or "values" in release.attributes
    pruned = release.params is not None and not has_score
    return _PUBLIC.format(pruned=_PRUNED if pruned else "") + release.statement()


def _of_selection(study: Study, plan: StudyPlan) -> dict[str, str]:
    runs = runs_of(study)
    without = sum(score(trial) is None for trial in runs)
    return {
        "Runs ended": f"{len(runs)} of {plan.slots} (secret)",
        "Runs without a score": f"{without} (failed, pruned or NaN: the lowest outcome)",
    }


def _of_budget(study: Study, settings: BudgetSettings) -> dict[str, str]:
    runs = runs_of(study)
    last_runs = [trial for trial in runs if trial.number >= settings.pilots]
    state = f"failed {len(last_runs)} of {settings.paid} times" if last_runs else "not ended yet"
    has_output = any(output(trial) is not None for trial in last_runs)
    return {
        "Pilots ended": f"{len(runs) - len(last_runs)} of {settings.pilots}",
        "The last run": "ended with a result" if has_output else state,
    }


def _of_choice(study: Study, plan: StudyPlan) -> dict[str, str]:
    # Lazy: only choices over partitions come here.
    from optuna_dp.samplers.choice.choice import recorded_choices

    runs = runs_of(study)
    without = sum(score(trial) is None for trial in runs)
    choices = recorded_choices(trials_of(study), plan)
    choice_text = "not made yet: after the last candidate, or by the release"
    if choices:
        chosen = choices[0].chosen
        choice_text = (
            f"made: {'no candidate' if chosen is None else f'the candidate of trial {chosen}'}"
        )
    blocked = {"Candidates without a utility": f"{without} (each blocks the choice)"}
    return {
        "Candidates evaluated": str(len(runs)),
        **(blocked if without else {}),
        "Choice": choice_text,
    }


def _can_be_released(study: Study, opened_study: OpenedStudy) -> str:
    plan = opened_study.plan
    try:
        read_evidence(study)
        if not opened_study.procedure.runs_are_private:
            _check_choice(study, plan)
    except UnfinishedStudyError as error:
        return f"not yet: {error.reason} {error.fix or ''}"
    except ReleaseRefusedError as error:
        where = "" if error.trial_number is None else f"Trial {error.trial_number}: "
        return f"NO: {where}{error.reason} {error.fix or ''}"
    except OptunaDPError as error:
        return f"NO: {error}"
    return "yes: `odp.release(study)`"


def _check_choice(study: Study, plan: StudyPlan) -> None:
    """Refuses what the release would; it would also make the choice, and nothing is drawn here."""
    # Lazy: only choices over partitions come here.
    from optuna_dp.samplers.choice.choice import (
        candidate_utilities,
        candidates_among,
        recorded_choices,
    )

    if not recorded_choices(trials_of(study), plan):
        candidate_utilities(candidates_among(trials_of(study), plan), plan)
