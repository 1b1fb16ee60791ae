"""Events to JSON and back, exactly.

Only the classes listed here are read or written: a record names a class by a word of this list,
and no module is imported on its account. Floats survive exactly (``repr`` round trip); infinities,
which JSON lacks, are the strings "inf" and "-inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting import events
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError
from optuna_dp.trial_counts.base import TrialCount

_MAX_DEPTH = 50

# What a field holds, and how it is checked on the way in.
_FIELDS: dict[str, tuple[type[Any], dict[str, str]]] = {
    cls.__name__: (cls, fields)
    for cls, fields in (
        (dp_event.NoOpDpEvent, {}),
        (dp_event.NonPrivateDpEvent, {}),
        (dp_event.GaussianDpEvent, {"noise_multiplier": "non_negative"}),
        (dp_event.LaplaceDpEvent, {"noise_multiplier": "non_negative"}),
        (
            dp_event.DiscreteLaplaceDpEvent,
            {"noise_parameter": "non_negative", "sensitivity": "count"},
        ),
        (
            dp_event.RandomizedResponseDpEvent,
            {"noise_parameter": "probability", "num_buckets": "count"},
        ),
        (dp_event.SelfComposedDpEvent, {"event": "event", "count": "count"}),
        (dp_event.ComposedDpEvent, {"events": "events"}),
        (
            dp_event.PoissonSampledDpEvent,
            {"sampling_probability": "probability", "event": "event"},
        ),
        (
            dp_event.SampledWithoutReplacementDpEvent,
            {"source_dataset_size": "count", "sample_size": "count", "event": "event"},
        ),
        (
            dp_event.RepeatAndSelectDpEvent,
            {"event": "event", "mean": "non_negative", "shape": "number"},
        ),
        (
            dp_event.MixtureOfGaussiansDpEvent,
            {
                "standard_deviation": "non_negative",
                "sensitivities": "numbers",
                "sampling_probs": "numbers",
            },
        ),
        (dp_event.ZCDpEvent, {"rho": "non_negative", "xi": "non_negative"}),
        (
            dp_event.TruncatedSubsampledGaussianDpEvent,
            {
                "dataset_size": "count",
                "sampling_probability": "probability",
                "truncated_batch_size": "count",
                "noise_multiplier": "non_negative",
            },
        ),
        (events.ApproximateDpEvent, {"epsilon": "non_negative", "delta": "probability"}),
        (events.BoundedRangeDpEvent, {"epsilon": "non_negative"}),
        (events.RdpDpEvent, {"orders": "numbers", "epsilons": "numbers"}),
        (events.WorstCaseDpEvent, {"events": "events"}),
        (
            events.SkellamDpEvent,
            {"variance": "non_negative", "votes": "count", "candidates": "count"},
        ),
        (events.PerClientDpEvent, {"event": "event"}),
        (
            events.PrivateSelectionDpEvent,
            {"run": "event", "trials": "trials", "density_bounds": "numbers", "policy": "text"},
        ),
        (
            events.StartedSelectionDpEvent,
            {
                "run": "event",
                "trials": "trials",
                "density_bounds": "numbers",
                "policy": "text",
                "startup_runs": "count",
            },
        ),
    )
}


def event_to_json(event: Any) -> dict[str, Any]:
    """Returns a record of plain JSON types from which the event can be made again.

    Args:
        event: An event tree of supported classes.

    Raises:
        UnsupportedEventError: A sub-event's class is not on the list.
        InvalidArgumentError: A field of a sub-event holds something it must not.
    """
    return _write(event, "event", 0)


def event_from_json(record: Any) -> Any:
    """Returns the event of a record made by :func:`event_to_json`.

    Args:
        record: The record; every field is checked.

    Raises:
        InvalidArgumentError: Names the field that is corrupted.
    """
    return _read(record, "event", 0)


def canonical_key(event: Any) -> str:
    """Returns a string that is equal for equal event trees: events may hold unhashable lists."""
    return json.dumps(event_to_json(event), sort_keys=True, separators=(",", ":"))


def _number(name: str, value: Any) -> float:
    if value in ("inf", "-inf"):
        return float(value)
    return validation.number(name, value)


def _non_negative(name: str, value: Any) -> float:
    result = _number(name, value)
    if result < 0.0:
        raise InvalidArgumentError(name, value, "it must be non-negative")
    return result


def _probability(name: str, value: Any) -> float:
    result = _number(name, value)
    if not 0.0 <= result <= 1.0:
        raise InvalidArgumentError(name, value, "it must lie in [0, 1]")
    return result


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(name, value, "it must be a string")
    return value


_SCALARS: dict[str, Callable[[str, Any], Any]] = {
    "number": _number,
    "non_negative": _non_negative,
    "probability": _probability,
    "count": lambda name, value: validation.whole(name, value, 0),
    "text": _text,
}


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidArgumentError(name, value, "it must be a list")
    return list(value)


def _check_depth(path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidArgumentError(
            path[:40] + "...", f"{depth} levels", f"events nest at most {_MAX_DEPTH} levels deep"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0.0 else "-inf"
    return value


def _write(event: Any, path: str, depth: int) -> dict[str, Any]:
    _check_depth(path, depth)
    name = type(event).__name__
    cls, fields = _FIELDS.get(name, (None, {}))
    if type(event) is not cls:
        raise UnsupportedEventError(event, f"the class {name} is not known to optuna-dp")
    record: dict[str, Any] = {"type": name}
    for field, kind in fields.items():
        where, value = f"{path}.{field}", getattr(event, field)
        if kind == "event":
            record[field] = _write(value, where, depth + 1)
        elif kind == "events":
            record[field] = [
                _write(child, f"{where}[{i}]", depth + 1)
                for i, child in enumerate(_list(where, value))
            ]
        elif kind == "numbers":
            record[field] = [
                _plain(_number(f"{where}[{i}]", v)) for i, v in enumerate(list(value))
            ]
        elif kind == "trials":
            record[field] = value.to_json()
        else:
            record[field] = _plain(_SCALARS[kind](where, value))
    return record


def _read(record: Any, path: str, depth: int) -> Any:
    _check_depth(path, depth)
    if not isinstance(record, Mapping):
        raise InvalidArgumentError(path, record, "it must be a JSON object")
    name = record.get("type")
    if not isinstance(name, str) or name not in _FIELDS:
        raise InvalidArgumentError(
            f"{path}.type", name, f"it must be one of {', '.join(sorted(_FIELDS))}"
        )
    cls, fields = _FIELDS[name]
    for field in record:
        if field != "type" and field not in fields:
            raise InvalidArgumentError(
                f"{path}.{field}", record[field], f"{name} has no such field"
            )
    values = {
        field: _read_field(record, field, kind, f"{path}.{field}", depth)
        for field, kind in fields.items()
    }
    try:
        return cls(**values)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"{path}.{error.argument}", error.value, error.allowed, error.fix
        ) from None


def _read_field(record: Mapping[str, Any], field: str, kind: str, where: str, depth: int) -> Any:
    if field not in record:
        raise InvalidArgumentError(where, None, "the field is missing")
    value = record[field]
    if kind == "event":
        return _read(value, where, depth + 1)
    if kind == "events":
        return [
            _read(child, f"{where}[{i}]", depth + 1) for i, child in enumerate(_list(where, value))
        ]
    if kind == "numbers":
        return [_number(f"{where}[{i}]", v) for i, v in enumerate(_list(where, value))]
    if kind == "trials":
        if not isinstance(value, Mapping):
            raise InvalidArgumentError(where, value, "it must be a JSON object")
        try:
            return TrialCount.from_json(dict(value))
        except (InvalidArgumentError, KeyError, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                where, value, f"it must be a law of runs ({error})"
            ) from None
    return _SCALARS[kind](where, value)
