"""The values that the runs of a study have trained in this process.

A run that begins with the weights of an earlier one is not independent of it, and a private
selection would charge for one of them. Copies share no memory, but their numbers are the same: a
training adds noise to every weight, so equal weights come from the same training. Weights that a
training did not change, because its steps are smaller than their precision, are not of it.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Protocol

from optuna.storages import BaseStorage
from optuna.trial import Trial

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.optuna_internals import storage_of, study_id_of

# Of a model, its largest weights are enough to know it again.
_KEPT_OF_A_MODEL = 8
# What has fewer may be equal by chance: 32 numbers in half precision, 8 in double.
_FEWEST_BYTES = 64

_lock = threading.Lock()
# Digests by size in bytes, by the study's number in its storage.
_digests: weakref.WeakKeyDictionary[BaseStorage, dict[int, dict[int, set[bytes]]]] = (
    weakref.WeakKeyDictionary()
)


class TrainedModel(Protocol):
    """A model that is known again by its numbers; see :class:`Learner`."""

    def trained_sizes(self) -> list[int]: ...

    def trained_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]: ...

    def used_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]: ...


def refuse_copies(trial: Trial, learner: TrainedModel) -> frozenset[bytes]:
    """Refuses a model with weights that are equal to what another run of the study has trained.

    Args:
        trial: The trial that is about to train.
        learner: Its model.

    Returns:
        Digests of the weights that it begins with.

    Raises:
        InvalidArgumentError: If some are.
    """
    with _lock:
        digests_by_size = _digests_of(trial)
        by_size = {size: frozenset(digests) for size, digests in digests_by_size.items()}
    for size, digest in learner.used_digests(by_size):
        if digest in by_size[size]:
            raise InvalidArgumentError(
                "model",
                "a model with a copy of weights that another run of the study has trained",
                "a run has to begin anew",
                "Make the model inside the objective, and load no weights of another run.",
            )
    return frozenset(digest for _, digest in learner.trained_digests(_largest(learner)))


def remember(trial: Trial, learner: TrainedModel, beginning: frozenset[bytes]) -> None:
    """Keeps digests of what a training has left, for the runs after it.

    Args:
        trial: The trial that has trained.
        learner: Its model, after the last step.
        beginning: What :func:`refuse_copies` returned.
    """
    trained_digests = list(learner.trained_digests(_largest(learner)))
    with _lock:
        digests_by_size = _digests_of(trial)
        for size, digest in trained_digests:
            if digest not in beginning:
                digests_by_size[size].add(digest)


def _largest(learner: TrainedModel) -> list[int]:
    """Returns the sizes of the weights that a model is known again by."""
    sizes = [size for size in learner.trained_sizes() if size >= _FEWEST_BYTES]
    return sorted(sizes, reverse=True)[:_KEPT_OF_A_MODEL]


def _digests_of(trial: Trial) -> dict[int, set[bytes]]:
    studies = _digests.setdefault(storage_of(trial.study), {})
    return studies.setdefault(study_id_of(trial.study), defaultdict(set))
