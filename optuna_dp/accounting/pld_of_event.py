"""Privacy loss distributions of whole event trees, for composing them with other things."""

from __future__ import annotations

import functools
import json
from typing import Any

from optuna_dp.accounting import events, plds, supported_events
from optuna_dp.accounting.event_json import canonical_key, event_from_json
from optuna_dp.accounting.plds import DEFAULT_INTERVAL
from optuna_dp.accounting.run_profile import composed, pair_of, parts_of


def pld_of(event: Any, relation: str = "add_or_remove_one") -> Any:
    """Returns dp-accounting's PrivacyLossDistribution of the whole tree, ours included.

    For composing with other mechanisms. Its deltas carry FFT noise of some 1e-14;
    :func:`~optuna_dp.accounting.run_profile.pair_of` adds that back.

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


@functools.lru_cache(maxsize=8)
def _pld_cached(key: str, relation: str) -> Any:
    event = event_from_json(json.loads(key))
    parts = (
        [] if supported_events.non_private_reason(event) is not None else parts_of(event, relation)
    )
    if not parts:
        return plds.pld_of_pair(pair_of(event, relation), DEFAULT_INTERVAL)
    return composed(parts, relation)
