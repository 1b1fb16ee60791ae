"""Fixed candidate sets (DP-HyPO, arXiv 2306.05734v2, Appendix D).

Knowledge about good hyperparameters that does *not* come from the private data may shape the
prior at no privacy cost: as the weights of a list of points here, around a guess
(:func:`optuna_dp.around`), or as any :class:`~optuna_dp.priors.prior.Prior`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

import numpy as np

from optuna_dp.core.value_types import JsonValue, Params, ParamValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.shares import integer_masses, uniform_masses
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.prior import BaseDistribution, Candidates, Prior
from optuna_dp.priors.space import Space, check_space


class FixedCandidates(Prior):
    """A finite list of points, with prior weights: the paper's grids.

    Args:
        params_list: The points, dicts over the same parameters; no two alike.
        weights: Prior weights, positive; equal if None.

    Guarantees:
        The prior is ``masses / masses.sum()`` exactly, in the first run as in the reference of
        the later ones. Equal fingerprints mean equal laws.
    """

    def __init_subclass__(cls) -> None:
        raise InvalidArgumentError(
            "class",
            cls.__name__,
            problem="it would draw from a law that the fingerprint of FixedCandidates does not "
            "say",
            fix="Make it a prior of its own, with sample, draw_one and fingerprint.",
        )

    def __init__(
        self, params_list: Sequence[Params], weights: Sequence[float] | None = None
    ) -> None:
        points = [{str(k): _plain(v) for k, v in point.items()} for point in params_list]
        if not points:
            raise InvalidArgumentError(
                "params_list", [], allowed="at least one candidate is needed"
            )
        index_of: dict[str, int] = {}
        for i, point in enumerate(points):
            if point.keys() != points[0].keys():
                raise InvalidArgumentError(
                    f"params_list[{i}]",
                    point,
                    allowed=f"it must have the parameters {sorted(points[0])}, as the first "
                    "candidate",
                )
            key = _canonical(point, i)
            if key in index_of:
                raise InvalidArgumentError(
                    f"params_list[{i}]",
                    point,
                    problem=f"it repeats params_list[{index_of[key]}]",
                    fix="List a candidate once and give it the sum of the weights.",
                )
            index_of[key] = i
        if weights is not None and len(weights) != len(points):
            raise InvalidArgumentError(
                "weights",
                list(weights),
                allowed=f"it must have one weight per candidate, {len(points)}",
            )
        self.params_list = points
        self.masses = uniform_masses(len(points)) if weights is None else integer_masses(weights)
        lines = "\n".join(index_of) + "\n" + json.dumps(self.masses.tolist())
        self._checked: tuple[dict[str, BaseDistribution], Candidates] | None = None
        self._digest = hashlib.sha256(lines.encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.params_list)

    def candidates(self, space: Space) -> Candidates:
        """All points, checked against the space."""
        cache = self._checked
        if cache is None or cache[0] != space:
            # A copy, so that a space changed by its owner is checked again.
            cache = (dict(space), candidates_from(self.params_list, space, "params_list"))
            self._checked = cache
        return cache[1]

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        """Draws ``n`` of the points, independently of each other."""
        cumulative = np.cumsum(self.masses)
        # Whole numbers against whole numbers: the probabilities are the masses, exactly.
        ticket = rng.integers(0, cumulative[-1], size=n, dtype=np.int64)
        index = np.searchsorted(cumulative, ticket, side="right")
        points = self.candidates(space)
        columns = {name: column[index] for name, column in points.columns.items()}
        return Candidates(points.space, columns, n)

    def fingerprint(self, space: Space) -> dict[str, JsonValue]:
        """A hash of all points and masses, in order; refuses a space that they do not fit."""
        self.candidates(space)
        return {"prior": "fixed", "candidates": len(self), "sha256": self._digest}


def candidates_from(points: Sequence[Params], space: Space, label: str) -> Candidates:
    """Points given as dicts, by column; refuses what the space does not contain."""
    space = check_space(space)
    columns = {name: np.empty(len(points)) for name in space}
    for i, point in enumerate(points):
        if point.keys() != space.keys():
            raise InvalidArgumentError(
                f"{label} [{i}]",
                dict(point),
                allowed=f"its parameters must be exactly {sorted(space)}",
            )
        for name, distribution in space.items():
            internal = to_internal(distribution, point[name])
            if internal is None:
                raise InvalidArgumentError(
                    f"{label} [{i}]", dict(point), allowed=f"{name} must be within {distribution}"
                )
            columns[name][i] = internal
    return Candidates(space, columns, len(points))


def _plain(value: ParamValue) -> ParamValue:
    return value.item() if isinstance(value, np.generic) else value


def _canonical(point: Params, i: int) -> str:
    for name, value in point.items():
        is_plain = value is None or isinstance(value, (bool, int, float, str))
        if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
            raise InvalidArgumentError(
                f"params_list[{i}][{name!r}]",
                value,
                allowed="it must be None, a bool, an int, a finite float or a string",
            )
    return json.dumps(point, sort_keys=True)
