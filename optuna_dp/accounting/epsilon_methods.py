"""The bounds that a guarantee rests on, by name. The guarantee is the smallest of them.

====================  =========================================================================
``data_profile``      privacy-profile bound of selection (docs/explanation/profile-bound.md)
``history_profile``   the same for policies that see private outputs only: the smaller of the two
                      bounds (pointwise-bound.md, history-bound.md)
``rdp``               Renyi DP (rdp-of-selection.md); dp-accounting for other events
``pure``              pure epsilon, at any delta
``profile``           dominating pairs of events that are not selections
====================  =========================================================================

The bounds of others are shown beside these and have no vote
(:mod:`optuna_dp.accounting.beside`).
"""

from __future__ import annotations

import functools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting import run_rdp, supported_events
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.events import PrivateSelectionDpEvent, startup_runs_of
from optuna_dp.accounting.gaussian_dp import smallest_mu
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, rdp_to_delta, rdp_to_epsilon
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.accounting.selection import renyi
from optuna_dp.accounting.selection.profile_bound import DataProfile, smallest_epsilon
from optuna_dp.arrays import FloatArray


class Method(ABC):
    """One valid upper bound on the privacy loss of an event."""

    @abstractmethod
    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """Returns the bound on delta at each epsilon >= 0."""

    def epsilon(self, delta: float) -> float:
        """Returns an epsilon at which :meth:`delta` is at most ``delta``, inf if there is none."""
        return smallest_epsilon(self.delta, delta)

    def why_infinite(self, delta: float) -> str:
        """Returns why there is no finite epsilon at ``delta``."""
        return "nothing is known for this event"


class _OneDirection(Protocol):
    def delta(self, epsilons: npt.ArrayLike) -> FloatArray: ...


class ProfileMethod(Method):
    """The larger of the profiles of the two directions."""

    def __init__(
        self, forward: _OneDirection, reverse: _OneDirection, reason: str | None = None
    ) -> None:
        self._directions = (forward, reverse)
        self._reason = reason

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """See :class:`Method`."""
        forward, reverse = (np.asarray(d.delta(epsilons)) for d in self._directions)
        return np.maximum(forward, reverse)

    def why_infinite(self, delta: float) -> str:
        """See :class:`Method`."""
        if self._reason is not None:
            return self._reason
        floor = float(self.delta(np.array([500.0]))[0])
        return (
            f"with probability {floor:.3g} an output may tell everything (a run's own delta, "
            f"times the number of runs), which is more than delta={delta:g}"
        )


class RdpMethod(Method):
    """A Renyi-DP curve, converted."""

    def __init__(self, curve: FloatArray, reason: str | None = None) -> None:
        self._orders = np.asarray(DEFAULT_ORDERS, dtype=np.float64)
        self._curve = curve
        self._reason = reason

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """See :class:`Method`."""
        return rdp_to_delta(self._orders, self._curve, epsilons)

    def epsilon(self, delta: float) -> float:
        """See :class:`Method`."""
        return rdp_to_epsilon(self._orders, self._curve, delta)

    def why_infinite(self, delta: float) -> str:
        """See :class:`Method`."""
        return self._reason or "a part of the event has no Renyi-DP curve"


class PureMethod(Method):
    """A pure epsilon."""

    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon

    def delta(self, epsilons: npt.ArrayLike) -> FloatArray:
        """See :class:`Method`."""
        return np.where(np.asarray(epsilons, dtype=np.float64) >= self._epsilon, 0.0, 1.0)

    def epsilon(self, delta: float) -> float:
        """See :class:`Method`."""
        return self._epsilon

    def why_infinite(self, delta: float) -> str:
        """See :class:`Method`."""
        return "a part of the event is not purely private, or no pure bound holds for this law"


def methods_of(event: Any, relation: str) -> Mapping[str, Method]:
    """Returns every method that applies to an event, by name; built once per event.

    Raises:
        UnsupportedEventError: If nothing judges a sub-event (named), before any work.
    """
    supported_events.check_supported(event, relation)
    return _methods(canonical_key(event), relation)


