"""The records of a training, from a data loader of which only the order is replaced."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError

_logger = logging.getLogger("optuna_dp")
# How far the number of records may be from the plan's: beyond the first factor a warning, beyond
# the second a refusal.
_WARNED, _REFUSED = 1.1, 2.0


class RecordSource:
    """The records of a data loader, by their indices.

    Args:
        data_loader: A loader with one of torch's default samplers.

    Attributes:
        size: The number of records.
    """

    def __init__(self, data_loader: DataLoader[Any]) -> None:
        self._loader = data_loader
        self._dataset: Any = data_loader.dataset
        self.size = len(self._dataset)

    def items(self, indices: Iterable[int]) -> list[Any]:
        """Returns records as the data set has them."""
        chosen = [int(index) for index in indices]
        if callable(getattr(self._dataset, "__getitems__", None)):
            return list(self._dataset.__getitems__(chosen))
        return [self._dataset[index] for index in chosen]

    def together(self, items: Sequence[Any]) -> Any:
        """Returns records as one batch."""
        collate: Callable[[Sequence[Any]], Any] = self._loader.collate_fn
        return collate(items)

    def batches(self, indices: Iterable[list[int]]) -> Iterator[Any]:
        """Returns batches with the records of these indices, loaded by the loader's workers."""
        settings = self._loader
        # Seeds of workers come from it, and the script's own generator is left alone.
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        return iter(
            DataLoader(
                self._dataset,
                batch_sampler=indices,
                collate_fn=settings.collate_fn,
                num_workers=settings.num_workers,
                pin_memory=settings.pin_memory,
                timeout=settings.timeout,
                worker_init_fn=settings.worker_init_fn,
                multiprocessing_context=settings.multiprocessing_context,
                prefetch_factor=settings.prefetch_factor,
                generator=generator,
            )
        )


def record_source(data_loader: Any, planned: float | None) -> RecordSource:
    """Returns the records of a data loader.

    Args:
        data_loader: The user's.
        planned: The public number of records that the plan was made for; None if unknown.

    Raises:
        InvalidArgumentError: If the loader says how batches are drawn, a record is in its data set
            twice, or there are less than half or more than twice the records of the plan.
    """
    if not isinstance(data_loader, DataLoader):
        raise InvalidArgumentError(
            "data_loader",
            type(data_loader).__name__,
            "it must be a torch.utils.data.DataLoader",
            "Write DataLoader(dataset).",
        )
    _refuse_samplers(data_loader)
    _refuse_repeated_records(data_loader.dataset)
    source = RecordSource(data_loader)
    if source.size == 0:
        raise InvalidArgumentError("data_loader", "an empty data set", "it must have records")
    if planned is not None:
        _compare_sizes(source.size, planned)
    return source


def _refuse_samplers(loader: DataLoader[Any]) -> None:
    remedy = (
        "Write DataLoader(dataset, batch_size=...), with shuffle=True or without. To train on "
        "some records only, give DataLoader(Subset(dataset, indices)), and plan with their "
        "number."
    )
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidArgumentError(
            "data_loader",
            f"a loader of {type(loader.dataset).__name__}",
            "records of an IterableDataset have no index, so none can be drawn by chance",
            "Give a data set with __len__ and __getitem__, such as the list of its records.",
        )
    batch_sampler, sampler = loader.batch_sampler, loader.sampler
    if loader.batch_size is None and batch_sampler is None:
        raise InvalidArgumentError(
            "data_loader",
            "a loader with batch_size=None",
            "an item of its data set would be a batch, and the plan counts records",
            remedy,
        )
    if loader.batch_size is None or type(batch_sampler) is not BatchSampler:
        raise InvalidArgumentError(
            "data_loader",
            f"a loader with batch_sampler={type(batch_sampler).__name__}",
            "the plan decides how batches are drawn: each record joins each batch by chance",
            remedy,
        )
    own = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(loader.dataset)
    )
    if not own:
        raise InvalidArgumentError(
            "data_loader",
            f"a loader with sampler={type(sampler).__name__}",
            "the plan decides how records are drawn: each joins each batch with the same chance, "
            "so a sampler could only be ignored",
            remedy,
        )


def _refuse_repeated_records(dataset: Any) -> None:
    by_base: dict[Any, list[IntArray]] = {}
    for base, indices in _parts(dataset):
        by_base.setdefault(base, []).append(indices)
    for pieces in by_base.values():
        indices = np.concatenate(pieces)
        repeated = len(indices) - len(np.unique(indices))
        if repeated:
            raise InvalidArgumentError(
                "data_loader",
                f"a data set with {repeated} records twice",
                "a record that is there several times counts several times, and the plan charges "
                "for one",
                "Give each record once. To augment, change it at random in __getitem__.",
            )


def _parts(dataset: Any, indices: IntArray | None = None) -> Iterator[tuple[Any, IntArray]]:
    """Returns the data sets that a data set is made of, each with the indices that are used."""
    if indices is None:
        indices = np.arange(len(dataset))
    if type(dataset) is Subset:
        chosen = np.asarray(list(dataset.indices), dtype=np.int64)
        chosen = np.where(chosen < 0, chosen + len(dataset.dataset), chosen)
        yield from _parts(dataset.dataset, chosen[indices])
    elif type(dataset) is ConcatDataset:
        ends = np.asarray(dataset.cumulative_sizes)
        begin = 0
        for part, end in zip(dataset.datasets, ends, strict=True):
            inside = indices[(indices >= begin) & (indices < end)] - begin
            yield from _parts(part, inside)
            begin = int(end)
    elif type(dataset) is TensorDataset and dataset.tensors and dataset.tensors[0].numel():
        first = dataset.tensors[0]
        yield (first.data_ptr(), tuple(first.shape), tuple(first.stride())), indices
    else:
        yield id(dataset), indices


def _compare_sizes(records: int, planned: float) -> None:
    factor = max(records, planned) / max(1e-9, min(records, planned))
    facts = f"The data set has {records} records, and the plan was made for {planned:g}."
    if factor > _REFUSED:
        raise InvalidArgumentError(
            "data_loader",
            f"a loader of {records} records",
            f"the plan was made for {planned:g} records",
            "If a person has several records, make each person one record, or plan for groups. "
            "Otherwise plan with the right number: plan_budget(..., records=...).",
        )
    if factor > _WARNED:
        _logger.warning(
            f"{facts} The guarantee is for one record of this data set. If a person has several, "
            "it does not hold for persons. Otherwise plan with the right number."
        )
