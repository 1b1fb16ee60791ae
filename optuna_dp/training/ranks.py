"""The processes that make one training together, each of them a *rank*.

Each rank computes whole numbers for its share of a batch (:mod:`optuna_dp.training.exact_step`).
They add without error, so it does not matter how many ranks there are, or in which order their
sums are added. Rank 0 draws the batch, and draws the noise once, for the sum of all ranks.

Which rank computes a record is drawn for each record by itself. So it does not depend on the other
records, and the ranks may be processors of different kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from optuna_dp.core.arrays import FloatArray
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.learner import Learner
from optuna_dp.training.record_arrays import Array
from optuna_dp.training.records import Records

_Value = TypeVar("_Value")


class Ranks:
    """The ranks of a training: here a single one, this process.

    Attributes:
        number: This process, from 0.
        count: How many there are.
    """

    number = 0
    count = 1

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which has the study and shows what is to be seen."""
        return self.number == 0

    def shared(self, compute: Callable[[], _Value]) -> _Value:
        """Returns what rank 0 computes, or raises its error, in all ranks.

        Args:
            compute: Called in rank 0 only. Its value can be pickled.
        """
        return compute()

    def make_alike(self, learner: Learner, *records: Records) -> None:
        """Gives all ranks the model of rank 0, and refuses ranks with other records.

        Args:
            learner: The copy of the model; its optimizer has been made.
            records: The training's records, and others that are scored.

        Raises:
            InvalidArgumentError: In all ranks, if models or records differ.
        """

    def together(self) -> AbstractContextManager[None]:
        """Returns what surrounds the steps and the scores, which all ranks make together."""
        return nullcontext()

    def all_agree(self, is_so: bool) -> bool:
        """Returns whether something is so in all ranks."""
        return is_so

    def noisy_sum(
        self,
        learner: Learner,
        records: Records,
        draw: Callable[[], npt.NDArray[np.int64]],
        step: ExactStep,
    ) -> list[Array]:
        """Returns the sum of the clipped gradients of a batch, with noise.

        Args:
            learner: What computes gradients.
            records: The training's records.
            draw: Draws the indices of a batch; called in rank 0 only.
            step: What clips, adds, and adds noise.
        """
        return step.with_noise(learner.clipped_sum(records, draw(), step))

    def scores(self, learner: Learner, records: Records) -> FloatArray:
        """Returns a number in [0, 1] for each record, shape (n,); zeros but in rank 0.

        Args:
            learner: What computes scores.
            records: The records that are scored.
        """
        return learner.scores(records, np.arange(len(records)))


ALONE = Ranks()
