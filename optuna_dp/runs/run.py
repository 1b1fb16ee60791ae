"""The numbers of one private training: its noise, its length, its batch, and its score's noise.

A :class:`Run` is either a part of a plan, and then numbers only, or it was given to a trial
by :func:`optuna_dp.start_run`. Only one of a trial can train and score, because what a run does is
recorded in its trial.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy.typing as npt

from optuna_dp.errors import InvalidArgumentError, PlanError, Text
from optuna_dp.runs.run_endings import AccountantReading, check_at_end, is_checked_at_end
from optuna_dp.runs.spending import costs_no_more, took_fewer_steps
from optuna_dp.runs.trial_notes import BY_RUN_SCORE, claim, claims, note, noted, stored_trial
from optuna_dp.study.entries import ASKED, SCORES, SPENT, TRAININGS
from optuna_dp.study.trials import refuse_constraints
from optuna_dp.training.learning_rate import NOISE_PER_WEIGHT, Optimizer, learning_rate
from optuna_dp.training.ranks import ALONE, Ranks
from optuna_dp.training.schedules import CONSTANT, Schedule

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import Trial

_logger = logging.getLogger("optuna_dp")
# A score on fewer or more records than planned, by these factors, is no score of all records.
LEAST_SHARE_OF_RECORDS, LARGEST_SHARE_OF_RECORDS = 0.8, 1.25


@dataclass(frozen=True)
class SgdRun:
    """What one run of DP-SGD may spend, if this package draws its batches.

    Attributes:
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps.
        sample_rate: Chance of a record to join a step.
        batch_size: Expected number of records in a batch.
        records: The public number of records that the plan was made for.
    """

    noise_multiplier: float
    steps: int
    sample_rate: float
    batch_size: float
    records: float


@dataclass(frozen=True)
class Run:
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
        training: What the training may cost, without the score.
        is_pilot: Whether it is a pilot; the last run and spare ones are not.
        rung: The rung of a pilot, from 0; of the last run, the number of rungs.
        records: The public number of records that the plan was made for; None if it was made from
            ``run``.
        scored_on: "training" or "disjoint": private records, with noise; "public": public ones,
            without; None if no score of this run is charged for.
        neighboring_relation: The plan's.
        is_independent: Whether the run must know nothing of the other runs of its study, as in a
            private selection. In a budget all runs are paid for, and may.
        trial: The trial that was given this, by :func:`optuna_dp.start_run`; None of a plan's
            numbers, which cannot train or score.
        name: What the trial's run is in the words of its plan, such as "Pilot 2 of 4"; empty where
            the number of runs is secret.
        ranks: The processes that make the run together (:func:`optuna_dp.distributed.
            optimize_ranks`); by default this one alone.
    """

    noise_multiplier: float
    steps: int
    sample_rate: float | None
    score_noise_multiplier: float | None
    batch_size: float | None
    event: dp_event.DpEvent = field(repr=False, hash=False)
    training: dp_event.DpEvent = field(repr=False, hash=False)
    is_pilot: bool
    rung: int
    records: float | None = None
    scored_on: str | None = None
    neighboring_relation: str = "add_or_remove_one"
    is_independent: bool = False
    trial: Trial | None = field(default=None, repr=False, compare=False)
    name: str = field(default="", repr=False, compare=False)
    ranks: Ranks = field(default=ALONE, repr=False, compare=False)

    @property
    def sgd(self) -> SgdRun | None:
        """The numbers by which batches are drawn; None if the plan was made from ``run``."""
        if self.sample_rate is None or self.batch_size is None or self.records is None:
            return None
        return SgdRun(
            self.noise_multiplier, self.steps, self.sample_rate, self.batch_size, self.records
        )

    def own_trial(self) -> Trial:
        """Returns the trial that was given this run, if it may train and score now.

        Raises:
            PlanError: If no trial was given these numbers (they are a plan's), the trial has
                ended, or it began in another process; or this process is not rank 0.
            InvalidArgumentError: If the trial has constraints.
        """
        if not self.ranks.leads:
            raise PlanError(
                "This process is not rank 0, and only rank 0 has the study. Several ranks train "
                "by odp.train; what else touches the records is for one process."
            )
        if self.trial is None:
            raise PlanError(
                "These are the numbers of a plan, and no trial was given them. In the "
                "objective, call run = odp.start_run(trial), and train and score with that run."
            )
        frozen_trial = stored_trial(self.trial)
        if frozen_trial.state.is_finished():
            raise PlanError(
                f"Trial {frozen_trial.number} has ended. Its run may neither train nor score any "
                "more. Call odp.start_run(trial) in each trial."
            )
        refuse_constraints(frozen_trial)
        entry = noted(frozen_trial, ASKED) or {}
        if entry.get("process") not in (None, os.getpid()):
            raise PlanError(
                f"Trial {frozen_trial.number} began in another process, and its study is "
                "in memory: what is trained here would not be seen there. For several processes, "
                "give the study a storage that they share, such as JournalStorage or a database."
            )
        return self.trial

    def spent(self, *what: object) -> None:
        """Notes what the training's own accountant says was spent; refuses more than is planned.

        For a training loop of one's own: once in each run, after the training and before the
        score is returned::

            run.spent(engine)  # Opacus; or an accountant of another library

        When the trial ends, accountants are read once more. If one has grown since, the training
        went on, and the run is refused.

        After :func:`optuna_dp.train` there is nothing to record.

        Args:
            what: All that was spent on this run's training, one after another: Opacus engines
                or accountants, dp-accounting accountants, accountants of diffprivlib, or objects
                with an event as ``dp_event`` (JAX Privacy's plans). Without the score. An event
                is allowed as well, but nothing recorded it: the training is *not checked* then,
                and the release asks for a reason. Not ``run.training``, which is what the run may
                spend and not what was spent.

        Raises:
            PlanError: If it is more than this run may spend (:attr:`training`), or was recorded
                before, or the trial has trained otherwise, or no trial was given this run. A run
                that spent more can neither be released nor shown.
            InvalidArgumentError: If it is nothing of the kind, ``run.training`` itself, or an
                accountant without a record.
            UnsupportedEventError: If no accountant supports it.
        """
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.event_json import event_to_json
        from optuna_dp.accounting.event_words import in_words

        trial = self.own_trial()
        if any(source is allowed for source in what for allowed in (self.training, self.event)):
            raise InvalidArgumentError(
                "what",
                Text("the event of the plan itself"),
                problem="that is what this run may spend, so to compare it shows nothing",
                fix="Pass the training's accountant. If it has none, do not call run.spent, and "
                "say at release why the plan was kept: release(study, vouched='...').",
            )
        frozen_trial = stored_trial(trial)
        if is_checked_at_end(trial, what):
            return  # Of odp.opacus.make_private, which records it by itself, or handed in before.
        if trainings := claims(frozen_trial, TRAININGS):
            by = next(iter(trainings.values())).get("by")
            raise PlanError(
                f"Trial {trial.number} has trained by {by}, which records what it spent. "
                "Take run.spent away. If the trial has trained twice, it cannot be released."
            )
        if noted(frozen_trial, SPENT) is not None:
            raise PlanError(
                f"Trial {trial.number} called run.spent twice. Call it once, with "
                "everything that was spent: run.spent(first, second)."
            )
        reading = AccountantReading(trial, what)
        event = reading.first
        note(trial, SPENT, event=event_to_json(event))
        check_at_end(trial, reading)
        if not costs_no_more(event, self.training, self.neighboring_relation):
            raise PlanError(
                f"This run spent more than the plan allows. Spent: {in_words(event)}. Allowed: "
                f"{in_words(self.training)}. Do not use its output. Train with the noise, the "
                "sampling rate and the steps of odp.start_run(trial)."
            )
        if took_fewer_steps(event, self.training):
            _logger.warning(
                "A training took fewer steps than its run may. If scores without noise decided "
                "when it stopped (early stopping), no guarantee covers it: take all run.steps "
                "steps."
            )

    def score(
        self, correct: npt.ArrayLike, *, size: int | None = None, vouched: str | None = None
    ) -> float:
        """Returns the mean of one number for each record, with the noise of the plan.

        For loops of one's own; :func:`optuna_dp.train` computes its score by itself. It is
        :func:`optuna_dp.scoring.private_mean` in [0, 1] with this run's numbers. Once in each run:
        the plan charges for one score.

        Args:
            correct: Truth values, or numbers in [0, 1], shape (n, ...): the first axis is that of
                the records. Several values of one record, such as its tokens or pixels, are
                averaged first, so that a record counts once.
            size: The public number of records that are scored, fixed beforehand. By default those
                that the plan was made for, if scores are computed on the training records.
            vouched: How you know that the score costs what the plan charges, although the number
                of scored records is far from the planned one. The statement prints it.

        Returns:
            The noisy mean. The exact one, if the plan says that scores are computed on public
            records. 0.0, if it charges for no score of this run: nothing is computed then.

        Raises:
            PlanError: If this run had its score already, or no trial was given this run.
            InvalidArgumentError: If ``correct`` holds anything else, if ``size`` is missing, or if
                the number of records is far from the planned one and nobody vouches for it.
        """
        from optuna_dp.scoring import mean_by_record, private_mean  # start-up time

        values = mean_by_record("correct", correct)
        if self.scored_on == "public":
            return float(values.mean()) if values.size else 0.0
        if self.score_noise_multiplier is None:
            return 0.0
        trial = self.own_trial()
        if vouched is not None and (not isinstance(vouched, str) or not vouched.strip()):
            raise InvalidArgumentError(
                "vouched", vouched, allowed="it must be a text that says why"
            )
        divisor = self._scored_records(len(values), size, vouched)
        claim_fields: dict[str, object] = {"noise_multiplier": self.score_noise_multiplier}
        if vouched is not None:
            claim_fields["vouched"] = vouched
        if self.scored_on == "disjoint" or self.records is None:
            # The plan does not say it. Disjoint records are protected, too: they are counted.
            claim_fields["size"] = divisor
        # Before the score exists, so that none is computed twice.
        score_claim = claim(trial, SCORES, by=BY_RUN_SCORE, **claim_fields)
        score = private_mean(
            values,
            lower=0.0,
            upper=1.0,
            size=divisor,
            noise_multiplier=self.score_noise_multiplier,
        )
        score_claim.finish(value=score)
        return score

    def _scored_records(self, scored: int, size: int | None, vouched: str | None) -> int:
        """Returns the public number that a sum of scores is divided by.

        Args:
            scored: How many records the caller has values of.
            size: The public number that the caller gave; None if none.
            vouched: The caller's words for numbers that do not fit.
        """
        planned = None
        if self.scored_on == "training" and self.records is not None:
            planned = max(1, round(self.records))
        if size is None and planned is None:
            raise InvalidArgumentError(
                "size",
                size,
                problem="the plan does not know how many records are scored",
                fix="Give the public number of validation records, run.score(..., size=...), not "
                "len(correct).",
            )
        divisor = planned if size is None else size
        assert divisor is not None
        pairs: list[tuple[str, object, int, int]] = [
            ("correct", Text(f"{scored:,} records"), scored, divisor)
        ]
        if size is not None and planned is not None:
            pairs.append(("size", size, size, planned))
        for argument, described, number, public in pairs:
            if vouched is None and not (
                LEAST_SHARE_OF_RECORDS * public <= number <= LARGEST_SHARE_OF_RECORDS * public
            ):
                raise InvalidArgumentError(
                    argument,
                    described,
                    problem=f"scores are charged for one value of each of {public} records; "
                    "several values of one record count several times, and the mean of a few "
                    "records divided by the number of all is no accuracy",
                    fix="Pass an array whose first axis is that of the records, (n, ...), with "
                    "all records that the plan was made for. For validation records plan with "
                    "score='disjoint' and give size=. If the numbers are right all the same, say "
                    "why: run.score(..., vouched='...').",
                )
        return divisor

    def learning_rate(
        self,
        optimizer: Optimizer | str = "sgd",
        *,
        clipping_norm: float = 1.0,
        momentum: float = 0.9,
        noise_per_weight: float = NOISE_PER_WEIGHT,
        schedule: Schedule = CONSTANT,
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
            schedule: How the rate falls, and which of the last weights are averaged; by default
                the rate is constant.

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
                problem="a plan made with plan_budget(run=...) does not know the batch size",
                fix="Call optuna_dp.learning_rate(noise_multiplier=run.noise_multiplier, "
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
            schedule=schedule,
        )
