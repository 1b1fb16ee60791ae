"""Known attacks as tests of whether a record is in the data: false and true positives of each."""

from __future__ import annotations

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.data_attack import trade_off_vertices
from optuna_dp.attacks.selection_attack import AttackSearch
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.selection.laws.base import TrialCount

_EPSILONS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_SHOWN = 200


def attack_points(event: dp_event.DpEvent, relation: str) -> list[tuple[float, float]]:
    """Returns corners of what known attacks reach: shares of false and of true positives.

    Args:
        event: What is released.
        relation: The neighbouring relation.

    Returns:
        From (0, ...) to (1, 1), ascending and concave. Between two corners a test is chosen by
        chance. Empty where no attainable run is known. Of a selection with density bounds it is
        the attack on one whose runs are drawn from the prior, which the bounds allow.
    """
    law = event.trials if isinstance(event, PrivateSelectionDpEvent) else None
    try:
        pairs = attainable_pairs(event if law is None else event.run, relation)
    except UnsupportedEventError:
        return []
    found = [np.array([[0.0, 0.0], [1.0, 1.0]])]
    for pair in pairs:
        for one_way in (pair, pair.reversed()):
            found.append(_of_pair(one_way) if law is None else _of_selection(one_way, law))
    return _upper_hull(np.concatenate(found))


def _of_pair(pair: DominatingPair) -> FloatArray:
    false, true = trade_off_vertices(pair)
    chosen = np.unique(np.linspace(0, false.size - 1, _SHOWN).astype(int))
    return np.stack([false[chosen], true[chosen]], axis=1)


def _of_selection(pair: DominatingPair, law: TrialCount) -> FloatArray:
    search = AttackSearch(pair, law)
    return np.array([search.test(epsilon) for epsilon in _EPSILONS])


def _upper_hull(points: FloatArray) -> list[tuple[float, float]]:
    """Returns the corners of the smallest concave curve above points, left to right."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(map(tuple, points.tolist())):
        if hull and x == hull[-1][0]:
            hull.pop()
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return hull


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) >= (b[1] - a[1]) * (c[0] - a[0])
