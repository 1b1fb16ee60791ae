"""The check that the gradient of a record does not depend on the other records of its batch.

Clipping bounds what a record adds to a sum. It does not bound what the record changes in the
gradients of others, as by class weights in a mean loss. A loop's loss cannot be seen from outside.
So the loop's first two batches hold some records that are the same in both. Both are computed at
the same weights. The gradients of these records have to be the same.

==============  ================================================================================
first batch     shown records, then the records that were drawn, then fillers
second batch    the same shown records, then the records that were drawn next, then copies of
                one other record
==============  ================================================================================

Gradients of shown records, fillers and copies are taken away before anything is clipped.

A loop that changes something else between the two batches, such as a weight in its loss, is
refused too. If it follows from public numbers alone, it has to begin with the third batch.

Randomness would make the gradients differ. Dropout layers are switched off in the two batches. If
random numbers are drawn all the same, by functional dropout, by a ``collate_fn`` or by the loop,
both batches have the same size and the same state of the random generators. The shown records
are at the same places, so they meet the same random numbers. A dependence on the *number* of
records in the batch is not seen then.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from torch.nn.modules.dropout import _DropoutNd

from optuna_dp.opacus.record_source import Batch, Item, RecordSource

# Records that are the same in both batches.
SHOWN_RECORDS = 8
# Copies of one other record in the second batch: a share of the batch, and at least some.
_SHARE_OF_COPIES, _LEAST_COPIES = 1 / 8, 2
# Largest relative difference of two gradients of a record that is rounding: by their precision.
_ROUNDING, _ROUNDING_ON_DEVICES, _ROUNDING_OF_HALVES = 1e-3, 1e-2, 5e-2
# Gradients below this many clipping norms are taken for zero.
_NEGLIGIBLE = 1e-6


class RandomStates(TypedDict, total=False):
    """The states of the generators that a script uses without naming them.

    Attributes:
        python: Python's.
        numpy: numpy's, as numpy.random.get_state returns it.
        torch: PyTorch's for the processor, one tensor.
        cuda: PyTorch's for each GPU; only there if GPUs are used.
    """

    python: tuple[Any, ...]
    numpy: Any
    torch: list[torch.Tensor]
    cuda: list[torch.Tensor]


class MixingCheck:
    """Makes the first two batches of a training, and compares the gradients of what they share.

    Args:
        source: The records.
        drawn: The indices that were drawn for the first and for the second batch.
        generator: Chooses shown records and fillers.
        module: The module that is trained.
        most_shown: Largest number of shown records.

    Attributes:
        shown: How many shown records there are.
        is_random: Whether the loop was seen to draw random numbers.
    """

    def __init__(
        self,
        source: RecordSource,
        drawn: tuple[Sequence[int], Sequence[int]],
        generator: np.random.Generator,
        module: torch.nn.Module,
        most_shown: int,
    ) -> None:
        self._source, self._drawn = source, drawn
        self._generator = generator
        self._dropouts = [part for part in module.modules() if isinstance(part, _DropoutNd)]
        self._rates: list[float] | None = None
        count = max(1, min(SHOWN_RECORDS, most_shown, source.size))
        self.shown = count
        # Data sets may change a record at random each time it is read, and loops may write into
        # what they get.
        items = source.items(generator.choice(source.size, count, replace=False))
        self._items = items, _copied(items)
        self._size = count + max(map(len, drawn))
        self._collating: RandomStates = {}
        self._looping: RandomStates = {}
        self.is_random = False
        self._first: list[torch.Tensor] = []

    def batch(self, place: int) -> tuple[Batch, int, slice]:
        """Returns one of the two batches.

        Args:
            place: 0 for the first, 1 for the second.

        Returns:
            The batch, how many records are in it, and which of them were drawn.
        """
        indices = self._drawn[place]
        size = self._size
        if place == 1 and not self.is_random:
            copies = max(_LEAST_COPIES, int(len(indices) * _SHARE_OF_COPIES))
            size = self.shown + len(indices) + copies
            size += size == self._size
        filler_count = size - self.shown - len(indices)
        if place == 0:
            fillers = self._source.items(
                self._generator.integers(self._source.size, size=filler_count)
            )
        else:
            fillers = self._source.items(self._generator.integers(self._source.size, size=1))
            fillers = fillers * filler_count
        items = [*self._items[place], *self._source.items(indices), *fillers]
        if place == 0:
            self._collating = random_states()
        elif self.is_random:
            set_random_states(self._collating)
        batch = self._source.together(items)
        if place == 0:
            self.is_random = not same_states(self._collating, random_states())
        return batch, size, slice(self.shown, self.shown + len(indices))

    def begin(self, place: int) -> None:
        """Prepares the module for one of the batches, when the loop gets it."""
        self.restore()
        self._rates = [part.p for part in self._dropouts]
        for part in self._dropouts:
            part.p = 0.0
        if place == 0:
            self._looping = random_states()
        elif self.is_random:
            set_random_states(self._looping)

    def restore(self) -> None:
        """Switches dropout on again."""
        if self._rates is not None:
            for part, rate in zip(self._dropouts, self._rates, strict=True):
                part.p = rate
        self._rates = None

    def end_of_first(self, gradients: Sequence[torch.Tensor]) -> None:
        """Keeps the gradients of the shown records in the first batch.

        Args:
            gradients: Of each weight, shape (n, ...).
        """
        self.restore()
        if not same_states(self._looping, random_states()):
            self.is_random = True
        self._first = [gradient[: self.shown].detach().clone() for gradient in gradients]

    def largest_difference(self, gradients: Sequence[torch.Tensor], norm: float) -> float | None:
        """Compares the gradients of the shown records with those of the first batch.

        Args:
            gradients: Of each weight, shape (n, ...).
            norm: The clipping norm.

        Returns:
            The largest relative difference of a record's gradient, None if it is rounding.
        """
        self.restore()
        rounding = _ROUNDING
        squares = np.zeros((3, self.shown))
        for values_before, gradient in zip(self._first, gradients, strict=True):
            values_after = gradient[: self.shown].detach()
            if values_after.device.type != "cpu":
                rounding = max(rounding, _ROUNDING_ON_DEVICES)
            if values_after.element_size() == 2:
                rounding = _ROUNDING_OF_HALVES
            for row, values in enumerate(
                (values_before, values_after, values_before.double() - values_after.double())
            ):
                norms = torch.linalg.vector_norm(values.double().reshape(self.shown, -1), dim=1)
                squares[row] += norms.cpu().numpy() ** 2
        with np.errstate(all="ignore"):
            lengths = np.sqrt(squares)
            sizes = np.maximum(np.maximum(lengths[0], lengths[1]), _NEGLIGIBLE * norm)
            # A gradient without a size is taken away before clipping, in both batches.
            undefined = ~np.isfinite(lengths[0]) & ~np.isfinite(lengths[1])
            ratios = np.where(undefined, 0.0, lengths[2] / sizes)
        ratios = np.where(np.isnan(ratios), np.inf, ratios)
        largest_ratio = float(ratios.max(initial=0.0))
        if largest_ratio > rounding:
            return largest_ratio
        self._first = []  # Memory: they are not compared again.
        return None


def random_states() -> RandomStates:
    """Returns the states of the generators that a script uses without naming them."""
    states: RandomStates = {"python": random.getstate(), "numpy": np.random.get_state()}
    states["torch"] = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def set_random_states(states: RandomStates) -> None:
    """Gives the generators states that they had before."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"][0])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])


def same_states(states: RandomStates, later_states: RandomStates) -> bool:
    """Returns whether no random number was drawn in between."""
    if states["python"] != later_states["python"]:
        return False
    pairs = zip(states["numpy"], later_states["numpy"], strict=True)
    if not all(np.array_equal(array, later_array) for array, later_array in pairs):
        return False
    tensors, later_tensors = ([*s["torch"], *s.get("cuda", [])] for s in (states, later_states))
    # A device that was first used in between has used no randomness that anyone knows of.
    return all(
        torch.equal(tensor, later_tensor)
        for tensor, later_tensor in zip(tensors, later_tensors, strict=False)
    )


def _copied(items: list[Item]) -> list[Item]:
    try:
        return copy.deepcopy(items)
    except Exception:
        # Records that cannot be copied are rarely written into.
        return items
