"""What the preparation by a schema costs: the page has what the commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "preparation"
sys.path.append(str(SCRIPTS))

import accuracy  # noqa: E402
import judges  # noqa: E402

PAGE = (ROOT / "docs" / "results" / "preparation.md").read_text("utf-8")
ROWS = accuracy.stored_rows()


@pytest.mark.slow
@pytest.mark.parametrize(("script", "count"), [("accuracy.py", 2), ("number_targets.py", 1)])
def test_the_page_has_what_the_command_prints(script: str, count: int) -> None:
    command = [sys.executable, str(SCRIPTS / script)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    tables = printed.strip().split("\n\n")
    assert [len(table.splitlines()) > 6 for table in tables] == [True] * count
    for table in tables:
        assert table in PAGE


def test_every_arm_was_trained_as_often() -> None:
    places = [
        (row["table"], row["epsilon"], row["model"], row["repetition"], row["arm"]) for row in ROWS
    ]
    arms = 1 + len(accuracy.ARMS)
    settings = len(accuracy.EPSILONS) * len(accuracy.MODELS) * accuracy.REPETITIONS
    assert len({*places}) == len(places) == len(judges.ALL) * settings * arms


def test_the_strengths_that_are_stored_are_those_of_today() -> None:
    cells = {(row["table"], row["epsilon"], row["records"], row["strength"]) for row in ROWS}
    assert len(cells) == len(judges.ALL) * len(accuracy.EPSILONS)
    for name, epsilon, records, strength in cells:
        query = accuracy.query_of(name, epsilon, records)
        assert query.strength == pytest.approx(strength, abs=0.06)


def test_what_is_possible_is_no_narrower_than_what_is_typical() -> None:
    for judge in judges.ALL.values():
        wide, unknown = judge.possible(), judge.unknown()
        for name, (low, high) in judge.typical().items():
            assert wide[name][0] <= low < high <= wide[name][1]
            assert unknown[name][0] <= wide[name][0] < wide[name][1] <= unknown[name][1]


@pytest.mark.parametrize("epsilon", accuracy.EPSILONS)
def test_private_ranges_and_the_training_after_them_are_within_the_epsilon(epsilon: float) -> None:
    from optuna_dp.planning.budget_split import squared_mu

    query = accuracy.query_of("wage", epsilon, 2250)
    left = squared_mu(accuracy.epsilon_left(epsilon), accuracy.DELTA)
    assert query.mu**2 + left <= squared_mu(epsilon, accuracy.DELTA) * (1 + 1e-9)
