"""Records are read to the last field, or refused with what is wrong and without what they hold."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from optuna_dp.core.json_entries import NOT_STORED, Entry, stored
from optuna_dp.errors import PlanError


@dataclass(frozen=True)
class Inner(Entry):
    described_as: ClassVar[str] = "The inner record"
    name: str
    flag: bool = False


@dataclass(frozen=True)
class Outer(Entry):
    described_as: ClassVar[str] = "The outer record"
    constants: ClassVar[dict[str, Any]] = {"version": 2}
    inner: Inner
    count: int
    bounds: tuple[float, float]
    answers: tuple[int | None, ...]
    key: int = field(metadata=stored(write=hex, read=lambda text: int(text, 16)))
    size: int = field(metadata=stored(key="batch_size"))
    note: str | None = None
    anything: Any = None
    double: int = field(init=False, default=0)
    since_then: str | None = field(default=None, metadata=stored(optional=True))
    of_this_object: str = field(default="", compare=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("the count is negative")
        object.__setattr__(self, "double", 2 * self.count)


SOUND = Outer(Inner("a"), 3, (0.5, float("inf")), (1, None), 255, 4, None, {"x": [1]})
WRITTEN = {
    "version": 2,
    "inner": {"name": "a", "flag": False},
    "count": 3,
    "bounds": [0.5, "inf"],
    "answers": [1, None],
    "key": "0xff",
    "batch_size": 4,
    "note": None,
    "anything": {"x": [1]},
}


def test_what_is_written_is_read_again() -> None:
    assert SOUND.to_json() == WRITTEN
    assert Outer.from_json(json.loads(json.dumps(WRITTEN))) == SOUND


def test_what_older_versions_left_out_may_be_there_or_not() -> None:
    newer = replace(SOUND, since_then="2.0")
    assert newer.to_json() == {**WRITTEN, "since_then": "2.0"}
    assert Outer.from_json(newer.to_json()) == newer
    with pytest.raises(PlanError, match="written"):
        Outer.from_json({**WRITTEN, "since_then": None})


def test_what_is_not_stored_cannot_be_read() -> None:
    with pytest.raises(PlanError, match="of_this_object"):
        Outer.from_json({**WRITTEN, "of_this_object": "x"})


@pytest.mark.promise("a disk is full")
@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"version": 3}, "version"),
        ({"version": True}, "version"),
        ({"inner": {"name": "a"}}, "inner"),
        ({"inner": {"name": "a", "flag": 0}}, "flag"),
        ({"count": True}, "count"),
        ({"count": "9876"}, "count"),
        ({"count": 3.0}, "count"),
        ({"count": -9876}, "count"),
        ({"bounds": [0.5]}, "bounds"),
        ({"bounds": [0.5, float("nan")]}, "bounds"),
        ({"bounds": [0.5, 10**400]}, "bounds"),
        ({"answers": {"0": 1}}, "answers"),
        ({"key": "FF"}, "written"),
        ({"key": 255}, "key"),
        ({"batch_size": None}, "batch_size"),
        ({"note": 9876}, "note"),
        ({"more": 9876}, "more"),
    ],
)
def test_anything_else_is_refused_without_its_values(damage: dict[str, Any], named: str) -> None:
    with pytest.raises(PlanError, match=named) as caught:
        Outer.from_json({**WRITTEN, **damage})
    assert "9876" not in str(caught.value)


@pytest.mark.parametrize("data", [None, 3, "text", [], {}, [WRITTEN]])
def test_what_is_no_record_is_refused(data: Any) -> None:
    with pytest.raises(PlanError, match="outer"):
        Outer.from_json(data)
