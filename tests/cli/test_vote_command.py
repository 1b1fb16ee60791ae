"""``optuna-dp vote``."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from optuna_dp.cli.application import app
from optuna_dp.voting import VotePlan

VOTE = ("vote", "--clients", "50", "--candidates", "100", "--epsilon", "1")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*VOTE, *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_it_says_what_the_plan_says() -> None:
    found = json.loads(run("--json", "--good", "4", "--max-dropout", "5", "--k", "3"))
    plan = VotePlan.from_json(found["plan"])
    assert (plan.votes, plan.max_dropout, plan.clients, plan.candidates) == (3, 5, 50, 100)
    assert found["noise"] == plan.variance_of_sum**0.5
    assert found["chance_if_all_agree"] == plan.chance(50, good=4)
    for row in found["lead"]:
        assert row["votes"] == plan.visible_gap(row["chance"], good=4)


@pytest.mark.slow
def test_a_lead_beyond_all_clients_is_said_to_be_one() -> None:
    text = " ".join(run("--adjacency", "replace-one").split())
    assert "more than all" in text
    assert "whatever the number of clients" in text
    assert "If all clients agree on it, a good candidate wins in 94%" in text
    fewer = json.loads(run("--json", "--adjacency", "null-client"))
    assert fewer["noise"] < 0.8 * json.loads(run("--json"))["noise"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--k", "100"), "--k=100"),
        (("--good", "101"), "--good=101"),
        (("--delta", "1"), "--delta"),
    ],
)
def test_what_is_not_allowed_is_one_line(more: tuple[str, ...], words: str) -> None:
    done = CliRunner().invoke(app, [*VOTE, *more])
    assert done.exit_code == 2
    assert words in done.output
    assert "Traceback" not in done.output
