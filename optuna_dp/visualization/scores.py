"""What the runs of a study found, as a figure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import optuna
from optuna.trial import FrozenTrial

from optuna_dp.budget.settings import PROCEDURE as BUDGETED_RUNS
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import score
from optuna_dp.releasing.release import Release
from optuna_dp.utilities.choice import final_choice
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import candidates_of, pilots_of, plan_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

_OF_A_PILOT = "score of a pilot (with its noise)"
_LOWEST = "no score: the lowest outcome"


def plot_scores(study: optuna.Study | Release) -> go.Figure:
    """Plots the score of every run, or the mean utility of every candidate.

    Runs without a score (failed, pruned, NaN) are marked at the edge. Pilots are shown apart:
    none of them can win. In a :class:`~optuna_dp.ProposeTestSampler` or
    :class:`~optuna_dp.NoisyMaxSampler` study the points are averaged utilities, which are not
    private; the candidate that was chosen, if the choice has been made, is marked.

    **For the curator only**: it shows the number of runs and the scores of those that lost.
    With a budget (``BudgetSampler``) all of that is paid for and may be shown.
    **Public** if ``study`` is a release that holds its pilots: then it shows those and the score
    of the choice, which are released, and nothing else.

    Args:
        study: A study of one of optuna-dp's samplers; or a release of
            ``BudgetSampler``.

    Raises:
        InvalidArgumentError: If it is a release without pilots, which holds one score, or has
            several objectives.
        PlanError: If a study has no plan.
        MissingExtraError: If plotly is not installed.
    """
    if isinstance(study, Release):
        return _released_pilots(study)
    plan = plan_of(study)
    if study._is_multi_objective():
        raise InvalidArgumentError(
            "study", "a study with several objectives", "it has no one score to show"
        )
    if procedure_of(plan.design).runs_are_private:
        return _runs(study, plan)
    return _candidates(study, plan)


def _runs(study: optuna.Study, plan: StudyPlan) -> go.Figure:
    runs = candidates_of(study, plan)
    first = pilots_of(plan)
    secret = not procedure_of(plan.design).releases_all_runs  # else all of it is paid for
    figure = theme.figure("Scores of the runs", x="run", y="score", curator=secret)
    selection = _scored(trial for trial in runs if trial.number >= first)
    if selection:
        numbers, values = zip(*selection, strict=True)
        best = max if plan.design.direction == "maximize" else min
        so_far = zip(numbers, itertools.accumulate(values, best), strict=True)
        theme.line(figure, so_far, "best so far", theme.OTHER, width=1, shape="hv")
    last = max([plan.slots, *(trial.number + 1 for trial in runs)])
    for name, shown, colour, symbol in (
        (_OF_A_PILOT, range(first), theme.NAIVE, "diamond-open"),
        ("score (with its noise)", range(first, last), theme.GUARANTEE, "circle"),
    ):
        some = _scored(trial for trial in runs if trial.number in shown)
        if some:
            theme.points(figure, some, name, colour, symbol=symbol)
    failed = _failed(runs)
    _mark_failed(figure, failed, _scored(runs), plan.design.direction, _LOWEST)
    if first:
        figure.add_vline(x=first - 0.5, line={"color": theme.OTHER, "width": 1, "dash": "dot"})
    theme.count_along_x(figure, 0, max((t.number for t in runs), default=0))
    return figure


def _released_pilots(release: Release) -> go.Figure:
    pilots = release.attributes.get("pilots")
    one_score = "," not in release.design.direction
    if pilots is None or not one_score:
        raise InvalidArgumentError(
            "study",
            type(release).__name__,
            "this release holds one score and no pilots",
            "Give the curator's study, or a release of BudgetSampler with one objective.",
        )
    figure = theme.figure("The pilots that were released", x="pilot", y="score")
    scored = [(i, p["value"]) for i, p in enumerate(pilots) if p["value"] is not None]
    if scored:
        theme.points(figure, scored, _OF_A_PILOT, theme.NAIVE, symbol="diamond-open")
    failed = [i for i, pilot in enumerate(pilots) if pilot["value"] is None]
    _mark_failed(figure, failed, scored, release.design.direction, _LOWEST)
    if release.value is not None and release.training is None:
        of = "last run" if release.design.procedure == BUDGETED_RUNS else "choice"
        ends = [(-0.5, release.value), (len(pilots) - 0.5, release.value)]
        theme.line(figure, ends, f"score of the {of} (with its noise)", theme.GUARANTEE)
    theme.count_along_x(figure, 0, len(pilots) - 1)
    return figure


def _candidates(study: optuna.Study, plan: StudyPlan) -> go.Figure:
    trials = candidates_of(study, plan)
    choice = final_choice(study, plan)
    words = "utility" if plan.design.direction == "maximize" else "cost"
    figure = theme.figure(
        "Candidates: means that are not private",
        x="candidate (trial)",
        y=f"mean {words} over the partitions",
        curator=True,
    )
    some = _scored(trials)
    if some:
        theme.points(figure, some, f"mean {words}", theme.GUARANTEE)
    chosen = [(n, v) for n, v in some if choice is not None and n == choice.chosen]
    if chosen:
        theme.points(figure, chosen, "chosen", theme.GOOD, size=16, symbol="circle-open-dot")
    blocks = "no utility: blocks the choice"
    _mark_failed(figure, _failed(trials), some, plan.design.direction, blocks)
    theme.count_along_x(figure, 0, max((t.number for t in trials), default=0))
    return figure


def _scored(trials: Iterable[FrozenTrial]) -> list[tuple[int, float]]:
    """Pairs (number, score) of those that have one."""
    return [(t.number, value) for t in trials if (value := score(t)) is not None]


def _failed(trials: Iterable[FrozenTrial]) -> list[int]:
    return [trial.number for trial in trials if score(trial) is None]


def _mark_failed(
    figure: go.Figure,
    failed: list[int],
    scored: list[tuple[int, float]],
    direction: str,
    name: str,
) -> None:
    """Marks what has no score, beyond the worst of those that have one."""
    if not failed:
        return
    finite = [value for _, value in scored if math.isfinite(value)]
    if finite:
        gap = 0.08 * ((max(finite) - min(finite)) or 1.0)
        edge = min(finite) - gap if direction == "maximize" else max(finite) + gap
    else:
        edge = 0.0
        figure.update_yaxes(showticklabels=False)  # There is no score to compare with.
    theme.points(
        figure, [(number, edge) for number in failed], name, theme.ATTACK, size=9, symbol="x"
    )
