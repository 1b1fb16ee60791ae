"""The privacy profile of one run: a dominating pair for every event tree.

How the cost of each kind of event is computed:

* what dp-accounting's PLD accountant takes: its pessimistic PLD, read at epsilon >= 0;
* kinds of our own and some of dp-accounting's say what their pair is
  (:class:`optuna_dp.accounting.kinds.base.EventKind`);
* events with an RDP curve only: the profile that the curve implies. In a composition their curves
  are added first and converted once. That is sound although the steps interleave adaptively:
  a step with a dominating pair is a garbling of it, with the same kernel on D and on D' given the
  history, so all those pairs may be drawn up front; given them, the RDP steps compose adaptively
  to the sum of their curves, hence to one profile, and the two groups compose as two mechanisms
  (Zhu, Dong & Wang, arXiv 2106.08567v4, Theorem 10);
* anything else on a Poisson sample, under add or remove: a mixture of its pair
  (:meth:`~optuna_dp.accounting.dominating_pairs.DominatingPair.sampled`);
* compositions: the convolution of the children's PLDs; one that begins with a choice of bounded
  range has a smaller pair of its own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting import events, plds, sampled_gaussian, supported_events
from optuna_dp.accounting.discretisation import interval_for
from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.kinds.base import Part
from optuna_dp.accounting.kinds.foreign import kind_of, never_touches, pure_of
from optuna_dp.accounting.plds import DEFAULT_INTERVAL
from optuna_dp.errors import UnsupportedEventError

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from optuna_dp.accounting.kinds.bounded_range import BoundedRangeDpEvent

_LARGEST_NOISE = 1e150
_SMALLEST_NOISE = 1e-4  # Of a grid: an epsilon of 5e7. Grids for less do not fit into memory.
_COARSEST, _FINEST = 100.0, 1e-12  # Intervals of a grid.


def pair_of(event: dp_event.DpEvent, relation: str = "add_or_remove_one") -> DominatingPair:
    """Returns a pair that dominates the event: forward, ``.reversed()`` the other direction.

    Cached; the pair is immutable.

    Args:
        event: Any supported event tree.
        relation: "add_or_remove_one" or "replace_one", for the whole tree.

    Returns:
        The pair; :meth:`DominatingPair.infinite` when the event protects nothing
        (:func:`optuna_dp.accounting.supported_events.non_private_reason` says why).

    Raises:
        UnsupportedEventError: No accountant supports a sub-event (named), before any work.
    """
    events.neighboring_relation(relation)
    key = canonical_key(event)
    supported_events.check_supported(event, relation)
    return pair_of_key(key, relation)


@functools.lru_cache(maxsize=64)
def pair_of_key(key: str, relation: str) -> DominatingPair:
    """:func:`pair_of` an event by its canonical key, which is checked already; kept."""
    event = event_from_json(json.loads(key))
    if supported_events.non_private_reason(event) is not None:
        return DominatingPair.infinite()
    parts = parts_of(event, relation)
    if not parts:
        return DominatingPair.identity()
    if len(parts) == 1 and parts[0].times == 1:
        # Kept here, so not twice: a chain of choices is a chain of calls.
        pair = pair_of_part.__wrapped__(canonical_key(parts[0].event), relation)
        if pair is not None:
            return pair
    return plds.pair_of_pld(
        composed(parts, relation), plds.fft_slack(sum(part.times for part in parts))
    )


# -- the parts of a composition ------------------------------------------------------------------


def _leaves(
    event: dp_event.DpEvent, count: int, relation: str
) -> Iterator[tuple[dp_event.DpEvent, int]]:
    if count == 0 or never_touches(event) or pure_of(event, relation) == 0.0:
        return
    applications = kind_of(event).applications()
    if applications is None or first_choice(event) is not None:
        yield event, count  # Where a composition begins with a choice, the order in it matters.
        return
    for part in applications:
        yield from _leaves(part.event, count * part.times, relation)


def counted(event: dp_event.DpEvent, relation: str) -> dict[str, Part]:
    """Returns the applications of the tree by their canonical keys, equal ones counted."""
    parts: dict[str, Part] = {}
    for leaf, count in _leaves(event, 1, relation):
        key = canonical_key(leaf)
        parts[key] = Part(leaf, count + (parts[key].times if key in parts else 0))
    return parts


def known_by_curve(leaf: dp_event.DpEvent, relation: str) -> bool:
    """Returns whether an event without parts has a Renyi-DP curve and no profile."""
    return first_choice(leaf) is None and kind_of(leaf).known_by_curve(relation)


def first_choice(event: dp_event.DpEvent) -> tuple[BoundedRangeDpEvent, dp_event.DpEvent] | None:
    """Returns the choice with which a composition begins and what follows, if it does."""
    start = event
    for _ in range(2):  # The first part of a composition may itself be one event, repeated.
        if kind_of(start).applications() is not None:
            start = next(iter(kind_of(start).children()), None)
    if not kind_of(start).cheaper_first:
        return None
    # Lazy: only choices among utilities need it.
    from optuna_dp.accounting.kinds.bounded_range import choice_and_rest

    return choice_and_rest(event)


def _refuse_noise_below(smallest: float, leaf: dp_event.DpEvent) -> None:
    noisy = getattr(leaf, "event", leaf)  # on a sample or not
    if isinstance(noisy, dp_event.GaussianDpEvent) and noisy.noise_multiplier < smallest:
        raise UnsupportedEventError(leaf, f"its noise is below {smallest:g}")


def parts_of(event: dp_event.DpEvent, relation: str) -> list[Part]:
    """Returns the applications of the tree, equal ones counted and some joined into one part.

    Joined: the Gaussians (their composition is one Gaussian: Dong, Roth & Su, arXiv 1905.02383v3,
    Corollary 3.3), what a kind of ours joins by itself, and all that have an RDP curve only.
    """
    parts: list[Part] = []
    rdp_only: list[dp_event.DpEvent] = []
    precision = 0.0
    for leaf, count in counted(event, relation).values():
        if isinstance(leaf, dp_event.GaussianDpEvent):
            _refuse_noise_below(1.0 / _LARGEST_NOISE, leaf)
            # Larger noise is charged as this: its square must be a float.
            precision += count / min(leaf.noise_multiplier, _LARGEST_NOISE) ** 2
        elif known_by_curve(leaf, relation):
            rdp_only.append(dp_event.SelfComposedDpEvent(leaf, count))
        else:
            parts.append(kind_of(leaf).part(count, relation))
    if precision > 0.0:
        parts.append(Part(dp_event.GaussianDpEvent(precision**-0.5), 1))
    if rdp_only:
        parts.append(Part(dp_event.ComposedDpEvent(rdp_only), 1))
    return [part for part in parts if part.times > 0]


@functools.lru_cache(maxsize=64)
def pair_of_part(key: str, relation: str) -> DominatingPair | None:
    """Returns the pair of one application, None if dp-accounting makes its PLD."""
    event = event_from_json(json.loads(key))
    ordered_event = first_choice(event)
    if ordered_event is not None:
        choice, later_event = ordered_event
        in_order = choice.pair_before(pair_of(later_event, relation))
        # Both hold, and each is rounded up in its own way.
        parts = [Part(choice, 1), *parts_of(later_event, relation)]
        unordered = plds.pair_of_pld(
            composed(parts, relation), plds.fft_slack(sum(part.times for part in parts))
        )
        return _smaller(in_order, unordered)
    kind = kind_of(event)
    pair = kind.pair(relation, pair_of)
    if pair is None and kind.applications() is not None:
        # Lazy: only runs described by known bounds need it.
        from optuna_dp.accounting.run_rdp import pair_of_curve

        return pair_of_curve(event, relation)  # Of all events that are known by a curve only.
    return pair


def _smaller(left: DominatingPair, right: DominatingPair) -> DominatingPair:
    """Returns a pair for what both dominate: at every loss of either, the smaller profile."""
    losses = np.abs(np.concatenate([[0.0], left.losses, right.losses]))
    epsilons = np.unique(losses[losses <= LARGEST_EPSILON])
    directions = ((left, right), (left.reversed(), right.reversed()))
    return DominatingPair.from_profile(
        epsilons, *(np.minimum(a.delta(epsilons), b.delta(epsilons)) for a, b in directions)
    )


def composed(parts: list[Part], relation: str) -> PrivacyLossDistribution:
    """Returns the PLD of all parts together."""
    for part in parts:
        _refuse_noise_below(_SMALLEST_NOISE, part.event)
    pairs = [pair_of_part(canonical_key(part.event), relation) for part in parts]
    if any(pair is not None and pair.is_infinite for pair in pairs):
        return plds.pld_of_pair(DominatingPair.infinite(), DEFAULT_INTERVAL)
    # Any positive interval is sound: everything is rounded to the grid toward larger losses.
    interval = interval_for(parts, pairs, relation)
    if interval > _COARSEST:  # Losses beyond any epsilon that means something.
        return plds.pld_of_pair(DominatingPair.infinite(), DEFAULT_INTERVAL)
    interval = interval if interval >= _FINEST else DEFAULT_INTERVAL
    distributions, native = [], []
    for part, pair in zip(parts, pairs, strict=True):
        if pair is not None:
            distributions.append((plds.pld_of_pair(pair, interval), part.times))
        elif sampled_gaussian.applies_to(part.event):
            of_step = sampled_gaussian.loss_distribution(part.event, relation, interval)
            distributions.append((of_step, part.times))
        else:
            native.append(dp_event.SelfComposedDpEvent(part.event, part.times))
    if native:
        composition = dp_event.ComposedDpEvent(native)
        distributions.append((plds.native_pld(composition, relation, interval), 1))
    return plds.composed(distributions)
