"""Runs of one kind, as a budget plan charges for them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from optuna_dp import validation
from optuna_dp.evidence.run_record import STORED_EVENT
from optuna_dp.json_records import Record, stored


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

    def sealed(self, score: str | None, neighboring_relation: str) -> PaidRuns:
        """Returns the same runs with their seal, for a plan with these two settings."""
        return replace(self, seal=seal_of(self, score, neighboring_relation))


def seal_of(runs: PaidRuns, score: str | None, neighboring_relation: str) -> str:
    """Returns a digest of all that decides what a run costs, and of the event that stands for it.

    What a caller's function makes of noise and steps is not known later, so none of these may be
    changed without the event.

    Args:
        runs: The runs.
        score: Whose records the plan's scores are computed on, as in the plan.
        neighboring_relation: The plan's.
    """
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.event_json import canonical_key

    noises = [runs.noise_multiplier, runs.score_noise_multiplier]
    numbers = [None if value is None else float(value) for value in noises]
    settings = [score, neighboring_relation]
    text = f"{numbers!r} {int(runs.steps)} {settings!r} {canonical_key(runs.event)}"
    return hashlib.sha256(text.encode()).hexdigest()
