"""A kind of run of a study, and what its event pays for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from optuna_dp.testing.stated_training import alternatives, answers_in
from optuna_dp.testing.watched_libraries import Spending


@dataclass(frozen=True)
class Stage:
    """A kind of run of a study.

    Attributes:
        name: How a person calls it.
        number: The number of its trial.
        event: What it costs; None if not stated.
    """

    name: str
    number: int
    event: Any

    @property
    def steps(self) -> int:
        """The smallest number of noisy steps that the event states; 0 if it states none."""
        return min((training.steps for training in alternatives(self.event)), default=0)

    @property
    def answers_beside_score(self) -> int:
        """For how many noisy answers the event pays beside the score."""
        return 0 if self.event is None else max(0, answers_in(self.event) - 1)

    def may_pay_for_statistics(
        self, spendings: Sequence[Spending], scores: Literal["private", "public", "none"]
    ) -> bool:
        """Returns whether the event may charge for more than the seen trainings and the score.

        Args:
            spendings: The trainings of other libraries that were seen in a run.
            scores: What the scores are computed on.
        """
        if self.event is None:
            return True
        return answers_in(self.event) > len(spendings) + (scores == "private")
