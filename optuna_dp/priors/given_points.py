"""Points given by hand, as a search space holds them."""

from __future__ import annotations

from optuna.distributions import BaseDistribution

from optuna_dp.core.optuna_internals import contains


def to_internal(distribution: BaseDistribution, value: object) -> float | None:
    """The internal representation of a value, or None if the distribution does not contain it."""
    try:
        internal = float(distribution.to_internal_repr(value))
    except (TypeError, ValueError):
        return None
    return internal if contains(distribution, internal) else None
