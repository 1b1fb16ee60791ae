"""Differences between a stated JSON value and the one that was computed again, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# Bounds, in which a number may be larger than what is found; but the parts in _EXACT may not.
BOUNDS = {"epsilon", "epsilon_by_method", "unit_with_several_records", "rdp", "gaussian_dp"}
_EXACT = {"records", "orders", "tail"}
# Other versions of the software, of numpy and of scipy round otherwise; a bound that has become
# tighter since is no objection.
_ROUNDING = 1e-6


def difference_in(key: str, statement: Mapping[str, Any], value: Any) -> str:
    """Says where a key of a statement is not what was found; empty if nowhere."""
    stated_value = statement[key]
    if key == "attack":  # A bound from below, which may say less.
        if stated_value is None or not difference(value, stated_value, bound=True):
            return ""
        return difference(stated_value, value, bound=False)
    methods = statement["epsilon_by_method"]
    if key == "method" and stated_value not in statement["comparisons"]:
        # Of two methods with the same epsilon, rounding may choose either.
        value = stated_value if methods.get(stated_value) == statement["epsilon"] else value
    return difference(stated_value, value, bound=key in BOUNDS)


def difference(stated_value: Any, value: Any, *, bound: bool, share: float = _ROUNDING) -> str:
    """Says where values of JSON differ; empty if nowhere. 1 is not true, and 1.0 is 1.

    Of a bound, a stated number may be larger than what was found, or smaller by ``share`` of it;
    None stands for infinity.
    """
    if (
        isinstance(value, list)
        and isinstance(stated_value, list)
        and len(value) == len(stated_value)
    ):
        stated_value, value = dict(enumerate(stated_value)), dict(enumerate(value))
    if isinstance(value, dict) and isinstance(stated_value, dict):
        for key in value.keys() ^ stated_value.keys():
            return f"{str(key)[:40]} is missing or unknown"
        for key in value:
            is_bound = bound and key not in _EXACT
            part = difference(stated_value[key], value[key], bound=is_bound, share=share)
            if part:
                return f"{str(key)[:40]}: {part}"
        return ""
    is_equal = stated_value == value and isinstance(stated_value, bool) == isinstance(value, bool)
    if bound and _is_bound(stated_value) and _is_bound(value):
        limit = math.inf if value is None else value
        is_equal = stated_value is None or limit <= stated_value * (1 + share)
    return "" if is_equal else f"{shown(value) or 'another'}, stated {str(stated_value)[:40]}"


def differs_much(stated_value: Any, value: Any) -> bool:
    """Returns whether a bound is stated that other versions of the software do not explain."""
    if not _is_number(stated_value) or not _is_number(value):
        return bool(stated_value != value)
    return not math.isclose(stated_value, value, rel_tol=1e-3)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_bound(value: Any) -> bool:
    return value is None or _is_number(value)


def shown(value: Any) -> str:
    """Returns what was found in words, where it is short; else nothing."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "" if isinstance(value, dict | list) or len(text) > 70 else text
