"""What Optuna Dashboard shows of a private study, and of a published one.

Needs the extra: ``pip install "optuna-dp[dashboard]"``.

Two pages, for two readers. The curator's study is annotated by :func:`annotate`; its page shows
every run and must not leave the room. The published study (:meth:`optuna_dp.Release.publish`) is
annotated by :func:`annotate_published`, which is given the release and nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import (
    InvalidArgumentError,
    MissingExtraError,
    OptunaDPError,
    ReleaseRefusedError,
    UnfinishedStudyError,
)
from optuna_dp.releasing.evidence import read_evidence
from optuna_dp.releasing.procedures import procedure_of
from optuna_dp.releasing.statement import METHODS
from optuna_dp.samplers.records import ended, score
from optuna_dp.visualization import privacy, search
from optuna_dp.visualization.targets import plan_of, record_of, target_of
from optuna_dp.visualization.theme import rounded_up

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from optuna.study import Study

    from optuna_dp.releasing.release import Release
    from optuna_dp.samplers.plan import Plan

_PACKAGES = ("optuna_dashboard", "plotly")
_ID = "optuna-dp-"
_PUBLIC_NOTE = """**Safe to show.** This study holds nothing but a private release: the choice (its
one trial, or none if no run succeeded) and what is guaranteed of it.

"""


def available() -> bool:
    """Whether the extra is installed."""
    return all(importlib.util.find_spec(package) is not None for package in _PACKAGES)


def annotate(study: Study, *, attack: bool = True) -> None:
    """Writes a note and plots for Optuna Dashboard into a private study.

    The note says what is guaranteed, how the study stands and whether it can be released, and that
    the page is for the curator only. The plots: guaranteed epsilon against delta with the
    strongest known attack beneath; the cost of publishing every run against the guarantee; the
    sampling density within its band [c, C]; the scores. Calling it again brings all of it up to
    date. :class:`optuna_dp.PrivacyCallback` calls it by itself when the extra is installed.

    **For the curator only**, like the study itself: what it writes depends on T and on all scores.
    To show a result to others, publish the release.

    Guarantees:
        * Nothing of the study but its note and its plots is changed; releasing it afterwards gives
          what it would have given before.

    Args:
        study: A study of one of optuna-dp's samplers whose
            :class:`~optuna_dp.PrivacyCallback` has recorded what a run costs. Load it with its
            sampler to see the density.
        attack: Whether to look for attacks, most of the work (some seconds).

    Raises:
        PlanError: If the study has no plan, or what a run costs is not recorded.
        MissingExtraError: If Optuna Dashboard or plotly is not installed.
    """
    board = _board()
    plan = plan_of(study)
    board.save_note(study, _curators_note(study, plan))
    figures: dict[str, Callable[[], go.Figure]] = {
        "privacy-profile": lambda: privacy.plot_privacy_profile(study, attack=attack),
        "epsilon-by-trials": lambda: privacy.plot_epsilon_by_trials(study),
        "sampling-density": lambda: search.plot_sampling_density(study),
        "scores": lambda: search.plot_scores(study),
    }
    for name, make in figures.items():
        try:
            figure = make()
        except InvalidArgumentError:
            continue  # not every procedure has every figure, nor every study yet
        _save(board, study, name, figure)


def annotate_published(study: Study, release: Release) -> None:
    """Writes the statement and public plots into a published study, if the extra is installed.

    Guarantees:
        * What is written is a function of the release alone.

    Args:
        study: The study that :meth:`optuna_dp.Release.publish` has made.
        release: What it holds.
    """
    if not available():
        return
    board = _board()
    board.save_note(study, _PUBLIC_NOTE + release.statement())
    _save(board, study, "privacy-profile", privacy.plot_privacy_profile(release, attack=False))
    try:
        figure = privacy.plot_epsilon_by_trials(release)
    except InvalidArgumentError:
        return  # not a selection among runs
    _save(board, study, "epsilon-by-trials", figure)


def _board() -> Any:
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "dashboard")
    return importlib.import_module("optuna_dashboard")


def _save(board: Any, study: Study, name: str, figure: go.Figure) -> None:
    board.save_plotly_graph_object(study, figure, graph_object_id=_ID + name)


def _curators_note(study: Study, plan: Plan) -> str:
    target = target_of(study, None)
    record = record_of(study)
    epsilon = target.guarantee.epsilon(target.delta)
    runs = [
        trial
        for trial in study._storage.get_all_trials(study._study_id, deepcopy=False)
        if trial.number < plan.slots
    ]
    done = [trial for trial in runs if ended(trial)]
    without = sum(score(trial) is None for trial in done)
    facts = procedure_of(plan.design).facts(plan.design, target.guarantee)
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in facts.items())
    promise = (
        "no finite epsilon"
        if math.isinf(epsilon)
        else f"epsilon = {rounded_up(epsilon)} at delta = {target.delta:g}"
    )
    relation = record.neighboring_relation.replace("_", " ")
    return f"""# For the curator only

**Do not share this page, a screenshot of it, or this storage.** It shows every run, and how many
there were; whoever sees it is not covered by any guarantee. To show the result, publish the
release: `odp.release(study).publish(storage, name)`.

## What is guaranteed

The **release** is differentially private with **{promise}**, with respect to one record
({relation}). That does not depend on how many runs there are.

| | |
|---|---|
{rows}
| Accounting | {_cell(METHODS.get(target.guarantee.method(target.delta), ""))} |

## How the study stands

| | |
|---|---|
| Runs ended | {len(done)} of {plan.slots} (secret) |
| Runs without a score | {without} (failed, pruned or NaN: the lowest outcome) |
| Can be released | {_cell(_can_be_released(study))} |

The plots are on the study's first page, under the history.
"""


def _can_be_released(study: Study) -> str:
    try:
        evidence = read_evidence(study)
        procedure_of(evidence.plan.design).check(evidence)
    except UnfinishedStudyError as error:
        return f"not yet: {error.reason} {error.fix}"
    except ReleaseRefusedError as error:
        where = "" if error.trial_number is None else f"trial {error.trial_number}: "
        return f"NO: {where}{error.reason} {error.fix}"
    except OptunaDPError as error:
        return f"NO: {error}"
    return "yes: `odp.release(study)`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
