"""Informed priors and fixed candidate sets (DP-HyPO, arXiv 2306.05734v2, Appendix D).

Knowledge about good hyperparameters that does *not* come from the private data may shape the
prior at no privacy cost. Three forms: a weight per value of single parameters
(:class:`MarginalPrior`), a function that draws whole points (:class:`JointPrior`), and a finite
list of points (:class:`FixedCandidates`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optuna_dp import validation
from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.models.encoding import grid
from optuna_dp.models.given_points import to_internal
from optuna_dp.models.prior import (
    BaseDistribution,
    Candidates,
    Points,
    Prior,
    check_points,
    from_unit,
    n_points,
    to_external,
    unit_points,
)
from optuna_dp.models.space import Space, check_space
from optuna_dp.private_selection.densities.shares import integer_masses, uniform_masses

Weight = Callable[[Any], float] | Mapping[Any, float]

# Weights of a table are rounded to this part of the largest, so that the last bit of somebody's
# exp() neither changes the law nor the fingerprint.
_WEIGHT_LEVELS = 2.0**32


class MarginalPrior(Prior):
    """Parameters independent of each other, some with a weight relative to the uniform prior.

    The weight of a continuous parameter is evaluated in the middle of 1024 equal cells of its
    axis (logarithmic where the parameter is) and taken as constant within each: that table is the
    prior. Parameters with at most 1024 values are weighted value by value.

    Args:
        weights: For each parameter to be weighted a function of its value, or (for parameters
            with few values) a mapping from value to weight. Weights are relative to the uniform
            prior, non-negative and finite; a weight of zero excludes. Parameters not named keep
            the uniform prior.
        points: As for :class:`~optuna_dp.models.prior.UniformPrior`.

    Guarantees:
        Equal fingerprints mean equal laws: the fingerprint holds a hash of each table.
    """

    def __init__(self, weights: Mapping[str, Weight], *, points: Points = "independent") -> None:
        check_points(points)
        for name, weight in weights.items():
            if not callable(weight) and not isinstance(weight, Mapping):
                raise InvalidArgumentError(
                    f"weights[{name!r}]", weight, "it must be a function or a mapping"
                )
        self._weights = dict(weights)
        self._points: Points = points
        self._tables: dict[tuple[str, BaseDistribution], IntArray] = {}

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        space = check_space(space)
        for name in self._weights:
            if name not in space:
                raise InvalidArgumentError(
                    "weights", name, f"the search space has only the parameters {sorted(space)}"
                )
        units = unit_points(n, len(space), rng, self._points)
        columns = {
            name: self._column(name, distribution, units[:, j])
            for j, (name, distribution) in enumerate(space.items())
        }
        return Candidates(space, columns, n)

    def draw_one(self, name: str, distribution: BaseDistribution, rng: np.random.Generator) -> Any:
        check_space({name: distribution})
        column = self._column(name, distribution, rng.random(1))
        return to_external(distribution, float(column[0]))

    def fingerprint(self, space: Space) -> dict[str, Any]:
        """The law as plain data: a hash of the table of every weighted parameter."""
        tables = {
            name: hashlib.sha256(self._table(name, space[name]).astype("<i8").tobytes())
            for name in sorted(self._weights)
            if name in space
        }
        return {
            "prior": "marginals",
            "points": self._points,
            "tables": {name: digest.hexdigest() for name, digest in tables.items()},
        }

    def _column(self, name: str, distribution: BaseDistribution, v: FloatArray) -> FloatArray:
        if name not in self._weights:
            return from_unit(distribution, v)
        edges, values = grid(distribution)
        widths = np.diff(edges)
        cumulative = np.cumsum(self._table(name, distribution) * widths)
        cumulative /= cumulative[-1]
        # side="right": a cell of weight zero is never entered.
        cell = np.searchsorted(cumulative, v, side="right")
        below = np.concatenate([[0.0], cumulative])[cell]
        inside = (v - below) / (cumulative[cell] - below)
        u = edges[cell] + np.clip(inside, 0.0, 1.0) * widths[cell]
        # The upper edge belongs to the next cell, which may be excluded.
        u = np.minimum(u, np.nextafter(edges[cell + 1], 0.0))
        continuous = from_unit(distribution, u)
        # Where a cell is one value, that value, without a detour through the edges.
        return values[cell] if _one_value_per_cell(distribution, edges) else continuous

    def _table(self, name: str, distribution: BaseDistribution) -> IntArray:
        key = (name, distribution)
        if key not in self._tables:
            self._tables[key] = self._tabulate(name, distribution)
        return self._tables[key]

    def _tabulate(self, name: str, distribution: BaseDistribution) -> IntArray:
        weight = self._weights[name]
        table: list[float] = []
        for value in grid(distribution)[1]:
            external = to_external(distribution, float(value))
            if isinstance(weight, Mapping):
                if external not in weight:
                    raise InvalidArgumentError(
                        f"weights[{name!r}]", dict(weight), f"it needs a weight for {external!r}"
                    )
                raw = weight[external]
            else:
                raw = weight(external)
            table.append(
                validation.non_negative(f"the weight of {name!r} at {external!r}", float(raw))
            )
        weights = np.array(table)
        if weights.max() == 0.0:
            raise InvalidArgumentError(
                f"weights[{name!r}]", weight, "it must be positive for some value"
            )
        levels = np.rint(weights / weights.max() * _WEIGHT_LEVELS)
        result: IntArray = np.where(weights > 0.0, np.maximum(levels, 1.0), 0.0).astype(np.int64)
        return result


class JointPrior(Prior):
    """A function that draws whole points of the search space.

    Args:
        sample: ``sample(n, rng)`` returns ``n`` dicts with a value for every parameter of the
            search space. Each point must have the same law at every call, whatever was drawn
            before: no state, no continued quasi-random stream, no look at the data.
        name: Names the law in the record of a study, as code cannot be recorded. Workers with
            the same name and the same function name are taken to share the law: change it when
            the function's behaviour changes.
    """

    def __init__(
        self,
        sample: Callable[[int, np.random.Generator], Sequence[Mapping[str, Any]]],
        *,
        name: str,
    ) -> None:
        if not callable(sample):
            raise InvalidArgumentError("sample", sample, "it must be a function of (n, rng)")
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError("name", name, "it must be a non-empty string")
        self._sample = sample
        self._name = name

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        """Draws ``n`` candidates; checks each against the space."""
        points = self._sample(n, rng)
        if len(points) != n:
            raise InvalidArgumentError(
                "sample", f"{len(points)} points", f"prior {self._name!r} must return {n} points"
            )
        return candidates_from(points, space, f"a point of prior {self._name!r}")

    def fingerprint(self, space: Space) -> dict[str, Any]:
        """Name and qualified function name: enough to tell workers apart, not a proof."""
        function = getattr(self._sample, "__qualname__", type(self._sample).__qualname__)
        module = getattr(self._sample, "__module__", type(self._sample).__module__)
        return {"prior": "joint", "name": self._name, "function": f"{module}.{function}"}


class FixedCandidates(Prior):
    """A finite list of points, with prior weights: the paper's grids.

    Args:
        params_list: The points, dicts over the same parameters; no two alike.
        weights: Prior weights, positive; equal if None.

    Guarantees:
        The prior is ``masses / masses.sum()`` exactly, in the first run as in the reference of
        the later ones. Equal fingerprints mean equal laws.
    """

    def __init__(
        self, params_list: Sequence[Mapping[str, Any]], weights: Sequence[float] | None = None
    ) -> None:
        points = [{str(k): _plain(v) for k, v in point.items()} for point in params_list]
        if not points:
            raise InvalidArgumentError("params_list", [], "at least one candidate is needed")
        seen: dict[str, int] = {}
        for i, point in enumerate(points):
            if point.keys() != points[0].keys():
                raise InvalidArgumentError(
                    f"params_list[{i}]",
                    point,
                    f"it must have the parameters {sorted(points[0])}, as the first candidate",
                )
            key = _canonical(point, i)
            if key in seen:
                raise InvalidArgumentError(
                    f"params_list[{i}]",
                    point,
                    f"it repeats params_list[{seen[key]}]",
                    "List a candidate once and give it the sum of the weights.",
                )
            seen[key] = i
        if weights is not None and len(weights) != len(points):
            raise InvalidArgumentError(
                "weights",
                list(weights),
                f"it must have one weight per candidate, {len(points)}",
            )
        self.params_list = points
        self.masses = uniform_masses(len(points)) if weights is None else integer_masses(weights)
        lines = "\n".join(seen) + "\n" + json.dumps(self.masses.tolist())
        self._checked: tuple[dict[str, BaseDistribution], Candidates] | None = None
        self._digest = hashlib.sha256(lines.encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.params_list)

    def candidates(self, space: Space) -> Candidates:
        """All points, checked against the space."""
        checked = self._checked
        if checked is None or checked[0] != space:
            # A copy, so that a space changed by its owner is checked again.
            checked = (dict(space), candidates_from(self.params_list, space, "params_list"))
            self._checked = checked
        return checked[1]

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        """Draws ``n`` of the points, independently of each other."""
        cumulative = np.cumsum(self.masses)
        # Whole numbers against whole numbers: the probabilities are the masses, exactly.
        ticket = rng.integers(0, cumulative[-1], size=n, dtype=np.int64)
        index = np.searchsorted(cumulative, ticket, side="right")
        points = self.candidates(space)
        columns = {name: column[index] for name, column in points.columns.items()}
        return Candidates(points.space, columns, n)

    def fingerprint(self, space: Space) -> dict[str, Any]:
        """A hash of all points and masses, in order; refuses a space that they do not fit."""
        self.candidates(space)
        return {"prior": "fixed", "candidates": len(self), "sha256": self._digest}


def candidates_from(points: Sequence[Mapping[str, Any]], space: Space, what: str) -> Candidates:
    """Points given as dicts, by column; refuses what the space does not contain."""
    space = check_space(space)
    columns = {name: np.empty(len(points)) for name in space}
    for i, point in enumerate(points):
        if point.keys() != space.keys():
            raise InvalidArgumentError(
                f"{what} [{i}]",
                dict(point),
                f"its parameters must be exactly {sorted(space)}",
            )
        for name, distribution in space.items():
            internal = to_internal(distribution, point[name])
            if internal is None:
                raise InvalidArgumentError(
                    f"{what} [{i}]", dict(point), f"{name} must be within {distribution}"
                )
            columns[name][i] = internal
    return Candidates(space, columns, len(points))


def _one_value_per_cell(distribution: BaseDistribution, edges: FloatArray) -> bool:
    n = n_points(distribution)
    return n is not None and n == len(edges) - 1


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _canonical(point: Mapping[str, Any], i: int) -> str:
    for name, value in point.items():
        allowed = value is None or isinstance(value, (bool, int, float, str))
        if not allowed or (isinstance(value, float) and not math.isfinite(value)):
            raise InvalidArgumentError(
                f"params_list[{i}][{name!r}]",
                value,
                "it must be None, a bool, an int, a finite float or a string",
            )
    return json.dumps(point, sort_keys=True)
