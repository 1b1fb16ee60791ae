"""Report-noisy-max on the same utilities: one epsilon for the whole choice."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optuna_dp import validation
from optuna_dp.propose_test.accounting import iteration_event
from optuna_dp.propose_test.utilities import Utilities

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class NoisyMaxPlan:
    """What is fixed before report-noisy-max looks at the data.

    Attributes:
        epsilon: Privacy of the whole choice.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))

    def event(self) -> dp_accounting.DpEvent:
        """The choice as an event: one ``epsilon``-DP mechanism."""
        return iteration_event(self.epsilon)


def noisy_max(utilities: Utilities, epsilon: float) -> int:
    """The candidate with the largest noisy utility, by OpenDP's ``make_noisy_max``.

    For pure DP OpenDP runs permute-and-flip (McKenna & Sheldon 2020, arXiv 2010.12603), which has
    the law of report-noisy-max with exponential noise. A record may raise one utility and lower
    another, so the metric is not monotonic and the scale is ``2Δ/epsilon``; half of it would be
    enough only if all utilities moved in the same direction.

    Args:
        utilities: Utilities of the candidates; their order does not matter.
        epsilon: Privacy of the choice.

    Guarantees:
        * ``epsilon``-DP with respect to a change of one partition, by OpenDP's privacy map.
        * Equal utilities are equally likely.
    """
    epsilon = validation.positive("epsilon", epsilon)
    return int(_measurement(utilities.sensitivity, epsilon)(utilities.totals.tolist()))


@functools.lru_cache(maxsize=64)
def _measurement(sensitivity: int, epsilon: float) -> Any:
    import opendp.prelude as dp  # start-up time

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    scale = 2 * sensitivity / epsilon
    # OpenDP's map rounds toward a larger epsilon: the scale grows until the claim holds there.
    while True:
        measurement: Any = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)
        if measurement.map(sensitivity) <= epsilon:
            return measurement
        scale = math.nextafter(scale, math.inf)
