"""Events to JSON and back, exactly.

Two lists say which classes are read and written: those of dp-accounting
(:data:`~optuna_dp.accounting.kinds.foreign.FOREIGN_KINDS`) and ours here. An entry names a class
by a word of these lists, and no other module is imported on its account. Floats survive exactly
(``repr`` round trip);
infinities, which JSON lacks, are the strings "inf" and "-inf".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NoReturn, cast

import attr
from dp_accounting import dp_event

from optuna_dp.accounting.kinds.foreign import FOREIGN_KINDS
from optuna_dp.core import by_name, validation
from optuna_dp.core.json_entries import plain
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError, Text, UnsupportedEventError

_MAX_DEPTH = 50

# By names, so that only the kind in question is loaded.
_OURS = {
    "ApproximateDpEvent": "optuna_dp.accounting.kinds.approximate",
    "BoundedRangeDpEvent": "optuna_dp.accounting.kinds.bounded_range",
    "PerClientDpEvent": "optuna_dp.accounting.kinds.per_client",
    "PrivateSelectionDpEvent": "optuna_dp.selection.event",
    "ProfileDpEvent": "optuna_dp.accounting.kinds.profile",
    "RdpDpEvent": "optuna_dp.accounting.kinds.curve",
    "SkellamDpEvent": "optuna_dp.accounting.kinds.skellam",
    "WorstCaseDpEvent": "optuna_dp.accounting.kinds.worst_case",
}


def event_to_json(event: dp_event.DpEvent) -> dict[str, JsonValue]:
    """Returns an entry of plain JSON types from which the event can be made again.

    Args:
        event: An event tree of supported classes.

    Raises:
        UnsupportedEventError: A sub-event's class is not on the list.
        InvalidArgumentError: A field of a sub-event holds something it must not.
    """
    return _write(event, "event", 0)


def event_from_json(entry: object) -> dp_event.DpEvent:
    """Returns the event of an entry made by :func:`event_to_json`.

    Args:
        entry: The entry; every field is checked.

    Raises:
        InvalidArgumentError: Names the field that is corrupted.
    """
    return _read(entry, "event", 0)


def canonical_key(event: dp_event.DpEvent) -> str:
    """Returns a string that is equal for equal event trees: events may hold unhashable lists."""
    return json.dumps(event_to_json(event), sort_keys=True, separators=(",", ":"))


def _number(name: str, value: object) -> float:
    if value in ("inf", "-inf"):
        return float(value)
    return validation.number(name, value)


def _non_negative(name: str, value: object) -> float:
    result = _number(name, value)
    if result < 0.0:
        raise InvalidArgumentError(name, value, allowed="it must be non-negative")
    return result


def _probability(name: str, value: object) -> float:
    result = _number(name, value)
    if not 0.0 <= result <= 1.0:
        raise InvalidArgumentError(name, value, allowed="it must lie in [0, 1]")
    return result


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(name, value, allowed="it must be a string")
    return value


def _count(name: str, value: object) -> int:
    return validation.whole(name, value, 0)


def _unknown(name: str, value: object) -> NoReturn:
    raise InvalidArgumentError(
        name, value, problem="optuna-dp does not know what this field means"
    )


# What a field of that name holds, in every class that has one.
_SCALARS: dict[str, Callable[[str, object], object]] = {
    **dict.fromkeys(("candidates", "count", "sample_size", "startup_runs", "votes"), _count),
    **dict.fromkeys(("dataset_size", "num_buckets", "sensitivity", "source_dataset_size"), _count),
    **dict.fromkeys(("delta", "sampling_probability"), _probability),
    **dict.fromkeys(("epsilon", "mean", "rho", "variance", "xi"), _non_negative),
    **dict.fromkeys(("noise_multiplier", "noise_parameter", "standard_deviation"), _non_negative),
    "policy": _text,
    "shape": _number,
    "truncated_batch_size": _count,
}
_NUMBERS = {"density_bounds", "deltas", "epsilons", "orders"}
_NUMBERS |= {"reverse_deltas", "sampling_probs", "sensitivities"}


def _class_named(name: str) -> type[dp_event.DpEvent] | None:
    """Returns the class that an entry names; None if it is none of the list."""
    theirs = _theirs()
    if name in theirs:
        return theirs[name]
    module = _OURS.get(name)
    return (
        None
        if module is None
        else cast("type[dp_event.DpEvent]", by_name.load(f"{module}:{name}"))
    )


def _theirs() -> dict[str, type[dp_event.DpEvent]]:
    return {cls.__name__: cls for cls in FOREIGN_KINDS}


def _fields(cls: type[dp_event.DpEvent]) -> list[str]:
    return [field.name for field in attr.fields(cls)]


def _checked(
    cls: type[dp_event.DpEvent],
    field: str,
    where: str,
    value: object,
    of: Callable[[object, str], object],
) -> object:
    """Returns what a field of a class holds, sub-events by ``of``; refuses anything else."""
    if field in ("event", "run"):
        return of(value, where)
    if field == "events":
        return [of(child, f"{where}[{i}]") for i, child in enumerate(_list(where, value))]
    if field in _NUMBERS:
        return [_number(f"{where}[{i}]", v) for i, v in enumerate(_list(where, value))]
    if cls is dp_event.RandomizedResponseDpEvent and field == "noise_parameter":
        return _probability(where, value)
    readers: Mapping[str, Callable[[str, object], object]] = getattr(cls, "readers", {})
    return readers.get(field, _SCALARS.get(field, _unknown))(where, value)


def _list(name: str, value: object) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise InvalidArgumentError(name, value, allowed="it must be a list")
    return list(value)


def _check_depth(path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidArgumentError(
            path[:40] + "...",
            Text(f"{depth} levels"),
            problem=f"events nest at most {_MAX_DEPTH} levels deep",
        )


def _write(event: dp_event.DpEvent, path: str, depth: int) -> dict[str, JsonValue]:
    _check_depth(path, depth)
    name = type(event).__name__
    cls = _class_named(name)
    if type(event) is not cls:
        raise UnsupportedEventError(event, f"the class {name} is not known to optuna-dp")
    entry: dict[str, JsonValue] = {"type": name}

    def of(child: dp_event.DpEvent, where: str) -> dict[str, JsonValue]:
        return _write(child, where, depth + 1)

    for field in _fields(cls):
        value = getattr(event, field)
        value = list(value) if field in _NUMBERS else value  # It may be an array.
        entry[field] = plain(_checked(cls, field, f"{path}.{field}", value, of))
    return entry


def _read(entry: object, path: str, depth: int) -> dp_event.DpEvent:
    _check_depth(path, depth)
    if not isinstance(entry, Mapping):
        raise InvalidArgumentError(path, entry, allowed="it must be a JSON object")
    name = entry.get("type")
    cls = _class_named(name) if isinstance(name, str) else None
    if cls is None:
        raise InvalidArgumentError(
            f"{path}.type",
            name,
            allowed=f"it must be one of {', '.join(sorted([*_theirs(), *_OURS]))}",
        )
    fields = _fields(cls)
    for field in entry:
        if field != "type" and field not in fields:
            raise InvalidArgumentError(
                f"{path}.{field}", entry[field], problem=f"{name} has no such field"
            )

    def of(child: object, where: str) -> dp_event.DpEvent:
        return _read(child, where, depth + 1)

    values = {}
    for field in fields:
        where = f"{path}.{field}"
        if field not in entry:
            raise InvalidArgumentError(where, None, problem="the field is missing")
        values[field] = _checked(cls, field, where, entry[field], of)
    try:
        return cls(**values)
    except InvalidArgumentError as error:
        raise error.about(f"{path}.{error.argument}") from None
