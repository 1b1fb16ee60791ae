"""Says in words where two records differ: for refusals. No guarantee depends on it."""

from __future__ import annotations

from typing import Any

_SHOWN = 3


def differences(mine: dict[str, Any], plan: dict[str, Any]) -> str:
    """Says in words where a worker's record differs from the plan's; empty if nowhere.

    The outermost fields come first. Lists are only named: those of a plan hold whole events.
    """
    mine, plan = _flat(mine), _flat(plan)
    names = sorted(set(mine) | set(plan), key=lambda name: (name.count("."), name))
    differing = [name for name in names if mine.get(name) != plan.get(name)]
    words = [
        f"{name} differs"
        if isinstance(mine.get(name, plan.get(name)), list)
        else f"{name} is {mine.get(name)!r} here and {plan.get(name)!r} in the plan"
        for name in differing[:_SHOWN]
    ]
    more = len(differing) - len(words)
    return "; ".join(words + [f"{more} more field(s) differ"] * bool(more))


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
