"""The records of each step, drawn from the operating system's cryptographic randomness.

The privacy of DP-SGD is that of Poisson sampling: every record joins every step with the same
chance, independently of all others and of all other steps. No seed of a script repeats the draws,
so an attacker who knows the script does not know them.
"""

from __future__ import annotations

import ssl

import numpy as np
import numpy.typing as npt

# Memory: eight bytes for each record are drawn at a time.
_RECORDS_AT_A_TIME = 1 << 20


def poisson_sample(records: int, sample_rate: float) -> npt.NDArray[np.int64]:
    """Returns the indices of the records that join a step, in increasing order.

    Each record joins if a fresh 64-bit integer lies below ``floor(sample_rate * 2**64)``. So its
    chance is at most the sampling rate, and smaller by less than ``2**-64``.

    Args:
        records: The number of records.
        sample_rate: The chance of each of them, in [0, 1].
    """
    # Exact: a float times a power of two is one, and Python's integers have no largest.
    threshold = int(sample_rate * 2.0**64)
    if threshold >= 2**64:
        return np.arange(records)
    joined = [
        start + np.flatnonzero(_integers(min(_RECORDS_AT_A_TIME, records - start)) < threshold)
        for start in range(0, records, _RECORDS_AT_A_TIME)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *joined])


def _integers(count: int) -> npt.NDArray[np.uint64]:
    """Returns independent uniform 64-bit integers, shape (count,)."""
    return np.frombuffer(ssl.RAND_bytes(8 * count), dtype=np.uint64)
