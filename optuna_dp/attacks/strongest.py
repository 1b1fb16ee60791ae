"""The strongest known attack on a procedure, a lower bound of its cost."""

from __future__ import annotations

import functools
import json
from typing import Literal

from dp_accounting import dp_event

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.kinds.foreign import kind_of
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.choice_attack import attack_with_choices, choices_and_others
from optuna_dp.attacks.policy_attack import strongest_policy_attack
from optuna_dp.attacks.selection_attack import strongest_attack
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent


def strongest_known_attack(event: dp_event.DpEvent, relation: str, delta: float) -> float:
    """Returns an epsilon below which the event is certainly not private at ``delta``.

    A selection is attacked by explicit orders of outputs and, with density bounds, by explicit
    policies; choices of bounded range by exponential mechanisms. A composition leaks at least
    what each of its parts leaks. 0 where no attainable run is known.
    """
    if isinstance(event, PrivateSelectionDpEvent):
        return _selection(event, relation, delta)
    choices, events = choices_and_others(event)
    try:
        if choices:
            pairs_of_rest = _attainable(canonical_key(dp_event.ComposedDpEvent(events)), relation)
            return max(attack_with_choices(choices, pair, delta) for pair in pairs_of_rest)
        if kind_of(event).is_mixture(relation):
            inner = _attainable(canonical_key(event.event), relation)
            pairs = tuple(pair.sampled(event.sampling_probability) for pair in inner)
        else:
            pairs = _attainable(canonical_key(event), relation)
    except UnsupportedEventError:
        parts = event.events if isinstance(event, dp_event.ComposedDpEvent) else []
        return max((strongest_known_attack(e, relation, delta) for e in parts), default=0.0)
    return max(d.epsilon(delta) for pair in pairs for d in (pair, pair.reversed()))


def _selection(event: PrivateSelectionDpEvent, relation: str, delta: float) -> float:
    try:
        pairs = _attainable(canonical_key(event.run), relation)
    except UnsupportedEventError:
        return 0.0
    epsilons = [strongest_attack(pair, event.trials, delta).epsilon for pair in pairs]
    # The policies of these attacks adapt from the second run on; start-up runs forbid it.
    if event.density_bounds != (1.0, 1.0) and event.startup_runs == 0:
        policy: Literal["history", "data"] = "data" if event.policy == "data" else "history"
        epsilons += [
            strongest_policy_attack(
                pair, event.trials, event.density_bounds, delta, policy=policy
            ).epsilon
            for pair in pairs
        ]
    return max(epsilons)


@functools.lru_cache(maxsize=16)
def _attainable(key: str, relation: str) -> tuple[DominatingPair, ...]:
    """Attainable pairs take longer to make than to attack, and a planner asks often."""
    return attainable_pairs(event_from_json(json.loads(key)), relation)
