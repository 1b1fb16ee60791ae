"""A missing value turns whole numbers into floats, and nothing that is public may tell."""

from __future__ import annotations

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError

pandas = pytest.importorskip("pandas")
SCHEMA = odp.Schema({"age": (20, 80), "visits": (0, 9), "died": ["no", "yes"]}, target="died")


def _table(gap: bool) -> object:
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "age": rng.integers(20, 80, 50),
            "visits": rng.integers(0, 9, 50),
            "died": rng.choice(["no", "yes"], 50),
        }
    )
    if gap:
        table.loc[3, "visits"] = None
    return table


@pytest.mark.parametrize("kind", ["pandas", "numpy", "mapping", "polars"])
def test_made_up_inputs_do_not_tell_of_a_gap(kind: str) -> None:
    """They decide the rate, and the rate shows in the released weights."""

    def form(table: object) -> object:
        if kind == "numpy":
            return table[["age", "visits"]].to_numpy()  # type: ignore[index]
        if kind == "mapping":
            return {name: table[name].to_numpy() for name in table}  # type: ignore[attr-defined]
        if kind == "polars":
            columns = {name: table[name].tolist() for name in table}  # type: ignore[attr-defined]
            return pytest.importorskip("polars").DataFrame(columns, strict=False)
        return table

    def prepare(rows: object) -> object:
        if kind == "numpy":
            return np.asarray(rows, dtype=float) / [80.0, 9.0]
        columns = [np.asarray(rows[name], dtype=float) for name in ("age", "visits")]  # type: ignore[index]
        return np.stack([columns[0] / 80.0, columns[1] / 9.0], axis=1)

    schema = SCHEMA if kind != "numpy" else odp.Schema({"age": (20, 80), "visits": (0, 9)})
    with_gap, without = (
        schema.encode(form(_table(gap)), prepare=prepare).made_up_inputs for gap in (True, False)
    )
    assert np.array_equal(with_gap, without, equal_nan=True)


def test_a_function_that_needs_whole_numbers_is_prepared() -> None:
    """Its made-up inputs have one type too, whatever whole numbers the table has."""

    def prepare(rows: object) -> object:
        return np.eye(10)[rows["visits"].clip(0, 9).to_numpy()]  # type: ignore[index]

    table = _table(False)
    narrow = table.astype({"visits": "int8"})  # type: ignore[attr-defined]
    wide, other = (SCHEMA.encode(rows, prepare=prepare) for rows in (table, narrow))
    assert wide.x.shape == (50, 10)
    assert np.array_equal(wide.made_up_inputs, other.made_up_inputs)


def test_names_that_became_floats_are_not_taken_for_one_person() -> None:
    """Beyond 2**53 several whole numbers become the same float."""
    names = [10**17 + 1, 10**17 + 2, 10**17 + 3]
    schema = odp.Schema({"age": (20, 80)}, unit="patient", most=1)
    ages = [30.0, 40.0, 50.0]
    exact = schema.encode(pandas.DataFrame({"age": ages, "patient": names}))
    assert len(exact.x) == 3
    as_floats = pandas.DataFrame({"age": [*ages, 60.0], "patient": [*names, None]})
    # Nobody can be told from another there, so no row is kept, and none displaces another one.
    assert len(schema.encode(as_floats).x) == 0


def test_an_error_of_a_preparation_quotes_no_record() -> None:
    """The curator's log is shown to helpers and pasted into reports."""

    def prepare(rows: object) -> object:
        names = rows["died"]  # type: ignore[index]
        if any("Smith" in str(name) for name in names):
            raise ValueError(f"who is {list(names)}?")
        return np.asarray(rows["age"], dtype=float)[:, None]  # type: ignore[index]

    table = _table(False)
    table.loc[0, "died"] = "J. Smith"  # type: ignore[attr-defined]
    with pytest.raises(OptunaDPError) as refusal:
        SCHEMA.encode(table, prepare=prepare)
    assert "Smith" not in str(refusal.value)
