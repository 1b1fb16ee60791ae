"""The guarantee as a figure: epsilon against delta."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.releasing.release import Release
from optuna_dp.visualization import theme
from optuna_dp.visualization.targets import composition_of, target_of

if TYPE_CHECKING:
    import optuna
    import plotly.graph_objects as go

_DECADES_BELOW, _DECADES_ABOVE = 3, 2
_EPSILONS = 24
_ATTACKS = 4


def plot_privacy_profile(
    target: Guarantee | BudgetPlan | Release | optuna.Study,
    *,
    delta: float | None = None,
    attack: bool = True,
) -> go.Figure:
    """Plots the guaranteed epsilon against delta, and the strongest known attack beneath it.

    What lies between the two lines is not known; no analysis can go below the attack. Dashed
    lines are parts of the whole, each by itself: one run (one pilot of each rung and the last
    run, with a budget); one iteration; the search and the final training.

    **Public.** The figure is made of the design of the search and of the event of one run, even if
    ``target`` is a study; nothing of its runs is read.

    Args:
        target: A :class:`~optuna_dp.Guarantee`, a :class:`~optuna_dp.BudgetPlan`, a
            :class:`~optuna_dp.Release` of any kind, or a study of any sampler of optuna-dp. What a
            run costs must be recorded (:class:`~optuna_dp.PrivacyCallback`), where runs are
            private.
        delta: The delta that is marked, in (0, 1); by default that of the plan, the release or the
            study, else 1e-5.
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
    low, high = marked * 10.0**-_DECADES_BELOW, min(marked * 10.0**_DECADES_ABOVE, 0.5)
    figure = theme.figure("What is guaranteed", x="delta", y="epsilon")
    figure.update_xaxes(type="log", exponentformat="power", dtick=1)
    if attack:
        tried = np.geomspace(low, high, _ATTACKS)
        found = [(float(d), guarantee.bounds(float(d))[0]) for d in tried]
        known = [(d, epsilon) for d, epsilon in found if math.isfinite(epsilon)]
        if any(epsilon > 0.0 for _, epsilon in known):
            look: dict[str, Any] = {"dash": "dot", "markers": True}
            theme.line(figure, known, "strongest known attack", theme.ATTACK, **look)
    theme.line(
        figure,
        _curve(guarantee, low, high),
        "all of it: guaranteed",
        theme.GUARANTEE,
        width=3,
        fill="tonexty" if figure.data else None,
        fillcolor=theme.FILL,
    )
    composition = composition_of(target, guarantee)
    parts = [] if composition is None else [(p.name, p.event) for p in composition.parts]
    if isinstance(target, Release) and target.training is not None:
        search = target.search_guarantee.event
        parts = [("the search by itself", search), ("the final training", target.training)]
    for (name, event), colour in zip(parts, theme.PARTS, strict=False):
        part = Guarantee(event, guarantee.neighboring_relation)
        theme.line(figure, _curve(part, low, high), name, colour, dash="dash")
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


def _curve(guarantee: Guarantee, low: float, high: float) -> list[tuple[float, float]]:
    """Returns points (delta, epsilon) of a profile between two deltas, by ascending delta."""
    start, stop = guarantee.epsilon(high), guarantee.epsilon(low)
    if stop == start:  # pure differential privacy: the same epsilon at every delta
        return [(d, start) for d in (low, high)] if math.isfinite(start) else []
    if math.isinf(start):
        start = 0.0
    if math.isinf(stop):
        stop = 2.0 * start + 10.0
    epsilons = np.linspace(stop, start, _EPSILONS)
    points = [(guarantee.delta(float(eps)), float(eps)) for eps in epsilons]
    return [(d, eps) for d, eps in points if 0.5 * low <= d <= 1.01 * high]
