"""Says in words where two entries differ: for refusals. No guarantee depends on it."""

from __future__ import annotations

from optuna_dp.core.value_types import JsonObject, JsonValue


def differences(entry: JsonObject, plan: JsonObject) -> str:
    """Says in words where a worker's entry differs from the plan's; empty if nowhere.

    The outermost fields come first. Three are shown; lists are only named,
    because those of a plan hold whole events.
    """
    entry, plan = _flat(entry), _flat(plan)
    names = sorted(set(entry) | set(plan), key=lambda name: (name.count("."), name))
    differing_names = [name for name in names if entry.get(name) != plan.get(name)]
    lists = [name for name in differing_names if isinstance(entry.get(name, plan.get(name)), list)]
    words_of = {
        n: f" is {entry.get(n)!r} here and {plan.get(n)!r} in the plan" for n in differing_names
    }
    words_of |= dict.fromkeys(lists, " differs")
    return "; ".join(n + words for n, words in list(words_of.items())[:3])


def _flat(data: JsonObject, prefix: str = "") -> dict[str, JsonValue]:
    flat: dict[str, JsonValue] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
