"""The guarantee as a figure: epsilon against delta."""

from __future__ import annotations

import functools
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.attacks.strongest import strongest_known_attack
from optuna_dp.budget.settings import PROCEDURE as BUDGETED_RUNS
from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.private_selection.event import PrivateSelectionDpEvent
from optuna_dp.releasing.release import Release
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import design_of, target_of

if TYPE_CHECKING:
    import optuna
    import plotly.graph_objects as go

_DECADES_BELOW, _DECADES_ABOVE = 3, 2
_EPSILONS = 80
_ATTACKS = 4

Pair = tuple[float, float]


def plot_privacy_profile(
    target: Guarantee | Release | optuna.Study, *, delta: float | None = None, attack: bool = True
) -> go.Figure:
    """Plots the guaranteed epsilon against delta, and the strongest known attack beneath it.

    What lies between the two lines is not known; no analysis can go below the attack. Dashed
    lines are the parts of which the whole is composed, each by itself: a run; pilots and
    selection; an iteration; the search and the final training.

    **Public.** The figure is made of the design of the search and of the event of one run, even if
    ``target`` is a study; nothing of its runs is read.

    Args:
        target: A :class:`~optuna_dp.Guarantee`, a :class:`~optuna_dp.Release` of any kind, or a
            study of any sampler of optuna-dp. What a run costs must be recorded
            (:class:`~optuna_dp.PrivacyCallback`), where runs are private.
        delta: The delta that is marked, in (0, 1); by default that of the release or the study,
            else 1e-5.
        attack: Whether to look for attacks, most of the work (some seconds). There is no line
            where no attack is known.

    Raises:
        InvalidArgumentError: If ``target`` is anything else, or ``delta`` is not in (0, 1).
        PlanError: If a study has no plan, or what a run costs is not recorded.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_privacy_profile(search)
    """
    guarantee, marked = target_of(target, delta)
    deltas = marked * 10.0**-_DECADES_BELOW, min(marked * 10.0**_DECADES_ABOVE, 0.5)
    figure = theme.figure("What is guaranteed", x="delta", y="epsilon")
    figure.update_xaxes(type="log", exponentformat="power", dtick=1)
    attacks = _attacks(guarantee, deltas) if attack else []
    if any(epsilon > 0.0 for _, epsilon in attacks):
        theme.line(
            figure, attacks, "strongest known attack", theme.ATTACK, dash="dot", markers=True
        )
    theme.line(
        figure,
        _curve(guarantee, deltas),
        "the release: guaranteed",
        theme.GUARANTEE,
        width=3,
        fill="tonexty" if figure.data else None,
        fillcolor=theme.FILL,
    )
    for i, (name, event) in enumerate(_parts(target, guarantee)):
        part = Guarantee(event, guarantee.neighboring_relation)
        theme.line(figure, _curve(part, deltas), name, theme.PARTS[i], dash="dash")
    epsilon = guarantee.epsilon(marked)
    if math.isfinite(epsilon):
        theme.points(
            figure,
            [(marked, epsilon)],
            "marked",
            theme.GUARANTEE,
            size=11,
            mode="markers+text",
            text=[f"  epsilon {rounded_up(epsilon)} at delta {marked:g}"],
            textposition="top right",
            showlegend=False,
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


def _parts(target: Any, guarantee: Guarantee) -> list[tuple[str, Any]]:
    """What the whole is composed of, by name."""
    event = guarantee.event
    if isinstance(target, Release) and target.training is not None:
        return [
            ("the choice by itself", event.events[0]),
            ("the final training by itself", target.training),
        ]
    if isinstance(event, PrivateSelectionDpEvent):
        return [("one run by itself", event.run)]
    design = design_of(target)
    if design is not None and design.procedure == BUDGETED_RUNS:
        plan = BudgetSettings.of(design).plan
        *rungs, last = event.events
        return [
            (f"the {plan.pilots} pilots by themselves", dp_event.ComposedDpEvent(rungs)),
            ("the last run by itself", last),
        ]
    loop = design is not None and design.procedure == "propose_test"
    if loop and isinstance(event, dp_event.SelfComposedDpEvent):
        return [("one iteration by itself", event.event)]
    return []


def _attacks(guarantee: Guarantee, deltas: Pair) -> list[Pair]:
    """Points (delta, epsilon) of the strongest known attacks, where they are finite."""
    found = [
        (
            float(d),
            strongest_known_attack(guarantee.event, guarantee.neighboring_relation, float(d)),
        )
        for d in np.geomspace(*deltas, _ATTACKS)
    ]
    return [(d, epsilon) for d, epsilon in found if math.isfinite(epsilon)]


def _curve(guarantee: Guarantee, deltas: Pair) -> tuple[Pair, ...]:
    """Points (delta, epsilon) of a profile between two deltas, by ascending delta."""
    return _points(canonical_key(guarantee.event), guarantee.neighboring_relation, deltas)


@functools.lru_cache(maxsize=64)
def _points(key: str, relation: str, deltas: Pair) -> tuple[Pair, ...]:
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
