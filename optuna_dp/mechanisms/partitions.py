"""Placing records into disjoint partitions, each record independently of the others."""

from __future__ import annotations

import hashlib
import numbers
import secrets
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, Text, type_of

_KEY_BYTES = range(16, hashlib.blake2b.MAX_KEY_SIZE + 1)


def partition(
    record_ids_or_n: int | Iterable[str | bytes | int],
    k: int,
    *,
    key: bytes | None = None,
) -> npt.NDArray[np.int64]:
    """Places every record into one of ``k`` partitions, whatever the other records are.

    Given identifiers, a record's partition is a keyed BLAKE2b hash of its own identifier. Given a
    number of records, it is a draw from the operating system's entropy. In neither case does it
    depend on the position of the record or on the number or content of other records, so adding
    or removing one record changes one partition and leaves the others exactly as they were.

    Args:
        record_ids_or_n: Identifiers (``str``, ``bytes`` or ``int``), one per record, or the
            number of records. An identifier names a record (a person, a visit) and stays with it.
            It must not be computed from the record's content, or replacing the content would move
            the record. A row's number is no identifier: without the first record, every other row
            has another number. So 0, 1, 2, ... is refused.
        k: Number of partitions, at least 2.
        key: Secret of 16 to 64 bytes, for identifiers only. The same key gives the same
            placement again, which a resumed study or a second worker needs. ``None`` draws a
            fresh key that is forgotten on return.

    Returns:
        The partition of each record, in ``0 .. k-1``, in the order given. A partition may come
        out empty: give it a fixed utility such as 0. Do not draw again until none is empty: that
        would make every placement depend on every record.

    Raises:
        InvalidArgumentError: ``k < 2``, fewer records than partitions, an identifier that is not
            ``str``, ``bytes`` or ``int``, identifiers that count the rows, a key of the wrong
            length, or a key with a number.

    Guarantees:
        * Two data sets that differ by one identifier have ``k - 1`` equal partitions.
        * Replacing the content of a record under the same identifier changes one partition.
        * Rows that share an identifier share a partition, so the guarantee then covers all rows
          of one identifier (one person, say) together.

    Example:
        >>> from optuna_dp.mechanisms import partition
        >>> key = b"sixteen bytes or more, kept secret"
        >>> first = partition(["ann", "bob", "cem", "dora"], 2, key=key)
        >>> later = partition(["ann", "cem", "dora"], 2, key=key)
        >>> bool((first[[0, 2, 3]] == later).all())
        True
    """
    k = validation.whole("k", k, minimum=2)
    if isinstance(record_ids_or_n, numbers.Integral):
        n = validation.whole("record_ids_or_n", record_ids_or_n)
        if key is not None:
            raise InvalidArgumentError(
                "key",
                Text("hidden"),
                problem="a number of records is placed by fresh random draws, which use no key",
                fix="Pass the records' identifiers to get a placement that can be repeated.",
            )
        _enough(n, k)
        return np.array([secrets.randbelow(k) for _ in range(n)], dtype=np.int64)
    # The key's own value never goes into a message: messages end up in logs.
    if key is not None and (not isinstance(key, bytes) or len(key) not in _KEY_BYTES):
        raise InvalidArgumentError(
            "key",
            Text("hidden"),
            allowed="it must be 16 to 64 bytes",
            fix="Use secrets.token_bytes(32).",
        )
    if isinstance(record_ids_or_n, (str, bytes)) or not isinstance(record_ids_or_n, Iterable):
        raise InvalidArgumentError(
            "record_ids_or_n",
            type_of(record_ids_or_n),
            allowed="it must be a number of records or a sequence of identifiers",
        )
    encoded = [_encode(position, record_id) for position, record_id in enumerate(record_ids_or_n)]
    _enough(len(encoded), k)
    if encoded == [b"i%d" % position for position in range(len(encoded))]:
        raise InvalidArgumentError(
            "record_ids_or_n",
            Text(f"0 to {len(encoded) - 1}"),
            problem="these are the numbers of the rows and no identifiers: without the first "
            "record all the others would have other numbers, and be placed anew",
            fix=f"Without identifiers give the number of records, partition({len(encoded)}, "
            f"{k}), and store each record's part beside it.",
        )
    keyed = hashlib.blake2b(key=key or secrets.token_bytes(32), digest_size=16)
    places = np.empty(len(encoded), dtype=np.int64)
    for position, name in enumerate(encoded):
        digest = keyed.copy()
        digest.update(name)
        places[position] = int.from_bytes(digest.digest(), "big") % k
    return places


def _enough(n: int, k: int) -> None:
    if n < k:
        raise InvalidArgumentError(
            "record_ids_or_n",
            n,
            allowed=f"there must be at least as many records as partitions (k={k})",
            fix="Use fewer partitions.",
        )


def _encode(position: int, record_id: object) -> bytes:
    """Bytes of an identifier, tagged by type so that 1, "1" and b"1" are different records."""
    if isinstance(record_id, str):
        return b"s" + record_id.encode("utf-8", "surrogatepass")
    if isinstance(record_id, bytes):
        return b"b" + record_id
    if isinstance(record_id, numbers.Integral) and not isinstance(record_id, bool):
        return b"i" + str(int(record_id)).encode()
    raise InvalidArgumentError(
        f"record_ids_or_n[{position}]",
        type_of(record_id),  # It may be the record itself.
        allowed="an identifier must be a str, bytes or int: the record's name, not its content",
        fix="Without identifiers give the number of records: partition(len(x), k).",
    )
