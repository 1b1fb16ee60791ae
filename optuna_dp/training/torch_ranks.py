"""Ranks of ``torch.distributed``, as ``torchrun`` starts them."""

from __future__ import annotations

import hashlib
import logging
import pickle
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, Text, WorkersError
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.generators import Draws
from optuna_dp.training.learner import Learner
from optuna_dp.training.ranks import Ranks
from optuna_dp.training.record_arrays import Array, leaves
from optuna_dp.training.records import Records

_logger = logging.getLogger("optuna_dp")
_Value = TypeVar("_Value")
# How long a rank waits for another one that lives: for an objective that takes hours, too. One
# that has died is seen at once, by its closed connections.
_LONGEST_WAIT = timedelta(days=7)
# Records that all ranks compare, evenly spaced.
_COMPARED_RECORDS = 64
_COMPARING_SEED = 402_653_189_771
# What a message of rank 0 holds.
_VALUE, _ERROR, _RUN, _END = "value", "error", "run", "end"
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class NextRun(BaseException):
    """Ends a rank's objective, because rank 0 has gone on without it."""


class TorchRanks(Ranks):
    """The ranks of the default process group; see :class:`optuna_dp.training.ranks.Ranks`.

    Messages go through a group of its own, of gloo, and so do sums. On GPUs, one for each rank of
    a machine, sums go through NCCL.

    Attributes:
        is_broken: Whether a rank has died, or has left a training by itself. Nothing can be sent
            any more then.
    """

    def __init__(self) -> None:
        self.number, self.count = dist.get_rank(), dist.get_world_size()
        self.is_broken = False
        self._group = dist.new_group(backend="gloo", timeout=_LONGEST_WAIT)
        self._of_sums: tuple[Any, torch.device] = (self._group, torch.device("cpu"))
        if dist.get_backend() == "nccl":
            device = torch.device("cuda", torch.cuda.current_device())
            self._of_sums = (dist.group.WORLD, device)
        self._next: str | None = None
        self._fails_in_all = False

    # Messages.

    def shared(self, compute: Callable[[], _Value]) -> _Value:
        if self.leads:
            try:
                value = compute()
            except Exception as error:
                self._send((_ERROR, _picklable(error)))
                raise
            self._send((_VALUE, value))
            return value
        kind, content = self._received()
        if kind == _ERROR:
            raise content
        if kind != _VALUE:
            self._next = kind
            raise NextRun
        received: _Value = content
        return received

    def begin_run(self) -> None:
        """Tells the other ranks, as rank 0, that a run begins."""
        self._send((_RUN, None))

    def end(self) -> None:
        """Tells the other ranks, as rank 0, that there are no more runs."""
        with suppress(WorkersError):  # Who has died needs not be told.
            self._send((_END, None))

    def waits_for_run(self, error: Exception | None) -> bool:
        """Waits, as another rank, until a run begins; returns False if there are no more.

        Args:
            error: What the objective raised in this rank; None if it ended without an error.

        Raises:
            Exception: The error, if rank 0 is in the midst of a run that this rank has left.
        """
        kind, self._next = self._next, None
        if kind is None:
            kind, _ = self._received()
        if kind in (_RUN, _END):
            return kind == _RUN
        self.is_broken = True
        if error is not None:
            raise error
        raise WorkersError(
            "The objective ended in this rank, and goes on in rank 0.",
            "It must do the same in all ranks: what it does must depend on the trial and on what "
            "odp.train returns only, not on the rank, the time or a draw of its own.",
        )

    def close(self) -> None:
        """Leaves the group. The others see it, if they still wait for this rank."""
        dist.destroy_process_group(self._group)

    def _send(self, message: tuple[str, object]) -> None:
        self._made(lambda: dist.broadcast_object_list([message], src=0, group=self._group))

    def _received(self) -> tuple[str, Any]:
        box: list[Any] = [None]
        self._made(lambda: dist.broadcast_object_list(box, src=0, group=self._group))
        kind, content = box[0]
        return kind, content

    def _made(self, call: Callable[[], object]) -> None:
        """Makes a call that needs all ranks.

        Raises:
            WorkersError: If another rank has died.
        """
        if self.is_broken:
            raise self.death()
        try:
            call()
        except RuntimeError as error:
            self.is_broken = True
            raise self.death() from error

    def death(self) -> WorkersError:
        """Returns the error that another rank has died."""
        return WorkersError(
            "Another rank of this training has died or left it.",
            "Its run counts as a failed one. Start the ranks again: the study continues.",
        )

    # A training.

    def make_alike(self, learner: Learner, *records: Records) -> None:
        parts = [torch.as_tensor(part).detach() for part in learner.all_numbers()]
        facts = self._gathered([(str(part.dtype), tuple(part.shape)) for part in parts])
        if any(fact != facts[0] for fact in facts):
            raise InvalidArgumentError(
                "model",
                Text("another model in each rank"),
                allowed="all ranks must make a model of the same layers",
            )
        sums = self._gathered([_checksum(part) for part in parts])
        for place, part in enumerate(parts):
            if any(of_rank[place] != sums[0][place] for of_rank in sums):
                numbers = part.reshape(-1).cpu()
                self._made(partial(dist.broadcast, _bytes_of(numbers), src=0, group=self._group))
                part.copy_(numbers.reshape(part.shape))
        for some_records in records:
            self._compare(some_records)

    def _compare(self, records: Records) -> None:
        """Refuses ranks that hold other records, or the same ones in another order.

        A record that has two places would be drawn twice, and count twice.
        """
        readings = [_digests(records) for _ in range(2)]
        digests = [a if a == b else None for a, b in zip(*readings, strict=False)]
        of_ranks = self._gathered((len(records), digests))
        differs = any(length != len(records) for length, _ in of_ranks) or any(
            len({digest for digest in of_place if digest is not None}) > 1
            for of_place in zip(*(found for _, found in of_ranks), strict=False)
        )
        if differs:
            raise InvalidArgumentError(
                "records",
                Text("other records, or another order of them, in each rank"),
                problem="all ranks must hold the same records at the same places, or one person "
                "would be drawn twice",
                fix="Read the same files in all ranks, and do not shuffle: odp.train draws the "
                "batches. Split by a fixed seed, such as random_state=0. Give all records to each "
                "rank, and no share of them.",
            )

    def all_agree(self, is_so: bool) -> bool:
        return all(self._gathered(is_so))

    def noisy_sum(
        self,
        learner: Learner,
        records: Records,
        draw: Callable[[], npt.NDArray[np.int64]],
        step: ExactStep,
    ) -> list[Array]:
        share = self._dealt(draw)
        totals = self._added(lambda: learner.clipped_sum(records, share, step))
        sizes = [len(total) for total in totals]
        if self.leads:
            totals = step.with_noise(totals)
        flat = torch.cat([torch.as_tensor(total) for total in totals]).cpu()
        self._made(lambda: dist.broadcast(flat, src=0, group=self._group))
        return [_like(part, learner) for part in torch.split(flat, sizes)]

    def scores(self, learner: Learner, records: Records) -> FloatArray:
        share = self._dealt(lambda: np.arange(len(records)))

        def of_share() -> list[Array]:
            scores = np.zeros(len(records))
            scores[share] = learner.scores(records, share)
            return [scores]

        (total,) = self._added(of_share)
        return np.asarray(total) if self.leads else np.zeros(len(records))

    def _dealt(self, draw: Callable[[], npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Returns this rank's share of what rank 0 draws; each index draws its rank by itself."""
        content = torch.zeros(2, 0, dtype=torch.int64)
        if self.leads:
            indices = draw()
            words = np.frombuffer(secrets.token_bytes(8 * len(indices)), dtype=np.uint64)
            ranks = (words % self.count).astype(np.int64)
            content = torch.from_numpy(np.stack([indices, ranks]))
        length = torch.tensor(content.shape[1])
        self._made(lambda: dist.broadcast(length, src=0, group=self._group))
        if not self.leads:
            content = torch.zeros(2, int(length), dtype=torch.int64)
        self._made(lambda: dist.broadcast(content, src=0, group=self._group))
        indices, ranks = content.numpy()
        return np.asarray(indices[ranks == self.number])

    def _added(self, compute: Callable[[], list[Array]]) -> list[Array]:
        """Returns the sums over all ranks of whole numbers, or of single ones, in rank 0.

        Other ranks get arrays of the same lengths.

        Raises:
            Exception: What this rank raised while it computed.
            WorkersError: If another one did. All ranks can go on.
        """
        totals: list[Array] = []
        failure: Exception | None = None
        try:
            totals = compute()
        except Exception as error:
            _logger.warning("A step failed in rank %d.", self.number, exc_info=True)
            failure = error
        has_failed = torch.zeros(self.count)
        has_failed[self.number] = failure is not None
        self._made(lambda: dist.all_reduce(has_failed, group=self._group))
        self._fails_in_all = bool(has_failed.any())
        if failure is not None:
            raise failure
        if self._fails_in_all:
            numbers = ", ".join(map(str, has_failed.nonzero()[:, 0].tolist()))
            raise WorkersError(
                f"The run failed in rank {numbers}. Its log says why.",
                "It counts as a failed run.",
            )
        group, device = self._of_sums
        flat = torch.cat([torch.as_tensor(total) for total in totals]).to(device)
        self._made(lambda: dist.reduce(flat, dst=0, group=group))
        return [*torch.split(flat.cpu(), [len(total) for total in totals])]

    @contextmanager
    def together(self) -> Iterator[None]:
        self._fails_in_all = False
        try:
            yield
        except BaseException:
            if not self._fails_in_all:  # The others are still in their steps.
                self.is_broken = True
            raise

    def _gathered(self, value: _Value) -> list[_Value]:
        """Returns the values of all ranks."""
        values: list[Any] = [None] * self.count
        self._made(lambda: dist.all_gather_object(values, value, group=self._group))
        return values


def _picklable(error: Exception) -> Exception:
    try:
        copied = pickle.loads(pickle.dumps(error))
    except Exception:
        copied = None
    if type(copied) is type(error):
        return error
    return WorkersError(f"Rank 0 raised {type(error).__name__}: {error}")


def _like(part: torch.Tensor, learner: Learner) -> Array:
    """Returns numbers in the kind of array that a learner has."""
    like = learner.like
    return part.numpy() if isinstance(like, np.ndarray) else part.to(like.device)


def _bytes_of(numbers: torch.Tensor) -> torch.Tensor:
    """Returns the memory of a vector."""
    return numbers.view(torch.uint8)


def _checksum(part: torch.Tensor) -> int:
    """Returns a number that differs between parts that were made by other draws."""
    words = part.reshape(-1).view(_WHOLE[part.element_size()])
    return int(words.sum(dtype=torch.int64)) ^ int(words[::3].sum(dtype=torch.int64)) << 1


def _digests(records: Records) -> list[str]:
    """Returns a digest of each part of some records; of a data set's draws those of one seed."""
    draws = Draws(torch.device("cpu"), seed=_COMPARING_SEED)
    digests = []
    places = np.unique(np.linspace(0, len(records) - 1, _COMPARED_RECORDS).astype(np.int64))
    with draws.for_step():
        for place in places:
            draws.before_reading()
            try:
                parts = leaves(records.take(place[None]))
            except Exception:
                digests.append("unreadable")
            else:
                digests += [_digest(part) for part in parts]
    return digests


def _digest(part: Array) -> str:
    if isinstance(part, torch.Tensor):
        part = _bytes_of(part.detach().cpu().reshape(-1)).numpy()
    return hashlib.sha256(part.tobytes()).hexdigest()
