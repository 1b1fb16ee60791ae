"""Failed runs that stand together: chance, or runs that never had one?

A run that fails by chance is an outcome like any other. Runs that all fail for certain, from some
run on or for a while (the machine has died, the objective was broken, somebody stopped early), are
no draws from the law that all runs share: what is released is then the best of fewer runs, by
another law, which may cost more (min(T, 10) for pure 0.1-DP runs and T geometric of mean 1000 has
an attack of 0.85 where the best of T costs 0.30). Which of the two it was cannot be seen in a
storage; that it was hardly chance can.

If the runs are alike, every order of the failures among them is equally likely, whatever the
probability of failing. So with f failures among n runs the chance that a given block of L runs
failed is C(n-L, f-L) / C(n, f), and that some block did is at most n - L + 1 times that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Less than this is not put down to chance; so many sound studies with failures are asked about.
UNLIKELY = 0.01


def longest_block(failed: Sequence[bool]) -> tuple[int, int]:
    """Returns where the longest block of failures begins and how long it is (the last of several).

    Args:
        failed: For each run by slot, whether it failed.
    """
    best, start = (len(failed), 0), 0
    for i, one in enumerate(failed):
        if not one:
            start = i + 1
        elif i + 1 - start >= best[1]:
            best = start, i + 1 - start
    return best


def stand_together(failed: Sequence[bool]) -> bool:
    """Whether failures stand in one block that chance hardly explains.

    If all runs failed nothing was chosen, so nothing stands out. A block at the end is what is to
    be expected of a machine that died, so it is not charged for the other places it might have.

    Args:
        failed: For each run by slot, whether it failed.
    """
    n, f = len(failed), sum(failed)
    start, length = longest_block(failed)
    if f in (0, n):
        return False
    places = 1 if start + length == n else n - length + 1
    return places * math.comb(n - length, f - length) / math.comb(n, f) < UNLIKELY
