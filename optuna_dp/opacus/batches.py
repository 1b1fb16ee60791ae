"""What the loop of a training with Opacus goes through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from optuna_dp.errors import PlanError
from optuna_dp.opacus.record_source import Batch
from optuna_dp.opacus.watched_training import WatchedTraining

_SETTINGS = {
    *("dataset", "collate_fn", "num_workers", "pin_memory", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "prefetch_factor", "persistent_workers", "generator"),
}


class Batches:
    """The batches of one run, to be gone through once; one step each.

    Whoever leaves the loop and begins again goes on where the loop was left. A batch without a
    step is delivered again.

    Attributes:
        accountant: Opacus', with what was spent so far.
        batch_size: Expected number of records in the batch of a step.
        batch_sampler: Something that says that these batches cannot be split or drawn anew.
    """

    def __init__(
        self, training: WatchedTraining, data_loader: DataLoader[object], batch_size: float
    ) -> None:
        self.accountant = training.accountant
        self.batch_size = batch_size
        self.batch_sampler = _NoSampler()
        self._training, self._data_loader = training, data_loader

    def __len__(self) -> int:
        return self._training.batches

    def __iter__(self) -> Iterator[Batch]:
        if self._training.is_complete:
            raise PlanError(
                f"These {len(self)} batches can be gone through once: they are all steps of the "
                "run, not an epoch. Take the loop over epochs away."
            )
        return _Pass(self._training)

    def __getattr__(self, name: str) -> Any:
        # What frameworks ask a loader for.
        if name in _SETTINGS:
            return getattr(self._data_loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class _Pass:
    """One pass through the batches, from where the last one was left."""

    def __init__(self, training: WatchedTraining) -> None:
        self._training, self._is_new = training, True

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._training.deliver(is_new_pass=self._is_new)
        self._is_new = False
        return batch


class _NoSampler:
    def __iter__(self) -> Iterator[Batch]:
        raise PlanError(
            "The batches of a run cannot be split or drawn anew. In place of BatchMemoryManager "
            "use make_private(..., physical_batch_size=...)."
        )

    def __len__(self) -> int:
        return 0
