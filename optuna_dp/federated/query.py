"""The query that a server sends to clients that are to vote: public things only.

The search space travels as Optuna's distribution JSON, each candidate as Optuna's internal numbers
(which survive JSON exactly), and the plan of the vote in full, so that a client can see what it is
asked to take part in. Reading takes time in proportion to the text, which has a limit.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    distribution_to_json,
    json_to_distribution,
)

from optuna_dp.core.optuna_internals import contains
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, Text
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.grid import grid_of
from optuna_dp.priors.prior import UniformPrior
from optuna_dp.priors.space import check_space
from optuna_dp.voting.plan import VotePlan

ACTION_PLAIN = "query.vote"
ACTION_SECURE = "query.vote_secure"
# The one record of each message and of each reply.
PLAIN_RECORD = "vote"
SECURE_RECORD = "secure_vote"

_FORMAT = "optuna-dp vote"
_VERSION = 1
_DIRECTIONS = ("minimize", "maximize")
# What reading raises of a text that is not one of a query.
_MALFORMED = (
    *(LookupError, TypeError, ValueError),
    *(ArithmeticError, AttributeError, RecursionError),
)
_LARGEST_GRID = 100_000
# Ten thousand candidates of eighty parameters, and what a client reads in seconds.
LARGEST_TEXT = 1 << 24
_NAME = re.compile(r"[0-9A-Za-z._-]{1,64}", re.ASCII)

Params = dict[str, Any]


class VoteRefusedError(OptunaDPError):
    """This client does not take part; the server learns no more."""


@dataclass(frozen=True)
class VoteQuery:
    """One request for a vote.

    Attributes:
        candidates: Parameters of each candidate, plain values.
        direction: Whether the objective is a loss ("minimize") or a score ("maximize").
        vote: A name of this vote: all its attempts get one ballot, another vote a fresh one. At
            most 64 letters, digits, dots, dashes and underscores.
    """

    search_space: Mapping[str, BaseDistribution]
    candidates: tuple[Params, ...]
    direction: str
    plan: VotePlan
    vote: str

    def to_json(self) -> str:
        """Returns the text that is sent.

        Raises:
            InvalidArgumentError: If it would be too long for a client to read.
        """
        text = json.dumps(
            {
                "format": _FORMAT,
                "version": _VERSION,
                "search": search_to_json(self.search_space, self.candidates),
                "direction": self.direction,
                "plan": self.plan.to_json(),
                "vote": self.vote,
            },
            allow_nan=False,
        )
        _check_length(text)
        return text

    @classmethod
    def from_json(cls, text: str) -> VoteQuery:
        """Reads what :meth:`to_json` wrote; refuses anything else.

        Raises:
            InvalidArgumentError: If it is anything else.
        """
        _check_length(text)
        return parsed(text)


def _check_length(text: str) -> None:
    if len(text) > LARGEST_TEXT:
        raise InvalidArgumentError(
            "candidates",
            Text(f"{len(text)} characters"),
            allowed=f"a query must have at most {LARGEST_TEXT} characters",
            fix="Use fewer candidates.",
        )


@functools.lru_cache(maxsize=4)
def parsed(text: str) -> VoteQuery:
    """Returns the query in a text, if it is one: all of it is checked. The latest are kept."""
    try:
        data = json.loads(text)
        if data["format"] != _FORMAT or data["version"] != _VERSION:
            raise InvalidArgumentError(
                "query",
                (data["format"], data["version"]),
                problem=f"this optuna-dp answers {_FORMAT!r}, version {_VERSION}",
                fix="Use the same version of optuna-dp on server and clients.",
            )
        if set(data) != {"format", "version", "search", "direction", "plan", "vote"}:
            raise InvalidArgumentError(
                "query", sorted(data), problem="it holds other things than a vote"
            )
        space, candidates = read_search(data["search"])
        if not _NAME.fullmatch(data["vote"]):
            raise InvalidArgumentError(
                "vote", data["vote"][:80], allowed="it must be a short name"
            )
        query = VoteQuery(
            space,
            tuple(candidates),
            checked_direction(data["direction"]),
            VotePlan.from_json(data["plan"]),
            data["vote"],
        )
    except InvalidArgumentError:
        raise
    except _MALFORMED as error:
        raise InvalidArgumentError(
            "query", text[:80], allowed=f"it must be what VoteQuery.to_json wrote ({error!r})"
        ) from None
    if query.plan.candidates != len(query.candidates):
        raise InvalidArgumentError(
            "query", len(query.candidates), allowed="its candidates must be as many as planned"
        )
    return query


def search_to_json(
    space: Mapping[str, BaseDistribution], candidates: Sequence[Params]
) -> JsonObject:
    """Returns search space and candidates as plain JSON values."""
    return {
        "space": {name: json.loads(distribution_to_json(d)) for name, d in space.items()},
        "internal": {
            name: [float(d.to_internal_repr(c[name])) for c in candidates]
            for name, d in space.items()
        },
    }


def read_search(search: JsonObject) -> tuple[dict[str, BaseDistribution], list[Params]]:
    """Returns the search space and candidates of which :func:`search_to_json` made JSON.

    Raises:
        InvalidArgumentError: If a candidate does not lie in the space.
        LookupError, TypeError, ValueError, ArithmeticError, AttributeError: If it is anything
            else.
    """
    space = check_space(
        {name: json_to_distribution(json.dumps(d)) for name, d in search["space"].items()}
    )
    if set(search) != {"space", "internal"} or set(search["internal"]) != set(space):
        raise ValueError("the search must hold a space, and numbers for its parameters")
    columns = [
        [external_value(name, d, i, number) for i, number in enumerate(search["internal"][name])]
        for name, d in space.items()
    ]
    return space, [dict(zip(space, row, strict=True)) for row in zip(*columns, strict=True)]


def external_value(name: str, distribution: BaseDistribution, i: int, number: float) -> object:
    """The value that stands for an internal number; never a search among a parameter's choices."""
    internal = float(number)
    if not contains(distribution, internal):
        raise InvalidArgumentError(
            f"candidates[{i}][{name!r}]", number, allowed=f"it must lie in {distribution}"
        )
    return distribution.to_external_repr(internal)


