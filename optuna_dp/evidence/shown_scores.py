"""Whether a score that is shown can be the noisy mean that the plan charges for."""

from __future__ import annotations

import math
from collections.abc import Iterable

# In standard deviations of the noise. Gaussian noise goes beyond once in 10^31 scores.
_FARTHEST = 12.0
# The sum is divided by a public number of records. There may be up to twice as many
# (``training.records.check_number``), and each adds up to 1/2 to the middle of the range, 1/2, or
# takes it away.
_LOWEST, _HIGHEST = -0.5, 1.5


def impossible_score(
    scores: Iterable[float | None], noise_multiplier: float | None, records: float | None
) -> str:
    """Returns which score no run can have, and why; empty if each is possible.

    Args:
        scores: Means of numbers in [0, 1] with noise; None where a run has none.
        noise_multiplier: Noise of the sum, in contributions of one record, which are 1/2; None if
            nothing is known of it.
        records: What the sum is divided by; None if that is not known.
    """
    if noise_multiplier is None or not records:
        return ""
    deviation = noise_multiplier / (2.0 * records)
    for score in scores:
        # What is no finite number was not made by this package's scores.
        if score is None or not isinstance(score, int | float) or not math.isfinite(score):
            continue
        farthest = _FARTHEST * deviation
        if not _LOWEST - farthest <= score <= _HIGHEST + farthest:
            return (
                f"a score of {score:.6g} is shown, and scores are sums of numbers from 0 to 1 "
                f"over the planned number of records, with noise of standard deviation "
                f"{deviation:.2g}"
            )
    return ""
