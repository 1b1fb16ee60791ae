"""The plan of one kind of run, for studies whose runs are all alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from optuna_dp.core import validation
from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.runs.run import Run
from optuna_dp.runs.run_events import run_event, sgd_training

if TYPE_CHECKING:
    from dp_accounting import dp_event

SCORES = ("training", "disjoint", None)


@dataclass(frozen=True, kw_only=True)
class RunPlan(Entry):
    """One DP-SGD training with its score, as every run of a study makes it.

    For :class:`optuna_dp.RandTuneSampler` and :class:`optuna_dp.DPHyPOSampler`: their runs are all
    alike, and :func:`optuna_dp.start_run` gives this to each. The study then knows what a run
    costs and what it may do.

    Attributes:
        records: The public number of records that are trained on, at least 1.
        batch_size: Expected number of records in a batch; positive, at most ``records``.
        steps: Number of noisy steps, at least 1.
        noise_multiplier: Noise of one step over the clipping norm; positive.
        score_noise_multiplier: Noise of the score's sum, in contributions of one record; needed
            unless ``score`` is None.
        score: "training": the score is computed on the training records; "disjoint": on private
            records that are never trained on; None: on public records, without noise.
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna_dp as odp
        >>> run = odp.RunPlan(
        ...     records=20_000, batch_size=256, steps=150, noise_multiplier=2.0,
        ...     score_noise_multiplier=20.0,
        ... )
        >>> sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=5), run=run)
        >>> round(odp.selection_guarantee(run.event, odp.Geometric(mean=5)).epsilon(1e-5), 2) < 2
        True
    """

    described_as: ClassVar[str] = "The entry of a run's plan"

    records: int
    batch_size: float
    steps: int
    noise_multiplier: float
    score_noise_multiplier: float | None = field(default=None, metadata=stored(optional=True))
    score: str | None = "training"
    neighboring_relation: str = "add_or_remove_one"

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        # As plain numbers of one type each: they stand in plans, which workers compare.
        set_field(self, "records", validation.whole("records", self.records, 1))
        set_field(self, "steps", validation.whole("steps", self.steps, 1))
        noise = validation.positive("noise_multiplier", self.noise_multiplier)
        set_field(self, "noise_multiplier", noise)
        set_field(self, "batch_size", validation.positive("batch_size", self.batch_size))
        if self.batch_size > self.records:
            raise InvalidArgumentError(
                "batch_size", self.batch_size, allowed=f"it must be at most records={self.records}"
            )
        if self.score not in SCORES:
            raise InvalidArgumentError(
                "score",
                self.score,
                allowed="it must be 'training', 'disjoint' or None (public records)",
            )
        if (self.score is None) != (self.score_noise_multiplier is None):
            raise InvalidArgumentError(
                "score_noise_multiplier",
                self.score_noise_multiplier,
                problem="a score on private records needs noise, and one on public records has "
                "none",
                fix="Give score_noise_multiplier=, for example 20.0, or score=None.",
            )
        if self.score_noise_multiplier is not None:
            noise = validation.positive("score_noise_multiplier", self.score_noise_multiplier)
            set_field(self, "score_noise_multiplier", noise)
        if self.neighboring_relation not in ("add_or_remove_one", "replace_one"):
            raise InvalidArgumentError(
                "neighboring_relation",
                self.neighboring_relation,
                allowed="it must be 'add_or_remove_one' or 'replace_one'",
            )
        if self.score == "disjoint" and self.neighboring_relation == "replace_one":
            raise InvalidArgumentError(
                "score",
                self.score,
                problem="replace_one does not allow it: one replacement may change both parts "
                "of the data",
                fix="Plan with score='training', which charges for both, or with "
                "add_or_remove_one.",
            )

    @property
    def sample_rate(self) -> float:
        """Chance of a record to join a step."""
        return self.batch_size / self.records

    @property
    def event(self) -> dp_event.DpEvent:
        """What one run costs, its score included."""
        return self.run.event

    @cached_property
    def run(self) -> Run:
        """The numbers of the run; :func:`optuna_dp.start_run` gives them to a trial."""
        training = sgd_training(self.noise_multiplier, self.sample_rate, self.steps)
        event: dp_event.DpEvent = run_event(training, self.score_noise_multiplier, self.score)
        return Run(
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            sample_rate=self.sample_rate,
            score_noise_multiplier=self.score_noise_multiplier,
            batch_size=self.batch_size,
            event=event,
            training=training,
            is_pilot=False,
            rung=0,
            records=self.records,
            scored_on="public" if self.score is None else self.score,
            neighboring_relation=self.neighboring_relation,
            is_independent=True,
        )
