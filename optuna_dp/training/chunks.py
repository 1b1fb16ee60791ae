"""Records in chunks: some are computed together, and each result is that of its record alone."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from optuna_dp.training.record_arrays import Parts, mapped
from optuna_dp.training.records import Records

# Of a data set whose items may have different shapes, before the training.
_RECORDS_LOOKED_AT = 16
# With so many records at once, or a multiple of it, results of one record do not depend on the
# others, to the last bit, for most models.
BLOCK = 8
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Chunk:
    """Some records that are computed together.

    Attributes:
        indices: The records.
        places: The row of each of them among all rows that are computed; other rows are copies.
    """

    indices: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def one(self, number: int) -> Chunk:
        """Returns one of the records, at its place."""
        return Chunk(self.indices[number : number + 1], self.places[number : number + 1])


def chunks_of(indices: npt.NDArray[np.int64], chunk_size: int, period: int = 1) -> Iterator[Chunk]:
    """Yields records in chunks.

    Args:
        indices: The records.
        chunk_size: How many rows are computed at a time; a multiple of ``period``.
        period: The remainder of a record's place by this number decides its bits. So each record
            draws its remainder by itself, and no other record has an effect on it.
    """
    places = np.arange(len(indices))
    if period > 1:
        remainders = np.frombuffer(secrets.token_bytes(len(indices)), dtype=np.uint8) % period
        for remainder in range(period):
            members = np.flatnonzero(remainders == remainder)
            places[members] = remainder + period * np.arange(len(members))
    order = np.argsort(places, kind="stable")
    numbers = places[order] // chunk_size
    ends = np.searchsorted(numbers, np.arange(1, numbers.max(initial=-1) + 2))
    for members in np.split(order, ends[:-1]) if len(indices) else []:
        yield Chunk(indices[members], places[members] % chunk_size)


def in_chunks(
    compute: Callable[[Chunk], _Value], chunks: Iterable[Chunk]
) -> Iterator[tuple[npt.NDArray[np.int64], _Value | None]]:
    """Yields what is computed of records, some at a time.

    If some of them raise an error, they are computed one by one, and nothing is computed of a
    record that raises one by itself: a label that is no class, a broken file, another shape.
    Otherwise a single record would decide whether a run fails, and no noise would hide it.

    Args:
        compute: What is computed of some records. The results of a record must be the same, to
            the last bit, whichever records are computed with it.
        chunks: The records.

    Yields:
        Indices, and what was computed of them; None of a record that raises an error.

    Raises:
        MemoryError: If the memory is too small for some of them.
    """
    for chunk in chunks:
        try:
            value = compute(chunk)
        except Exception as error:
            if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
                raise
            if len(chunk) == 1:
                yield chunk.indices, None
            else:
                yield from in_chunks(compute, map(chunk.one, range(len(chunk))))
        else:
            yield chunk.indices, value


def placed(parts: Parts, places: npt.NDArray[np.int64], block: int = BLOCK) -> Parts:
    """Returns records at given places, and copies of the first one at all other places.

    Args:
        parts: The parts of the records, along the first axis.
        places: Their places.
        block: The number of places is a multiple of it.
    """
    if len(places) % block == 0 and np.array_equal(places, np.arange(len(places))):
        return parts  # There is a record at each place.
    sources = np.zeros(-(-(int(places.max()) + 1) // block) * block, dtype=np.int64)
    sources[places] = np.arange(len(places))
    return tuple(mapped(lambda array: array[sources], part) for part in parts)


def usual_parts(records: Records) -> Parts:
    """Returns the parts of records, of the shapes that most of the first ones have.

    A broken record, or one of another shape, does not decide whether a training begins.

    Args:
        records: All records; the first few are read.

    Returns:
        The parts of one record at least, with the records along the first axis.

    Raises:
        Exception: If none of them can be read.
    """
    try:
        return records.take(np.arange(min(len(records), _RECORDS_LOOKED_AT)))
    except Exception:
        readable_records = _readable(records)
        if not readable_records:
            raise
        usual, _ = Counter(map(_shapes, readable_records)).most_common(1)[0]
        return next(parts for parts in readable_records if _shapes(parts) == usual)


def have_one_shape(records: Records) -> bool:
    """Returns whether most of the first few records have parts of the same shapes."""
    readable_records = _readable(records)
    counts = Counter(map(_shapes, readable_records))
    return not counts or 2 * counts.most_common(1)[0][1] > len(readable_records)


def _readable(records: Records) -> list[Parts]:
    """Returns the first few records that can be read, each by itself."""
    looked_at = chunks_of(np.arange(min(len(records), _RECORDS_LOOKED_AT)), 1)
    read = in_chunks(lambda chunk: records.take(chunk.indices), looked_at)
    return [parts for _, parts in read if parts is not None]


def _shapes(parts: Parts) -> str:
    """Returns shapes and types of the parts of records, as a text."""

    def described(part: object) -> tuple[object, ...]:
        return (*getattr(part, "shape", ()), str(getattr(part, "dtype", type(part))))

    return repr([mapped(described, part) for part in parts])
