"""A schema encodes records by what is public about them, each by itself."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from started import NO_NOISE, started

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, OptunaDPError

SCHEMA = odp.Schema(
    age=(20, 80),
    sex=["F", "M", 1],
    day=(datetime.date(2020, 1, 1), datetime.date(2022, 1, 1)),
    died=["no", "yes"],
    target="died",
)
NAMES = ["age", "sex", "day", "died"]


class Silent:
    """A value that answers to nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __float__ = __str__  # type: ignore[assignment]


def nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(5_000):
        value = [value]
    return value


ODD: list[Any] = [
    *("text", " 12.5 ", "1e400", "nan", "", " ", "\0", "é", "2020-06-01", "no", "F "),
    *(math.nan, math.inf, -math.inf, 1e300, 10**400, -(10**400), 10**5_000, None, True, 1.0, 1),
    *([1, 2], [1, [2, 3]], [[1, 2], [3, 4]], (1, 2), {}, {1: 2}, set(), range(3), nested()),
    *(b"F", b"\xff\xfe", 1j, decimal.Decimal(40), object, len, Ellipsis, Silent()),
    *(np.array([1.0]), np.array([[1, 2]]), np.float32(0.1), np.int8(3), np.bool_(True)),
    *(np.complex128(2 + 1j), np.datetime64("2020-05-01"), np.datetime64("NaT")),
    *(np.timedelta64(3, "D"), datetime.date(2020, 3, 1), datetime.datetime.max),
    *(datetime.datetime(2020, 3, 1, tzinfo=datetime.timezone.utc), datetime.time(3)),
]


def columns(values: list[Any]) -> dict[str, Any]:
    """Odd values in every column, another one in each."""
    return {name: [*values[at:], *values[:at]] for at, name in enumerate(NAMES)}


def rows_alone(schema: odp.Schema, table: Any, count: int) -> Any:
    parts = [
        schema.encode({name: column[row : row + 1] for name, column in table.items()})
        for row in range(count)
    ]
    return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])


# -- one record at a time -------------------------------------------------------------------------


def test_odd_values_raise_nothing_warn_of_nothing_and_change_no_other_row() -> None:
    table = columns(ODD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = SCHEMA.encode(table)
        x, y = rows_alone(SCHEMA, table, len(ODD))
    assert encoded.x.tobytes() == x.tobytes()
    assert encoded.y.tobytes() == y.tobytes()
    assert np.isfinite(encoded.x).all()
    assert np.abs(encoded.x).max() == 1.0
    # The same as rows, and as an array of objects.
    rows = [list(row) for row in zip(*(table[name] for name in NAMES[:3]), strict=True)]
    array = np.empty((len(ODD), 3), dtype=object)
    for row, place in np.ndindex(array.shape):
        array[row, place] = rows[row][place]
    for form in (rows, array):
        assert SCHEMA.encode(form).x.tobytes() == encoded.x.tobytes()


def test_odd_values_in_a_data_frame_are_encoded_alike() -> None:
    pandas = pytest.importorskip("pandas")
    values = [*ODD, pandas.NA, pandas.NaT, pandas.Timestamp("2020-02-02"), pandas.Timedelta("1D")]
    table = columns(values)
    frame = pandas.DataFrame({name: pandas.Series(table[name], dtype=object) for name in NAMES})
    encoded, expected = SCHEMA.encode(frame), SCHEMA.encode(table)
    assert encoded.x.tobytes() == expected.x.tobytes()
    assert encoded.y.tobytes() == expected.y.tobytes()
    alone = [SCHEMA.encode(frame.iloc[row : row + 1]).x for row in range(len(frame))]
    assert np.concatenate(alone).tobytes() == encoded.x.tobytes()


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(),
    st.dates(), st.datetimes(), st.lists(st.integers(), max_size=2), st.sampled_from(["F", "yes"]),
)  # fmt: skip


@pytest.mark.promise("prepared")
@given(st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=6))
def test_any_row_alone_is_encoded_as_among_others(rows: list[Any]) -> None:
    table = {name: [row[at] for row in rows] for at, name in enumerate(NAMES)}
    encoded = SCHEMA.encode(table)
    x, y = rows_alone(SCHEMA, table, len(rows))
    assert encoded.x.tobytes() == x.tobytes()
    assert encoded.y.tobytes() == y.tobytes()


