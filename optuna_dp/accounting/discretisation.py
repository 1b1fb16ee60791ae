"""Chooses the grid of the privacy loss distribution of a composition.

Discretisation moves each application's loss to grid neighbours, so the interval follows the scale
of the losses: a fixed 1e-4 would drown gaussian(1000), whose losses are 1e-3, and waste memory on
large ones. Any choice is sound; the numbers here are estimates.

Intervals are powers of two, so of two grids the coarser one is a part of the other, and its pair
dominates. With more noise the grid is the same or finer: more noise never costs more.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.base import Part
from optuna_dp.accounting.kinds.foreign import pure_of
from optuna_dp.accounting.plds import DEFAULT_INTERVAL

# The grid step over the standard deviation of the loss of one application. Discretisation adds
# some interval^2 / 6 to the variance of each, 1.5e-4 of it: 1e-4 of epsilon.
_STEP = 0.03
# The grid step over the standard deviation of the loss in all, which matters when the
# applications are few.
_STEP_OF_TOTAL = 1.0 / 400.0
# Atoms of one mechanism's PLD and of the composition's: bounds memory to a few hundred MB. Beyond,
# the grid gets coarser, which only adds delta.
MAX_ATOMS = 250_000
_MAX_COMPOSED_ATOMS = 500_000
# dp-accounting takes e to the power of the interval.
_COARSEST = 100.0


def interval_for(parts: list[Part], pairs: list[DominatingPair | None], relation: str) -> float:
    """Returns the discretisation interval for composing the parts.

    Args:
        parts: What is composed.
        pairs: For each part its pair, or None where dp-accounting makes the PLD itself.
        relation: "add_or_remove_one" or "replace_one".
    """
    variance, applications, reach, snap = 0.0, 0, 0.0, 0.0
    for part, pair in zip(parts, pairs, strict=True):
        if pair is None:
            scale, farthest = _loss_scale(part.event, relation), loss_reach(part.event, relation)
        else:
            scale = min(2.5 * float(pair.delta(0.0)), 2.5)
            farthest = float(np.abs(pair.losses).max(initial=0.0))
        variance += part.times * scale * scale
        applications += part.times
        reach = max(reach, farthest)
        snap = snap or _loss_spacing(part.event)
    if variance == 0.0:
        return DEFAULT_INTERVAL
    total = math.sqrt(variance)
    interval = min(_STEP * math.sqrt(variance / applications), _STEP_OF_TOTAL * total)
    composed_reach = min(variance + 24.0 * total, reach * max(applications, 1))
    interval = max(interval, 2.0 * reach / MAX_ATOMS, 2.0 * composed_reach / _MAX_COMPOSED_ATOMS)
    if interval > _COARSEST:
        return _COARSEST
    interval = 2.0 ** round(math.log2(interval))
    # Losses that sit on multiples of a number stay where they are on a grid that divides it.
    fine = snap / math.ceil(snap / interval) if snap > interval else interval
    return min(fine, _COARSEST)


def _loss_spacing(event: dp_event.DpEvent) -> float:
    """Returns a number whose multiples hold all (or the largest) losses of the event, or 0."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return float(event.event.epsilon)
    if isinstance(event, dp_event.LaplaceDpEvent):
        return float(1.0 / event.noise_multiplier)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        return float(event.noise_parameter)
    return 0.0


def _loss_scale(event: dp_event.DpEvent, relation: str) -> float:
    """Returns roughly the standard deviation of one application's privacy loss."""
    pure = pure_of(event, relation)
    rate, noise = _rate_and_noise(event, relation)
    if math.isfinite(pure):
        # The typical loss of one step: most steps do not touch the record.
        return min(pure, rate / noise) if hasattr(event, "event") else pure
    # The square root of the chi-square divergence, capped: rare large losses are not typical.
    return min(1.0 / noise, rate * math.sqrt(math.expm1(min(noise**-2, 1.5))))


def _rate_and_noise(event: dp_event.DpEvent, relation: str) -> tuple[float, float]:
    """Returns the chance that a step touches the record, and its noise over what it moves."""
    rate = float(getattr(event, "sampling_probability", 1.0))
    inner = getattr(event, "event", event)
    noise = float(getattr(inner, "noise_multiplier", 1.0))
    if isinstance(event, dp_event.MixtureOfGaussiansDpEvent):
        moves = [
            (p, abs(c)) for p, c in zip(event.sampling_probs, event.sensitivities, strict=True)
        ]
        rate = min(sum(p for p, c in moves if c > 0.0), 1.0)
        noise = event.standard_deviation / max((c for _, c in moves if c > 0.0), default=1.0)
    if relation == "replace_one" or hasattr(event, "truncated_batch_size"):
        noise /= 2.0  # what a record can move is twice its contribution
    return rate, noise


def loss_reach(event: dp_event.DpEvent, relation: str) -> float:
    """Returns roughly the largest loss that one application's PLD holds."""
    pure = pure_of(event, relation)
    if math.isfinite(pure):
        return pure
    rate, noise = _rate_and_noise(event, relation)
    # dp-accounting cuts Gaussians at ten standard deviations.
    unsampled = (10.0 + 0.5 / noise) / noise
    if rate <= 0.0:
        return 0.0
    sampled = (
        np.logaddexp(math.log1p(-rate), math.log(rate) + unsampled) if rate < 1.0 else unsampled
    )
    # Replacing a record can move the loss from one tail to the other.
    return float((2.0 if relation == "replace_one" else 1.0) * max(sampled, 1e-9))
