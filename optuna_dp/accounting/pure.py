"""Pure epsilons: of one run, of selections, and of what is composed of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting import events
from optuna_dp.accounting.kinds.base import OwnEvent
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.trial_counts.base import TrialCount
from optuna_dp.trial_counts.negative_binomial import NegativeBinomial


def pure_of(event: Any, relation: str = "add_or_remove_one") -> float:
    """Returns an epsilon for which the event is epsilon-DP, ``inf`` if none is known."""
    one = relation != "replace_one"  # a record moves the sum by one contribution, not two
    if isinstance(event, dp_event.NoOpDpEvent):
        return 0.0
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return event.count * pure_of(event.event, relation) if event.count else 0.0
    if isinstance(event, dp_event.ComposedDpEvent):
        return float(sum(pure_of(e, relation) for e in event.events))
    if isinstance(event, events.PrivateSelectionDpEvent):
        run = pure_of(event.run, relation)
        return float(selection_epsilon(run, event.trials, event.density_bounds))
    if isinstance(event, OwnEvent):
        return event.pure(relation, pure_of)
    if isinstance(event, dp_event.LaplaceDpEvent) and one and event.noise_multiplier > 0.0:
        return float(1.0 / event.noise_multiplier)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent) and one:
        # dp-accounting takes parameter 0 for "no noise".
        return float(event.noise_parameter * event.sensitivity) or np.inf
    if isinstance(event, dp_event.PoissonSampledDpEvent) and one:
        # Amplification by sampling: Balle, Barthe & Gaboardi, arXiv 1807.01647v2, Theorem 8.
        inner = pure_of(event.event, relation)
        q = event.sampling_probability
        if q == 0.0 or np.isinf(inner):
            return 0.0 if q == 0.0 else np.inf
        return float(np.logaddexp(np.log1p(-q), np.log(q) + inner)) if q < 1.0 else inner
    if isinstance(event, dp_event.RandomizedResponseDpEvent) and (relation != "add_or_remove_one"):
        p, k = event.noise_parameter, event.num_buckets
        if k <= 1:
            return 0.0
        return float(np.log1p(k * (1.0 - p) / p)) if p > 0.0 else np.inf
    return np.inf


def selection_epsilon(
    run_epsilon: float, trials: TrialCount, density_bounds: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Returns the pure epsilon of selection: (2+eta)(eps + log(C/c)).

    For eps-DP runs and a truncated negative binomial T (arXiv:2110.03620v2, Corollary of Theorem
    2; DP-HyPO, arXiv:2306.05734v2, Theorem 2); ``inf`` for other laws, where no such bound
    holds or none is proved (a Poisson T is not purely private by Theorem 6).
    """
    run_epsilon = validation.number("run_epsilon", run_epsilon)
    if run_epsilon < 0.0:
        raise InvalidArgumentError("run_epsilon", run_epsilon, "it must not be negative")
    c, big_c = density_bounds
    if not isinstance(trials, NegativeBinomial):
        return math.inf
    return (2.0 + trials.shape) * (run_epsilon + math.log(big_c) - math.log(c))
