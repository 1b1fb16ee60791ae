"""Families of neighbouring worlds in which to look for a violation.

A world is what the data decide: the laws of single runs, or the utilities of candidates. A family
draws pairs of worlds that one record may tell apart, no further than a claim allows, and varies a
pair that looks promising. Nothing in a family knows what is wrong with a procedure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray, IntArray

from .simulation import Runs

Pair = tuple[Any, Any]


class Family(Protocol):
    """Where to look: what draws neighbouring worlds, and varies them."""

    def draw(self, rng: np.random.Generator) -> Pair:
        """Returns a pair of neighbouring worlds."""
        ...

    def vary(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Returns a pair that is like another in most respects."""
        ...


@dataclass(frozen=True, eq=False)
class _Shape:
    """What both worlds have in common, and how they differ."""

    prior: FloatArray
    mass: FloatArray  # on one side, (hyperparameters, outputs)
    raised: FloatArray  # which outputs are likelier on the other side, 0 or 1, of equal shape
    differs: FloatArray  # whether a hyperparameter's law differs at all
    scores: FloatArray
    durations: tuple[FloatArray, FloatArray]
    prefers: tuple[int, int]
    swapped: bool


@dataclass(frozen=True, eq=False)
class RunsWorld:
    """One world of a search.

    Attributes:
        runs: The laws of single runs, with durations.
        prefers: The hyperparameter that a policy which sees the data would like best.
        shape: What the pair was made of.
    """

    runs: Runs
    prefers: int
    shape: _Shape


class NeighbouringRuns:
    """Searches whose single runs are epsilon-DP, for :func:`audit_search`.

    Up to four hyperparameters with up to three outputs each, of which one may be a failure. Laws
    of a run differ by ratios up to e^epsilon, as far as they can; durations, and what a policy
    that sees the data prefers, differ freely: no event covers them, so nothing may depend on them.

    Args:
        epsilon: Of one run; at least 0.

    Raises:
        InvalidArgumentError: If it is not allowed.
    """

    def __init__(self, epsilon: float) -> None:
        self._epsilon = validation.non_negative("epsilon", epsilon)

    def draw(self, rng: np.random.Generator) -> Pair:
        """Returns a pair of :class:`RunsWorld`."""
        size, outputs = int(rng.choice([1, 2, 4])), int(rng.integers(2, 4))
        scores = np.arange(outputs, dtype=np.float64)
        if rng.random() < 0.3:
            scores[:] = 0.0
        if rng.random() < 0.5:
            scores[0] = np.nan
        return self._worlds(
            _Shape(
                _simplex(rng, size) if rng.random() < 0.5 else np.full(size, 1.0 / size),
                np.stack([_simplex(rng, outputs) for _ in range(size)]),
                np.stack([_raised(rng, outputs) for _ in range(size)]),
                (rng.random(size) < 0.7).astype(np.float64),
                scores,
                (rng.permutation(size).astype(np.float64), rng.permutation(size).astype(float)),
                (int(rng.integers(size)), int(rng.integers(size))),
                bool(rng.random() < 0.5),
            )
        )

    def vary(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Returns a pair with masses that are a little different, or one other difference."""
        shape: _Shape = pair[0].shape
        mass = shape.mass * np.exp(0.4 * rng.normal(size=shape.mass.shape))
        prior = shape.prior * np.exp(0.2 * rng.normal(size=shape.prior.shape))
        raised, size = shape.raised.copy(), shape.prior.size
        if rng.random() < 0.2:
            raised[rng.integers(size)] = _raised(rng, raised.shape[1])
        mass, prior = mass / mass.sum(axis=1, keepdims=True), prior / prior.sum()
        return self._worlds(replace(shape, prior=prior, mass=mass, raised=raised))

    def _worlds(self, shape: _Shape) -> Pair:
        moved = np.where(
            shape.differs[:, None] > 0, _moved(shape.mass, shape.raised, self._epsilon), shape.mass
        )
        sides = (moved, shape.mass) if shape.swapped else (shape.mass, moved)
        one, other = (
            RunsWorld(
                Runs(shape.prior, law, shape.scores, shape.durations[i]), shape.prefers[i], shape
            )
            for i, law in enumerate(sides)
        )
        return one, other


def _simplex(rng: np.random.Generator, size: int) -> FloatArray:
    """Masses of very different sizes."""
    mass = 10.0 ** -rng.uniform(0.0, 2.5, size)
    return np.asarray(mass / mass.sum())


def _raised(rng: np.random.Generator, size: int) -> FloatArray:
    """Some of the outputs, not none and not all."""
    chosen = rng.permutation(size) < rng.integers(1, size)
    return np.asarray(chosen, dtype=np.float64)


def _moved(mass: FloatArray, raised: FloatArray, epsilon: float) -> FloatArray:
    """Raises some masses and lowers the others, as far as ratios of e^epsilon allow."""
    whole = (mass * raised).sum(axis=1, keepdims=True)
    up = np.minimum(np.exp(epsilon), (1.0 - np.exp(-epsilon) * (1.0 - whole)) / whole)
    down = (1.0 - up * whole) / (1.0 - whole)
    return np.asarray(mass * np.where(raised > 0, up, down))


class NeighbouringUtilities:
    """Utilities of candidates, in whole units, of which one record moves each by at most one.

    Args:
        candidates: How many; at least 1.
        spread: Utilities lie between 0 and minus this; at least 1.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    def __init__(self, candidates: int, spread: int = 3) -> None:
        self._candidates = validation.whole("candidates", candidates, 1)
        self._spread = validation.whole("spread", spread, 1)

    def draw(self, rng: np.random.Generator) -> Pair:
        """Returns a pair of integer arrays, shape (candidates,)."""
        one = -rng.integers(0, self._spread + 1, self._candidates)
        if rng.random() < 0.5:  # nearly equal utilities tell most
            one = one // self._spread
        return one, self._neighbour(one, rng)

    def vary(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Returns a pair in which one candidate's utilities are others."""
        one, other = (np.array(side) for side in pair)
        at = rng.integers(self._candidates)
        one[at] = -rng.integers(0, self._spread + 1)
        other[at] = one[at] + rng.integers(-1, 2)
        return one, other

    def _neighbour(self, one: IntArray, rng: np.random.Generator) -> IntArray:
        if rng.random() < 0.5:  # some up and the others down
            return one + np.where(rng.random(one.size) < rng.random(), 1, -1)
        return one + rng.integers(-1, 2, one.size)