def epsilons_of(event: Any, relation: str, delta: float) -> Mapping[str, float]:
    """Returns epsilon at ``delta`` under every method that applies, by name; cached.

    Raises:
        UnsupportedEventError: If nothing judges a sub-event (named), before any work.
    """
    supported_events.check_supported(event, relation)
    return _epsilons(canonical_key(event), relation, delta)


def deltas_of(event: Any, relation: str, epsilons: npt.ArrayLike) -> FloatArray:
    """Returns the smallest delta of the methods at each epsilon >= 0."""
    found = [np.asarray(m.delta(epsilons)) for m in methods_of(event, relation).values()]
    return np.asarray(np.minimum.reduce(found))


def mu_of(event: Any, relation: str, tail: float) -> float:
    """Returns the smallest mu of :mod:`~optuna_dp.accounting.gaussian_dp` found; cached."""
    supported_events.check_supported(event, relation)
    return _mu(canonical_key(event), relation, tail)


@functools.lru_cache(maxsize=1024)
def _mu(key: str, relation: str, tail: float) -> float:
    event = event_from_json(json.loads(key))
    last = min(_epsilons(key, relation, tail).values())
    return smallest_mu(functools.partial(deltas_of, event, relation), last, tail)


@functools.lru_cache(maxsize=1024)
def _epsilons(key: str, relation: str, delta: float) -> Mapping[str, float]:
    methods = _methods(key, relation)
    return MappingProxyType({name: m.epsilon(delta) for name, m in methods.items()})


@functools.lru_cache(maxsize=64)
def _methods(key: str, relation: str) -> Mapping[str, Method]:
    event = event_from_json(json.loads(key))
    found = (
        _selection_methods(event, relation)
        if isinstance(event, PrivateSelectionDpEvent)
        else _plain_methods(event, relation)
    )
    return MappingProxyType(found)


def _plain_methods(event: Any, relation: str) -> dict[str, Method]:
    pair = pair_of(event, relation)
    found: dict[str, Method] = {
        "profile": ProfileMethod(pair, pair.reversed()),
        "rdp": RdpMethod(run_rdp.rdp_of(event, relation)),
    }
    pure = run_rdp.pure_of(event, relation)
    if pure < math.inf:
        found["pure"] = PureMethod(pure)
    return found


def _selection_methods(event: PrivateSelectionDpEvent, relation: str) -> dict[str, Method]:
    pair = pair_of(event.run, relation)
    backward = pair.reversed()
    bounds = event.density_bounds
    found: dict[str, Method] = {
        "data_profile": ProfileMethod(
            DataProfile(pair, event.trials, bounds), DataProfile(backward, event.trials, bounds)
        )
    }
    if event.policy == "history" and bounds != (1.0, 1.0):
        # Only where there are density bounds: nothing else rests on it.
        from optuna_dp.accounting.selection.history_only import history_only_profiles

        forward, other = history_only_profiles(pair, event.trials, bounds, startup_runs_of(event))
        too_long = "more runs are likely than this bound can follow one by one"
        found["history_profile"] = ProfileMethod(
            forward, other, too_long if forward.gave_up else None
        )
    orders = np.asarray(DEFAULT_ORDERS, dtype=np.float64)
    run = run_rdp.rdp_of(event.run, relation)
    # From the run's curve, which is cached: sampled Gaussians take a third of a second.
    curve = renyi.selection_rdp(orders, run, event.trials, bounds)
    found["rdp"] = RdpMethod(
        np.where(np.isnan(curve), np.inf, curve), renyi.why_no_rdp(event.trials)
    )
    pure = renyi.pure_selection_epsilon(run_rdp.pure_of(event.run, relation), event.trials, bounds)
    if pure < math.inf:
        found["pure"] = PureMethod(pure)
    return found
