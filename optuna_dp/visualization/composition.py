"""The guarantee against what counting one by one would cost, as a figure."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from dp_accounting import dp_event

from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.procedures import releases_all_runs
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.private_selection.event import PrivateSelectionDpEvent
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.release import Release
from optuna_dp.utilities.accounting import composed_epsilon as composed_pure
from optuna_dp.utilities.choice import read_trace
from optuna_dp.utilities.noisy_max import NoisyMaxPlan
from optuna_dp.utilities.settings import UtilitySettings
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import (
    candidates_of,
    design_of,
    plan_of,
    target_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LARGEST_RUNS = 200
_POINTS = 10


@dataclass(frozen=True)
class _Counted:
    """What is counted one by one: its words, and what so many of it cost.

    Attributes:
        costs: Lines by name: function count -> epsilon.
        level: Name of the guarantee's line.
        pilots: How many of the runs are pilots, and what those cost; None without pilots.
    """

    title: str
    unit: str
    costs: dict[str, Callable[[int], float]]
    last: int
    level: str
    pilots: tuple[int, float] | None = None


def plot_epsilon_by_trials(
    target: Guarantee | Release | optuna.Study, *, delta: float | None = None
) -> go.Figure:
    """Plots what 1, 2, 3, ... would cost if each were published, against the guarantee.

    ===================  ==========================================  ===========================
    sampler              the rising line                             the level line
    ===================  ==========================================  ===========================
    DP-HyPO, RandTune    publishing that many runs (composition)     releasing one choice,
                                                                     however many runs there
                                                                     were
    pilots               the same: the pilots first, then the runs   pilots and selection; the
                                                                     pilots alone, dashed
    propose-test         that many iterations: added up, and         the choice, paid for with
                         composed optimally                          all iterations that there
                                                                     may be
    noisy max            publishing that many utilities with         releasing one choice
                         Laplace noise of the scale that the choice
                         uses
    ===================  ==========================================  ===========================

    **Public** if ``target`` is a :class:`~optuna_dp.Guarantee` or a :class:`~optuna_dp.Release`:
    the number on the axis is any number, and how far it goes is part of the design. **For the
    curator only** if ``target`` is a study: then the runs (or iterations) so far are marked.

    Args:
        target: A guarantee of a selection, with or without pilots; a release or a study of a
            sampler of optuna-dp. What a run costs must be recorded
            (:class:`~optuna_dp.PrivacyCallback`), where runs are private. A final training that
            was composed on top of a release is left out.
        delta: In (0, 1); by default that of the release or the study, else 1e-5.

    Raises:
        InvalidArgumentError: If ``target`` is about something else, a vote for example, or
            ``delta`` is not in (0, 1).
        PlanError: If a study has no plan, or what a run costs is not recorded.
        MissingExtraError: If plotly is not installed.
    """
    guarantee, marked = target_of(target, delta)
    if isinstance(target, Release):
        guarantee = target.search_guarantee
    epsilon = guarantee.epsilon(marked)
    design = design_of(target)
    counted = _counted(guarantee, design, marked)
    so_far = _so_far(target) if isinstance(target, optuna.Study) else 0
    last = max(so_far, counted.last)
    first = counted.pilots[0] if counted.pilots is not None else 1
    counts = sorted(
        {*range(1, min(last, 4) + 1), *_spaced(1, first, 4), *_spaced(first, last, _POINTS)}
        | ({so_far} - {0})
    )
    figure = theme.figure(
        counted.title,
        x=counted.unit + (" (the pilots first)" if counted.pilots is not None else ""),
        y=f"epsilon at delta {marked:g}",
        curator=isinstance(target, optuna.Study) and not (design and releases_all_runs(design)),
    )
    lines = [[cost(count) for count in counts] for cost in counted.costs.values()]
    for name, values, colour in zip(counted.costs, lines, (theme.NAIVE, theme.GOOD), strict=False):
        theme.line(figure, zip(counts, values, strict=True), name, colour, markers=True)

    def level(height: float, name: str, **look: Any) -> None:
        ends = [(0.5, height), (last + 0.5, height)]
        theme.line(figure, ends, f"{name}: {rounded_up(height)}", theme.GUARANTEE, **look)

    level(epsilon, counted.level, width=3)
    if counted.pilots is not None:
        number, cost = counted.pilots
        level(cost, f"the {number} pilots alone", dash="dash")
    if so_far:
        at = [(so_far, lines[-1][counts.index(so_far)])]
        name = f"{counted.unit} so far: {so_far}"
        theme.points(figure, at, name, theme.ATTACK, size=12, symbol="diamond")
    theme.count_along_x(figure, 1, last)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _counted(guarantee: Guarantee, design: Design | None, delta: float) -> _Counted:
    event, relation = guarantee.event, guarantee.neighboring_relation
    runs_title = "Publishing every run or releasing one"
    naive = "publishing that many runs (naive composition)"
    if isinstance(event, PrivateSelectionDpEvent):
        return _Counted(
            title=runs_title,
            unit="runs",
            costs={naive: lambda count: _published([(event.run, count)], relation, delta)},
            last=_usual(event),
            level="the release, whatever the number of runs",
        )
    if design is not None and design.procedure in ("propose_test", "noisy_max"):
        return _counted_choice(UtilitySettings.from_json(design.settings), delta)
    raise InvalidArgumentError(
        "target",
        type(event).__name__,
        "it must be about a selection among runs or candidates",
        "Only a selection has a number of runs.",
    )


def _counted_choice(settings: UtilitySettings, delta: float) -> _Counted:
    plan = settings.plan
    if isinstance(plan, NoisyMaxPlan):
        each = plan.epsilon / 2  # the noise of a choice that costs epsilon has scale 2 / epsilon
        name = "publishing that many utilities (Laplace noise of the choice's scale)"
        return _Counted(
            title="Publishing every utility or releasing one choice",
            unit="candidates",
            costs={name: lambda count: composed_pure(delta, each, count)},
            last=settings.count,
            level="the choice, whatever the number of candidates",
        )
    return _Counted(
        title="What the iterations cost",
        unit="iterations",
        costs={
            "that many iterations, epsilons added up (naive composition)": lambda count: (
                count * plan.epsilon
            ),
            "that many iterations, composed optimally": lambda count: composed_pure(
                delta, plan.epsilon, count
            ),
        },
        last=plan.iteration_bound,
        level="the choice, whatever the number of iterations",
    )


def _usual(event: Any) -> int:
    """How many runs a selection hardly ever has more of."""
    return int(min(max(event.trials.quantile(0.95), 10), _LARGEST_RUNS))


def _so_far(study: optuna.Study) -> int:
    """How many runs have ended, or answers been given. For the curator only."""
    plan = plan_of(study)
    if plan.design.procedure == "propose_test":
        return len(read_trace(study))
    return len(candidates_of(study, plan))


def _published(parts: list[tuple[Any, int]], relation: str, delta: float) -> float:
    """What publishing so many of each costs: the smallest of valid accountings."""
    some = [(event, count) for event, count in parts if count]
    if len(some) == 1:
        event, count = some[0]
        return _repeated(canonical_key(event), count, relation, delta)
    events = [dp_event.SelfComposedDpEvent(event, count) for event, count in some]
    return _mixed(canonical_key(dp_event.ComposedDpEvent(events)), relation, delta)


# Both are kept: a study that is drawn again and again counts mostly the same.


@functools.lru_cache(maxsize=512)
def _repeated(key: str, count: int, relation: str, delta: float) -> float:
    """One distribution of losses for every count: the same event is not judged anew."""
    # Start-up time: other figures do without an accountant.
    from optuna_dp.accounting.pld_of_event import pld_of
    from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, rdp_to_epsilon
    from optuna_dp.accounting.run_rdp import rdp_of

    event = event_from_json(json.loads(key))
    orders = np.asarray(DEFAULT_ORDERS, dtype=np.float64)
    renyi = rdp_to_epsilon(orders, count * rdp_of(event, relation, orders), delta)
    pld = pld_of(event, relation).self_compose(count)
    return float(min(renyi, pld.get_epsilon_for_delta(delta)))


@functools.lru_cache(maxsize=512)
def _mixed(key: str, relation: str, delta: float) -> float:
    return Guarantee(event_from_json(json.loads(key)), relation).epsilon(delta)


def _spaced(first: int, last: int, points: int) -> list[int]:
    return [int(k) for k in np.unique(np.rint(np.geomspace(first, last, points)))]
