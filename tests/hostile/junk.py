"""What hostile or broken inputs look like, and studies whose records can be damaged."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import optuna
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from optuna_dp.errors import OptunaDPError

# Derandomised: the same inputs in every run, so that a failure is one for everybody.
few = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=list(HealthCheck),
)
many = settings(few, max_examples=120)

ODD_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-320,
    1e-300,
    1e308,
    float("inf"),
    -float("inf"),
    float("nan"),
]
ODD_VALUES: list[Any] = [
    *ODD_FLOATS,
    *(None, True, False, -1, 0, 1, 2, 2**31, 2**63, -(2**63), 10**400),
    *(
        "",
        "inf",
        "nan",
        "1",
        "0x1",
        "\x00",
        "\ud800",
        "é" * 9,
        "negative_binomial",
        "GaussianDpEvent",
    ),
    *([], [[]], [None], {}, {"law": []}, {"type": {}}, [1.0, float("nan")], b"1", (1,), {1: 2}),
    *(object(), object, 1j, range(3)),
]
JSON_VALUES = [v for v in ODD_VALUES if isinstance(v, (float, int, str, list, dict, type(None)))]

odd = st.sampled_from(ODD_VALUES)
odd_json = st.sampled_from(JSON_VALUES) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(record: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value, the whole included."""
    yield path
    items = record.items() if isinstance(record, dict) else ()
    items = enumerate(record) if isinstance(record, list) else items
    for key, value in items:
        yield from places(value, (*path, key))


def damaged(record: Any) -> st.SearchStrategy[Any]:
    """The record with one place replaced, taken away, added to or written twice."""
    return st.builds(
        lambda path, what, value: _damage(record, path, what, value),
        st.sampled_from(list(places(record))),
        st.sampled_from(["replace", "replace", "remove", "add", "nudge"]),
        odd_json,
    )


def _damage(record: Any, path: tuple[Any, ...], what: str, value: Any) -> Any:
    record = copy.deepcopy(record)
    if not path:
        return value
    parent = record
    for key in path[:-1]:
        parent = parent[key]
    old = parent[path[-1]]
    if what == "remove":
        del parent[path[-1]]
    elif what == "add" and isinstance(old, dict):
        old["added"] = value
    elif what == "add" and isinstance(old, list):
        old.append(value)
    elif what == "nudge" and isinstance(old, (int, float)):
        parent[path[-1]] = old + 1
    elif what == "nudge" and isinstance(old, str) and old:
        parent[path[-1]] = old[:-1] + random.Random(len(old)).choice("0f z")
    else:
        parent[path[-1]] = value
    return record


def same(a: Any, b: Any) -> bool:
    """Equal as JSON, so that 1 and 1.0 and True are three things and NaN is itself."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the error of this package that it raises; others pass through."""
    try:
        return call()
    except OptunaDPError as error:
        return error


def write(study: optuna.Study, number: int, key: str, value: Any) -> None:
    """Changes a trial's record behind everybody's back."""
    trial = study._storage._get_trial(
        study._storage.get_all_trials(study._study_id)[number]._trial_id
    )  # type: ignore[attr-defined]
    if value is None:
        trial.system_attrs.pop(key, None)
    else:
        trial.system_attrs[key] = value
