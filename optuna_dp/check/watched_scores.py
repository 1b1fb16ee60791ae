"""The noisy scores that an objective computes, and how much noise its event pays for.

:func:`optuna_dp.scoring.private_mean` adds all noise of this package's scores, also that of
``private_accuracy``, ``run.score`` and ``odp.train``. A score of noise multiplier s costs 1/s^2
of Gaussian privacy: what several cost together is the sum, and so is what an event pays for.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from dp_accounting import dp_event

from optuna_dp import scoring
from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent
from optuna_dp.accounting.kinds.worst_case import WorstCaseDpEvent


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


def _put(function: Callable[..., float], in_place_of: Callable[..., float]) -> None:
    """Replaces a function in every module that has it by its name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get("private_mean") is in_place_of:
            names["private_mean"] = function


def spent_precision(scores: Sequence[NoisyScore]) -> float:
    """Returns the sum of 1/s^2 over scores of noise multiplier s."""
    return math.fsum(score.noise_multiplier**-2 for score in scores)


def paid_precision(event: dp_event.DpEvent) -> float:
    """Returns the sum of 1/s^2 over the scores that an event pays for.

    It is inf if a part may pay for a score and does not tell how much.

    Args:
        event: Of one run.
    """
    if isinstance(event, WorstCaseDpEvent):
        return max(paid_precision(part) for part in event.events)
    if isinstance(event, dp_event.ComposedDpEvent):
        return math.fsum(paid_precision(part) for part in event.events)
    if isinstance(event, dp_event.SelfComposedDpEvent):
        if isinstance(event.event, dp_event.PoissonSampledDpEvent):
            return 0.0  # the steps of a training
        return int(event.count) * paid_precision(event.event)
    if isinstance(event, dp_event.GaussianDpEvent):
        return float(event.noise_multiplier) ** -2 if event.noise_multiplier else math.inf
    if isinstance(event, dp_event.ZCDpEvent):
        return 2.0 * float(event.rho)
    if isinstance(event, dp_event.NoOpDpEvent | dp_event.LaplaceDpEvent):
        return 0.0
    # Pure differential privacy never pays for a Gaussian answer.
    is_pure = isinstance(event, ApproximateDpEvent) and event.delta == 0
    return 0.0 if is_pure else math.inf
