"""The cost of the first k runs beside the guarantee of all, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import optuna
from dp_accounting import dp_event

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.releasing.release import Release
from optuna_dp.utilities.choice import read_trace
from optuna_dp.utilities.settings import PROPOSE_TEST
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import (
    Composition,
    budget_of,
    composition_of,
    opened,
    runs_of,
    target_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

_POINTS = 14


def plot_epsilon_by_trials(
    target: Guarantee | BudgetPlan | Release | optuna.Study, *, delta: float | None = None
) -> go.Figure:
    """Plots what the first 1, 2, 3, ... runs cost if they are published, against the guarantee.

    ==================  ===========================================  ==========================
    sampler             the rising line                              the level line
    ==================  ===========================================  ==========================
    with a budget       the outputs of so many runs, pilots first    the outputs of all runs
    DP-HyPO, RandTune   publishing that many runs (composition)      releasing one choice,
                                                                     however many runs there
                                                                     were
    propose-test        that many iterations                         the choice, charged for
                                                                     all iterations that there
                                                                     may be
    ==================  ===========================================  ==========================

    **Public** if ``target`` is anything but a study: how far the axis goes is part of the design.
    **For the curator only** if ``target`` is a study, where the runs (or iterations) so far are
    marked, unless the study has a budget: then nothing about it is secret.

    Args:
        target: A budget plan; the guarantee of a selection; a release or a study of one of these
            samplers. What a run costs must be recorded (:class:`~optuna_dp.PrivacyCallback`),
            where runs are private. A final training composed on top of a release is left out.
        delta: In (0, 1); by default that of the plan, the release or the study, else 1e-5.

    Raises:
        InvalidArgumentError: If ``target`` is about something else, a vote for example, or
            ``delta`` is not in (0, 1).
        PlanError: If a study has no plan, or what a run costs is not recorded.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_epsilon_by_trials(search)
    """
    guarantee, marked = target_of(target, delta)
    if isinstance(target, Release):
        guarantee = target.search_guarantee
    composition = composition_of(target, guarantee)
    if composition is None:
        raise InvalidArgumentError(
            "target",
            type(guarantee.event).__name__,
            "it must be about a budget, a selection among runs, or the iterations of propose-test",
            "Nothing else is composed of a number of runs.",
        )
    so_far = _so_far(target) if isinstance(target, optuna.Study) else 0
    ends = np.cumsum([part.count for part in composition.parts])
    spaced = np.rint(np.geomspace(1, ends[-1], _POINTS))
    counts = sorted({int(k) for k in (*spaced, *ends, *(ends[:-1] + 1), so_far or 1)})
    epsilons = [
        Guarantee(_first(count, composition), guarantee.neighboring_relation).epsilon(marked)
        for count in counts
    ]
    figure = theme.figure(
        f"What publishing {composition.unit} costs",
        x=composition.unit,
        y=f"epsilon at delta {marked:g}",
        curator=isinstance(target, optuna.Study) and budget_of(target) is None,
    )
    rising = zip(counts, epsilons, strict=True)
    name = f"publishing that many {composition.unit}"
    theme.line(figure, rising, name, theme.NAIVE, markers=True)
    last, level = counts[-1], guarantee.epsilon(marked)
    name = f"{composition.level}: {rounded_up(level)}"
    across = [(0.5, level), (last + 0.5, level)]
    theme.line(figure, across, name, theme.GUARANTEE, width=3)
    if so_far:
        at = [(so_far, epsilons[counts.index(so_far)])]
        name = f"{composition.unit} so far: {so_far}"
        theme.points(figure, at, name, theme.ATTACK, size=12, symbol="diamond")
    whole = {"range": [0.5, last + 0.5], "tickformat": "d", "dtick": 1 if last <= 15 else None}
    figure.update_xaxes(**whole)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _first(count: int, composition: Composition) -> dp_event.DpEvent:
    """Returns the event of the first ``count`` runs or iterations."""
    events = []
    for part in composition.parts:
        used = min(count, part.count)
        events += [dp_event.SelfComposedDpEvent(part.event, used)] if used else []
        count -= used
    return dp_event.ComposedDpEvent(events)


def _so_far(study: optuna.Study) -> int:
    """Returns how many runs have ended, or answers been given. For the curator only."""
    loop = opened(study).plan.design.procedure == PROPOSE_TEST
    return len(read_trace(study) if loop else runs_of(study))
