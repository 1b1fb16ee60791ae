"""Runs of one kind, as a budget plan charges for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from optuna_dp import validation
from optuna_dp.evidence.run_record import STORED_EVENT
from optuna_dp.json_records import Record


@dataclass(frozen=True)
class PaidRuns(Record):
    """So many runs of one kind, as they are charged for.

    Attributes:
        count: How many.
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps.
        score_noise_multiplier: Noise of the score; None if none is charged for.
        event: What each costs, its score included.
    """

    count: int
    noise_multiplier: float
    steps: int
    score_noise_multiplier: float | None
    event: Any = field(metadata=STORED_EVENT, hash=False)

    def __post_init__(self) -> None:
        validation.whole("count", self.count, 1)
        validation.whole("steps", self.steps, 1)
        validation.positive("noise_multiplier", self.noise_multiplier)
        if self.score_noise_multiplier is not None:
            validation.positive("score_noise_multiplier", self.score_noise_multiplier)
