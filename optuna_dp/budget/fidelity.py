"""The noise, steps and cost of one run of a budget (``docs/explanation/budget.md``)."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.budget.learning_rate import NOISE_PER_WEIGHT, Optimizer, learning_rate
from optuna_dp.budget.spending import (
    SCORED,
    SPENT,
    costs_no_more,
    note,
    noted,
    spent_event,
    took_fewer_steps,
)
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.evidence.run_record import STORED_EVENT
from optuna_dp.json_records import Record, stored

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import FrozenTrial, Trial

_logger = logging.getLogger("optuna_dp")


@dataclass(frozen=True)
class Fidelity:
    """What one run may spend: its noise, its length, and the noise of its score.

    Attributes:
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps, at least 1.
        sample_rate: Chance of a record to join a step; None if the plan was made from ``run``.
        score_noise_multiplier: For :func:`optuna_dp.scoring.private_accuracy` and the like; None
            if no score on private records is charged for.
        batch_size: Expected number of records in a batch, the same for all runs of a plan; None
            if the plan was made from ``run``.
        event: What the run costs, its score included.
        is_pilot: Whether it is a pilot; the last run and spare ones are not.
        rung: The rung of a pilot, from 0; of the last run, the number of rungs.
        records: The public number of records that the plan was made for; None if it was made from
            ``run``.
        scored_on: "training" or "disjoint": private records, with noise; "public": public ones,
            without; None if no score of this run is charged for.
        neighboring_relation: The plan's.
        trial: The trial that was granted this, by :func:`optuna_dp.fidelity`.
    """

    noise_multiplier: float
    steps: int
    sample_rate: float | None
    score_noise_multiplier: float | None
    batch_size: float | None
    event: dp_event.DpEvent = field(repr=False, hash=False)
    is_pilot: bool
    rung: int
    records: float | None = None
    scored_on: str | None = None
    neighboring_relation: str = "add_or_remove_one"
    trial: Trial | None = field(default=None, repr=False, compare=False)

    @property
    def training(self) -> dp_event.DpEvent:
        """What the training may cost, without the score."""
        event: Any = self.event
        first = getattr(event, "events", [event])[0]
        noise, scored_on = self.score_noise_multiplier, self.scored_on
        return first if run_event(first, noise, scored_on) == event else event

    def spent(self, *what: Any) -> None:
        """Records what the training's own accountant says was spent; refuses more than granted.

        Once in each run, after the training and before the score is returned::

            run.spent(engine)  # Opacus; or a dp_accounting event or accountant

        Args:
            what: All that was spent on this run's training, one after another: dp-accounting
                events or accountants, Opacus engines or accountants, or objects with such an event
                as ``dp_event`` (JAX Privacy's plans). Without the score.

        Raises:
            PlanError: If it is more than this run may spend (:attr:`training`), or was recorded
                before. A run that spent more can neither be released nor shown.
            InvalidArgumentError: If it is nothing of the kind, or an accountant without a record.
            UnsupportedEventError: If no accountant supports it.
        """
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.event_json import event_to_json
        from optuna_dp.accounting.event_words import in_words
        from optuna_dp.accounting.events import compose

        event = compose(*map(spent_event, what))
        if self.trial is not None:
            if noted(self._now(), SPENT) is not None:
                raise PlanError(
                    f"Trial {self.trial.number} called run.spent twice. Call it once, with "
                    "everything that was spent: run.spent(first, second)."
                )
            note(self.trial, SPENT, event=event_to_json(event))
        if not costs_no_more(event, self.training, self.neighboring_relation):
            raise PlanError(
                f"This run spent more than the plan allows. Spent: {in_words(event)}. Allowed: "
                f"{in_words(self.training)}. Do not use its output. Train with the noise, the "
                "sampling rate and the steps of odp.fidelity(trial)."
            )
        if took_fewer_steps(event, self.training):
            _logger.warning(
                "A training took fewer steps than its run may. If scores without noise decided "
                "when it stopped (early stopping), no guarantee covers it: take all run.steps "
                "steps."
            )

    def score(self, correct: npt.ArrayLike, *, size: int | None = None) -> float:
        """Returns the share of correct predictions, with the noise that the plan charges for.

        It is :func:`optuna_dp.scoring.private_accuracy` with this run's numbers. Once in each run:
        the plan charges for one score.

        Args:
            correct: One truth value per scored record, shape (n,).
            size: The public number of records that are scored. By default those that the plan was
                made for, if scores are computed on the training records.

        Returns:
            The noisy share. The exact one, if the plan says that scores are computed on public
            records. 0.0, if it charges for no score of this run: nothing is computed then.

        Raises:
            PlanError: If this run had its score already.
            InvalidArgumentError: If ``correct`` holds anything else, or ``size`` is missing.
        """
        from optuna_dp.scoring import exact_accuracy, private_accuracy  # start-up time

        if self.scored_on == "public":
            return exact_accuracy(correct)
        if self.score_noise_multiplier is None:
            return 0.0
        if size is None and (self.records is None or self.scored_on != "training"):
            raise InvalidArgumentError(
                "size",
                size,
                "the plan does not know how many records are scored",
                "Give the public number of validation records, run.score(..., size=...), not "
                "len(correct).",
            )
        if size is None:
            assert self.records is not None
            size = max(1, round(self.records))
            _warn_of_other_records(np.asarray(correct).size, size)
        if self.trial is not None and noted(self._now(), SCORED) is not None:
            raise PlanError(
                f"Trial {self.trial.number} called run.score twice. The plan charges for one "
                "score per run: keep the first."
            )
        found = private_accuracy(correct, size=size, noise_multiplier=self.score_noise_multiplier)
        if self.trial is not None:
            note(self.trial, SCORED, value=found)
        return found

    def _now(self) -> FrozenTrial:
        assert self.trial is not None
        return self.trial.study._storage.get_trial(self.trial._trial_id)

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
            >>> plan = odp.plan_budget(
            ...     epsilon=3.0, records=20_000, batch_size=256, epochs=10, pilots=4
            ... )
            >>> plan.pilot.learning_rate() < plan.final.learning_rate()
            True
            >>> plan.pilot.learning_rate("adam") == plan.final.learning_rate("adam")
            True
        """
        if self.batch_size is None:
            raise InvalidArgumentError(
                "batch_size",
                None,
                "a plan made with plan_budget(run=...) does not know the batch size",
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


def _warn_of_other_records(scored: int, planned: int) -> None:
    """Logs, for the curator, that scores are computed on other records than those planned for."""
    if not 0.8 * planned <= scored <= 1.25 * planned:
        _logger.warning(
            "A score was computed on far fewer or far more records than the plan's %d training "
            "records. Score on all of these, or plan with score='disjoint' and give "
            "run.score(..., size=...) the public number of validation records.",
            planned,
        )


@dataclass(frozen=True)
class PaidRuns(Record):
    """So many runs of one kind, as they are charged for.

    Attributes:
        count: How many.
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps.
        score_noise_multiplier: Noise of the score; None if none is charged for.
        event: What each costs, its score included.
        seal: Of a plan that was made from ``run``, the digest of the numbers and the event that it
            made of them (:func:`seal_of`); None for DP-SGD, whose event is made again.
    """

    count: int
    noise_multiplier: float
    steps: int
    score_noise_multiplier: float | None
    event: Any = field(metadata=STORED_EVENT, hash=False)
    seal: str | None = field(default=None, metadata=stored(optional=True))

    def __post_init__(self) -> None:
        validation.whole("count", self.count, 1)
        validation.whole("steps", self.steps, 1)
        validation.positive("noise_multiplier", self.noise_multiplier)
        if self.score_noise_multiplier is not None:
            validation.positive("score_noise_multiplier", self.score_noise_multiplier)

    def sealed(self) -> PaidRuns:
        """Returns the same runs with their seal."""
        return replace(self, seal=seal_of(self))


def seal_of(run: PaidRuns) -> str:
    """Returns a digest of what a run may spend and of the event that stands for it.

    What a caller's function makes of noise and steps is not known later, so neither may be changed
    without the other.
    """
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.event_json import canonical_key

    noises = [run.noise_multiplier, run.score_noise_multiplier]
    numbers = [None if value is None else float(value) for value in noises]
    text = f"{numbers!r} {int(run.steps)} {canonical_key(run.event)}"
    return hashlib.sha256(text.encode()).hexdigest()


def sgd_training(noise_multiplier: float, sample_rate: float, steps: int) -> Any:
    """Returns the event of a DP-SGD training."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.events import dp_sgd

    return dp_sgd(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)


def run_event(training: Any, score_noise: float | None, score: str | None) -> Any:
    """Returns what a training and its score cost together.

    A record is in the score's data set besides the training's ("training": both are paid), or it
    is in one of the two ("disjoint": the worse of them). Without noise no score is paid for.
    """
    if score_noise is None:
        return training
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.events import compose
    from optuna_dp.scoring import score_event

    if score != "disjoint":
        return compose(training, score_event(score_noise))
    # Lazy: only scores on disjoint records need it.
    from optuna_dp.accounting.kinds.worst_case import worst_case

    return worst_case(training, score_event(score_noise))
