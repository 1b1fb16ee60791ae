"""Lower bounds of the cost of compositions with choices of bounded range.

An exponential mechanism between two sets of candidates, one of which a record makes better and the
other worse, has the two losses t and t - epsilon, with any t in between. So the two-point pair is
attainable for every t, and so is its product with what the other events can have.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event
from scipy.stats import binom

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.bounded_range import BoundedRangeDpEvent

# Where the losses end, over their range: tried one after the other, for all choices alike.
_ENDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)
_MOST_ATOMS = 1_000_000


def choices_and_others(
    event: dp_event.DpEvent, count: int = 1
) -> tuple[dict[float, int], list[dp_event.DpEvent]]:
    """Returns how many choices of each range there are in ``count`` times the event, and the rest.

    The rest is a list of events that are not choices and do not compose any.
    """
    if isinstance(event, BoundedRangeDpEvent):
        return {event.epsilon: count}, []
    if isinstance(event, dp_event.SelfComposedDpEvent):
        inner = choices_and_others(event.event, count * event.count)
        return inner if inner[0] else ({}, [_times(event, count)])
    if not isinstance(event, dp_event.ComposedDpEvent):
        return {}, [_times(event, count)]
    choices: dict[float, int] = {}
    events: list[dp_event.DpEvent] = []
    for child in event.events:
        child_choices, child_events = choices_and_others(child, count)
        events += child_events
        for epsilon, times in child_choices.items():
            choices[epsilon] = choices.get(epsilon, 0) + times
    return choices, events


def attack_with_choices(
    choices: dict[float, int], attainable: DominatingPair, delta: float
) -> float:
    """Returns an epsilon that choices of these ranges, and an attainable rest, exceed at delta."""
    best = max(attainable.epsilon(delta), attainable.reversed().epsilon(delta))
    for share in _ENDS:
        pair: DominatingPair | None = attainable
        for epsilon, count in choices.items():
            pair = None if pair is None else _product(pair, epsilon, share * epsilon, count)
        if pair is not None:
            best = max(best, pair.epsilon(delta), pair.reversed().epsilon(delta))
    return best


def _times(event: dp_event.DpEvent, count: int) -> dp_event.DpEvent:
    return event if count == 1 else dp_event.SelfComposedDpEvent(event, count)


def _product(
    pair: DominatingPair, epsilon: float, end: float, count: int
) -> DominatingPair | None:
    """Returns the pair with ``count`` choices more, None if it would be too large."""
    if epsilon == 0.0 or count == 0:
        return pair
    if pair.losses.size * (count + 1) > _MOST_ATOMS:
        return None
    # Whole numbers of choices that gave the more likely output, so losses are count + 1 numbers.
    up = np.arange(count + 1)
    mass = binom.pmf(up, count, math.expm1(end - epsilon) / math.expm1(-epsilon))
    losses = np.add.outer(up * end + (count - up) * (end - epsilon), pair.losses).ravel()
    weights = np.multiply.outer(mass, pair.mass).ravel()
    primes = weights * np.exp(-losses)
    keep = (np.abs(losses) < 600.0) & (weights > 0.0)
    order = np.argsort(losses[keep], kind="stable")
    # Losses that are almost equal become one output: a garbling.
    group = np.concatenate([[0], np.cumsum(np.diff(losses[keep][order]) > 1e-12)])
    on, off = (
        np.asarray(np.bincount(group, law[keep][order]), dtype=np.float64)
        for law in (weights, primes)
    )
    # What is left out is shared evenly, and both laws add up.
    on *= (1.0 - pair.infinite_mass) / on.sum()
    off *= (1.0 - pair.null_mass) / off.sum()
    solid = (on > 1e-290) & (off > 1e-290)
    if not solid.all():
        return None
    return DominatingPair(np.log(on) - np.log(off), on, pair.infinite_mass, pair.null_mass)
