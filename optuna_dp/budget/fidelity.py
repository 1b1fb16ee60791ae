"""What one run of a budget may spend, and what that costs (``docs/explanation/budget.md``)."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.budget.learning_rate import NOISE_PER_WEIGHT, Optimizer, learning_rate
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dp_accounting import dp_event


@dataclass(frozen=True)
class Fidelity:
    """What one run may spend: its noise, its length, and the noise of its score.

    Attributes:
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps, at least 1.
        sample_rate: Chance of a record, of the run's sample if it has one, to join a step; None
            if the plan was made from ``run``.
        score_noise_multiplier: For :func:`optuna_dp.scoring.private_accuracy` and the like; None
            if no score on private records is paid for.
        batch_size: Expected number of records in a batch, the same for all runs of a plan; None
            if the plan was made from ``run``.
        event: What the run costs, its score included.
        is_pilot: Whether it is a pilot; the last run and spare ones are not.
        rung: The rung of a pilot, from 0; of the last run, the number of rungs.
        sample: Chance of a record to join the secret sample that the run trains and is scored on,
            see :meth:`draw_sample`; None if it runs on everything.
        seal: Of a plan that was made from ``run``, the digest of the numbers and the event that
            it made of them (:func:`seal_of`); None for DP-SGD, whose event is made again.
    """

    noise_multiplier: float
    steps: int
    sample_rate: float | None
    score_noise_multiplier: float | None
    batch_size: float | None
    event: dp_event.DpEvent = field(repr=False, hash=False)
    is_pilot: bool
    rung: int
    sample: float | None = None
    seal: str | None = field(default=None, repr=False)

    def learning_rate(
        self,
        optimizer: Optimizer = "sgd",
        *,
        clipping_norm: float = 1.0,
        momentum: float = 0.9,
        noise_per_weight: float = NOISE_PER_WEIGHT,
    ) -> float:
        """Returns the rate at which this run's noise of each weight adds up to a given size.

        Pilots and the last run differ in noise and in length, so each has a rate of its own. What
        they share is ``noise_per_weight``: that is the number to search for, if any. It is
        :func:`optuna_dp.learning_rate` with the noise, steps and batch of this run.

        Args:
            optimizer: "sgd", "momentum", "adam" or "adamw".
            clipping_norm: Largest norm of one record's gradient; positive.
            momentum: In [0, 1); for "momentum" only.
            noise_per_weight: Standard deviation of the noise that one weight has at the end.

        Raises:
            InvalidArgumentError: If an argument is not allowed, or the plan was made from ``run``
                and does not know the size of a batch.

        Example:
            >>> import optuna_dp as odp
            >>> plan = odp.plan_budget(epsilon=3.0, records=20_000, batch_size=256, epochs=10)
            >>> plan.pilot.learning_rate() < plan.final.learning_rate()
            True
            >>> plan.pilot.learning_rate("adam") == plan.final.learning_rate("adam")
            True
        """
        if self.batch_size is None:
            raise InvalidArgumentError(
                "batch_size",
                None,
                "a plan that was made from a function does not know the size of a batch",
                "Call optuna_dp.learning_rate(noise_multiplier=run.noise_multiplier, "
                "steps=run.steps, batch_size=...) with the number that sums are divided by.",
            )
        return learning_rate(
            optimizer,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            batch_size=self.batch_size,
            clipping_norm=clipping_norm,
            momentum=momentum,
            noise_per_weight=noise_per_weight,
        )

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
    seal: str | None = None


def seal_of(run: PaidRuns | Fidelity) -> str:
    """Returns a digest of what a run may spend and of the event that stands for it.

    What a caller's function makes of noise and steps is not known later, so neither may be changed
    without the other.
    """
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.event_json import canonical_key

    noises = [run.noise_multiplier, run.score_noise_multiplier, run.sample]
    numbers = [None if value is None else float(value) for value in noises]
    text = f"{numbers!r} {int(run.steps)} {canonical_key(run.event)}"
    return hashlib.sha256(text.encode()).hexdigest()


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
