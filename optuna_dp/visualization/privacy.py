"""What is guaranteed, as figures."""

from __future__ import annotations

import functools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

from optuna_dp import validation
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.events import PrivateSelectionDpEvent
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.lower_bounds import strongest_known_attack
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.samplers.records import ended
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import plan_of, target_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DECADES_BELOW, _DECADES_ABOVE = 3, 2
_EPSILONS = 80
_ATTACKS = 4
_LARGEST_RUNS = 200


def plot_privacy_profile(
    target: Any, *, delta: float | None = None, attack: bool = True
) -> go.Figure:
    """Plots the guaranteed epsilon against delta, and the strongest known attack beneath it.

    What lies between the two lines is not known; no analysis can go below the attack.

    **Public.** The figure is made of the design of the search and of the event of one run, even if
    ``target`` is a study; nothing of its runs is read.

    Args:
        target: A :class:`~optuna_dp.Guarantee`, a :class:`~optuna_dp.Release`, or a study whose
            :class:`~optuna_dp.PrivacyCallback` has recorded what a run costs.
        delta: The delta that is marked; by default that of the release or the study, else 1e-5.
        attack: Whether to look for attacks, most of the work (some seconds).

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_privacy_profile(search)
    """
    found = target_of(target, delta)
    guarantee = found.guarantee
    marked = validation.open_unit("delta", found.delta)
    deltas = _around(marked)
    figure = theme.figure("What is guaranteed", x="delta", y="epsilon")
    figure.update_xaxes(type="log", exponentformat="power", dtick=1)
    go = theme.graph_objects()
    if attack:
        x, y = _attacks(guarantee, deltas)
        if any(y):
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=y,
                    mode="lines+markers",
                    name="strongest known attack",
                    line={"color": theme.ATTACK, "dash": "dot"},
                )
            )
    x, y = _curve(guarantee, deltas)
    filled = "tonexty" if figure.data else None
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines",
            name="the release: guaranteed",
            line={"color": theme.GUARANTEE, "width": 3},
            fill=filled,
            fillcolor=theme.FILL,
        )
    )
    if isinstance(guarantee.event, PrivateSelectionDpEvent):
        one = Guarantee(guarantee.event.run, guarantee.neighboring_relation)
        x, y = _curve(one, deltas)
        figure.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                name="one run by itself",
                line={"color": theme.OTHER, "dash": "dash"},
            )
        )
    epsilon = guarantee.epsilon(marked)
    if math.isfinite(epsilon):
        figure.add_trace(
            go.Scatter(
                x=[marked],
                y=[epsilon],
                mode="markers+text",
                marker={"color": theme.GUARANTEE, "size": 11},
                text=[f"  epsilon {theme.rounded_up(epsilon)} at delta {marked:g}"],
                textposition="top right",
                showlegend=False,
            )
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


def plot_epsilon_by_trials(target: Any, *, delta: float | None = None) -> go.Figure:
    """Plots what publishing 1, 2, 3, ... runs would cost against the guarantee of the release.

    The rising line is the composition of that many runs, by the better of privacy loss
    distributions and Renyi accounting. The level line is what releasing one choice costs, however
    many runs there were.

    **Public** if ``target`` is a :class:`~optuna_dp.Guarantee` or a :class:`~optuna_dp.Release`:
    the number of runs on the axis is any number, and the law of T is part of the design. **For
    the curator only** if ``target`` is a study: then the runs so far are marked.

    Args:
        target: A guarantee or release of a selection, or a study whose
            :class:`~optuna_dp.PrivacyCallback` has recorded what a run costs.
        delta: By default that of the release or the study, else 1e-5.
    """
    found = target_of(target, delta)
    event, relation = found.guarantee.event, found.guarantee.neighboring_relation
    if not isinstance(event, PrivateSelectionDpEvent):
        raise InvalidArgumentError(
            "target",
            type(event).__name__,
            "it must be about a selection among runs",
            "Only a selection has a number of runs.",
        )
    marked = validation.open_unit("delta", found.delta)
    so_far = _runs_so_far(target)
    last = max(so_far or 1, min(max(event.trials.quantile(0.95), 10), _LARGEST_RUNS))
    counts = sorted({*range(1, min(last, 4) + 1), *_spaced(last), *([so_far] if so_far else [])})
    costs = [composed_epsilon(event.run, relation, marked, count) for count in counts]
    epsilon = found.guarantee.epsilon(marked)
    figure = theme.figure(
        "Publishing every run or releasing one",
        x="runs",
        y=f"epsilon at delta {marked:g}",
        curator=so_far is not None,
    )
    go = theme.graph_objects()
    figure.add_trace(
        go.Scatter(
            x=counts,
            y=costs,
            mode="lines+markers",
            name="publishing that many runs (naive composition)",
            line={"color": theme.NAIVE},
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[1, last],
            y=[epsilon, epsilon],
            mode="lines",
            name=f"the release, whatever the number of runs: {theme.rounded_up(epsilon)}",
            line={"color": theme.GUARANTEE, "width": 3},
        )
    )
    if so_far:
        figure.add_trace(
            go.Scatter(
                x=[so_far],
                y=[costs[counts.index(so_far)]],
                mode="markers",
                name=f"runs so far: {so_far}",
                marker={"color": theme.ATTACK, "size": 12, "symbol": "diamond"},
            )
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


def composed_epsilon(run: Any, relation: str, delta: float, runs: int) -> float:
    """Returns what publishing ``runs`` runs costs: the smaller of two valid accountings."""
    from optuna_dp.accounting.run_rdp import DEFAULT_ORDERS, rdp_of, rdp_to_epsilon

    orders = np.asarray(DEFAULT_ORDERS, dtype=np.float64)
    renyi = rdp_to_epsilon(orders, runs * rdp_of(run, relation, orders), delta)
    return float(min(renyi, _composed(canonical_key(run), relation, delta, runs)))


@functools.lru_cache(maxsize=512)
def _composed(key: str, relation: str, delta: float, runs: int) -> float:
    from optuna_dp.accounting.run_profile import pld_of

    one = pld_of(event_from_json(json.loads(key)), relation)
    return float(one.self_compose(runs).get_epsilon_for_delta(delta))


def _runs_so_far(target: Any) -> int | None:
    if not isinstance(target, optuna.Study):
        return None
    slots = plan_of(target).slots
    trials = target._storage.get_all_trials(target._study_id, deepcopy=False)
    return sum(ended(trial) for trial in trials if trial.number < slots)


def _spaced(last: int) -> list[int]:
    return [int(k) for k in np.unique(np.rint(np.geomspace(1, last, 10)))]


def _around(delta: float) -> tuple[float, float]:
    return delta * 10.0**-_DECADES_BELOW, min(delta * 10.0**_DECADES_ABOVE, 0.5)


def _attacks(guarantee: Guarantee, deltas: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Points (delta, epsilon) of the strongest known attacks, where they are finite."""
    found = [
        (
            float(d),
            strongest_known_attack(guarantee.event, guarantee.neighboring_relation, float(d)),
        )
        for d in np.geomspace(*deltas, _ATTACKS)
    ]
    finite = [(d, epsilon) for d, epsilon in found if math.isfinite(epsilon)]
    return [d for d, _ in finite], [epsilon for _, epsilon in finite]


def _curve(guarantee: Guarantee, deltas: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Points (delta, epsilon) of a profile between two deltas, by ascending delta."""
    points = _points(canonical_key(guarantee.event), guarantee.neighboring_relation, deltas)
    return [d for d, _ in points], [eps for _, eps in points]


@functools.lru_cache(maxsize=64)
def _points(
    key: str, relation: str, deltas: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    guarantee = Guarantee(event_from_json(json.loads(key)), relation)
    ends = [guarantee.epsilon(d) for d in (deltas[1], deltas[0])]
    start = ends[0] if math.isfinite(ends[0]) else 0.0
    stop = ends[1] if math.isfinite(ends[1]) else 2.0 * start + 10.0
    epsilons = np.linspace(start, stop, _EPSILONS)
    points = [(guarantee.delta(float(eps)), float(eps)) for eps in epsilons]
    shown = [(d, eps) for d, eps in points if 0.5 * deltas[0] <= d <= 1.01 * deltas[1]]
    if not shown:  # pure differential privacy: the same epsilon at every delta
        level = min(ends)
        shown = [(d, level) for d in reversed(deltas)] if math.isfinite(level) else []
    return tuple(reversed(shown))