def test_types_of_pandas_are_encoded_as_plain_values() -> None:
    pandas = pytest.importorskip("pandas")
    schema = odp.Schema(age=(20, 80), sex=["F", "M"], ok=bool, day=odp.Date("2020-01-01", "2021"
                        "-01-01"), died=[0, 1], target="died")  # fmt: skip
    plain = {
        "age": [35, 95, None],
        "sex": ["F", "X", None],
        "ok": [True, False, None],
        "day": [datetime.datetime(2020, 3, 1), None, datetime.datetime(2030, 1, 1)],
        "died": [0, 1, None],
    }
    expected = schema.encode(plain)
    frame = pandas.DataFrame(plain)
    frames = [
        frame.astype({"age": "Int64", "sex": "category", "ok": "boolean", "died": "Int8"}),
        frame.astype({"age": "float32", "sex": "string", "day": "datetime64[ns]", "ok": object}),
        frame.assign(day=pandas.to_datetime(frame["day"]).dt.tz_localize("UTC")),
    ]
    for frame in frames:
        encoded = schema.encode(frame)
        assert encoded.x.tobytes() == expected.x.tobytes()
        assert encoded.y.tolist() == [0, 1, -100]


def test_frames_of_polars_are_encoded_as_plain_values() -> None:
    polars = pytest.importorskip("polars")
    plain = {
        "age": [35, 95, None],
        "sex": ["F", "X", None],
        "day": [datetime.date(2020, 3, 1), None, datetime.date(2030, 1, 1)],
        "died": ["no", "yes", None],
    }
    frame = polars.DataFrame(plain)
    for form in (frame, frame.with_columns(polars.col("sex").cast(polars.Categorical))):
        encoded, expected = SCHEMA.encode(form), SCHEMA.encode(plain)
        assert encoded.x.tobytes() == expected.x.tobytes()
        assert encoded.y.tolist() == [0, 1, -100]


# -- what a value becomes -------------------------------------------------------------------------


def test_numbers_are_scaled_clipped_and_their_gaps_told_apart() -> None:
    schema = odp.Schema(age=(20, 80))
    assert schema.names == ("age", "age is missing", "constant")
    values = [20, 50.0, "80", 1e9, -math.inf, None, "old", math.nan, True]
    assert schema.encode({"age": values}).x[:, :2].tolist() == [
        *([-1, 0], [0, 0], [1, 0], [1, 0], [-1, 0], [0, 1], [0, 1], [0, 1], [-1, 0])
    ]


def test_one_value_has_one_code_whatever_its_type() -> None:
    schema = odp.Schema(grade=[1, 2.5, "A"])
    values = [1, 1.0, "1", " 1 ", "1.0", True, np.int8(1), np.float32(1), b"1", decimal.Decimal(1)]
    codes = schema.encode({"grade": [*values, 2.5, "2.50", "A", "B", 3, None, "", math.nan]}).x
    assert codes.argmax(axis=1).tolist() == [*[0] * len(values), 1, 1, 2, 3, 3, 4, 4, 4]


def test_days_and_times_are_scaled_in_universal_time() -> None:
    schema = odp.Schema(day=odp.Date("2020-01-01", "2020-01-05"))
    east = datetime.timezone(datetime.timedelta(hours=12))
    values = [
        *("2020-01-03", datetime.date(2020, 1, 3), np.datetime64("2020-01-03")),
        *(datetime.datetime(2020, 1, 3, 12, tzinfo=east), "2020-01-03T00:00:00+00:00"),
        *(datetime.date(1900, 1, 1), "2020-01-04", "some day", 17),
    ]
    places = [*[0.0] * 5, -1.0, 0.5, 0.0, 0.0]
    encoded = schema.encode({"day": values}).x
    assert encoded[:, 0].tolist() == places
    assert encoded[:, 1].tolist() == [*[0.0] * 7, 1.0, 1.0]


def test_a_column_of_times_for_numbers_is_refused_by_its_type() -> None:
    days = np.asarray(["2020-01-01"], dtype="datetime64[D]")
    with refuses("age"):
        odp.Schema(age=(20, 80)).encode({"age": days})


