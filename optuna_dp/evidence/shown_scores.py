"""Whether a score that is shown can be the noisy mean that the plan charges for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from optuna_dp.core.numbers_shown import reach_of_means

# In standard deviations of the noise. Gaussian noise goes beyond once in 10^31 scores.
_FARTHEST = 12.0


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
        lowest, highest = reach_of_means(deviation, _FARTHEST)
        if not lowest <= score <= highest:
            return (
                f"a score of {score:.6g} is shown, and scores are sums of numbers from 0 to 1 "
                f"over the planned number of records, with noise of standard deviation "
                f"{deviation:.2g}"
            )
    return ""
