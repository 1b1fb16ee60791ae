"""The bounds that a guarantee uses, by name. The guarantee is the smallest of them.

Events are those that :class:`optuna_dp.Guarantee` has found to be supported.

====================  =========================================================================
``data_profile``      privacy-profile bound of selection (docs/explanation/profile-bound.md)
``rank_profile``      the same, tight for every law of T (docs/explanation/rank-profile.md)
``all_runs``          all runs of a selection composed, where there are few at most
``history_profile``   that of selection for policies that see private outputs only: the smaller of
                      the two bounds (pointwise-bound.md, history-bound.md)
``rdp``               Renyi DP (rdp-of-selection.md); dp-accounting for other events
``pure``              pure epsilon, at any delta
``profile``           dominating pairs of events that are not selections
====================  =========================================================================

``rdp`` votes where it may be the smallest: where a part of the event is known by its Renyi curve
only, is a choice of bounded range or one of several mechanisms; in selections whose law of T is
neither geometric nor without such a curve; and where the arithmetic of the others ends. Elsewhere
it is shown and has no vote (docs/explanation/accountants.md), nor have the bounds of others, which
are shown beside these (:mod:`optuna_dp.core.by_name`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event

from optuna_dp.accounting.bounds import Method, ProfileMethod, PureMethod
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.kinds.foreign import kind_of, pure_of
from optuna_dp.accounting.run_profile import known_by_curve, pair_of
from optuna_dp.core.arrays import FloatArray

# Beyond it only what an output may tell at once is left of a profile.
_LAST_EPSILON = 500.0


def methods_of(event: dp_event.DpEvent, relation: str) -> Mapping[str, Method]:
    """Returns every method that applies to an event, by name, those without a vote included."""
    key = canonical_key(event)
    return {**_voting(key, relation), "rdp": _renyi(key, relation)}


def all_epsilons_of(event: dp_event.DpEvent, relation: str, delta: float) -> Mapping[str, float]:
    """Returns epsilon at ``delta`` under every method of :func:`methods_of`; cached."""
    key = canonical_key(event)
    epsilons = dict(_epsilons(key, relation, delta))
    if "rdp" not in epsilons:
        epsilons["rdp"] = _renyi_epsilon(key, relation, delta)
    return epsilons


def epsilons_of(event: dp_event.DpEvent, relation: str, delta: float) -> Mapping[str, float]:
    """Returns epsilon at ``delta`` under every method that votes there, by name; cached."""
    return _epsilons(canonical_key(event), relation, delta)


def deltas_of(event: dp_event.DpEvent, relation: str, epsilons: npt.ArrayLike) -> FloatArray:
    """Returns the smallest delta of the methods that vote at each epsilon >= 0."""
    key = canonical_key(event)
    methods = _voting(key, relation)
    deltas = _smallest_delta(methods, epsilons)
    at_the_end = (deltas > 0.0) & (deltas <= _last_deltas(key, relation))
    if "rdp" not in methods and np.any(at_the_end):
        deltas = np.where(
            at_the_end, np.minimum(deltas, _renyi(key, relation).delta(epsilons)), deltas
        )
    return deltas


def _smallest_delta(methods: Mapping[str, Method], epsilons: npt.ArrayLike) -> FloatArray:
    deltas = [np.asarray(method.delta(epsilons)) for method in methods.values()]
    return np.asarray(np.minimum.reduce(deltas))


@functools.lru_cache(maxsize=64)
def _last_deltas(key: str, relation: str) -> float:
    """Up to where deltas are those that no epsilon lowers, or rounding."""
    return 2.0 * float(_smallest_delta(_voting(key, relation), _LAST_EPSILON))


@functools.lru_cache(maxsize=1024)
def _epsilons(key: str, relation: str, delta: float) -> Mapping[str, float]:
    methods = _voting(key, relation)
    epsilons = {name: method.epsilon(delta) for name, method in methods.items()}
    if "rdp" not in epsilons and min(epsilons.values()) == math.inf:
        # Not before deltas_of asks it as well, so that delta(epsilon(d)) <= d.
        last_delta = _last_deltas(key, relation)
        least_epsilon = 0.0 if last_delta >= 1.0 else math.inf
        if 0.0 < last_delta < 1.0:
            least_epsilon = min(method.epsilon(last_delta) for method in methods.values())
        epsilons["rdp"] = max(least_epsilon, _renyi_epsilon(key, relation, delta))
    return MappingProxyType(epsilons)


@functools.lru_cache(maxsize=1024)
def _renyi_epsilon(key: str, relation: str, delta: float) -> float:
    return _renyi(key, relation).epsilon(delta)


@functools.lru_cache(maxsize=64)
def _renyi(key: str, relation: str) -> Method:
    # Lazy: only events that it is used for need it, and a look at every method.
    from optuna_dp.accounting.run_rdp import renyi_method

    return renyi_method(event_from_json(json.loads(key)), relation)


def curve_may_be_smallest(event: dp_event.DpEvent, relation: str) -> bool:
    """Returns whether the Renyi curve of an event may say less than its profile."""
    if kind_of(event).curve_may_be_smaller:
        return True
    parts = kind_of(event).children()
    if parts:
        return any(curve_may_be_smallest(part, relation) for part in parts)
    return known_by_curve(event, relation)


@functools.lru_cache(maxsize=64)
def _voting(key: str, relation: str) -> Mapping[str, Method]:
    event = event_from_json(json.loads(key))
    event_methods = kind_of(event).methods(relation, pair_of)
    if event_methods is None:
        pair = pair_of(event, relation)
        event_methods = {"profile": ProfileMethod(pair, pair.reversed())}
    methods = dict(event_methods)
    if curve_may_be_smallest(event, relation):
        methods["rdp"] = _renyi(key, relation)
    if (pure := pure_of(event, relation)) < math.inf:
        methods["pure"] = PureMethod(pure)
    return MappingProxyType(methods)
