"""The privacy profile of one run: a dominating pair for every event tree.

How each kind of event is judged:

* what dp-accounting's PLD accountant takes: its pessimistic PLD, read at epsilon >= 0;
* :class:`ApproximateDpEvent`, repeated or not, and randomised response: closed forms;
* :class:`WorstCaseDpEvent`: the pointwise maximum of the children's profiles, per direction, at
  every epsilon (a maximum of epsilons at one delta is not enough);
* events with an RDP curve only: the profile that the curve implies. In a composition their curves
  are added first and converted once. That is sound although the steps interleave adaptively:
  a step with a dominating pair is a garbling of it, with the same kernel on D and on D' given the
  history, so all those pairs may be drawn up front; given them, the RDP steps compose adaptively
  to the sum of their curves, hence to one profile, and the two groups compose as two mechanisms
  (Zhu, Dong & Wang, arXiv 2106.08567v4, Theorem 10);
* :class:`PrivateSelectionDpEvent`: the pair of the selection's bound;
* :class:`BoundedRangeDpEvent`: its own pair (:mod:`optuna_dp.accounting.bounded_range`), and a
  smaller one for a composition that begins with it;
* :class:`SkellamDpEvent`: every entry that neighbours may change is one application of the exact
  pair of a Skellam variable and its shift by one (:mod:`optuna_dp.accounting.skellam`);
* compositions: the convolution of the children's PLDs.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from scipy.stats import binom

from optuna_dp.accounting import events, plds, run_rdp, supported_events
from optuna_dp.accounting.discretisation import DEFAULT_INTERVAL, Part, interval_for
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.first_choice import choice_and_rest
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, rdp_to_delta, rdp_to_epsilon
from optuna_dp.accounting.selection.profile_bound import DataProfile, smallest_epsilon
from optuna_dp.arrays import FloatArray

_LARGEST_EPSILON = 600.0
_PROFILE_POINTS = 4000
_SELECTION_POINTS = 1500
# Beyond the epsilon with this delta a selection's pair counts the rest as infinite loss, which
# only adds this much to delta.
_SELECTION_TAIL = 1e-14


def pair_of(event: Any, relation: str = "add_or_remove_one") -> DominatingPair:
    """Returns a pair that dominates the event: forward, ``.reversed()`` the other direction.

    Cached; the pair is immutable.

    Args:
        event: Any supported event tree.
        relation: "add_or_remove_one" or "replace_one", for the whole tree.

    Returns:
        The pair; :meth:`DominatingPair.infinite` when the event protects nothing
        (:func:`optuna_dp.accounting.supported_events.non_private_reason` says why).

    Raises:
        UnsupportedEventError: Nothing judges a sub-event (named), before any work.
    """
    events.neighboring_relation(relation)
    key = canonical_key(event)
    supported_events.check_supported(event, relation)
    return _pair_cached(key, relation)


def pld_of(event: Any, relation: str = "add_or_remove_one") -> Any:
    """Returns dp-accounting's PrivacyLossDistribution of the whole tree, ours included.

    For composing with other mechanisms. Its deltas carry FFT noise of some 1e-14;
    :func:`pair_of` adds that back.

    Args:
        event: Any supported event tree.
        relation: "add_or_remove_one" or "replace_one", for the whole tree.

    Raises:
        UnsupportedEventError: Nothing judges a sub-event (named), before any work.
    """
    events.neighboring_relation(relation)
    key = canonical_key(event)
    supported_events.check_supported(event, relation)
    return _pld_cached(key, relation)


@functools.lru_cache(maxsize=64)
def _pair_cached(key: str, relation: str) -> DominatingPair:
    event = event_from_json(json.loads(key))
    if supported_events.non_private_reason(event) is not None:
        return DominatingPair.infinite()
    parts = _parts(event, relation)
    if not parts:
        return DominatingPair.identity()
    if len(parts) == 1 and parts[0].times == 1:
        pair = _pair_of_part(parts[0].event, relation)
        if pair is not None:
            return pair
    return plds.pair_of_pld(
        _composed(parts, relation), plds.fft_slack(sum(part.times for part in parts))
    )


@functools.lru_cache(maxsize=8)
def _pld_cached(key: str, relation: str) -> Any:
    event = event_from_json(json.loads(key))
    parts = (
        [] if supported_events.non_private_reason(event) is not None else _parts(event, relation)
    )
    if not parts:
        return plds.pld_of_pair(_pair_cached(key, relation), DEFAULT_INTERVAL)
    return _composed(parts, relation)


# -- the parts of a composition ------------------------------------------------------------------


def _leaves(event: Any, count: int) -> Iterator[tuple[Any, int]]:
    if (
        count == 0
        or isinstance(event, dp_event.NoOpDpEvent)
        or supported_events.never_touches(event)
    ):
        return
    if choice_and_rest(event) is not None:
        yield event, count  # The order within it matters.
    elif isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _leaves(event.event, count * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for child in event.events:
            yield from _leaves(child, count)
    else:
        yield event, count


# Judged by a pair of their own, not by dp-accounting's PLD.
_BY_PAIR = (
    events.BoundedRangeDpEvent,
    events.WorstCaseDpEvent,
    events.PrivateSelectionDpEvent,
    dp_event.RandomizedResponseDpEvent,
)


def _is_by_pair(event: Any) -> bool:
    return isinstance(event, _BY_PAIR) or choice_and_rest(event) is not None


def _parts(event: Any, relation: str) -> list[Part]:
    """Returns the applications of the tree, equal ones counted and some joined into one part.

    Joined: the Gaussians (their composition is one Gaussian: Dong, Roth & Su, arXiv 1905.02383v3,
    Corollary 3.3), equal ApproximateDpEvents (closed form), and all that have an RDP curve only.
    """
    counts: dict[str, Part] = {}
    for leaf, count in _leaves(event, 1):
        key = canonical_key(leaf)
        counts[key] = Part(leaf, count + (counts[key].times if key in counts else 0))
    parts: list[Part] = []
    rdp_only: list[Any] = []
    precision = 0.0
    for leaf, count in counts.values():
        repeated = dp_event.SelfComposedDpEvent(leaf, count)
        if isinstance(leaf, dp_event.GaussianDpEvent):
            precision += count / leaf.noise_multiplier**2
        elif isinstance(leaf, events.ApproximateDpEvent):
            parts.append(Part(repeated, 1))
        elif isinstance(leaf, events.SkellamDpEvent):
            if (changes := leaf.changes(relation)) > 0:
                parts.append(Part(leaf, count * changes))  # one application is one entry
        elif _is_by_pair(leaf) or supported_events.has_profile(leaf, relation):
            parts.append(Part(leaf, count))
        else:
            rdp_only.append(repeated)
    if precision > 0.0:
        parts.append(Part(dp_event.GaussianDpEvent(precision**-0.5), 1))
    if rdp_only:
        parts.append(Part(dp_event.ComposedDpEvent(rdp_only), 1))
    return parts


def _pair_of_part(event: Any, relation: str) -> DominatingPair | None:
    """Returns the pair of one application, None if dp-accounting makes its PLD."""
    first = choice_and_rest(event)
    if first is not None or isinstance(event, events.BoundedRangeDpEvent):
        # Only choices among utilities rest on it.
        from optuna_dp.accounting import bounded_range

        if first is None:
            return bounded_range.pair_of_choice(event.epsilon)
        return bounded_range.pair_with_rest(first[0].epsilon, pair_of(first[1], relation))
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return _repeated_response(event.event.epsilon, event.event.delta, event.count)
    if isinstance(event, dp_event.RandomizedResponseDpEvent):
        return _k_ary_response(event.noise_parameter, event.num_buckets)
    if isinstance(event, events.SkellamDpEvent):
        # Only votes rest on it.
        from optuna_dp.accounting.skellam import shift_pair

        return shift_pair(event.variance)
    if isinstance(event, events.WorstCaseDpEvent):
        return _pointwise_maximum([pair_of(child, relation) for child in event.events])
    if isinstance(event, events.PrivateSelectionDpEvent):
        return _pair_of_selection(event, relation)
    if isinstance(event, dp_event.ComposedDpEvent):
        return _pair_of_rdp(event, relation)
    return None


def _composed(parts: list[Part], relation: str) -> Any:
    """Returns the PLD of all parts together."""
    pairs = [
        _pair_cached(canonical_key(part.event), relation)  # selections are dear
        if _is_by_pair(part.event)
        else _pair_of_part(part.event, relation)
        for part in parts
    ]
    if any(pair is not None and pair.is_infinite for pair in pairs):
        return plds.pld_of_pair(DominatingPair.infinite(), DEFAULT_INTERVAL)
    interval = interval_for(parts, pairs, relation)
    native = [
        dp_event.SelfComposedDpEvent(part.event, part.times)
        for part, pair in zip(parts, pairs, strict=True)
        if pair is None
    ]
    result = None
    if native:
        result = plds.native_pld(dp_event.ComposedDpEvent(native), relation, interval)
    for part, pair in zip(parts, pairs, strict=True):
        if pair is not None:
            pld = plds.pld_of_pair(pair, interval)
            pld = pld.self_compose(part.times) if part.times > 1 else pld
            result = pld if result is None else result.compose(pld)
    return result


# -- closed forms and maxima -------------------------------------------------------------------


def _repeated_response(epsilon: float, delta: float, count: int) -> DominatingPair:
    """The pair of ``count`` adaptive (epsilon, delta)-DP mechanisms, exactly.

    Kairouz, Oh & Viswanath, arXiv 1311.0776v4: randomised response dominates each, so the loss
    is a binomial number of +epsilon less the rest, unless some mechanism showed the data.
    """
    if count == 1 or epsilon == 0.0:
        shown = -math.expm1(count * math.log1p(-delta))
        return DominatingPair.randomized_response(epsilon, shown)
    shown = -math.expm1(count * math.log1p(-delta))
    up = np.arange(count + 1)
    losses = (2.0 * up - count) * epsilon
    mass = (1.0 - shown) * binom.pmf(up, count, 1.0 / (1.0 + math.exp(-epsilon)))
    return _without_extremes(losses, mass, mass[::-1], shown)


def _k_ary_response(noise_parameter: float, buckets: int) -> DominatingPair:
    """The pair of k-ary randomised response when the input changes (dp-accounting's event)."""
    if buckets <= 1 or noise_parameter >= 1.0:
        return DominatingPair.identity()
    other = noise_parameter / buckets
    own = 1.0 - noise_parameter + other
    loss = math.log1p((1.0 - noise_parameter) / other)
    rest = max((buckets - 2) * other, 0.0)
    losses, mass = np.array([-loss, 0.0, loss]), np.array([other, rest, own])
    return _without_extremes(losses, mass, mass[::-1], 0.0)


def _without_extremes(losses: Any, mass: Any, prime: Any, shown: float) -> DominatingPair:
    """A pair of these atoms; losses too large for floats count as infinite, which claims less."""
    keep = np.abs(losses) <= _LARGEST_EPSILON
    return DominatingPair(
        losses[keep],
        mass[keep],
        min(shown + float(mass[~keep].sum()), 1.0),
        min(shown + float(prime[~keep].sum()), 1.0),
    )


def _pointwise_maximum(pairs: list[DominatingPair]) -> DominatingPair:
    """The pair whose profile is at least every one of these, in both directions."""
    if any(pair.is_infinite for pair in pairs):
        return DominatingPair.infinite()
    losses = np.unique(np.concatenate([np.abs(pair.losses) for pair in pairs]))
    # A subset of the atoms is as sound (fewer dots to connect) and bounds the size.
    stride = max(1, math.ceil(losses.size / (2 * _PROFILE_POINTS)))
    epsilons = np.union1d([0.0], np.append(losses[::stride], losses[-1:]))
    return DominatingPair.from_profile(
        epsilons,
        np.maximum.reduce([pair.delta(epsilons) for pair in pairs]),
        np.maximum.reduce([pair.reversed().delta(epsilons) for pair in pairs]),
    )


def _pair_of_rdp(event: Any, relation: str) -> DominatingPair:
    """The pair that an RDP curve implies: the same bound in both directions."""
    rdp = run_rdp.rdp_of(event, relation)
    orders = np.array(DEFAULT_ORDERS)
    if not np.any(np.isfinite(rdp)):
        return DominatingPair.infinite()
    top = min(rdp_to_epsilon(orders, rdp, 1e-16), _LARGEST_EPSILON)
    middle = min(rdp_to_epsilon(orders, rdp, 1e-8), top)
    half = _PROFILE_POINTS // 2
    epsilons = np.union1d(np.linspace(0.0, top, half), np.linspace(0.0, middle, half))
    deltas = rdp_to_delta(orders, rdp, epsilons)
    return DominatingPair.from_profile(epsilons, deltas, deltas)


def _pair_of_selection(event: events.PrivateSelectionDpEvent, relation: str) -> DominatingPair:
    """Returns a pair that dominates the selection's released output.

    At each epsilon of a grid the smallest of the profile bounds that hold is taken, in each
    direction; :meth:`DominatingPair.from_profile` rounds up between the points.
    """
    pair = pair_of(event.run, relation)
    directions = (pair, pair.reversed())
    adaptive = event.policy == "history" and event.density_bounds != (1.0, 1.0)
    profiles: list[tuple[Any, ...]] = [
        (DataProfile(direction, event.trials, event.density_bounds),) for direction in directions
    ]
    if adaptive:
        # Only where there are density bounds: nothing else rests on it.
        from optuna_dp.accounting.selection.history_only import history_only_profiles

        better = history_only_profiles(
            pair, event.trials, event.density_bounds, events.startup_runs_of(event)
        )
        profiles = [(*old, new) for old, new in zip(profiles, better, strict=True)]

    def smallest(which: int, epsilons: npt.ArrayLike) -> FloatArray:
        return np.asarray(np.minimum.reduce([p.delta(epsilons) for p in profiles[which]]))

    far = float(np.max([smallest(which, [500.0])[0] for which in (0, 1)]))

    def reach_of(which: int) -> float:
        return smallest_epsilon(lambda eps: smallest(which, [eps])[0], far + _SELECTION_TAIL)

    reach = max(reach_of(0), reach_of(1))
    # Dense where the loss is small, where most of the mass is.
    grid = reach * np.linspace(0.0, 1.0, _SELECTION_POINTS if reach > 0.0 else 1) ** 1.5
    return DominatingPair.from_profile(grid, smallest(0, grid), smallest(1, grid))
