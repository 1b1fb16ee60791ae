"""Scores that look as if no noise had been added to them.

For the curator's eyes: it reads all scores. It refuses nothing, because equal or round scores can
be private (rounded, clipped, noise of a fixed size in units of a count), and scores on public data
need no noise.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from optuna_dp.errors import ExactScoreWarning

_logger = logging.getLogger("optuna_dp")

EXACT = "The scores of this study look exact"
_ALIKE = 3
_MOST = 100_000
_ADVICE = (
    "If they are made of private data, add noise and charge for it (optuna_dp.scoring); if the "
    "training is seeded, take the seed away: its noise is no noise. Scores on public data may be "
    "exact."
)


def looks_exact(scores: Sequence[float]) -> str:
    """Says in words why scores look exact; empty if they do not.

    Args:
        scores: Scores of runs that have one.
    """
    finite = [value for value in scores if math.isfinite(value)]
    value, times = Counter(finite).most_common(1)[0] if finite else (0.0, 0)
    # Clipped scores repeat at the ends of their range.
    if times >= _ALIKE and value not in (min(finite), max(finite), 0.0, 1.0):
        return f"{EXACT}: several runs have the very same. {_ADVICE}"
    if times >= _ALIKE and times == len(finite):
        return f"{EXACT}: all runs have the very same. {_ADVICE}"
    unit = _common_unit(sorted(set(finite)))
    if unit is not None and unit > 1:
        return (
            f"{EXACT}: all are multiples of 1/{unit}, as a share of {unit} records is. {_ADVICE}"
        )
    return ""


def warn_of_scores(words: str) -> None:
    """Warns the curator, and logs it for scripts that silence warnings."""
    _logger.warning(words)
    warnings.warn(words, ExactScoreWarning, stacklevel=3)


def _common_unit(distinct: Sequence[float]) -> int | None:
    """Returns the smallest m of at most 100,000 such that all values are multiples of 1/m.

    A double drawn at random is one of them with a chance of about 1e-6; three or more with a
    common one hardly ever.
    """
    unit = 1
    if len(distinct) < _ALIKE:
        return None
    for value in distinct:
        near = Fraction(value).limit_denominator(_MOST)
        if float(near) != value:
            return None
        unit = math.lcm(unit, near.denominator)
        if unit > _MOST:
            return None
    return unit