@pytest.mark.parametrize("shape", [(2, 3, 4), (24,), (2, 1, 3, 4)])
def test_images_get_the_shape_of_the_schema(shape: tuple[int, ...]) -> None:
    schema = odp.Schema.images(2, 3, 4, target=range(3))
    pixels = np.arange(48, dtype=np.uint8).reshape(2, *shape)
    table = schema.encode(pixels, [2, 7])
    assert (schema.shape, schema.width, schema.outputs) == ((2, 3, 4), 24, 3)
    np.testing.assert_allclose(table.x.ravel(), np.arange(48) / 127.5 - 1, atol=1e-6)
    assert table.y.tolist() == [2, -100]


def test_odd_pixels_are_public_numbers_and_axes_are_not_moved() -> None:
    schema = odp.Schema.images(2, 2, low=0, high=1)
    table = schema.encode([[[math.nan, math.inf], [None, "x"]]])
    assert table.x.tolist() == [[[0, 1], [0, 0]]]
    with refuses("rows"):
        odp.Schema.images(3, 8, 8).encode(np.zeros((5, 8, 8, 3)))


def test_tokens_are_cut_filled_and_kept_in_the_vocabulary() -> None:
    ids = odp.Schema.tokens(10, 3, padding=9, unknown=1)
    assert ids.encode([[1, 2, 3, 4], [], None, [5.0, -1, 10], "7 x"]).x.tolist() == [
        *([1, 2, 3], [9, 9, 9], [9, 9, 9], [5, 1, 1], [7, 1, 9])
    ]
    words = odp.Schema.tokens(["good", "true", "1", "nan"], 3)
    assert (words.width, words.shape) == (6, (3,))
    texts = ["good true", ["1", "nan", "bad"], ["1.0"]]
    assert words.encode(texts).x.tolist() == [[2, 3, 0], [4, 5, 1], [1, 0, 0]]
    assert words.encode(ODD).x.shape == (len(ODD), 3)


# -- persons, targets, and what is returned -------------------------------------------------------


@pytest.mark.promise("persons")
def test_the_first_rows_of_each_person_are_kept_and_none_without_a_name() -> None:
    schema = odp.Schema(age=(0, 10), unit="patient", most=2)
    table = {
        "age": [*range(8)],
        "patient": ["a", 1, "a", 1.0, "a", None, math.nan, "1"],
    }
    places = (schema.encode(table).x[:, 0] + 1) * 5
    np.testing.assert_allclose(places, [0, 1, 2, 3], atol=1e-6)
    one = odp.Schema(age=(0, 10), died=[0, 1], target="died", unit="patient", most=1)
    table = {name: column[:3] for name, column in table.items()}
    assert one.encode(table, [1, 0, 0]).y.tolist() == [1, 0]
    with refuses("rows") as caught:
        schema.encode(np.zeros((3, 1)))
    assert "'patient'" in caught.value.why


def test_targets_are_places_and_predictions_are_in_their_own_words() -> None:
    assert SCHEMA.outputs == 2
    assert SCHEMA.decode(np.asarray([[0.2, 0.1], [0.0, 3.0]])).tolist() == ["no", "yes"]
    number = odp.Schema(age=(20, 80), cost=(0, 1000), target="cost")
    table = number.encode({"age": [1, 2, 3], "cost": [250, 1e9, None]})
    assert (number.outputs, number.task) == (1, "number")
    assert table.y[:2].tolist() == [-0.5, 1.0]
    assert math.isnan(table.y[2])
    assert number.decode([[-0.5], [1.0]]).tolist() == [250.0, 1000.0]
    assert number.encode({"age": [1]}).y is None
    mixed = odp.Schema(age=(20, 80), grade=[1, "A", datetime.date(2020, 1, 1)], target="grade")
    assert mixed.decode(np.eye(3)).tolist() == [1, "A", "2020-01-01"]
    assert mixed.encode({"age": [1], "grade": [datetime.date(2020, 1, 1)]}).y.tolist() == [2]
    with pytest.raises(InvalidArgumentError) as refusal:
        mixed.decode(np.eye(2))
    assert refusal.value.argument == "outputs"
    with pytest.raises(InvalidArgumentError) as refusal:
        odp.Schema(age=(20, 80)).decode([[1.0]])
    assert refusal.value.argument == "outputs"


