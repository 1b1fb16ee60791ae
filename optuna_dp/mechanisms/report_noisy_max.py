"""Report-noisy-max on the same utilities: one epsilon for the whole choice, of two noises."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms.choice_plan import ChoicePlan, ErrorBound
from optuna_dp.mechanisms.utility_values import Utilities

if TYPE_CHECKING:
    import dp_accounting


Noise = Literal["exponential", "gumbel"]
NOISES: tuple[Noise, ...] = get_args(Noise)


@dataclass(frozen=True)
class NoisyMaxPlan(ChoicePlan):
    """What is fixed before report-noisy-max looks at the data.

    Attributes:
        epsilon: Privacy of the whole choice.
        noise: ``"exponential"`` (permute-and-flip) or ``"gumbel"`` (the exponential mechanism).
    """

    described_as: ClassVar[str] = "The entry of report-noisy-max in the study's plan"

    epsilon: float
    noise: Noise = "exponential"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        if self.noise not in NOISES:
            raise InvalidArgumentError(
                "noise", self.noise, allowed=f"it must be one of {', '.join(NOISES)}"
            )

    def event(self) -> dp_accounting.DpEvent:
        """Returns an ``epsilon``-DP mechanism, of bounded range with Gumbel noise."""
        from optuna_dp.accounting.kinds.approximate import pure_dp  # start-up time
        from optuna_dp.accounting.kinds.bounded_range import bounded_range  # start-up time

        return bounded_range(self.epsilon) if self.noise == "gumbel" else pure_dp(self.epsilon)

    def answers(self, utilities: Utilities) -> tuple[int | None, ...]:
        """See :class:`ChoicePlan`; one answer, which is the choice."""
        return (noisy_max(utilities, self.epsilon, self.noise),)

    def error(self, n_candidates: int, beta: float = 0.05) -> ErrorBound:
        """See :class:`ChoicePlan`.

        ``2 ln(|S|/beta) / (k epsilon)``: the noise is exponential with mean ``2/(k epsilon)``,
        never negative, and the loss is at most the largest of them.
        """
        return ErrorBound.of_noise(2 * math.log(n_candidates / beta) / self.epsilon)

    def total_epsilon(self, delta: float) -> float:
        """See :class:`ChoicePlan`; it needs no delta."""
        return self.epsilon

    def words(self) -> str:
        """See :class:`ChoicePlan`."""
        words = f"report-noisy-max, once: {self.epsilon:g}-DP"
        if self.noise == "gumbel":
            words += (
                f", with Gumbel noise: an exponential mechanism of range {self.epsilon:g}, which "
                "costs less together with a training"
            )
        return words


def better_noise(epsilon: float, training: dp_accounting.DpEvent) -> Noise:
    """Returns the noise for a choice that a training follows: what makes both cheaper, if by 1 %.

    Of the same epsilon, exponential noise chooses better and Gumbel noise composes better. The
    two compositions are compared at delta = 1e-5.
    """
    from optuna_dp.accounting.events import compose  # start-up time
    from optuna_dp.accounting.guarantee import Guarantee  # start-up time

    costs = {
        noise: Guarantee(compose(NoisyMaxPlan(epsilon, noise).event(), training)).epsilon(1e-5)
        for noise in NOISES
    }
    return "gumbel" if costs["gumbel"] < 0.99 * costs["exponential"] else "exponential"


def noisy_max(utilities: Utilities, epsilon: float, noise: Noise = "exponential") -> int:
    """The candidate with the largest noisy utility, by OpenDP's ``make_noisy_max``.

    With exponential noise OpenDP runs permute-and-flip (McKenna & Sheldon 2020, arXiv 2010.12603),
    which has the law of report-noisy-max with that noise; with Gumbel noise it is the exponential
    mechanism, whose losses have bounded range (``docs/explanation/bounded-range.md``). A record
    may raise one utility and lower another, so the metric is not monotonic and the scale is
    ``2Δ/epsilon``; half of it would be enough only if all utilities moved in the same direction.

    Args:
        utilities: Utilities of the candidates; their order does not matter.
        epsilon: Privacy of the choice.
        noise: ``"exponential"`` or ``"gumbel"``.

    Guarantees:
        * ``epsilon``-DP with respect to a change of one partition, by OpenDP's privacy map; with
          Gumbel noise of range ``epsilon``, by its map to zCDP, ``range² / 8``.
        * Equal utilities are equally likely.
    """
    plan = NoisyMaxPlan(epsilon, noise)
    return int(measurement(utilities.sensitivity, plan)(utilities.totals.tolist()))


@functools.lru_cache(maxsize=64)
def measurement(sensitivity: int, plan: NoisyMaxPlan) -> Any:
    """Returns OpenDP's measurement of the candidate with the largest noisy sum."""
    import opendp.prelude as dp  # start-up time

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    measure, bound = dp.max_divergence(), plan.epsilon
    if plan.noise == "gumbel":
        measure, bound = dp.zero_concentrated_divergence(), plan.epsilon**2 / 8.0
    scale = 2 * sensitivity / plan.epsilon
    # OpenDP's map rounds toward a larger epsilon: the scale grows until the claim holds there.
    while True:
        measurement: Any = dp.m.make_noisy_max(*space, measure, scale=scale)
        if measurement.map(sensitivity) <= bound:
            return measurement
        scale = math.nextafter(scale, math.inf)
