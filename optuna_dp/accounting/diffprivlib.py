"""Turns what an accountant of diffprivlib has recorded into an event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dp_accounting import dp_event

from optuna_dp.accounting.events import compose
from optuna_dp.accounting.kinds.approximate import approximate_dp
from optuna_dp.errors import InvalidArgumentError


class _BudgetAccountant(Protocol):
    @property
    def spent_budget(self) -> Iterable[tuple[float, float]]: ...


def from_diffprivlib(accountant: _BudgetAccountant) -> dp_event.DpEvent:
    """Returns the event of what a ``BudgetAccountant`` of diffprivlib has recorded so far.

    Its entries are composed here. Its own ``slack``, another way to compose them, is not used.

    Args:
        accountant: Has ``spent_budget``, a list of (epsilon, delta), one for each query.

    Raises:
        InvalidArgumentError: If nothing is recorded, or an entry is no (epsilon, delta).
    """
    spent = list(accountant.spent_budget)
    if not spent:
        raise InvalidArgumentError(
            "what",
            accountant,
            problem="it has recorded nothing, and a training spends something",
            fix="Give the accountant to the model, accountant=accountant, and call run.spent "
            "after model.fit.",
        )
    return compose(*(approximate_dp(float(epsilon), float(delta)) for epsilon, delta in spent))
