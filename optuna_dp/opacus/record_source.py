"""The records of a training, from a data loader of which only the order is replaced."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from optuna_dp.errors import InvalidArgumentError, Text, type_of
from optuna_dp.training.data_sets import DataSet
from optuna_dp.training.records import read_records, warn_of_number

# A record as the user's data set has it.
Item: TypeAlias = Any
# Records together, as the loader's collate function makes them.
Batch: TypeAlias = Any


class RecordSource:
    """The records of a data loader, by their indices.

    Args:
        data_loader: A loader with one of torch's default samplers.

    Attributes:
        size: The number of records.
    """

    def __init__(self, data_loader: DataLoader[object]) -> None:
        self._loader = data_loader
        dataset: DataSet = data_loader.dataset
        self._dataset, self.size = dataset, len(dataset)

    def items(self, indices: Iterable[int]) -> list[Item]:
        """Returns records as the data set has them."""
        positions = [int(index) for index in indices]
        if callable(getattr(self._dataset, "__getitems__", None)):
            return list(self._dataset.__getitems__(positions))
        return [self._dataset[index] for index in positions]

    def together(self, items: list[Item]) -> Batch:
        """Returns records as one batch."""
        collate: Callable[[list[Item]], Batch] = self._loader.collate_fn
        return collate(items)

    def batches(self, indices: Iterable[list[int]]) -> Iterator[Batch]:
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


def record_source(data_loader: object, planned_records: float) -> RecordSource:
    """Returns the records of a data loader.

    Args:
        data_loader: The user's.
        planned_records: The public number of records that the plan was made for.

    Raises:
        InvalidArgumentError: If the loader says how batches are drawn, a record is in its data set
            twice, or there are less than half or more than twice the records of the plan.
    """
    if not isinstance(data_loader, DataLoader):
        raise InvalidArgumentError(
            "data_loader",
            type_of(data_loader),
            allowed="it must be a torch.utils.data.DataLoader",
            fix="Write DataLoader(dataset).",
        )
    _refuse_samplers(data_loader)
    records = read_records(data_loader.dataset, "data_loader")
    if not 0.5 <= len(records) / planned_records <= 2.0:
        # Before the training is spent: run.score refuses so different a number later.
        raise InvalidArgumentError(
            "data_loader",
            Text(f"{len(records):,} records"),
            problem=f"the plan was made for {planned_records:,.0f}, and from half to twice as "
            "many are allowed",
            fix="Give all of the records that were planned for, or plan for about as many as "
            "there are, rounded if the exact number is private.",
        )
    warn_of_number(records, planned_records)
    return RecordSource(data_loader)


def _refuse_samplers(loader: DataLoader[object]) -> None:
    remedy = (
        "Write DataLoader(dataset, batch_size=...), with shuffle=True or without. To train on "
        "some records only, give DataLoader(Subset(dataset, indices)), and plan with their "
        "number."
    )
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidArgumentError(
            "data_loader",
            Text(f"a loader of {type(loader.dataset).__name__}"),
            problem="records of an IterableDataset have no index, so none can be drawn by chance",
            fix="Give a data set with __len__ and __getitem__, such as the list of its records.",
        )
    batch_sampler, sampler = loader.batch_sampler, loader.sampler
    dataset: DataSet = loader.dataset
    if loader.batch_size is None and batch_sampler is None:
        raise InvalidArgumentError(
            "data_loader",
            Text("a loader with batch_size=None"),
            problem="an item of its data set would be a batch, and the plan counts records",
            fix=remedy,
        )
    if loader.batch_size is None or type(batch_sampler) is not BatchSampler:
        raise InvalidArgumentError(
            "data_loader",
            Text(f"a loader with batch_sampler={type(batch_sampler).__name__}"),
            problem="the plan decides how batches are drawn: each record joins each batch by "
            "chance",
            fix=remedy,
        )
    is_default = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(dataset)
    )
    if not is_default:
        raise InvalidArgumentError(
            "data_loader",
            Text(f"a loader with sampler={type(sampler).__name__}"),
            problem="the plan decides how records are drawn: each joins each batch with the same "
            "chance, so a sampler could only be ignored",
            fix=remedy,
        )
