"""Pure epsilons: of one run, and of compositions."""

from __future__ import annotations

from typing import Any

from optuna_dp.accounting.kinds.foreign import kind_of


def pure_of(event: Any, relation: str = "add_or_remove_one") -> float:
    """Returns an epsilon for which the event is epsilon-DP, ``inf`` if none is known."""
    return kind_of(event).pure(relation, pure_of)
