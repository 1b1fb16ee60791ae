"""A prior learnt from finished pilot runs, and frozen.

Proof that it costs nothing beyond the pilots: docs/explanation/pilots.md. One draw is: with
probability ``uniform_share`` a point of the base prior; otherwise N fresh points of the base
prior, of which one is chosen by a softmax of the scores that the pilots predict. Given the
pilots' outputs that is one law, whatever its weights and however sharp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.densities.adaptive_density import (
    RunOutcome,
    clean_scores,
    describe_model,
    sign_of,
    standardized,
)
from optuna_dp.densities.encoding import encode_params, encoded
from optuna_dp.densities.prior import BaseDistribution, Candidates, Prior, Space, UniformPrior
from optuna_dp.densities.surrogate import FittedModel, GaussianProcess, ScoreModel, checked_model
from optuna_dp.errors import InvalidArgumentError

# Points whose predictions are computed at once: bounds the memory of a draw of many candidates.
_BLOCK = 2**18
_PROBES = 16
_SETS = 8


@dataclass(frozen=True)
class FrozenPriorSettings:
    """How a prior is made from the pilots' outputs; holds no outputs.

    Args:
        sharpness: Inverse temperature of the softmax, in units of the spread of the pilots'
            scores. 0 is the base prior; a large one takes the best of the N candidates.
        uniform_share: Probability of a draw from the base prior instead: no region is lost.
        candidates: N, fresh points per draw.
        surrogate: The score model.
        base: The prior before the pilots.
    """

    sharpness: float = 4.0
    uniform_share: float = 0.1
    candidates: int = 512
    surrogate: ScoreModel = field(default_factory=GaussianProcess)
    base: Prior = field(default_factory=UniformPrior)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "sharpness", validation.non_negative("sharpness", self.sharpness))
        share = validation.number("uniform_share", self.uniform_share)
        if not 0.0 <= share <= 1.0:
            raise InvalidArgumentError("uniform_share", share, "it must lie in [0, 1]")
        set_(self, "uniform_share", share)
        set_(self, "candidates", validation.whole("candidates", self.candidates, 1))
        checked_model(self.surrogate)

    def describe(self, space: Space) -> dict[str, Any]:
        """All settings as plain data, for the record of a plan."""
        return {
            "prior": "frozen after the pilots",
            "sharpness": self.sharpness,
            "uniform_share": self.uniform_share,
            "candidates": self.candidates,
            "surrogate": describe_model(self.surrogate),
            "base": self.base.fingerprint(space),
        }


class FrozenPrior(Prior):
    """The prior that pilots' outputs give.

    Args:
        settings: How it is made.
        pilots: The pilots' outputs, in order of their slots. Failed ones have the lowest score.
        space: The joint search space.
        direction: Whether high or low scores are good.

    Guarantees:
        * The law of a draw is a function of the arguments: it is not changed by drawing, and
          draws of different calls are independent.
        * Its density relative to the base prior is at least ``uniform_share``.
    """

    def __init__(
        self,
        settings: FrozenPriorSettings,
        pilots: Sequence[RunOutcome],
        space: Space,
        direction: str = "maximize",
    ) -> None:
        self._settings = settings
        self._space = dict(space)
        self._model: FittedModel | None = None
        if pilots and settings.sharpness > 0.0:
            values = [pilot.score for pilot in pilots]
            scores = standardized(clean_scores(values, sign_of(direction)))
            points = encode_params(self._space, [pilot.params for pilot in pilots])
            self._model = settings.surrogate.fit(points, scores)

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        """Draws ``n`` points, each from a set of candidates of its own."""
        if dict(space) != self._space:
            raise InvalidArgumentError(
                "space", dict(space), f"the prior was frozen over {self._space}"
            )
        if self._model is None:
            return self._settings.base.sample(space, n, rng)
        at_once = max(1, _BLOCK // self._settings.candidates)
        blocks = [
            self._draw(min(at_once, n - start), self._model, rng) for start in range(0, n, at_once)
        ]
        columns = {name: np.concatenate([b[name] for b in blocks]) for name in self._space}
        return Candidates(self._space, columns, n)

    def draw_one(self, name: str, distribution: BaseDistribution, rng: np.random.Generator) -> Any:
        return self._settings.base.draw_one(name, distribution, rng)

    def fingerprint(self, space: Space) -> dict[str, Any]:
        """The settings; the pilots' outputs are not part of it."""
        return self._settings.describe(space)

    def probes(self) -> list[float]:
        """Predicted scores at fixed points: two workers with equal probes have equal laws.

        The points are no secret and never used as candidates. A prediction that is not finite
        is shown as the largest float.
        """
        fixed = self._settings.base.sample(self._space, _PROBES, np.random.default_rng(0))
        if self._model is None:
            return [0.0] * _PROBES
        means = _means(self._model, fixed)
        return [float(v) for v in np.where(np.isfinite(means), means, np.finfo(np.float64).max)]

    def ratios(self, points: Candidates, rng: np.random.Generator) -> FloatArray:
        """Estimates the density of this prior relative to the base prior at given points; (n,).

        For figures. A point is drawn as the best of N with the other N - 1 being fresh, so its
        ratio is a mean over sets of those: eight here. All 1 without a model.
        """
        if self._model is None:
            return np.ones(len(points))
        others = self._settings.candidates - 1
        pool = self._settings.base.sample(self._space, max(_SETS * others, 1), rng)
        at = [_means(self._model, points), _means(self._model, pool)]
        # One row: weights relative to one and the same best score.
        logs = _log_weights(np.concatenate(at)[None, :], self._settings.sharpness)[0]
        mine = logs[: len(points)][:, None]
        rest = logs[len(points) :][: _SETS * others].reshape(_SETS, others)
        with np.errstate(invalid="ignore", divide="ignore"):
            # How likely a softmax is to take the point, in logarithms: nothing underflows.
            against = logsumexp(rest, axis=1) if others else np.full(_SETS, -np.inf)
            odds = mine - against[None, :]
            chosen = expit(np.nan_to_num(odds, nan=-np.inf)).mean(axis=1)
        share = self._settings.uniform_share
        result: FloatArray = share + (1.0 - share) * self._settings.candidates * chosen
        return result

    def _draw(self, n: int, model: FittedModel, rng: np.random.Generator) -> dict[str, FloatArray]:
        """``n`` points by column, each chosen among N candidates drawn for it alone."""
        each = self._settings.candidates
        pool = self._settings.base.sample(self._space, n * each, rng)
        logits = _log_weights(_means(model, pool).reshape(n, each), self._settings.sharpness)
        logits[rng.random(n) < self._settings.uniform_share] = 0.0
        # The largest of logits plus independent Gumbel noise is a draw from their softmax.
        chosen = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1) + np.arange(n) * each
        return {name: column[chosen] for name, column in pool.columns.items()}


def _means(model: FittedModel, points: Candidates) -> FloatArray:
    """Predicted scores, as a model of the user's may return them; (n,)."""
    return np.asarray(model.predict(encoded(points))[0], dtype=np.float64)


def _log_weights(scores: FloatArray, sharpness: float) -> FloatArray:
    """Row by row ``sharpness * (score - best)``; what is no number has no weight; (n, N)."""
    # Finite, so that differences are; scores are in units of their spread.
    known = np.clip(np.where(np.isnan(scores), -np.inf, scores), -1e150, 1e150)
    with np.errstate(over="ignore"):
        result: FloatArray = sharpness * (known - known.max(axis=1, keepdims=True))
    return result
