"""What is shown beside a guarantee and has no part in it: attacks, and the bounds of others.

The files that a guarantee rests on import neither; they ask here. The package's front door puts
the two functions here, so that an error in them can show a wrong figure and never a wrong epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Comparisons = Callable[[Any, str, float], dict[str, tuple[float, str]]]
_Attack = Callable[[Any, str, float], float]

# (event, relation, delta) -> epsilon, and why it is infinite if it is, by name.
_comparisons: _Comparisons | None = None
# (event, relation, delta) -> an epsilon below which the event is certainly not private.
_attack: _Attack | None = None


def show_beside(comparisons: _Comparisons, attack: _Attack) -> None:
    """Sets the two functions."""
    global _comparisons, _attack
    _comparisons, _attack = comparisons, attack


def comparisons_of(event: Any, relation: str, delta: float) -> dict[str, tuple[float, str]]:
    """Returns epsilon at ``delta`` by the bounds of others, by name, each with a reason if inf."""
    return {} if _comparisons is None else _comparisons(event, relation, delta)


def attack_on(event: Any, relation: str, delta: float) -> float:
    """Returns what the event certainly costs at ``delta``; 0 where no attack is known."""
    return 0.0 if _attack is None else _attack(event, relation, delta)
