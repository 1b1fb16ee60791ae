"""Results of single records that do not depend on the others, to the last bit.

The exact sum (:mod:`optuna_dp.training.exact_step`) needs this. A processor computes many records
at once, and two things can decide in which order it adds:

* How many records there are. So chunks are padded to a multiple of 8, 16 or 32, or to one size.
* The place of a record among them, because it decides where in memory its numbers begin. Mostly
  the remainder of the place by 2, 4 or 8 matters, if it matters at all. Then each record draws its
  remainder by itself, and fillers take the places that are left over.

Which of it matters is found before a training, on made-up records and weights near the model's.
It is a test and no proof. Where a device gives other bits each time, as some sums on a GPU do,
nothing can be found, and the sum is exact for the gradients that were computed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.training.chunks import (
    BLOCK,
    Chunk,
    chunks_of,
    have_one_shape,
    placed,
    usual_parts,
)
from optuna_dp.training.generators import Draws
from optuna_dp.training.own_model import OwnModel, without_cached_casts
from optuna_dp.training.record_arrays import Parts, leaves, mapped
from optuna_dp.training.record_functions import (
    OfRecords,
    OwnTables,
    Results,
    Scope,
    Tensors,
    at_once,
    depends_on_weights,
    of_one,
    running_statistics,
    translated,
)
from optuna_dp.training.records import Records
from optuna_dp.training.tables import RowsOfTable, Tables, at_once_by_rows, tables_of

Rows = list[torch.Tensor]
Places = npt.NDArray[np.int64]
# Relative differences of results of one record that are more than rounding.
_ROUNDING, _ROUNDING_OF_HALVES = 1e-3, 0.1
# How often a test is made again, because another thread of the script may have drawn meanwhile.
_ATTEMPTS = 5
# Of how many made-up records, of zeros and of ones where they are whole numbers, one has to have
# a gradient.
_TRIED = 8
_LONGEST_REASON = 200
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COLUMNS = 1 << 14
# The standard deviation of what is added to weights in tests.
_TEST_NOISE = 0.05
# How many made-up records are compared at least, and to multiples of how many chunks are padded:
# processors may add otherwise for a few records than for many.
_COMPARED = 64
_BLOCKS = (BLOCK, 16, 32)
# Of the draws in tests: no script sets this one.
_TEST_SEED = 739_102_648_517


@dataclass(frozen=True)
class Computed:
    """Results of some records.

    Attributes:
        rows: One row for each record, a matrix for each parameter.
        places: The indices of the rows that are the records'. The others are copies.
        looked_up: Of tables whose gradients are computed by rows: which rows, by the number of
            the parameter; see :meth:`ExactStep.add`.
    """

    rows: Rows
    places: Places
    looked_up: Mapping[int, torch.Tensor]


class EachRecord:
    """Each record's own gradient, or its own number.

    Args:
        model: The model that is trained.
        scope: The function of one record.
        gradients: Whether gradients are computed.
        chunk_size: How many records are computed at a time.

    Attributes:
        chunk_size: As above; 1 if the records have different shapes.
        block: To a multiple of how many records a chunk is padded.
        period: The remainder of a record's place by this number decides its bits.
        seconds: Of one record, if they are computed one by one; None if at once.
        reason: Why they are computed one by one.
        is_reproducible: Whether the same records give the same bits each time.
    """

    def __init__(self, model: OwnModel, scope: Scope, *, gradients: bool, chunk_size: int) -> None:
        self._model, self._scope, self._gradients = model, scope, gradients
        self._tables: Tables = {}
        self._compute = self._at_once()
        self._draws = Draws(model.device, seed=_TEST_SEED)
        self._made_up: Parts = ()
        self._whole = 0  # In made-up records.
        self.chunk_size, self.block, self.period = chunk_size, BLOCK, 1
        self.seconds: float | None = None
        self.reason = ""
        self.is_reproducible = True
        self._is_testing = False

    def chunks(self, indices: Places) -> Iterator[Chunk]:
        """Yields records in the chunks in which they are to be computed."""
        return chunks_of(indices, self.chunk_size, self.period)

    def of(self, parts: Parts, places: Places) -> Computed:
        """Returns the results of some records.

        Args:
            parts: The parts of the records, on the model's device.
            places: Their places; see :class:`Chunk`.
        """
        if self.seconds is not None:
            places = np.arange(len(places))
        return self._results(self._compute, parts, places)

    def set_up(self, records: Records, at_a_time: Callable[[int], int] | None = None) -> None:
        """Decides how records are computed, by made-up ones.

        Args:
            records: The records; only the shapes and types of the first few are used.
            at_a_time: From how many numbers a record's gradient has to how many records are
                computed at a time; asked if it has fewer than there are weights.

        Raises:
            InvalidArgumentError: If the function cannot be computed, or cannot be private.
        """
        try:
            self._made_up = self._model.on_device(usual_parts(records))
        except InvalidArgumentError:
            raise
        except Exception as error:
            raise translated(error, "records") from error
        names = set(dict(self._scope.model.named_parameters()))
        self._whole = self._whole_number()
        if not have_one_shape(records):
            self.chunk_size = 1
            self._go_one_by_one("the records have different shapes")
        elif (reason := self._refusal_of_vmap()) is not None:
            self._go_one_by_one(reason)
        elif self._gradients:
            self._find_tables()
            if self._tables and at_a_time is not None:
                rows = self._with_same_draws(self._made(1, 0))
                self.chunk_size = at_a_time(sum(part.shape[1] for part in rows))
        self._refuse_what_learns_nothing()
        self._refuse_what_is_changed()
        if names != set(dict(self._scope.model.named_parameters())):
            raise InvalidArgumentError(
                "model",
                self._scope.model,
                problem="it makes a layer while it is called, and the training would not know it",
                fix="Make all layers in __init__, or call the model once on zeros of the right "
                "shape.",
            )
        self._is_testing = True
        self._refuse_memory()
        if self.seconds is None and not self.finds_places():
            self._go_one_by_one("a record's result depends on the others, by rounding")
        self._is_testing = False

    def _whole_number(self) -> int:
        """Returns 0; or 1, if a made-up record of zeros fails: a text may not have length 0."""
        compute = of_one(self._scope, gradients=self._gradients)
        for number in (0, 1):
            record = _record(made_up_records(self._made_up, 1, 0, number), 0)
            try:
                with self._same_draws():
                    compute(self._model.copied_weights(), self._model.copied_buffers(), *record)
            except Exception:
                continue
            return number
        return 0

    def moves(self, buffers: Tensors) -> None:
        """Lets the model change its buffers by a made-up record, as spectral norm does.

        Args:
            buffers: The buffers, by name; changed in place.
        """
        with torch.no_grad():
            self._compute(self._model.copied_weights(), buffers, *self._few(1, 0))

    @without_cached_casts()
    def _results(self, compute: OfRecords, parts: Parts, places: Places | None = None) -> Computed:
        count, model = len(leaves(parts)[0]), self._model
        places = np.arange(count) if places is None else places
        results: Results
        if self.seconds is None:
            whole = placed(parts, places, self.block)
            results = compute(self._weights(), model.copied_buffers(), *whole)
        else:
            each = [
                compute(self._weights(), model.copied_buffers(), *_record(parts, index))
                for index in range(count)
            ]
            results = (
                {name: torch.stack([result[name] for result in each]) for name in model.names}
                if self._gradients
                else torch.stack(each)
            )
        if not self._gradients:
            return Computed([results.detach().reshape(-1, 1)], places, {})
        rows, looked_up = [], {}
        for number, name in enumerate(model.names):
            part = results[name]
            if isinstance(part, RowsOfTable):
                looked_up[number], part = part
            rows.append(part.detach().reshape(len(part), -1))
        return Computed(rows, places, looked_up)

    def _weights(self) -> dict[str, torch.Tensor]:
        """Returns the weights to compute with: copies of the model's; near them in tests."""
        return self.weights_nearby() if self._is_testing else self._model.copied_weights()

    def weights_nearby(self) -> dict[str, torch.Tensor]:
        """Returns weights near the model's: those of zero would hide how sums are ordered."""
        weights = self._model.copied_weights()
        generator = torch.Generator().manual_seed(0)
        for weight in weights.values():
            noise = torch.randn(weight.shape, generator=generator, device="cpu")
            weight += (_TEST_NOISE * noise).to(weight.device, weight.dtype)
        return weights

    def made_up(self, count: int) -> Parts:
        """Returns made-up records of the shapes that were set up."""
        return self._made(count, 0)

    def _made(self, count: int, seed: int) -> Parts:
        return made_up_records(self._made_up, count, seed, self._whole)

    def _few(self, count: int, seed: int) -> Parts:
        """Returns made-up records as the function is computed of: one, or a block of them."""
        made_up = self._made(count, seed)
        if self.seconds is not None:
            return _record(made_up, 0)
        return placed(made_up, np.arange(count), self.block)

    @contextmanager
    def _same_draws(self) -> Iterator[None]:
        """Makes all draws the same each time."""
        with self._draws.for_step():
            self._draws.before_computing()
            yield

    def _refusal_of_vmap(self) -> str | None:
        """Returns why vmap cannot take the function; None if it can."""
        try:
            with OwnTables(), self._same_draws():
                self._results(self._compute, self._made(2, 0))
        except InvalidArgumentError:
            raise
        except Exception as error:
            return str(error).split(". ")[0].split("\n")[0][:_LONGEST_REASON]
        return None

    def _at_once(self, draws: str = "different") -> OfRecords:
        """Returns what computes many records at once, of tables by rows."""
        if self._tables:
            return at_once_by_rows(self._scope, self._tables, draws=draws)
        return at_once(self._scope, gradients=self._gradients, draws=draws)

    def _find_tables(self) -> None:
        """Finds tables whose gradients are computed by rows."""
        model, record = self._model, _record(self._made(1, 0), 0)
        try:
            with self._same_draws():
                self._tables = tables_of(
                    self._scope, model.copied_weights(), model.copied_buffers(), record
                )
        except Exception:  # vmap can take it, and a record by itself cannot be computed.
            return
        self._compute = self._at_once()
        if self._tables and self._refusal_of_vmap() is not None:
            self._tables = {}
            self._compute = self._at_once()

    def _go_one_by_one(self, reason: str) -> None:
        self.reason = reason
        self._tables = {}
        self._compute = of_one(self._scope, gradients=self._gradients)
        self.seconds, self.block = 0.0, 1
        try:
            with self._same_draws():
                self._results(self._compute, self._made(1, 0))
                start = time.perf_counter()
                self._results(self._compute, self._made(2, 0))
        except Exception as error:
            raise translated(error, self._scope.argument) from error
        self.seconds = (time.perf_counter() - start) / 2

    def _refuse_what_learns_nothing(self) -> None:
        """Refuses a loss that is cut from the weights: its gradients would be zero."""
        if not self._gradients:
            return
        for number in range(2 * _TRIED):
            made_up = made_up_records(self._made_up, 1, number, number % 2)
            weights, buffers = self._model.copied_weights(), self._model.copied_buffers()
            try:
                with self._same_draws():
                    if depends_on_weights(self._scope, weights, buffers, _record(made_up, 0)):
                        return
            except Exception:  # It has no such records, or cannot take one by itself.
                return
        raise InvalidArgumentError(
            self._scope.argument,
            Text("a loss without gradients"),
            problem="it depends on no trained weight, so that every step would be noise alone",
            fix="Leave out what cuts it from the model: detach(), torch.no_grad(), item(), NumPy, "
            "argmax.",
        )

    def _refuse_what_is_changed(self) -> None:
        """Refuses functions that set a seed, change weights, or let buffers follow the records."""
        changed = []
        for seed in (0, 1):
            weights, buffers = self._model.copied_weights(), self._model.copied_buffers()
            if all(self._sets_a_seed(weights, buffers, seed) for _ in range(_ATTEMPTS)):
                raise InvalidArgumentError(
                    self._scope.argument,
                    Text("a function that sets the seed of PyTorch's generator"),
                    problem="its draws, as for dropout, would be known, and the same in every "
                    "step",
                    fix="Call torch.manual_seed before the training only.",
                )
            for name, weight in self._model.copied_weights().items():
                if not _equal(weight, weights[name]):
                    raise InvalidArgumentError(
                        "model",
                        self._scope.model,
                        problem=f"it changes its weight {name!r} while it is called, and only "
                        "the noisy steps may change weights",
                        fix="Leave that out, as max_norm= of an embedding; the clipping bounds "
                        "what a record changes.",
                    )
            changed.append(buffers)
        for name, buffer in changed[0].items():
            if not _equal(buffer, changed[1][name]):
                raise running_statistics(self._scope.model, name)

    def _sets_a_seed(self, weights: Tensors, buffers: Tensors, seed: int) -> bool:
        """Returns whether another seed is set when a made-up record is computed.

        Another thread of the script may do so as well, so this is asked several times.
        """
        for name, buffer in self._model.copied_buffers().items():
            buffers[name].copy_(buffer)
        with self._same_draws():
            known_seed = torch.initial_seed()
            self._compute(weights, buffers, *self._few(1, seed))
            return torch.initial_seed() != known_seed

    def _refuse_memory(self) -> None:
        """Refuses a function whose result for a record changes with the records before it."""
        count = 1 if self.seconds is not None else BLOCK
        first, other = (self._made(count, seed) for seed in (0, 1))
        for _ in range(_ATTEMPTS):
            before = self._with_same_draws(first)
            self._with_same_draws(other)
            if _are_close(before, self._with_same_draws(first)):
                return
        raise InvalidArgumentError(
            self._scope.argument,
            Text("a function of more than the record"),
            problem="the result for a made-up record is another one after other records were "
            "computed. So the model or the function keeps something of earlier records, changes "
            "the record in place, or draws from a generator of its own",
            fix="Use nothing but the record and PyTorch's own draws, as dropout does, and write "
            "x = 2 * x, not x *= 2.",
        )

    def finds_places(self) -> bool:
        """Finds how many records must be computed together, and at which places.

        Returns whether a record's result then has the same bits beside all others.
        """
        count = self.chunk_size
        sets = [self._made(count, seed) for seed in range(math.ceil(_COMPARED / count))]

        def bits(
            some_sets: list[Parts], changed: Callable[[Parts], Parts] = tuple
        ) -> torch.Tensor:
            """Returns a number for each record, shape (sets, records)."""
            return torch.stack(
                [fingerprints(self._with_same_draws(changed(parts))) for parts in some_sets]
            )

        one_set = sets[:1]
        for _ in range(_ATTEMPTS):
            self.block = BLOCK
            if not torch.equal(bits(one_set), bits(one_set)):
                continue
            for self.block in (*(block for block in _BLOCKS if block < count), count):
                whole = bits(sets)
                if all(
                    torch.equal(bits(one_set, partial(_first, count=few)), whole[:1, :few])
                    for few in (self.block, 3 * self.block, 5 * self.block)
                    if few < count
                ):
                    break
            for self.period in (1, 2, 4, 8, 16, 32, count):
                if count % self.period:
                    continue
                rolled = bits(sets, partial(_rolled, by=self.period))
                if torch.equal(rolled.roll(-self.period, 1), whole):
                    break
            if torch.equal(bits(one_set, partial(_first, count=1)), whole[:1, :1]):
                return True
        # Other bits each time: nothing can be found, and nothing is better one by one.
        self.block, self.period = BLOCK, 1
        self.is_reproducible = torch.equal(bits(one_set), bits(one_set))
        return not self.is_reproducible

    def _with_same_draws(self, parts: Parts) -> Rows:
        """Returns results in which all records have the same draws, whatever their places."""
        compute = self._compute
        if self.seconds is None:
            compute = self._at_once("same")
        with self._same_draws():
            count = len(leaves(parts)[0])
            return [rows[:count] for rows in self._results(compute, parts).rows]


