"""Pure epsilons: of one run, and of compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.kinds.base import OwnEvent


def pure_of(event: Any, relation: str = "add_or_remove_one") -> float:
    """Returns an epsilon for which the event is epsilon-DP, ``inf`` if none is known."""
    # A record that is replaced moves the sum by two contributions.
    moves_by_one = relation != "replace_one"
    if isinstance(event, dp_event.NoOpDpEvent):
        return 0.0
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return event.count * pure_of(event.event, relation) if event.count else 0.0
    if isinstance(event, dp_event.ComposedDpEvent):
        return float(sum(pure_of(e, relation) for e in event.events))
    if isinstance(event, OwnEvent):
        return event.pure(relation, pure_of)
    if (
        isinstance(event, dp_event.LaplaceDpEvent)
        and moves_by_one
        and event.noise_multiplier > 0.0
    ):
        return float(1.0 / event.noise_multiplier)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent) and moves_by_one:
        # dp-accounting takes parameter 0 for "no noise".
        return float(event.noise_parameter * event.sensitivity) or np.inf
    if isinstance(event, dp_event.PoissonSampledDpEvent) and moves_by_one:
        # Amplification by sampling: Balle, Barthe & Gaboardi, arXiv 1807.01647v2, Theorem 8.
        inner = pure_of(event.event, relation)
        q = event.sampling_probability
        if q == 0.0 or np.isinf(inner):
            return 0.0 if q == 0.0 else np.inf
        if q == 1.0:
            return inner
        if inner < 1.0:
            return float(np.log1p(q * np.expm1(inner)))  # accurate where it is tiny
        return float(np.logaddexp(np.log1p(-q), np.log(q) + inner))
    if isinstance(event, dp_event.RandomizedResponseDpEvent) and (relation != "add_or_remove_one"):
        p, k = event.noise_parameter, event.num_buckets
        if k <= 1:
            return 0.0
        return float(np.log1p(k * (1.0 - p) / p)) if p > 0.0 else np.inf
    return np.inf
