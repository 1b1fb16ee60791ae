"""The uniform prior over an Optuna search space, and sets of candidates drawn from it.

"Uniform" is the law of ``optuna.samplers.RandomSampler``: uniform on the axis on which Optuna
displays the parameter (linear or logarithmic), uniform over the points of a stepped range, over
whole numbers and over choices; a logarithmic whole number is the rounding of a log-uniform real
on ``[low - 1/2, high + 1/2]``. Every parameter is a function of one uniform number on [0, 1),
:func:`from_unit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from optuna.distributions import BaseDistribution as BaseDistribution
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import JsonValue, ParamValue
from optuna_dp.priors.space import Space, check_space


@dataclass(frozen=True, eq=False)
class Candidates:
    """N points of a search space, stored by column.

    Attributes:
        space: The search space.
        columns: For each parameter its N values in Optuna's internal representation (numbers as
            floats, choices by index), shape (N,).
        n: N; needed because a space may have no parameters.
    """

    space: dict[str, BaseDistribution]
    columns: dict[str, FloatArray]
    n: int

    def __len__(self) -> int:
        return self.n

    def params(self, i: int) -> dict[str, ParamValue]:
        """Candidate ``i`` as Optuna would show it: plain Python values, no numpy scalars."""
        return {
            name: to_external(distribution, float(self.columns[name][i]))
            for name, distribution in self.space.items()
        }


@runtime_checkable
class Prior(Protocol):
    """The law candidates are drawn from; ``pi0`` of every statement about densities.

    It must not depend on the data, on earlier runs or on earlier draws: every candidate of every
    call has the same law, whatever happened before. (Candidates of one call may depend on each
    other; see docs/explanation/bounded-densities.md.)
    """

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        """Draws ``n`` candidates over the whole space."""

    def draw_one(
        self, name: str, distribution: BaseDistribution, rng: np.random.Generator
    ) -> ParamValue:
        """Draws one parameter that was not drawn jointly; uniformly, unless a prior differs."""
        return value_at(distribution, rng.random())

    def fingerprint(self, space: Space) -> dict[str, JsonValue]:
        """The law as plain data, so that workers can tell whether they share it."""


@dataclass(frozen=True)
class UniformPrior(Prior):
    """Optuna's own random law.

    Guarantees:
        Each candidate has the law of ``optuna.samplers.RandomSampler``, independently of all
        others.
    """

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        space = check_space(space)
        units = rng.random((validation.whole("n", n, 1), len(space)))
        columns = {
            name: from_unit(distribution, units[:, j])
            for j, (name, distribution) in enumerate(space.items())
        }
        return Candidates(space, columns, n)

    def fingerprint(self, space: Space) -> dict[str, JsonValue]:
        return {"prior": "uniform"}


def value_at(distribution: BaseDistribution, u: float) -> ParamValue:
    """The value of one parameter at ``u`` on [0, 1), a plain Python value: uniform if u is.

    Raises:
        InvalidArgumentError: If the distribution is none of Optuna's, or its range is infinite.
    """
    check_space({"parameter": distribution})
    return to_external(distribution, float(from_unit(distribution, np.array([u]))[0]))


def from_unit(distribution: BaseDistribution, u: FloatArray) -> FloatArray:
    """Maps uniforms on [0, 1) to the parameter's prior law, in internal representation."""
    d = distribution
    if isinstance(d, CategoricalDistribution):
        return _index(u, len(d.choices)).astype(np.float64)
    if isinstance(d, IntDistribution) and d.log:
        low, high = math.log(d.low - 0.5), math.log(d.high + 0.5)
        return np.clip(np.rint(np.exp(low + u * (high - low))), d.low, d.high)
    if isinstance(d, IntDistribution):
        return np.minimum(d.low + _index(u, n_points(d)) * float(d.step), float(d.high))
    assert isinstance(d, FloatDistribution)
    if d.single():
        return np.full(u.shape, d.low)
    if d.step is not None:
        return np.clip(d.low + _index(u, n_points(d)) * d.step, d.low, d.high)
    if d.log:
        low, high = math.log(d.low), math.log(d.high)
        values = np.exp(low + u * (high - low))
    else:
        # Written so that high - low cannot overflow.
        values = d.low * (1.0 - u) + d.high * u
    return np.clip(values, d.low, math.nextafter(d.high, -math.inf))


def to_external(distribution: BaseDistribution, value: float) -> ParamValue:
    """A plain Python value from the internal representation."""
    d = distribution
    if isinstance(d, CategoricalDistribution):
        return d.choices[int(value)]
    if isinstance(d, IntDistribution):
        # Through the step index, so that whole numbers beyond 2**53 stay in the range.
        step = round((value - d.low) / d.step)
        return min(max(d.low + step * d.step, d.low), d.high)
    return value


def n_points(distribution: BaseDistribution) -> int | None:
    """How many values a parameter can take; None if it is continuous."""
    d = distribution
    if isinstance(d, CategoricalDistribution):
        return len(d.choices)
    if isinstance(d, IntDistribution):
        return (d.high - d.low) // d.step + 1
    assert isinstance(d, FloatDistribution)
    if d.single():
        return 1
    return None if d.step is None else round((d.high - d.low) / d.step) + 1


def _index(u: FloatArray, n: int | None) -> FloatArray:
    """Uniform indices below n from uniforms on [0, 1)."""
    assert n is not None
    return np.minimum(np.floor(u * n), float(n - 1))
