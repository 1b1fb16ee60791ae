"""Where two records differ, in words: for refusals. No guarantee rests on it."""

from __future__ import annotations

from typing import Any


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Says in words where two records differ, field by field; empty if nowhere."""
    mine, theirs = _flat(mine), _flat(theirs)
    names = sorted(set(mine) | set(theirs))
    return "; ".join(
        f"{name}: {mine.get(name)!r} against {theirs.get(name)!r}"
        for name in names
        if mine.get(name) != theirs.get(name)
    )


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
