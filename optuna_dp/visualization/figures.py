"""The figures that are made of a design, a plan or a release, and of no run but the counted ones.

Guaranteed epsilon against delta, true against false positives of an attack, and Renyi divergence
against its order; the cost of the first k runs beside the guarantee of all, as epsilon and as
Renyi divergence; the planner's table; the noisy votes of a federated search.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import optuna
from dp_accounting import dp_event

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, best_order
from optuna_dp.attacks.trade_off import attack_points
from optuna_dp.core.numbers_shown import rounded_up, significant_up
from optuna_dp.core.validation import open_unit
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.releasing.release import Release
from optuna_dp.samplers.budget.plan import BudgetPlan
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

    from optuna_dp.planning.selection_plan import SelectionPlan

_DECADES_BELOW, _DECADES_ABOVE = 3, 2
_EPSILONS = 24
_ATTACKS = 4
_POINTS = 14
_LARGEST_BARS = 30


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
        PlanError: If a study has no plan.
        ReleaseRefusedError: If nobody said what a run of it costs.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_privacy_profile(search)
    """
    guarantee, marked_delta = target_of(target, delta)
    low, high = marked_delta * 10.0**-_DECADES_BELOW, min(marked_delta * 10.0**_DECADES_ABOVE, 0.5)
    figure = theme.figure("What is guaranteed", x="delta", y="epsilon")
    figure.update_xaxes(type="log", exponentformat="power", dtick=1)
    if attack:
        deltas = np.geomspace(low, high, _ATTACKS)
        bounds = [(float(d), guarantee.bounds(float(d))[0]) for d in deltas]
        finite_bounds = [(d, epsilon) for d, epsilon in bounds if math.isfinite(epsilon)]
        if any(epsilon > 0.0 for _, epsilon in finite_bounds):
            theme.line(
                figure,
                finite_bounds,
                "strongest known attack",
                theme.ATTACK,
                dash="dot",
                markers=True,
            )
    theme.line(
        figure,
        _curve(guarantee, low, high),
        "all of it: guaranteed",
        theme.GUARANTEE,
        width=3,
        fill="tonexty" if figure.data else None,
        fillcolor=theme.FILL,
    )
    for (name, event), colour in zip(_parts(target, guarantee), theme.PARTS, strict=False):
        part = Guarantee(event, guarantee.neighboring_relation)
        theme.line(figure, _curve(part, low, high), name, colour, dash="dash")
    epsilon = guarantee.epsilon(marked_delta)
    if math.isfinite(epsilon):
        theme.points(
            figure,
            [(marked_delta, epsilon)],
            "marked",
            theme.GUARANTEE,
            size=11,
            mode="markers+text",
            # Two short lines: one long line is cut off at the edge of a narrow figure.
            text=[f"  epsilon {rounded_up(epsilon)} <br>  at delta {marked_delta:g}"],
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


def plot_trade_off(
    target: Guarantee | BudgetPlan | Release | optuna.Study,
    *,
    false_positive_rate: float = 0.05,
    attack: bool = True,
) -> go.Figure:
    """Plots how well an attacker can tell whether a record is in the data: the trade-off curve.

    An attacker who takes few absent records for present ones (false positives) can recognise so
    many present ones (true positives) and no more, whatever is computed from the release. The
    attack beneath is an explicit one, so the truth lies between the two lines.

    **Public**, as :func:`plot_privacy_profile`.

    Args:
        target: As for :func:`plot_privacy_profile`.
        false_positive_rate: Where a point is marked, in (0, 1).
        attack: Whether to look for attacks, most of the work (some seconds). There is no line
            where no attack is known.

    Raises:
        InvalidArgumentError: If ``target`` is anything else, or the rate is not in (0, 1).
        PlanError: If a study has no plan.
        ReleaseRefusedError: If nobody said what a run of it costs.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_trade_off(search)
    """
    guarantee, _ = target_of(target)
    marked = open_unit("false_positive_rate", false_positive_rate)
    figure = theme.figure(
        "What an attacker can tell of one record",
        x="absent records taken for present (false positive rate)",
        y="present records recognised (true positive rate)",
    )
    theme.line(figure, [(0.0, 0.0), (1.0, 1.0)], "guessing", theme.OTHER, dash="dot")
    if attack:
        corners = attack_points(guarantee.judged_event, guarantee.neighboring_relation)
        theme.line(figure, corners, "strongest known attack", theme.ATTACK, dash="dash")
    rates = np.concatenate([np.linspace(0.0, 0.1, 41), np.linspace(0.12, 1.0, 45)])
    curve = [(float(p), guarantee.true_positive_rate(float(p))) for p in rates]
    theme.line(figure, curve, "no attack can do better", theme.GUARANTEE, width=3)
    power = guarantee.true_positive_rate(marked)
    theme.points(figure, [(marked, power)], "marked", theme.GUARANTEE, size=11, showlegend=False)
    # Beside the curve, where no line is.
    figure.add_annotation(
        x=marked,
        y=power,
        ax=30,
        ay=-90,
        text=f"at most {rounded_up(100 * power, 1)} %<br>at {100 * marked:g} %",
        arrowcolor=theme.WORDS,
        font={"color": theme.WORDS},
    )
    figure.update_xaxes(range=[0.0, 1.0], tickformat=".0%")
    figure.update_yaxes(range=[0.0, 1.0], tickformat=".0%")
    return figure


def plot_renyi_divergence(
    target: Guarantee | BudgetPlan | Release | optuna.Study, *, delta: float | None = None
) -> go.Figure:
    """Plots the guaranteed Renyi divergence against its order, on logarithmic axes.

    The point is the order at which the conversion to epsilon is smallest at ``delta``: what
    :class:`~optuna_dp.PrivacyCallback` shows. Dashed lines are parts of the whole, each by itself.
    Orders at which nothing finite is known are left out.

    **Public.** The figure is made of the design of the search and of the event of one run, even if
    ``target`` is a study; nothing of its runs is read.

    Args:
        target: A :class:`~optuna_dp.Guarantee`, a :class:`~optuna_dp.BudgetPlan`, a
            :class:`~optuna_dp.Release` of any kind, or a study of any sampler of optuna-dp. What a
            run costs must be recorded (:class:`~optuna_dp.PrivacyCallback`), where runs are
            private.
        delta: In (0, 1); by default that of the plan, the release or the study, else 1e-5.

    Raises:
        InvalidArgumentError: If ``target`` is anything else, ``delta`` is not in (0, 1), or no
            finite Renyi divergence of the whole is known.
        PlanError: If a study has no plan.
        ReleaseRefusedError: If nobody said what a run of it costs.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_renyi_divergence(search)
    """
    guarantee, marked_delta = target_of(target, delta)
    curve = _renyi_curve(guarantee)
    order = best_order(DEFAULT_ORDERS, guarantee.rdp(), marked_delta)
    if order is None or not curve:
        raise InvalidArgumentError(
            "target",
            guarantee.event,
            problem="no finite Renyi divergence above 0 is known for it",
            fix="plot_privacy_profile shows its epsilons.",
        )
    figure = theme.figure(
        "What is guaranteed, as Renyi divergence", x="order", y="Renyi divergence"
    )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    theme.line(figure, curve, "all of it: guaranteed", theme.GUARANTEE, width=3)
    for (name, event), colour in zip(_parts(target, guarantee), theme.PARTS, strict=False):
        part = Guarantee(event, guarantee.neighboring_relation)
        theme.line(figure, _renyi_curve(part), name, colour, dash="dash")
    divergence = dict(curve)[order]
    theme.points(
        figure, [(order, divergence)], "marked", theme.GUARANTEE, size=11, showlegend=False
    )
    # High above the point: left of it a narrow figure ends, and right of it the curves rise.
    figure.add_annotation(
        x=math.log10(order),
        y=math.log10(divergence),
        ax=0,
        ay=-90,
        text=f"best order<br>at delta {marked_delta:g}",
        arrowcolor=theme.WORDS,
        font={"color": theme.WORDS},
    )
    return figure


def _renyi_curve(guarantee: Guarantee) -> list[tuple[float, float]]:
    """Returns points (order, divergence), where the divergence is finite and above 0."""
    divergences = guarantee.rdp().tolist()
    points = zip(DEFAULT_ORDERS, divergences, strict=True)
    return [(order, d) for order, d in points if 0.0 < d < math.inf]


def _parts(target: object, guarantee: Guarantee) -> list[tuple[str, dp_event.DpEvent]]:
    """Returns the parts of the whole that are drawn beside it, by name."""
    if isinstance(target, Release) and target.training is not None:
        search = target.search_guarantee.event
        return [("the search by itself", search), ("the final training", target.training)]
    composition = composition_of(target, guarantee)
    return [] if composition is None else [(p.name, p.event) for p in composition.parts]


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
        PlanError: If a study has no plan.
        ReleaseRefusedError: If nobody said what a run of it costs.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> figure = odp.visualization.plot_epsilon_by_trials(search)
    """
    guarantee, marked_delta = target_of(target, delta)
    guarantee, composition = _composed(target, guarantee)
    so_far = _so_far(target) if isinstance(target, optuna.Study) else 0
    counts = _counts(composition, so_far or 1)
    epsilons = [
        Guarantee(_first(count, composition), guarantee.neighboring_relation).epsilon(marked_delta)
        for count in counts
    ]
    is_secret = isinstance(target, optuna.Study) and budget_of(target) is None
    level = guarantee.epsilon(marked_delta)
    figure = _by_count(
        composition,
        list(zip(counts, epsilons, strict=True)),
        level,
        rounded_up(level),
        y=f"epsilon at delta {marked_delta:g}",
        curator=f"it shows how many {composition.unit} there were" if is_secret else "",
    )
    if so_far:
        at = [(so_far, epsilons[counts.index(so_far)])]
        name = f"{composition.unit} so far: {so_far}"
        theme.points(figure, at, name, theme.ATTACK, size=12, symbol="diamond")
    return figure


def plot_renyi_by_trials(
    target: Guarantee | BudgetPlan | Release | optuna.Study, *, order: float = 8.0
) -> go.Figure:
    """Plots the Renyi divergence of the first 1, 2, 3, ... runs, against that of the release.

    Renyi divergences of runs that are published add up, so the rising line is straight for runs
    that cost the same. It is what a sum over the runs shows. The level line is the whole search,
    fixed before its first run. Where the two cross, in words: the search costs as much as
    publishing that many runs. The lines are those of :func:`plot_epsilon_by_trials`.

    **Public.** The figure is made of the design of the search and of the event of one run, even if
    ``target`` is a study. How far the axis goes is part of the design.

    Args:
        target: As for :func:`plot_epsilon_by_trials`.
        order: The order of the divergence, finite and above 1.

    Raises:
        InvalidArgumentError: If ``target`` is about something else, a vote for example, no finite
            divergence of it is known at this order, or ``order`` is not allowed.
        PlanError: If a study has no plan.
        ReleaseRefusedError: If nobody said what a run of it costs.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> search = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=20))
        >>> figure = odp.visualization.plot_renyi_by_trials(search, order=2.0)
    """
    guarantee, composition = _composed(target, target_of(target)[0])
    relation = guarantee.neighboring_relation
    level = float(guarantee.rdp([order])[0])
    by_part = [float(Guarantee(p.event, relation).rdp([order])[0]) for p in composition.parts]
    if not 0.0 < level < math.inf or not max(by_part) < math.inf:
        raise InvalidArgumentError(
            "target",
            guarantee.event,
            problem=f"no finite Renyi divergence above 0 is known for it at order {order:g}",
            fix="plot_epsilon_by_trials shows its epsilons.",
        )
    rising = [
        (count, math.fsum(uses * d for uses, d in zip(all_uses, by_part, strict=True)))
        for count in _counts(composition)
        for all_uses in [_uses(count, composition)]
    ]
    y = f"Renyi divergence of order {order:g}"
    figure = _by_count(composition, rising, level, significant_up(level, 3), y=y)
    if rising[0][1] < level < rising[-1][1]:
        counts, divergences = zip(*rising, strict=True)
        crossing = float(np.interp(level, divergences, counts))
        words = f"as much as publishing {rounded_up(crossing, 1)} {composition.unit}"
        theme.points(figure, [(crossing, level)], words, theme.ATTACK, size=12, symbol="diamond")
    return figure


def _composed(target: object, guarantee: Guarantee) -> tuple[Guarantee, Composition]:
    """Returns what a target guarantees, without a final training, and what it is composed of."""
    if isinstance(target, Release):
        guarantee = target.search_guarantee
    composition = composition_of(target, guarantee)
    if composition is None:
        raise InvalidArgumentError(
            "target",
            guarantee.event,
            allowed="it must be about a budget, a selection among runs, or the iterations of "
            "propose-test",
            fix="Nothing else is composed of a number of runs.",
        )
    return guarantee, composition


def _counts(composition: Composition, also: int = 1) -> list[int]:
    """Returns the numbers of runs that are drawn: where parts begin and end, and between."""
    ends = np.cumsum([part.count for part in composition.parts])
    spaced = np.rint(np.geomspace(1, ends[-1], _POINTS))
    return sorted({int(k) for k in (*spaced, *ends, *(ends[:-1] + 1), also)})


def _by_count(
    composition: Composition,
    rising: list[tuple[int, float]],
    level: float,
    in_words: str,
    *,
    y: str,
    curator: str = "",
) -> go.Figure:
    """Returns the figure of what so many published runs cost, and of what the release does."""
    figure = theme.figure(
        f"What publishing {composition.unit} costs", x=composition.unit, y=y, curator=curator
    )
    name = f"publishing that many {composition.unit}"
    theme.line(figure, rising, name, theme.NAIVE, markers=True)
    largest_count = rising[-1][0]
    across = [(0.5, level), (largest_count + 0.5, level)]
    name = f"{composition.level}: {in_words}"
    theme.line(figure, across, name, theme.GUARANTEE, width=3)
    axis = {
        "range": [0.5, largest_count + 0.5],
        "tickformat": "d",
        "dtick": 1 if largest_count <= 15 else None,
    }
    figure.update_xaxes(**axis)
    figure.update_yaxes(rangemode="tozero")
    return figure


def _uses(count: int, composition: Composition) -> list[int]:
    """Returns how many of each part there are among the first ``count`` runs or iterations."""
    uses = []
    for part in composition.parts:
        uses.append(min(count, part.count))
        count -= uses[-1]
    return uses


def _first(count: int, composition: Composition) -> dp_event.DpEvent:
    """Returns the event of the first ``count`` runs or iterations."""
    parts = zip(composition.parts, _uses(count, composition), strict=True)
    events = [dp_event.SelfComposedDpEvent(part.event, uses) for part, uses in parts if uses]
    return dp_event.ComposedDpEvent(events)


def _so_far(study: optuna.Study) -> int:
    """Returns how many runs have ended, or answers been given. For the curator only."""
    if opened(study).plan.design.procedure != "propose_test":
        return len(runs_of(study))
    # Lazy: only studies of that part have a trace.
    from optuna_dp.samplers.choice.choice import read_trace

    return len(read_trace(study))


def plot_plan(plan: SelectionPlan) -> go.Figure:
    """Plots what searches cost by their mean number of runs, or the noise that a target needs.

    One line per law of T and density bounds. The dotted line is what publishing that many runs
    would cost. Rows without a finite result are left out.

    **Public**: a plan is made before any data are touched.

    Args:
        plan: What :func:`optuna_dp.selection_plan` returned.

    Raises:
        InvalidArgumentError: If it is anything else.
        MissingExtraError: If plotly is not installed.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[5, 20])
        >>> figure = odp.visualization.plot_plan(plan)
    """
    # Lazy: only plans of that part are drawn here.
    from optuna_dp.planning.selection_plan import SelectionPlan

    if not isinstance(plan, SelectionPlan):
        raise InvalidArgumentError(
            "plan", plan, allowed="it must be what optuna_dp.selection_plan returned"
        )
    noise = plan.target_epsilon is not None
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    naive: dict[float, float] = {}
    for row in plan.rows:
        height = row.noise_multiplier if noise else row.epsilon
        if height is None or not math.isfinite(row.epsilon):
            continue
        lines[row.name].append((row.mean, height))
        if not noise and row.naive is not None:
            naive[row.mean] = row.naive
    target = "" if plan.target_epsilon is None else f" within epsilon {plan.target_epsilon:g}"
    figure = theme.figure(
        f"What searches {'need' if noise else 'cost'}{target}",
        x="mean number of runs",
        y="noise multiplier" if noise else f"epsilon at delta {plan.delta:g}",
    )
    for i, (name, at) in enumerate(lines.items()):
        colour = theme.SERIES[i % len(theme.SERIES)]
        theme.line(figure, sorted(at), name, colour, markers=True)
    if naive:
        words = "publishing that many runs (naive composition)"
        at = sorted(naive.items())
        theme.line(figure, at, words, theme.OTHER, dash="dot", markers=len(at) == 1)
    means = sorted({mean for at in lines.values() for mean, _ in at})
    figure.update_xaxes(type="log", tickvals=means, ticktext=[f"{mean:.3g}" for mean in means])
    figure.update_yaxes(rangemode="tozero")
    return figure


def plot_votes(release: Release) -> go.Figure:
    """Plots the noisy number of votes of each candidate, the most votes first.

    Bars beyond the thirtieth are left out. The whisker is one standard deviation of the noise.

    **Public**: the noisy votes are what the vote releases.

    Args:
        release: What :meth:`optuna_dp.federated.FederatedVote.start` returned.

    Raises:
        InvalidArgumentError: If it is not the release of a vote.
        MissingExtraError: If plotly is not installed.
    """
    if (
        not isinstance(release, Release)
        or release.design.procedure != "vote"
        or "noisy_votes" not in release.attributes
    ):
        raise InvalidArgumentError("release", release, allowed="it must be the release of a vote")
    # Lazy: only votes need these parts.
    from optuna_dp.federated.query import read_search
    from optuna_dp.voting.plan import VotePlan

    plan = VotePlan.from_json(release.design.settings["plan"])
    votes = [float(count) for count in release.attributes["noisy_votes"]]
    _, candidates = read_search(release.design.settings["search"])
    names = [", ".join(f"{key}={_short(v)}" for key, v in c.items()) for c in candidates]
    order = sorted(range(len(votes)), key=lambda i: -votes[i])[:_LARGEST_BARS]
    colours = [theme.GUARANTEE] + [theme.OTHER_PALE] * (len(order) - 1)
    figure = theme.figure("Noisy votes", x="votes, with noise", y="")
    noise = {"type": "constant", "value": math.sqrt(plan.variance), "color": theme.ATTACK}
    bars = theme.graph_objects().Bar(
        x=[votes[i] for i in order],
        y=[names[i] for i in order],
        orientation="h",
        marker={"color": colours},
        error_x=noise,
        showlegend=False,
    )
    figure.add_trace(bars)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_layout(height=170 + 24 * len(order))
    return figure


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
