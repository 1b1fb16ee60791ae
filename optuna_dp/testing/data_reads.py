"""Arrays that note which of their records are read: they show who joins the batches.

With Poisson sampling each record joins each step by a coin of its own. So within 1/q steps of
sampling rate q about 37 per cent of the records are never read, where an epoch of shuffled batches
reads each exactly once. Reads of whole ranges, of more than half of the records and of the same
records twice are evaluations or splits, and are left out.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from optuna_dp.arrays import IntArray

# A test that an honest training fails less than once in ten million runs.
_RARELY = 1e-7


class Batches:
    """The batches that were read from one array.

    Attributes:
        sets: The records of each batch, in the order of the reads.
        count: How often some of the records were read, each time counted.
    """

    def __init__(self) -> None:
        self.sets: list[IntArray] = []
        self.count = 0
        self._single: list[int] = []
        self._seen: set[bytes] = set()

    def note(self, key: Any, records: int) -> None:
        """Notes what ``array[key]`` reads."""
        rows = key[0] if isinstance(key, tuple) and key else key
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool):
            self._single.append(int(rows))
            return
        if hasattr(rows, "detach"):
            rows = rows.detach().cpu().numpy()
        if not isinstance(rows, list | np.ndarray):
            return  # a range
        self.count += 1
        index = np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == bool else index.ravel() % max(records, 1)
        fingerprint = index.tobytes()
        if fingerprint in self._seen or not 0 < len(index) <= records / 2 or _is_range(index):
            return
        self._seen.add(fingerprint)
        self.sets.append(index.astype(np.int64))

    def steps(self, rate: float, records: int) -> list[IntArray]:
        """Returns the batches; records that were read one by one in pieces of the usual size."""
        if self.sets or not self._single:
            return self.sets
        size, single = max(1, round(rate * records)), np.array(self._single)
        jumps = np.flatnonzero(np.diff(single) != 1)
        if len(jumps) < len(single) / 2:  # in order: an evaluation
            return []
        return [single[i : i + size] for i in range(0, len(single) - size + 1, size)]


def _is_range(index: IntArray) -> bool:
    return len(index) > 1 and bool((np.diff(index) == 1).all())


def not_poisson(batches: Batches, rate: float, steps: int, records: int) -> str:
    """Says in words why batches are not drawn by a coin for each record; empty if they may be.

    Args:
        batches: Of one run.
        rate: The stated chance of a record to join a step.
        steps: The stated number of steps.
        records: How many there are.
    """
    from scipy.stats import binom  # start-up time: scipy.stats is slow to load

    epoch = max(1, round(1.0 / rate))
    batches_of_steps, windows = batches.steps(rate, records), max(1, min(2, steps // epoch))
    if rate > 0.5 or len(batches_of_steps) < epoch * windows:
        return ""
    chance = 1.0
    for window in range(windows):
        part = batches_of_steps[window * epoch : (window + 1) * epoch]
        records_read = len(np.unique(np.concatenate(part)))
        chance *= float(binom.sf(records_read - 1, records, 1.0 - (1.0 - rate) ** epoch))
    if chance < _RARELY:
        return f"{epoch} batches in a row read nearly every record once"
    return ""


def shows_steps(batches: Batches, rate: float, records: int) -> bool:
    """Returns whether as many batches were read as the test needs."""
    return len(batches.steps(rate, records)) >= max(1, round(1.0 / rate))


def watched(data: Any, batches: Batches) -> Any:
    """Returns the data with its first array replaced by one that notes what is read of it."""
    if isinstance(data, tuple | list):
        return type(data)([_noting(data[0], batches), *data[1:]])
    return _noting(data, batches)


def _noting(array: Any, batches: Batches) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        view = array.as_subclass(_tensor_class())
    elif type(array) is np.ndarray:
        view = array.view(_Array)
    else:
        return array
    view.batches = batches
    return view


class _Array(np.ndarray[Any, Any]):
    """An array that notes its reads; what is made of it does not."""

    batches: Batches | None = None

    def __getitem__(self, key: Any) -> Any:
        if self.batches is not None:
            self.batches.note(key, len(self))
        return self.view(np.ndarray)[key]


def _tensor_class() -> Any:
    import torch  # an extra; the caller has seen that it is loaded

    class Noting(torch.Tensor):  # type: ignore[misc]
        """A tensor that notes its reads; what is made of it does not."""

        __torch_function__ = torch._C._disabled_torch_function_impl

        def __getitem__(self, key: Any) -> Any:
            self.batches.note(key, len(self))
            return super().__getitem__(key)

    return Noting
