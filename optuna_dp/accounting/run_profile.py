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
* anything else on a Poisson sample, under add or remove: a mixture of its pair
  (:mod:`optuna_dp.accounting.sampled_pairs`);
* :class:`SkellamDpEvent`: every entry that neighbours may change is one application of the exact
  pair of a Skellam variable and its shift by one (:mod:`optuna_dp.accounting.skellam`);
* compositions: the convolution of the children's PLDs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from dp_accounting import dp_event

from optuna_dp.accounting import events, plds, sampled_gaussian, supported_events
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.first_choice import choice_and_rest
from optuna_dp.accounting.plds import DEFAULT_INTERVAL, Part, interval_for


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


# What _parts makes of events of which a bound is known and no mechanism, and of answers at random.
_KNOWN_IN_PART = (
    dp_event.SelfComposedDpEvent,
    dp_event.ComposedDpEvent,
    dp_event.RandomizedResponseDpEvent,
    events.WorstCaseDpEvent,
)


def _is_by_pair(event: Any, relation: str) -> bool:
    if isinstance(event, _BY_PAIR) or choice_and_rest(event) is not None:
        return True
    # Under other relations it has a Renyi curve, or was refused.
    return relation == "add_or_remove_one" and supported_events.sampled_by_pair(event, relation)


def known_by_curve(leaf: Any, relation: str) -> bool:
    """Whether an event without parts has a Renyi-DP curve and no profile."""
    return not (
        isinstance(leaf, events.ApproximateDpEvent | events.SkellamDpEvent)
        or _is_by_pair(leaf, relation)
        or supported_events.has_profile(leaf, relation)
    )


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
        elif known_by_curve(leaf, relation):
            rdp_only.append(repeated)
        else:
            parts.append(Part(leaf, count))
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
    if isinstance(event, dp_event.PoissonSampledDpEvent) and _is_by_pair(event, relation):
        # No sampler of this package draws samples.
        from optuna_dp.accounting.sampled_pairs import sampled

        return sampled(pair_of(event.event, relation), event.sampling_probability)
    if isinstance(event, events.SkellamDpEvent):
        # Only votes rest on it.
        from optuna_dp.accounting.skellam import shift_pair

        return shift_pair(event.variance)
    if isinstance(event, events.PrivateSelectionDpEvent):
        # Only what composes a selection with other things rests on it.
        from optuna_dp.accounting.selection.as_part import pair_of_selection

        return pair_of_selection(event, pair_of(event.run, relation))
    if isinstance(event, _KNOWN_IN_PART):
        # Only runs that are described by what is known of them rest on it.
        from optuna_dp.accounting.known_bounds import pair_of_what_is_known

        return pair_of_what_is_known(event, relation, pair_of)
    return None


def _composed(parts: list[Part], relation: str) -> Any:
    """Returns the PLD of all parts together."""
    pairs = [
        _pair_cached(canonical_key(part.event), relation)  # cached: a selection takes seconds
        if _is_by_pair(part.event, relation)
        else _pair_of_part(part.event, relation)
        for part in parts
    ]
    if any(pair is not None and pair.is_infinite for pair in pairs):
        return plds.pld_of_pair(DominatingPair.infinite(), DEFAULT_INTERVAL)
    interval = interval_for(parts, pairs, relation)
    result, native = None, []
    for part, pair in zip(parts, pairs, strict=True):
        if pair is not None:
            pld = plds.pld_of_pair(pair, interval)
        elif sampled_gaussian.applies_to(part.event):
            pld = sampled_gaussian.loss_distribution(part.event, relation, interval)
        else:
            native.append(dp_event.SelfComposedDpEvent(part.event, part.times))
            continue
        pld = pld.self_compose(part.times) if part.times > 1 else pld
        result = pld if result is None else result.compose(pld)
    if native:
        pld = plds.native_pld(dp_event.ComposedDpEvent(native), relation, interval)
        result = pld if result is None else result.compose(pld)
    return result
