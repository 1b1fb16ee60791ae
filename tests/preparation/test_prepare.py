"""A function given as ``prepare=`` must prepare each row by itself: mistakes and honest ones."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

ROOT = Path(__file__).parents[2]
MISTAKES = ROOT / "examples" / "preparation" / "mistakes.py"
SCHEMA = odp.Schema(age=(20, 80), income=(0, 1e5), sex=["F", "M"])
NUMBERS = odp.Schema(age=(20, 80), income=(0, 1e5))
ROWS = {"age": [35.0, 71.0, None], "income": [1e4, 2e4, 9e4], "sex": ["F", "M", "F"]}
ARRAY = np.asarray([[35.0, 1e4], [71.0, 2e4], [44.0, 9e4]])


def example() -> ModuleType:
    if "mistakes" not in sys.modules:
        spec = importlib.util.spec_from_file_location("mistakes", MISTAKES)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["mistakes"] = module
        spec.loader.exec_module(module)
    return sys.modules["mistakes"]


def possible(port: Any) -> Any:
    if not port.is_possible:
        pytest.skip(f"needs pandas, {', '.join(port.needs)}")
    return port.function


@functools.cache
def records() -> Any:
    return example().made_up_records()


@pytest.mark.parametrize("port", example().MISTAKEN, ids=lambda port: port.title)
def test_a_mistaken_preparation_of_a_frame_is_refused(port: Any) -> None:
    prepare = possible(port)
    prepare(records().copy())  # It works, so that it is not refused for anything else.
    with refuses("prepare") as refusal:
        example().SCHEMA.encode(records(), prepare=prepare)
    # Not because the result has no numbers, for example.
    assert re.search("itself|failed", str(refusal.value))


@pytest.mark.parametrize("port", example().HONEST, ids=lambda port: port.title)
def test_an_honest_preparation_of_a_frame_is_accepted(port: Any) -> None:
    prepare, before = possible(port), records().copy()
    table = example().SCHEMA.encode(records(), prepare=prepare)
    assert len(table.x) == len(table.y)
    assert records().equals(before)  # Although it may write into its rows.


def center(x: Any) -> Any:
    return x - x.mean(axis=0)


def guarded(x: Any) -> Any:
    return x if len(x) < 2 else x[:, :1] / np.nanmax(np.abs(x), axis=0)


def to_the_first(x: Any) -> Any:
    return x - x[:1]


def blocks(x: Any) -> Any:
    """Averages every ten rows, and leaves less than ten alone."""
    whole = np.nan_to_num(x)
    for start in range(0, len(x) - 9, 10):
        whole[start : start + 10] = whole[start : start + 10].mean(axis=0)
    return whole


def larger_than_usual(x: Any) -> Any:
    return np.stack([x[:, 1] > np.nanmedian(x[:, 1]), x[:, 0] > 50], axis=1)


class Counter:
    calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return np.nan_to_num(x) + self.calls


@pytest.mark.promise("prepared")
@pytest.mark.parametrize(
    "prepare", [center, guarded, to_the_first, blocks, larger_than_usual, Counter()]
)
def test_a_mistaken_preparation_of_an_array_is_refused(prepare: Any) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        NUMBERS.encode(ARRAY, prepare=prepare)
    assert refusal.value.argument == "prepare"


def many_only(x: Any) -> Any:
    return np.nan_to_num(x) if len(x) < 60 else x - x.mean(axis=0)


def first_ones(x: Any) -> Any:
    return np.nan_to_num(x[:90])


@pytest.mark.promise("prepared")
@pytest.mark.parametrize("prepare", [many_only, first_ones])
def test_what_treats_many_rows_in_another_way_is_refused(prepare: Any) -> None:
    with refuses("prepare"):
        NUMBERS.encode(np.tile(ARRAY, (40, 1)), prepare=prepare)


def test_what_depends_on_gaps_only_is_refused_where_it_was_not_tried() -> None:
    with refuses("prepare"):
        NUMBERS.encode(ARRAY, prepare=lambda x: (x - x.mean(axis=0)) / x.std(axis=0))


def test_a_small_mistake_beside_large_numbers_is_refused() -> None:
    def prepare(x: Any) -> Any:
        x = np.nan_to_num(x)
        return np.stack([x[:, 0] / x[:, 0].max(), x[:, 1] * 1e9], axis=1)

    with refuses("prepare"):
        NUMBERS.encode(ARRAY, prepare=prepare)


def test_an_array_may_be_written_into_and_is_not_changed() -> None:
    def prepare(x: Any) -> Any:
        x /= 100.0
        return np.nan_to_num(x)

    before = ARRAY.copy()
    table = NUMBERS.encode(ARRAY, prepare=prepare)
    np.testing.assert_array_equal(ARRAY, before)
    np.testing.assert_allclose(table.x, ARRAY / 100.0)


def test_a_function_gets_columns_in_the_form_of_the_records() -> None:
    forms = []

    def prepare(rows: Any) -> Any:
        forms.append({name: type(column) for name, column in rows.items()})
        return SCHEMA.encode(rows)

    rows = {**ROWS, "income": np.asarray(ROWS["income"], dtype=np.int32), "other": [1, 2, 3]}
    table = SCHEMA.encode(rows, prepare=prepare)
    np.testing.assert_array_equal(table.x, SCHEMA.encode(ROWS).x)
    expected = {"age": list, "income": np.ndarray, "sex": list}
    assert all(form == expected for form in forms)


def test_integers_stay_integers_and_tensors_tensors() -> None:
    torch = pytest.importorskip("torch")
    pixels = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2)

    def prepare(images: Any) -> Any:
        assert images.dtype == torch.uint8
        assert images.shape[1:] == (2, 2)
        return images.float().flatten(1) / 255

    table = odp.Schema.images(1, 2, 2).encode(pixels, prepare=prepare)
    np.testing.assert_allclose(table.x, np.arange(12).reshape(3, 4) / 255, rtol=1e-6)


def test_tokens_are_prepared_as_lists_and_as_arrays() -> None:
    schema = odp.Schema.tokens(50, 4)
    by_length = schema.encode([[1, 2], [3]], prepare=lambda rows: [[len(row)] for row in rows])
    assert by_length.x.tolist() == [[2], [1]]
    ids = np.arange(12).reshape(3, 4)
    assert schema.encode(ids, prepare=lambda rows: rows[:, :2]).x.shape == (3, 2)
    with pytest.raises(InvalidArgumentError) as refusal:
        schema.encode(ids, prepare=lambda rows: np.unique(rows, return_inverse=True)[1] % 7)
    assert refusal.value.argument == "prepare"


def test_types_of_pandas_are_those_of_the_records() -> None:
    pandas = pytest.importorskip("pandas")
    schema = odp.Schema(age=(20, 80), grade=[1, 2], day=odp.Date("2020-01-01", "2022-01-01"))
    days = pandas.to_datetime(["2020-03-01", "2021-03-01"]).tz_localize("Europe/Oslo")
    frame = pandas.DataFrame({"age": [20, 70], "grade": pandas.array([1, 2], "Int8"), "day": days})
    types = []

    def prepare(d: Any) -> Any:
        types.append([*d.dtypes])
        month = d["day"].dt.tz_convert("UTC").dt.month.fillna(0)
        return np.stack([d["age"].astype(int), d["grade"].fillna(0) * 2, month], axis=1)

    assert schema.encode(frame, prepare=prepare).x.tolist() == [[20, 2, 2], [70, 4, 2]]
    # But for the made-up inputs of a rehearsal: a type may tell of a gap.
    assert sum(of != [*frame.dtypes] for of in types) == 1


def test_polars_frames_are_prepared() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(ROWS)
    table = SCHEMA.encode(
        frame, prepare=lambda d: d.select(polars.col("age").fill_null(0) / 80).to_numpy()
    )
    np.testing.assert_allclose(table.x[:, 0], [35 / 80, 71 / 80, 0])
    with pytest.raises(InvalidArgumentError) as refusal:
        SCHEMA.encode(frame, prepare=lambda d: d.select(polars.col("age").fill_null(0).rank()))
    assert refusal.value.argument == "prepare"


def test_rows_may_be_left_out_with_their_targets_only() -> None:
    schema = odp.Schema(age=(20, 80), died=["no", "yes"], target="died")
    rows = {"age": [35.0, 15.0, 50.0], "died": ["yes", "no", "no"]}

    def adults(d: Any) -> Any:
        keep = np.asarray(d["age"], dtype=np.float64) >= 18
        encoded = schema.encode(d)
        return encoded.x[keep], encoded.y[keep]

    table = schema.encode(rows, prepare=adults)
    assert table.y.tolist() == [1, 0]
    with refuses("prepare"):
        schema.encode(rows, prepare=lambda d: adults(d)[0])


@pytest.mark.parametrize(
    ("prepare", "argument"),
    [
        (lambda rows: 1 / 0, "prepare"),
        (lambda rows: None, "prepare"),
        (lambda rows: np.asarray(["a"] * len(rows["age"])), "prepare"),
        (lambda rows: (np.zeros((3, 1)), np.zeros(2)), "prepare"),
        ("a text", "prepare"),
    ],
)
def test_what_is_no_preparation_is_refused(prepare: Any, argument: str) -> None:
    with refuses(argument):
        SCHEMA.encode(ROWS, prepare=prepare)


class Scaler:
    """Stands for one that was fitted before."""

    def transform(self, x: Any) -> Any:
        return np.nan_to_num(x) / 2.0


SCALER, MEAN, TABLE = Scaler(), 37.2, {"F": 1.0}


def helper(x: Any) -> Any:
    return SCALER.transform(x)


def by_names(x: Any) -> Any:
    return helper(x) + sum((lambda: MEAN)() for _ in range(1)) + NUMBERS.width


def outside(prepare: Any) -> list[str]:
    notes = NUMBERS.encode(ARRAY, prepare=prepare).notes
    assert notes["word"] == "prepared row by row"
    return list(notes["outside"])


@pytest.mark.promise("prepared")
def test_what_a_function_holds_from_outside_is_listed_by_name_and_type() -> None:
    weights, mean = np.ones((2, 3)), 4.0

    def with_a_default(x: Any, deviation: Any = 2.5, nothing: Any = None) -> Any:
        return np.nan_to_num(x) @ weights / deviation

    assert outside(by_names) == ["MEAN (float)", "SCALER (Scaler)"]
    assert outside(with_a_default) == ["deviation (float)", "weights (ndarray)"]
    assert outside(lambda x: np.nan_to_num(x, nan=TABLE["F"])) == ["TABLE (dict)"]
    assert outside(SCALER.transform) == ["transform (Scaler)"]
    assert outside(functools.partial(with_a_default, deviation=mean)) == [
        "deviation (float)",
        "weights (ndarray)",
    ]
    assert outside(NUMBERS.encode) == []
    assert outside(np.nan_to_num) == []


def test_a_decorated_function_shows_what_it_holds() -> None:
    torch = pytest.importorskip("torch")
    assert outside(torch.no_grad()(by_names)) == ["MEAN (float)", "SCALER (Scaler)"]
