"""What the pages say about choosing the noise of a score and the delta of a trainer."""

from __future__ import annotations

import math
import re

import pytest
from dp_accounting import dp_event

import optuna_dp as odp
from documentation.pages import ROOT

PAGE = (ROOT / "docs" / "how-to" / "any-trainer.md").read_text("utf-8")


def epsilon_of_search(event: dp_event.DpEvent, mean: float = 5.0) -> float:
    return odp.selection_guarantee(event, odp.Geometric(mean=mean)).epsilon(delta=1e-5)


def row(beginning: str) -> list[str]:
    """Returns the cells of the one row of the page that begins so, without the first cell."""
    (line,) = re.findall(rf"^\| {re.escape(beginning)}.* \|$", PAGE, re.MULTILINE)
    return [cell.strip(" *") for cell in line.split("|")[2:-1]]


@pytest.mark.slow
def test_the_table_of_score_noise_is_right() -> None:
    *noises, last = row("noise of the score | 5 ")
    assert last == "no score"
    training = odp.approximate_dp(1.0, 1e-7)
    events = [odp.compose(training, odp.scoring.score_event(float(noise))) for noise in noises]
    shown = row("epsilon of the search")
    assert [f"{epsilon_of_search(event):.2f}" for event in (*events, training)] == shown
    for records in (1_000, 10_000):
        points = row(f"points of accuracy, {records:,} records")[:5]
        for noise, point in zip(noises, points, strict=True):
            assert float(point) == pytest.approx(100 * float(noise) / (2 * records), abs=0.006)


@pytest.mark.slow
def test_the_rule_of_delta_is_right() -> None:
    score = odp.scoring.score_event(20.0)

    def epsilon(delta: float, mean: float) -> float:
        return epsilon_of_search(odp.compose(odp.approximate_dp(1.0, delta), score), mean)

    means = [epsilon_of_search(odp.compose(odp.pure_dp(1.0), score), mean) for mean in (3, 5, 10)]
    assert [f"{value:.2f}" for value in means] == ["2.10", "2.43", "2.75"]
    # A hundredth of the search's delta costs next to nothing, a tenth may cost everything.
    for mean in (3, 5, 10, 20):
        assert epsilon(1e-7, mean) < epsilon(1e-9, mean) + 0.004
    assert math.isinf(epsilon(1e-6, 20))


def test_the_table_of_scores_beside_a_training_is_right() -> None:
    page = (ROOT / "docs" / "how-to" / "score-privately.md").read_text("utf-8")
    rows = re.findall(
        r"^\| ([\d,]+)(?: and more)? \| (\d+) \| ([\d.]+) points \| ([\d.]+) \|$",
        page,
        re.MULTILINE,
    )
    assert len(rows) == 3
    training = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)
    for records, noise, points, epsilon in rows:
        spread = 100 * float(noise) / (2 * int(records.replace(",", "")))
        assert float(points) == pytest.approx(spread, rel=1e-6)
        run = odp.compose(training, odp.scoring.score_event(float(noise)))
        assert f"{odp.Guarantee(run).epsilon(delta=1e-5):.2f}" == epsilon