def test_an_encoded_table_cannot_be_written_to() -> None:
    table = SCHEMA.encode(columns(ODD))
    for array in table.parts:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert table.x.shape == (len(table), *SCHEMA.shape) == (len(ODD), SCHEMA.width)
    assert len(SCHEMA.names) == SCHEMA.width


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "example"),
    [
        ([0, 100], "(0, 100)"),
        ([0.0, 1.0], "(0.0, 1.0)"),
        ((80, 20), ""),
        ((0, math.inf), ""),
        ((-1e308, 1e308), ""),
        ((1, 2, 3), "(20, 80)"),
        ("number", "(20, 80)"),
        (("2020-01-01", "2021-01-01"), "odp.Date"),
        ([], "(20, 80)"),
        (["a", "a"], ""),
        ([None, "a"], ""),
        (float, "(20, 80)"),
    ],
)
def test_what_says_nothing_public_is_refused_with_the_column_and_what_to_write(
    value: Any, example: str
) -> None:
    with refuses("age") as caught:
        odp.Schema(age=value)
    assert example in caught.value.fix


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ({"age": [1]}, "'sex', 'day'"),
        ({"age": [1], "sex": "F", "day": [None]}, "'sex': [value]"),
        ({"age": [1], "sex": ["F", "M"], "day": [None]}, ""),
        (np.zeros((3, 2)), ""),
        (None, ""),
        (5, ""),
    ],
)
def test_rows_of_another_shape_are_refused_with_what_to_give(rows: Any, named: str) -> None:
    with refuses("rows") as caught:
        SCHEMA.encode(rows)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"target": "died"}, "target"),
        ({"age": (20, 80), "target": 3}, "target"),
        ({"unit": "age", "most": 1}, "unit"),
        ({"unit": "patient"}, "most"),
        ({"unit": "patient", "most": 0}, "most"),
        ({"day": odp.Date("2020-01-01", "2021-01-01"), "target": "day"}, "target"),
    ],
)
def test_a_target_or_a_person_that_is_none_is_refused(arguments: Any, argument: str) -> None:
    with refuses(argument):
        odp.Schema(**{"age": (20, 80), **arguments})


# -- JSON -----------------------------------------------------------------------------------------

SCHEMAS = [
    SCHEMA,
    odp.Schema({"blood pressure": (90, 180)}, unit="patient", most=3),
    odp.Schema(income=odp.Number(0, 1e8, scale="private")).with_ranges({"income": (2e4, 9e4)}),
    odp.Schema(ok=bool, cost=(0, 5), target="cost"),
    odp.Schema.images(1, 4, 4, target=range(10)),
    odp.Schema.tokens(50, 8, padding=3, target=["no", "yes"]),
    odp.Schema.tokens(["a", "b"], 8),
    odp.Schema(grade=[1, 2.5, math.inf, datetime.date(2020, 1, 1), np.int8(3), b"x"]),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=repr)
def test_a_schema_is_read_back_from_json(schema: odp.Schema) -> None:
    data = json.loads(json.dumps(schema.to_json()))
    again = odp.Schema.from_json(data)
    assert again == schema
    assert again.words() == schema.words()
    made_up, same = schema.made_up_inputs(), again.made_up_inputs()
    assert made_up.tobytes() == same.tobytes()


def damaged(data: Any) -> Any:
    """Every way to leave out a part of JSON, or to put something else there."""
    items = [*data.items()] if isinstance(data, dict) else [*enumerate(data)]
    for key, value in items:
        for other in (None, -7, "x", [], {}, [[]], [1, 2, 3], math.nan):
            yield {**data, key: other} if isinstance(data, dict) else [
                *data[:key], other, *data[key + 1 :]
            ]  # fmt: skip
        if isinstance(data, dict):
            yield {name: part for name, part in items if name != key}
        if isinstance(value, dict | list):
            for part in damaged(value):
                yield {**data, key: part} if isinstance(data, dict) else [
                    *data[:key], part, *data[key + 1 :]
                ]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=repr)
