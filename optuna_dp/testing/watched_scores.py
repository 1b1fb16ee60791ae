"""The noisy scores that an objective computes, and how much noise its event pays for.

:func:`optuna_dp.scoring.private_mean` adds all noise of this package's scores, also that of
``private_accuracy``, ``run.score`` and ``odp.train``. A score of noise multiplier s costs 1/s^2
of Gaussian privacy: what several cost together is the sum, and so is what an event pays for.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import dp_event

from optuna_dp import scoring
from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent
from optuna_dp.accounting.kinds.worst_case import WorstCaseDpEvent
from optuna_dp.testing.stated_training import trainings_in


class NoisyScore(NamedTuple):
    """One noisy score of this package.

    Attributes:
        noise_multiplier: Of its noise, in contributions of one record.
        size: The number that its sum was divided by.
        value: The score.
        records: How many values it was computed from, one for each record.
        total: Their sum without noise, each clipped to the range.
    """

    noise_multiplier: float
    size: int
    value: float
    records: int
    total: float

    def without_noise(self) -> tuple[float, ...]:
        """Returns what it would be without noise: as a mean, in per cent, and as a sum."""
        means = (self.total / self.size, self.total / max(1, self.records))
        return (*means, *(100.0 * mean for mean in means), self.total)


@contextmanager
def watching_scores(scores: list[NoisyScore]) -> Iterator[None]:
    """Notes the noisy scores that are computed meanwhile.

    Args:
        scores: Each is put in here.
    """
    original = scoring.private_mean

    @functools.wraps(original)
    def noting(*arguments: Any, **settings: Any) -> float:
        value = original(*arguments, **settings)
        # The original has accepted them, and taken what is no number as one end of the range.
        values = np.asarray(settings.get("values", *arguments[:1]), dtype=np.float64)
        low, high = settings["lower"], settings["upper"]
        end = high if settings.get("nan_as") == "upper" else low
        clipped = np.clip(np.where(np.isnan(values), end, values), low, high)
        scores.append(
            NoisyScore(
                float(settings["noise_multiplier"]),
                int(settings["size"]),
                value,
                len(values),
                math.fsum(clipped),
            )
        )
        return value

    _put(noting, in_place_of=original)
    try:
        yield
    finally:
        _put(original, in_place_of=noting)


def _put(function: Any, in_place_of: Any) -> None:
    """Replaces a function in every module that has it by its name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get("private_mean") is in_place_of:
            names["private_mean"] = function


class PaidScores(NamedTuple):
    """What an event pays for beside its DP-SGD training.

    Attributes:
        precision: Sum of 1/s^2 over Gaussian answers of noise multiplier s.
        answers: How many answers of this kind there are.
        is_known: Whether no other part might pay for a score as well.
    """

    precision: float
    answers: int
    is_known: bool


def paid_scores(event: Any, accounted: int = 0) -> PaidScores:
    """Returns what an event pays for beside its training.

    Args:
        event: Of one run.
        accounted: How many of its (epsilon, delta) parts are known to be of trainings.
    """
    if isinstance(event, WorstCaseDpEvent):
        return max((paid_scores(part, accounted) for part in event.events), key=_most)
    parts = list(_leaves(event, 1))
    opaque = sum(count for part, count in parts if _precision(part) is None)
    approximate = sum(count for part, count in parts if isinstance(part, ApproximateDpEvent))
    precisions = [(p, count) for part, count in parts if (p := _precision(part))]
    return PaidScores(
        math.fsum(p * count for p, count in precisions),
        sum(count for _, count in precisions),
        opaque <= min(approximate, accounted),
    )


def spent_precision(scores: list[NoisyScore]) -> float:
    """Returns the sum of 1/s^2 over scores of noise multiplier s."""
    return math.fsum(score.noise_multiplier**-2 for score in scores)


def _most(paid: PaidScores) -> tuple[bool, float]:
    return not paid.is_known, paid.precision


def _leaves(event: Any, count: int) -> Iterator[tuple[Any, int]]:
    """Yields each part of an event with how often it is composed, and no DP-SGD training."""
    if isinstance(event, dp_event.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count)
    elif isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event, count * int(event.count))
    elif not isinstance(event, dp_event.PoissonSampledDpEvent) or not _is_a_step(event):
        yield event, count
    elif count == 1:
        yield event, count  # One step, or a score of a sample of the records: nobody knows.


def _is_a_step(event: dp_event.PoissonSampledDpEvent) -> bool:
    """Returns whether a part is a step of DP-SGD, which pays for no score."""
    return bool(trainings_in(dp_event.SelfComposedDpEvent(event, 1)))


def _precision(event: Any) -> float | None:
    """Returns the 1/s^2 that a part pays for; None if it might pay, and that cannot be read."""
    if isinstance(event, dp_event.GaussianDpEvent):
        return float(event.noise_multiplier) ** -2 if event.noise_multiplier else math.inf
    if isinstance(event, dp_event.ZCDpEvent):
        return 2.0 * float(event.rho)
    if isinstance(event, (dp_event.NoOpDpEvent, dp_event.LaplaceDpEvent)):
        return 0.0
    # Pure differential privacy never pays for a Gaussian answer.
    return 0.0 if isinstance(event, ApproximateDpEvent) and event.delta == 0 else None
