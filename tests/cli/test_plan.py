"""``optuna-dp plan``: the table, its JSON, and one clear line on bad input."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app

GAUSS = json.dumps(odp.Guarantee(odp.gaussian(4.0)).to_json()["event"])
SMALL = ["--law", "geometric", "--mean", "3", "--density-bounds", "0.8,1.25"]


def run(*args: str, width: int = 80) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["plan", *args], env={"COLUMNS": str(width)})
    assert found.exception is None or isinstance(found.exception, SystemExit)
    return found.exit_code, found.stdout, found.stderr


@pytest.fixture(scope="module")
def table() -> str:
    code, out, err = run("--event", GAUSS, *SMALL)
    assert (code, err.strip()) == (0, "")
    return out


@pytest.mark.slow
def test_the_table_fits_and_says_what_it_shows(table: str) -> None:
    assert max(len(line) for line in table.splitlines()) <= 80
    assert "…" not in table
    for word in ("eps", ">=", "naive", "RDP", "T<=3", "top 5%", "price"):
        assert word in table
        assert f"{word}:" in table, f"{word} is not explained"
    assert "one run alone costs 0.93" in table


def test_epsilons_are_rounded_up(table: str) -> None:
    bound = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(3)).epsilon(1e-5)
    line = next(x for x in table.splitlines() if x.strip().startswith("geometric"))
    shown, attack = (float(x) for x in line.split()[3:5])
    assert bound <= shown < bound + 0.0101
    assert attack <= bound


@pytest.mark.slow
def test_the_default_rows_fit_into_80_columns() -> None:
    """The widest cells: every law, a mean of 100, attacks or a solved noise."""
    code, out, _ = run(
        *("--event", GAUSS, "--mean", "100", "--law", "negative-binomial:-0.5"),
        *("--law", "logarithmic", "--density-bounds", "0.75,2"),
    )
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "…" not in out


def test_json_is_the_plan() -> None:
    code, out, _ = run("--event", GAUSS, *SMALL, "--no-attacks", "--json")
    assert code == 0
    record = json.loads(out)
    plan = odp.selection_plan(
        odp.gaussian(4.0),
        laws=["geometric"],
        means=[3],
        density_bounds=[(0.8, 1.25)],
    )
    assert record == json.loads(json.dumps(plan.to_json(attack=False)))


def test_dp_sgd_and_its_score() -> None:
    code, out, _ = run(
        *("--noise-multiplier", "2", "--sample-rate", "0.01", "--steps", "50"),
        *("--score-noise", "20", "--law", "geometric", "--mean", "5", "--density-bounds", "none"),
        *("--no-attacks", "--json"),
    )
    assert code == 0
    event = odp.compose(
        odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.01, steps=50), odp.gaussian(20.0)
    )
    assert json.loads(out)["run"] == odp.Guarantee(event).to_json()["event"]
    assert len(json.loads(out)["rows"]) == 1


@pytest.mark.slow
def test_leaving_out_the_noise_solves_for_it() -> None:
    code, out, _ = run(
        *("--sample-rate", "1", "--steps", "1", "--target-epsilon", "1.5"),
        *("--law", "geometric", "--mean", "5", "--density-bounds", "none", "--json"),
    )
    assert code == 0
    (row,) = json.loads(out)["rows"]
    event = odp.dp_sgd(noise_multiplier=row["noise_multiplier"], sample_rate=1, steps=1)
    found = odp.selection_guarantee(event, odp.Geometric(5))
    assert 0.98 * 1.5 <= found.epsilon(1e-5) == row["epsilon"] <= 1.5


@pytest.mark.slow
def test_a_row_out_of_reach_is_said_to_be() -> None:
    code, out, _ = run(
        *("--sample-rate", "1", "--steps", "1", "--score-noise", "4", "--target-epsilon", "0.5"),
        *("--law", "geometric", "--mean", "3", "--density-bounds", "none"),
    )
    assert code == 0
    assert "none: out of reach" in out


DP_SGD = ("--noise-multiplier", "1", "--sample-rate", "0.01", "--steps", "50")


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((), "--sample-rate"),
        (("--sample-rate", "0.1"), "--steps"),
        (("--sample-rate", "0.1", "--steps", "5"), "--noise-multiplier"),
        (("--sample-rate", "2", "--steps", "5", "--noise-multiplier", "1"), "--sample-rate="),
        ((*DP_SGD, "--delta", "2"), "--delta="),
        ((*DP_SGD, "--delta", "nan"), "--delta="),
        ((*DP_SGD, "--law", "uniform"), "--law="),
        ((*DP_SGD, "--mean", "0.5"), "--mean="),
        ((*DP_SGD, "--density-bounds", "2,1"), "--density-bounds="),
        ((*DP_SGD, "--density-bounds", "wide"), "--density-bounds"),
        ((*DP_SGD[2:], "--target-epsilon", "0"), "--target-epsilon="),
        ((*DP_SGD, "--target-epsilon", "1"), "--noise-multiplier"),
        ((*DP_SGD, "--event", GAUSS), "--noise-multiplier"),
        (("--event", "{"), "--event"),
        (("--event", '{"type": "os.system"}'), "os.system"),
        (("--event", GAUSS, "--target-epsilon", "1"), "--target-epsilon"),
        ((*DP_SGD[:2], "--sample-rate", "0.1", "--steps", "0"), "--steps="),
        (
            ("--noise-multiplier", "-1", "--sample-rate", "0.1", "--steps", "5"),
            "--noise-multiplier=",
        ),
    ],
)
def test_bad_input_is_one_clear_line(args: tuple[str, ...], word: str) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1
    assert lines[0].startswith("optuna-dp: ")
    assert word in lines[0]


def test_help() -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "--target-epsilon" in out
    assert "negative-binomial:SHAPE" in out