def test_damaged_json_is_refused_or_is_another_schema(schema: odp.Schema) -> None:
    for data in [None, 5, [], {}, *damaged(json.loads(json.dumps(schema.to_json())))]:
        try:
            again = odp.Schema.from_json(data)
        except OptunaDPError:
            continue
        assert again.to_json() == data
        assert again.words()


# -- training -------------------------------------------------------------------------------------

N = 40


def two_columns(died: list[Any]) -> Any:
    rng = np.random.default_rng(0)
    age, sex = rng.uniform(20, 80, N), rng.choice(["F", "M"], N)
    table = {"age": age, "sex": sex, "died": [*died, *np.where(age > 50, "yes", "no")][:N]}
    schema = odp.Schema(age=(20, 80), sex=["F", "M"], died=["no", "yes"], target="died")
    return schema, schema.encode(table)


def trained(table: Any, model: Any) -> Any:
    """One step with every record and no noise."""
    run = started(N, noise_multiplier=NO_NOISE)
    return odp.train(run, model, table, learning_rate=1.0)


def softmax(schema: odp.Schema) -> Any:
    return odp.SoftmaxRegression(features=schema.width, classes=schema.outputs)


def module(schema: odp.Schema) -> Any:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(schema.width, schema.outputs)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    return model


def weights_of(model: Any) -> Any:
    if isinstance(model, odp.SoftmaxRegression):
        return np.asarray(model.weights)
    return model.weight.detach().numpy()


@pytest.mark.parametrize("make", [softmax, module])
def test_a_record_of_an_unknown_class_counts_as_zero(make: Any) -> None:
    schema, table = two_columns(["perhaps"] * N)
    result = trained(table, make(schema))
    np.testing.assert_allclose(weights_of(result.model), 0.0, atol=1e-6)
    assert result.score == pytest.approx(0.0, abs=0.1)  # 40 deviations of its noise.
    schema, table = two_columns([])
    assert np.abs(weights_of(trained(table, make(schema)).model)).max() > 1e-3


def released(model: Any, records: Any, **arguments: Any) -> str:
    plan = odp.plan_budget(epsilon=3.0, delta=1e-5, records=N, batch_size=10, epochs=2, pilots=0)

    def objective(trial: optuna.Trial) -> float:
        return float(odp.train(odp.start_run(trial), model(), records, **arguments).score)

    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study).statement()


def first_screen(statement: str) -> str:
    return " ".join(statement.splitlines()[:25])


@pytest.mark.parametrize("make", [softmax, module])
def test_a_table_needs_nothing_but_a_model_and_the_whole_road_is_enforced(make: Any) -> None:
    schema, table = two_columns([])
    statement = released(lambda: make(schema), table)
    assert "The whole road is enforced" in first_screen(statement)
    for name, words in schema.words().items():
        assert f"| {name} | {words} |" in statement
    assert "by schema" in statement


def test_a_function_of_the_curators_is_named_in_the_statement() -> None:
    schema, _ = two_columns([])
    rows = {"age": [*range(20, 60)], "sex": ["F"] * N, "died": ["no"] * N}
    factor = 1.0

    def younger(d: Any) -> Any:
        d["age"] = np.asarray(d["age"], dtype=np.float64) - factor
        return schema.encode(d)

    statement = released(lambda: softmax(schema), schema.encode(rows, prepare=younger))
    assert "but for a function of the curator's" in first_screen(statement)
    assert "younger" in statement
    assert "factor (float)" in statement


@pytest.mark.promise("prepared")
def test_ready_made_tensors_are_as_given_in_the_first_screen() -> None:
    torch = pytest.importorskip("torch")
    schema, table = two_columns([])
    loss = torch.nn.functional.cross_entropy
    statement = released(lambda: module(schema), table.tensors(), loss=loss, score="accuracy")
    screen = first_screen(statement)
    assert "as given" in screen
    assert "whole road is enforced" not in screen
    assert "What was said to be public" not in statement


def test_values_that_were_read_off_a_table_are_told_apart_from_a_list() -> None:
    with pytest.raises(InvalidArgumentError, match="read off the records is not public"):
        odp.Schema(sex=np.unique(["F", "M", "F"]), age=(20, 80))
