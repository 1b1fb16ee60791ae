"""Scores of earlier runs, as score models are given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import ParamValue

# Scores further below the median than this many interquartile ranges are moved up to there.
_OUTLIER_RANGES = 5.0


@dataclass(frozen=True)
class RunOutcome:
    """All that an adaptive density may know of an earlier run.

    Attributes:
        params: Its hyperparameters.
        score: Its (differentially private) score; None if the run failed or was pruned.
    """

    params: dict[str, ParamValue]
    score: float | None


def clean_scores(scores: Sequence[float | None], sign: float) -> FloatArray:
    """Scores to be maximised, all finite.

    Runs without a finite score (failed, pruned, diverged) are outcomes too: they get the lowest
    score seen. One wild score (a diverged loss of 1e9) would make all others look alike to any
    model: scores more than five interquartile ranges below the median are raised to there.

    Args:
        scores: One per run; None, NaN and infinities for runs without a usable score.
        sign: 1 if high scores are good, -1 if low ones are.
    """
    y = np.array([np.nan if score is None else sign * score for score in scores])
    usable = np.isfinite(y)
    if not usable.any():
        return np.zeros(len(y))
    usable_scores = y[usable]
    # Half the range of float64 is enough for anyone, and keeps sums finite.
    usable_scores = np.clip(usable_scores, -1e150, 1e150)
    quarter, median, three_quarters = np.quantile(usable_scores, [0.25, 0.5, 0.75])
    width = float(three_quarters - quarter)
    if width > 0.0:
        usable_scores = np.maximum(usable_scores, median - _OUTLIER_RANGES * width)
    result: FloatArray = np.full(len(y), usable_scores.min())
    result[usable] = usable_scores
    return result


def standardized(y: FloatArray) -> FloatArray:
    """Scores with mean 0 and spread 1; all 0 if they are equal."""
    centre, spread = centre_and_spread(y)
    centred = y - centre
    result: FloatArray = centred / spread if spread > 0.0 else 0.0 * centred
    return result


def centre_and_spread(y: FloatArray) -> tuple[float, float]:
    """Mean and standard deviation of scores; the latter is 0 if there is nothing but rounding."""
    centred = y - y.mean()
    spread = float(centred.std())
    # Dividing by a spread at rounding level would turn noise into knowledge.
    has_spread = spread > 1e-12 * max(1.0, float(np.abs(centred).max()))
    return float(y.mean()), spread if has_spread else 0.0
