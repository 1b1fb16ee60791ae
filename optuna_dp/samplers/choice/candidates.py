"""The candidates of a study whose choice is made afterwards: a grid, a list, or draws."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from optuna.distributions import BaseDistribution

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.validation import whole
from optuna_dp.core.value_types import Params
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.grid import grid_of
from optuna_dp.priors.space import check_space
from optuna_dp.study.plan import canonical_json

_MOST_CANDIDATES = 1_000_000

Kind = Literal["grid", "list", "drawn"]
_WORDS: dict[Kind, str] = {
    "grid": "every point of a finite search space",
    "list": "a list fixed beforehand",
    "drawn": "independent draws from the search space",
}


@dataclass(frozen=True)
class CandidateSource(Entry):
    """Where the candidates come from.

    Attributes:
        kind: Every point of a grid, a list, or independent draws.
        count: Number of candidates, at least 1.
        digest: SHA-256 of the list of candidates, if there is one.
    """

    described_as: ClassVar[str] = "The entry of candidates in the study's plan"

    kind: Kind
    count: int
    digest: str | None = field(default=None, metadata=stored(key="sha256"))

    def __post_init__(self) -> None:
        whole("count", self.count, 1)

    def words(self) -> str:
        """Returns the source as the privacy statement names it."""
        words = f"{self.count}: {_WORDS[self.kind]}"
        return f"{words}, SHA-256 {self.digest}" if self.digest else words


# Where candidates come from; and which they are, slot by slot, unless each is drawn when its trial
# starts.
Candidates = tuple[CandidateSource, Sequence[Params] | None]


def candidates_of(
    search_space: Mapping[str, BaseDistribution] | None,
    candidates: Sequence[Params] | int | None,
) -> Candidates:
    """Returns the candidates that the samplers' arguments describe; see NoisyMaxSampler.

    Raises:
        InvalidArgumentError: If there is no candidate, too many, or one outside the space.
    """
    if search_space is not None:
        check_space(search_space)
    if candidates is None:
        if search_space is None:
            raise InvalidArgumentError(
                "candidates",
                None,
                problem="without a search_space there is no grid to make",
                fix="Give search_space, a list of candidates, or candidates=<number of draws>.",
            )
        return _fixed("grid", grid_of(search_space, _MOST_CANDIDATES))
    if isinstance(candidates, Sequence) and not isinstance(candidates, (str, bytes)):
        return _listed(search_space, candidates)
    if isinstance(candidates, bool) or not hasattr(candidates, "__index__"):
        raise InvalidArgumentError(
            "candidates",
            candidates,
            allowed="it must be a list of dicts, a number of draws, or None for a grid",
        )
    count = whole("candidates", candidates, 1)
    if count > _MOST_CANDIDATES:
        raise InvalidArgumentError(
            "candidates", count, allowed=f"it must be at most {_MOST_CANDIDATES}"
        )
    return CandidateSource("drawn", count), None


def _fixed(kind: Kind, points: Sequence[Params]) -> Candidates:
    digest = hashlib.sha256(canonical_json(points).encode()).hexdigest()
    return CandidateSource(kind, len(points), digest), points


def _listed(
    space: Mapping[str, BaseDistribution] | None, candidates: Sequence[Params]
) -> Candidates:
    if len(candidates) == 0:
        raise InvalidArgumentError(
            "candidates",
            candidates,
            allowed="there must be at least one candidate",
            fix="Add a candidate.",
        )
    points = []
    for i, point in enumerate(candidates):
        name = f"candidates[{i}]"
        if not isinstance(point, Mapping) or not all(isinstance(key, str) for key in point):
            raise InvalidArgumentError(
                name, point, allowed="it must be a dict of parameters by name"
            )
        try:
            stored_point = json.loads(canonical_json(dict(point)))
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                name, point, allowed="its values must be None, bool, int, float or str, and finite"
            ) from None
        if space is not None:
            _check_contained(name, stored_point, space)
        points.append({key: stored_point[key] for key in point})
    _check_share_a_name(points)
    return _fixed("list", points)


def _check_share_a_name(points: Sequence[Params]) -> None:
    """Refuses a list of which no objective can ask all.

    Candidates may have different parameters (a conditional space). But what an objective asks for
    first cannot depend on the candidate, so all have that one; without it some would fail
    half-way, and a candidate that failed blocks the choice.
    """
    if not set.intersection(*map(set, points)) and any(points):
        raise InvalidArgumentError(
            "candidates",
            [sorted(point) for point in points[:3]],
            problem="its dicts have no parameter in common, so an objective cannot ask all for "
            "the same",
            fix="Give every candidate at least the parameter that is asked for first.",
        )


def _check_contained(name: str, point: Params, space: Mapping[str, BaseDistribution]) -> None:
    if point.keys() != space.keys():
        raise InvalidArgumentError(
            name, point, allowed=f"its parameters must be those of search_space, {sorted(space)}"
        )
    for parameter, distribution in space.items():
        if to_internal(distribution, point[parameter]) is None:
            raise InvalidArgumentError(
                f"{name}[{parameter!r}]",
                point[parameter],
                allowed=f"it must lie in {distribution}",
            )
