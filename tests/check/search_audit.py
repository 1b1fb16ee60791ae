"""Audits that look for themselves: for neighbouring worlds, and for what to measure in them.

Pairs of worlds are drawn from a family; those that seem to tell the most are varied and tried with
more and more runs; the best one is audited with fresh runs. So nothing that was done in looking
biases what is found. Outputs are judged in three ways: as they are; by the leaf of a decision tree
that has learnt, on runs of its own, to tell the worlds apart (which finds what is hidden in one of
many outputs, such as a revealed number of runs); and by the sum of all numbers, each weighted
by how its mean differs (which finds what is spread over many numbers).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from whole_search import Audit, audit

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError

from .neighbours import Family, Pair

Procedure = Callable[[Any, int], npt.NDArray[Any]]

# How many pairs are tried with how large a share of the runs, one round after the other.
_ROUNDS = ((128, 0.01), (48, 0.03), (24, 0.1), (12, 0.3))
_STATISTICS = ("outputs", "tree", "sum")
_LEAVES = 64


@dataclass(frozen=True)
class SearchAudit:
    """What :func:`audit_search` found.

    Attributes:
        found: The audit of the best pair, with fresh runs.
        worlds: That pair of worlds.
        statistic: What told them apart best: "outputs", "tree" or "sum".
    """

    found: Audit
    worlds: Pair
    statistic: str

    @property
    def epsilon(self) -> float:
        """The lower bound on epsilon, at the stated confidence; 0 if nothing was found."""
        return self.found.epsilon

    def refutes(self, claim: float) -> bool:
        """Returns whether (claim, delta)-DP is refuted, with the stated confidence."""
        return self.found.refutes(claim)


def audit_search(
    procedure: Procedure,
    family: Family,
    *,
    runs: int = 100_000,
    delta: float = 0.0,
    confidence: float = 0.99,
    seed: int | None = None,
) -> SearchAudit:
    """Looks for the neighbouring worlds that a procedure tells apart best, and audits it there.

    Guarantees:
        * For a procedure that is (epsilon, delta)-DP between all pairs of the family, the result
          exceeds epsilon with probability at most ``1 - confidence``.

    Args:
        procedure: Takes a world and a number n, and returns what n independent searches would make
            public in it: shape (n,), or (n, k) for k numbers each.
        family: Where to look, for example :class:`NeighbouringRuns`.
        runs: Runs on each side of the last audit; the search before takes about nine times as
            many.
            At least 1000.
        delta: In [0, 1).
        confidence: In (0, 1).
        seed: For a search that can be repeated; None draws a fresh one.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or ``procedure`` returns something
            of another shape.
    """
    count = validation.whole("runs", runs, 1000)
    validation.open_unit("confidence", confidence)
    rng = np.random.default_rng(seed)
    pairs = [family.draw(rng) for _ in range(_ROUNDS[0][0])]
    for number, (size, share) in enumerate(_ROUNDS):
        few = max(200, int(share * count))
        # A bound that holds half the time: high enough to tell promising pairs from others.
        ranked = sorted(
            pairs,
            key=lambda pair: _best(procedure, pair, few, delta, 0.5, rng)[0].epsilon,
            reverse=True,
        )
        keep = ranked[: max(2, size // 4)]
        following = _ROUNDS[number + 1][0] if number + 1 < len(_ROUNDS) else len(keep)
        pairs = [
            *keep,
            *(family.vary(keep[i % len(keep)], rng) for i in range(following - len(keep))),
        ]
    found, statistic = _best(procedure, keep[0], count, delta, confidence, rng)
    return SearchAudit(found, keep[0], statistic)


def _best(
    procedure: Procedure,
    pair: Pair,
    runs: int,
    delta: float,
    confidence: float,
    rng: np.random.Generator,
) -> tuple[Audit, str]:
    """Audits fresh runs by each statistic, with its part of the error."""
    one, other = (_rows(procedure(world, runs), runs) for world in pair)
    each = 1.0 - (1.0 - confidence) / len(_STATISTICS)
    audits = {
        "outputs": audit(*_coded(one, other), delta=delta, confidence=each),
        "tree": audit(*_leaves(one, other, rng), delta=delta, confidence=each),
        "sum": audit(*_sums(one, other), delta=delta, confidence=each),
    }
    name = max(audits, key=lambda key: audits[key].epsilon)
    return dataclasses.replace(audits[name], confidence=confidence), name


def _rows(outputs: Any, runs: int) -> npt.NDArray[np.float64]:
    rows = np.asarray(outputs, dtype=np.float64)
    if rows.ndim not in (1, 2) or len(rows) != runs:
        raise InvalidArgumentError(
            "procedure",
            f"an array of shape {rows.shape}",
            allowed=f"it must return one row for each of {runs} searches",
        )
    # A search without a winner has no score: a number of its own, for trees too.
    return np.nan_to_num(rows.reshape(runs, -1), nan=-math.pi)


def _coded(one: Any, other: Any) -> tuple[Any, Any]:
    _, codes = np.unique(np.concatenate([one, other]), axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    return codes[: len(one)], codes[len(one) :]


def _leaves(one: Any, other: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Returns the leaf of each output that the tree has not learnt from."""
    from sklearn.tree import DecisionTreeClassifier  # start-up time: scikit-learn is slow to load

    third = len(one) // 3
    tree = DecisionTreeClassifier(
        max_leaf_nodes=_LEAVES,
        min_samples_leaf=max(5, third // 200),
        random_state=int(rng.integers(2**31)),
    )
    tree.fit(np.concatenate([one[:third], other[:third]]), np.repeat([0, 1], [third, third]))
    return tree.apply(one[third:]), tree.apply(other[third:])


def _sums(one: Any, other: Any) -> tuple[Any, Any]:
    """Returns a weighted sum of each output that its weights were not made of."""
    third = len(one) // 3
    a, b = one[:third], other[:third]
    weights = (b.mean(axis=0) - a.mean(axis=0)) / (a.var(axis=0) + b.var(axis=0) + 1e-12)
    return one[third:] @ weights, other[third:] @ weights