def made_up_records(parts: Parts, count: int, seed: int, whole: int = 0) -> Parts:
    """Returns made-up records: numbers between 0 and 1, and one number for all whole ones.

    Args:
        parts: Parts of records, of which shapes and types are used.
        count: How many.
        seed: Which ones.
        whole: What stands for each whole number.
    """
    generator = torch.Generator().manual_seed(seed)

    def of_part(part: torch.Tensor) -> torch.Tensor:
        shape = (count, *part.shape[1:])
        if not part.is_floating_point():
            return part.new_full(shape, whole)
        numbers = torch.rand(shape, generator=generator, device="cpu")
        return numbers.to(part.device, part.dtype)

    return tuple(mapped(of_part, part) for part in parts)


def _first(parts: Parts, count: int) -> Parts:
    return tuple(mapped(lambda part: part[:count], part) for part in parts)


def _rolled(parts: Parts, by: int) -> Parts:
    return tuple(mapped(lambda part: part.roll(by, 0), part) for part in parts)


def _record(parts: Parts, index: int) -> Parts:
    return tuple(mapped(lambda part: part[index], part) for part in parts)


def fingerprints(rows: Rows) -> torch.Tensor:
    """Returns a number for each row in which every bit of it counts, shape (rows,).

    Results are compared by these, so that not several of them fill the memory.

    Args:
        rows: Results, a matrix for each parameter.
    """
    total = torch.zeros(len(rows[0]), dtype=torch.int64, device=rows[0].device)
    generator = torch.Generator().manual_seed(0)
    for part in rows:
        bits = part.contiguous().view(_WHOLE[part.element_size()])
        for left in range(0, bits.shape[1], _COLUMNS):
            piece = bits[:, left : left + _COLUMNS].to(torch.int64)
            width = (piece.shape[1],)
            odd = 2 * torch.randint(2**62, width, generator=generator, device="cpu") + 1
            total += (piece * odd.to(piece.device)).sum(1)  # Overflows wrap around.
    return total


def _are_close(rows: Rows, other_rows: Rows) -> bool:
    """Returns whether results differ by rounding at most."""
    if torch.equal(fingerprints(rows), fingerprints(other_rows)):
        return True
    is_half = rows[0].element_size() == 2 or torch.is_autocast_enabled(rows[0].device.type)
    limit = _ROUNDING_OF_HALVES if is_half else _ROUNDING
    differences, sizes = torch.zeros(2, len(rows[0]), dtype=torch.float64, device=rows[0].device)
    for part, other_part in zip(rows, other_rows, strict=True):
        values, other_values = part.double().nan_to_num(), other_part.double().nan_to_num()
        differences += (values - other_values).square().sum(1)
        sizes += torch.maximum(values.square().sum(1), other_values.square().sum(1))
    return bool((differences.sqrt() <= limit * sizes.sqrt()).all())


def _equal(tensor: torch.Tensor, other_tensor: torch.Tensor) -> bool:
    """Returns whether tensors are equal; what is not a number equals itself."""
    if not tensor.is_floating_point():
        return torch.equal(tensor, other_tensor)
    return torch.equal(tensor.nan_to_num(nan=1.5e30), other_tensor.nan_to_num(nan=1.5e30))