def checked_direction(value: object) -> str:
    """Returns "minimize" or "maximize"; refuses anything else."""
    if value not in _DIRECTIONS:
        raise InvalidArgumentError(
            "direction", value, allowed=f"it must be one of {', '.join(_DIRECTIONS)}"
        )
    return str(value)


def choose_candidates(
    search_space: Mapping[str, BaseDistribution],
    candidates: str | int | Sequence[Params],
    rng: np.random.Generator,
) -> tuple[Params, ...]:
    """Returns the candidates of a search.

    Args:
        search_space: Distributions by parameter name.
        candidates: ``"grid"`` for all points of a space of finitely many; a whole number n for n
            different random ones; or the candidates themselves.
        rng: For random candidates. They are public, and drawn before any data are looked at.
    """
    space = check_space(search_space)
    if isinstance(candidates, str):
        if candidates != "grid":
            raise InvalidArgumentError(
                "candidates",
                candidates,
                allowed="it must be 'grid', a number, or a list of candidates",
            )
        return tuple(grid_of(space, _LARGEST_GRID))
    if isinstance(candidates, int) and not isinstance(candidates, bool):
        return _random(space, candidates, rng)
    if not isinstance(candidates, Sequence) or len(candidates) == 0:
        raise InvalidArgumentError(
            "candidates", candidates, allowed="it must be 'grid', a positive number, or a list"
        )
    return tuple(_checked_candidate(space, i, c) for i, c in enumerate(candidates))


def _checked_candidate(space: Mapping[str, BaseDistribution], i: int, candidate: object) -> Params:
    name = f"candidates[{i}]"
    if not isinstance(candidate, Mapping) or set(candidate) != set(space):
        raise InvalidArgumentError(
            name, candidate, allowed=f"it must give exactly {', '.join(space) or 'no parameters'}"
        )
    result = {}
    for key, distribution in space.items():
        internal = to_internal(distribution, candidate[key])
        if internal is None:
            raise InvalidArgumentError(
                f"{name}[{key!r}]", candidate[key], allowed=f"it must lie in {distribution}"
            )
        result[key] = distribution.to_external_repr(internal)
    return result


def _random(
    space: Mapping[str, BaseDistribution], count: int, rng: np.random.Generator
) -> tuple[Params, ...]:
    if count < 1:
        raise InvalidArgumentError("candidates", count, allowed="it must be at least 1")
    candidates: dict[str, Params] = {}
    for _ in range(64):
        points = UniformPrior().sample(space, 2 * count + 16, rng)
        for i in range(len(points)):
            params = points.params(i)
            candidates.setdefault(json.dumps(params, sort_keys=True), params)
            if len(candidates) == count:
                return tuple(candidates.values())
    raise InvalidArgumentError(
        "candidates",
        count,
        problem="the search space does not seem to have that many points (found "
        f"{len(candidates)})",
        fix="Use candidates='grid' or fewer.",
    )
