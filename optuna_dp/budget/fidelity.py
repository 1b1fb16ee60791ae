"""What one run of a budget may spend, and what that costs (``docs/explanation/budget.md``)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp import validation

if TYPE_CHECKING:
    from dp_accounting import dp_event


@dataclass(frozen=True)
class Fidelity:
    """What one run may spend: its noise, its length, and the noise of its score.

    ``learning_rate_factor`` is what a pilot multiplies the searched learning rate by, so that the
    rate that suits the pilot's noise answers for the one that suits the last run's. In DP-SGD the
    weights move by (rate * steps * gradient) against noise of (rate * noise * sqrt(steps)), and
    the best rate keeps the latter about constant. So the factor is ``noise * sqrt(steps)`` of the
    last run over that of the pilot: below 1 for a noisy pilot, 1 for the last run. It is for SGD,
    with or without momentum. **Adam** divides by its own second moment, in which the noise
    dominates, so its best rate hardly moves with the noise: leave the factor out (and for shorter
    pilots multiply the rate by ``sqrt(final.steps / run.steps)``).

    Attributes:
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps, at least 1.
        sample_rate: Chance of a record, of the run's sample if it has one, to join a step; None
            if the plan was made from ``run``.
        score_noise_multiplier: For :func:`optuna_dp.scoring.private_accuracy` and the like; None
            if no score on private records is paid for.
        learning_rate_factor: See above; 1 for the last run.
        event: What the run costs, its score included.
        is_pilot: Whether it is a pilot; the last run and spare ones are not.
        rung: The rung of a pilot, from 0; of the last run, the number of rungs.
        sample: Chance of a record to join the secret sample that the run trains and is scored on,
            see :meth:`draw_sample`; None if it runs on everything.
    """

    noise_multiplier: float
    steps: int
    sample_rate: float | None
    score_noise_multiplier: float | None
    learning_rate_factor: float
    event: dp_event.DpEvent = field(repr=False, hash=False)
    is_pilot: bool
    rung: int
    sample: float | None = None

    def draw_sample(self, records: int) -> npt.NDArray[np.intp]:
        """Returns the rows that this run may touch: a fresh secret sample, or all of them.

        Once in each run, and for that run only: the plan pays for samples that are independent
        of each other. Who knows a sample knows whom the run did not protect by it, so it is not
        to be stored, shown or made from a seed; its size is a secret too.

        Args:
            records: Number of rows there are.

        Returns:
            Row numbers in ascending order, drawn from the operating system's randomness.

        Raises:
            InvalidArgumentError: If it is not a whole number from 0 on.

        Example:
            >>> import optuna_dp as odp
            >>> plan = odp.plan_budget(
            ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=4, sample=0.1
            ... )
            >>> 1_500 < len(plan.pilot.draw_sample(20_000)) < 2_500
            True
            >>> len(plan.final.draw_sample(20_000))
            20000
        """
        count = validation.whole("records", records)
        if self.sample is None:
            return np.arange(count)
        drawn = np.random.default_rng(secrets.randbits(256)).random(count)
        return np.flatnonzero(drawn < self.sample)


@dataclass(frozen=True)
class PaidRuns:
    """So many runs of one kind, as the planner and a record describe them."""

    count: int
    noise_multiplier: float
    steps: int
    score_noise_multiplier: float | None
    event: Any
    sample: float | None = None


def sgd_training(noise_multiplier: float, sample_rate: float, steps: int) -> Any:
    """Returns the event of a DP-SGD training."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.events import dp_sgd

    return dp_sgd(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)


def rate_within(sample: float | None, sample_rate: float) -> float:
    """Returns the rate at which a sample's records join a step that is as large as on all."""
    return sample_rate if sample is None else min(sample_rate / sample, 1.0)


def run_event(
    training: Any, score_noise: float | None, score: str | None, sample: float | None = None
) -> Any:
    """Returns what a training and its score cost together.

    A record is in the score's data set besides the training's ("training": both are paid), or it
    is in one of the two ("disjoint": the worse of them). Without noise no score is paid for. On a
    sample of the run's own, both are.
    """
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from dp_accounting import dp_event

    from optuna_dp.accounting.events import compose
    from optuna_dp.scoring import score_event

    event = training
    if score_noise is not None and score == "disjoint":
        # Lazy: only scores on disjoint records need it.
        from optuna_dp.accounting.kinds.worst_case import worst_case

        event = worst_case(training, score_event(score_noise))
    elif score_noise is not None:
        event = compose(training, score_event(score_noise))
    return event if sample is None else dp_event.PoissonSampledDpEvent(sample, event)
