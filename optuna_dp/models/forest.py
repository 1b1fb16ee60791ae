"""A random forest as score model: for spaces with many choices or sharp edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.models.surrogate import Constant, FittedModel


@dataclass(frozen=True)
class RandomForest:
    """Averages regression trees; their disagreement is the spread.

    Args:
        trees: Number of trees.
        seed: Makes the forest a function of the history. It need not be secret: the forest's
            randomness decides nothing about a run's density bounds, nor about the draw.
    """

    trees: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        validation.whole("trees", self.trees, 2)
        validation.whole("seed", self.seed)

    def fit(self, x: FloatArray, y: FloatArray) -> FittedModel:
        """Learns from points ``x`` (n, d) and finite scores ``y`` (n,)."""
        if len(y) == 0:
            return Constant(0.0, 1.0)
        center, spread = float(np.mean(y)), float(np.std(y)) or 1.0
        if x.shape[1] == 0 or len(y) == 1:
            return Constant(center, spread)
        from sklearn.ensemble import RandomForestRegressor  # start-up time

        model = RandomForestRegressor(
            n_estimators=self.trees, random_state=self.seed, min_samples_leaf=2, n_jobs=1
        )
        return _Forest(model.fit(x, y).estimators_)


@dataclass(frozen=True, eq=False)
class _Forest:
    trees: Any  # fitted scikit-learn trees

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        # check_input=False needs what the trees work on, 32-bit floats in C order.
        points = np.ascontiguousarray(x, dtype=np.float32)
        each = np.stack([tree.predict(points, check_input=False) for tree in self.trees])
        return each.mean(axis=0), each.std(axis=0)
