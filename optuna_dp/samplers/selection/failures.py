"""Blocks of failed runs that are too long to be chance.

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

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.ended_runs import Evidence
from optuna_dp.study.trials import score

# Less than this is not put down to chance; so many sound studies with failures are asked about.
UNLIKELY = 0.01


def longest_block(failed: Sequence[bool]) -> tuple[int, int]:
    """Returns where the longest block of failed runs begins, and its length.

    Of several the last one.
    """
    best, start = (len(failed), 0), 0
    for i, has_failed in enumerate(failed):
        if not has_failed:
            start = i + 1
        elif i + 1 - start >= best[1]:
            best = start, i + 1 - start
    return best


def is_unlikely_block(failed: Sequence[bool]) -> bool:
    """Returns whether failed runs stand in one block that chance hardly explains.

    If all runs failed nothing was chosen, so nothing stands out. A block at the end is what is to
    be expected of a machine that died, so it is not charged for the other places it might have.
    """
    n, f = len(failed), sum(failed)
    start, length = longest_block(failed)
    if f in (0, n):
        return False
    places = 1 if start + length == n else n - length + 1
    return places * math.comb(n - length, f - length) / math.comb(n, f) < UNLIKELY


def check_failures(evidence: Evidence, failures: str | None) -> int | None:
    """Refuses a block of failed runs; returns the number of the other runs if that is revealed.

    What is released by the distribution of T must not depend on runs that failed for certain.
    Neither may the statement say that there were some: that tells something about T. So nothing is
    said of failures by chance. Where they were not by chance, the number of the other runs is
    revealed, and the guarantee is that of the best of exactly as many. It holds given that number:
    what the number itself tells of T is no function of the data, as long as the cause of the
    failures is none (``docs/limitations.md``).
    """
    failed = [score(run.trial) is None for run in evidence.runs]
    together = is_unlikely_block(failed)
    if failures == "lost" and not together:
        raise InvalidArgumentError(
            "failures",
            failures,
            problem="no block of failed runs is too long to be chance",
            fix="Leave it out.",
        )
    if together and failures is None:
        raise ReleaseRefusedError(
            "So many runs in a row failed that chance hardly explains it. If they could not "
            "succeed (the objective was broken, the machine died, the search was stopped), the "
            "best of the other runs may cost more than the best of all.",
            fix="In that case call release(study, failures='lost'): it releases the best of the "
            "other runs, reveals how many they were, and charges for that. If each run failed by "
            "chance, for a reason of its own, call release(study, failures='chance').",
        )
    return len(failed) - longest_block(failed)[1] if failures == "lost" else None
