"""The bounds of others for an event, by the names under which a guarantee shows them.

===============  ============================================================================
``koskela``      Koskela, Redberg & Wang (arXiv 2402.06701v1), non-adaptive
``theorem_1``    DP-HyPO's Theorem 1 as printed (arXiv 2306.05734v2)
===============  ============================================================================
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting import run_rdp
from optuna_dp.accounting.bounds import Method, ProfileMethod
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS
from optuna_dp.accounting.renyi_method import RdpMethod
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.arrays import FloatArray
from optuna_dp.attacks.comparisons.koskela import koskela_applies, koskela_delta
from optuna_dp.attacks.comparisons.theorem_1 import theorem1_as_printed
from optuna_dp.private_selection.bounds.renyi import why_no_rdp
from optuna_dp.private_selection.event import PrivateSelectionDpEvent


class _Koskela:
    def __init__(self, pair: DominatingPair, event: PrivateSelectionDpEvent) -> None:
        self._pair, self._trials = pair, event.trials

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        return koskela_delta(self._pair, self._trials, epsilons)


def comparisons_of(event: Any, relation: str, delta: float) -> dict[str, tuple[float, str]]:
    """Returns epsilon at ``delta`` by each bound that covers the event, and why it is inf."""
    if not isinstance(event, PrivateSelectionDpEvent):
        return {}
    key = canonical_key(event)
    methods = _methods(key, relation)
    return {
        name: (epsilon, methods[name].why_infinite(delta))
        for name, epsilon in _epsilons(key, relation, delta).items()
    }


@functools.lru_cache(maxsize=1024)
def _epsilons(key: str, relation: str, delta: float) -> Mapping[str, float]:
    return {name: method.epsilon(delta) for name, method in _methods(key, relation).items()}


@functools.lru_cache(maxsize=64)
def _methods(key: str, relation: str) -> Mapping[str, Method]:
    event = event_from_json(json.loads(key))
    bounds = event.density_bounds
    found: dict[str, Method] = {}
    if koskela_applies(event.trials, bounds):
        pair = pair_of(event.run, relation)
        backward = pair.reversed()
        found["koskela"] = ProfileMethod(_Koskela(pair, event), _Koskela(backward, event))
    if bounds != (1.0, 1.0):
        orders = np.asarray(DEFAULT_ORDERS, dtype=np.float64)
        run = run_rdp.rdp_of(event.run, relation)
        found["theorem_1"] = RdpMethod(
            theorem1_as_printed(orders, run, event.trials, bounds),
            why_no_rdp(event.trials) or "it covers negative binomial laws only",
        )
    return found
