"""The kinds of runs that touch the records, with the numbers that a reader asks for first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.numbers_shown import finite
from optuna_dp.runs.run import Run

if TYPE_CHECKING:
    from dp_accounting import dp_event

    from optuna_dp.accounting.guarantee import Guarantee


@dataclass(frozen=True, kw_only=True)
class RunKind(Entry):
    """One kind of run, as the plan charges for it.

    Attributes:
        name: What the runs are called.
        count: How many are charged for; None where their number is secret.
        does: What one of them does with the records, in words.
        epsilon: What one of them costs by itself at the statement's delta; None: no finite number.
        noise_multiplier: Noise of a step over the clipping norm; None, as the next ones, where the
            plan knows the runs by their event only.
        batch_size: Expected number of records in a batch.
        records: The public number of records that it is drawn from.
        steps: Number of noisy steps.
        score_noise_multiplier: Noise of the score's sum, in contributions of one record; None
            where no score is charged for.
        score_deviation: Standard deviation of the noise of the score itself, which is a mean of
            numbers from 0 to 1; None where the number of scored records is not known.
    """

    described_as: ClassVar[str] = "A kind of run"

    name: str
    count: int | None
    does: str
    epsilon: float | None
    noise_multiplier: float | None = field(default=None, metadata=stored(optional=True))
    batch_size: float | None = field(default=None, metadata=stored(optional=True))
    records: float | None = field(default=None, metadata=stored(optional=True))
    steps: int | None = field(default=None, metadata=stored(optional=True))
    score_noise_multiplier: float | None = field(default=None, metadata=stored(optional=True))
    score_deviation: float | None = field(default=None, metadata=stored(optional=True))

    @classmethod
    def of_event(
        cls,
        name: str,
        event: dp_event.DpEvent,
        guarantee: Guarantee,
        delta: float,
        *,
        count: int | None,
    ) -> RunKind:
        """Returns what is known of runs by their event; ``guarantee`` has the relation."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.event_words import in_words
        from optuna_dp.accounting.guarantee import Guarantee

        epsilon = finite(Guarantee(event, guarantee.neighboring_relation).epsilon(delta))
        return cls(name=name, count=count, does=in_words(event), epsilon=epsilon)

    @classmethod
    def of(
        cls, name: str, run: Run, delta: float, *, count: int | None, scored_records: int | None
    ) -> RunKind:
        """Returns what a plan says of one kind of run.

        Args:
            name: What the runs are called.
            run: What one of them may spend.
            delta: At which its epsilon is given.
            count: How many are charged for; None where their number is secret.
            scored_records: How many disjoint private records are scored, if it is known.
        """
        from optuna_dp.accounting.guarantee import Guarantee  # Start-up time.

        guarantee = Guarantee(run.event, run.neighboring_relation)
        noise = run.score_noise_multiplier
        size = scored_records if run.records is None else run.records
        size = size if run.scored_on == "training" else scored_records
        kind = replace(
            cls.of_event(name, run.event, guarantee, delta, count=count),
            score_noise_multiplier=noise,
            score_deviation=None if noise is None or not size else noise / (2.0 * size),
        )
        if run.sample_rate is None:
            return kind
        return replace(
            kind,
            noise_multiplier=run.noise_multiplier,
            batch_size=run.batch_size,
            records=run.records,
            steps=run.steps,
        )
