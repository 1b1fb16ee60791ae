"""Votes on the stored counts of Fashion-MNIST are those of the library, and the page's numbers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optuna_dp.voting import VotePlan

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES / "dp_hype"))

import fashion_votes  # noqa: E402


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    with np.load(fashion_votes.FILE) as file:
        return dict(file)


def test_all_counts_are_stored(stored: dict[str, Any]) -> None:
    for split in fashion_votes.SPLITS:
        for clients, pool in fashion_votes.SIZES.items():
            local = stored[f"local {split} of {pool}"]
            assert local.shape == (pool, 52)
            assert (local[:, :-1] <= local[:, -1:]).all()  # not more than were held out
            # Two thirds were trained on, so that a third of 60,000 was held out.
            assert local[:, -1].sum() == pytest.approx(20_000, abs=pool)
            assert stored[f"global {split}, {clients} clients"].shape == (51,)


def test_the_noise_has_the_variance_of_the_plan() -> None:
    plan = VotePlan.calibrated(
        clients=50, candidates=fashion_votes.CANDIDATES, votes=fashion_votes.K,
        epsilon=0.5, delta=fashion_votes.DELTA,
    )  # fmt: skip
    drawn = fashion_votes.noise(50, 0.5, (40_000,), np.random.default_rng(0))
    assert plan.guarantee().epsilon(fashion_votes.DELTA) <= 0.5
    # The variance of an estimate of it from 40,000 numbers is below 1 %: five of its deviations.
    assert drawn.var() == pytest.approx(plan.variance_of_sum, rel=0.036)


@pytest.mark.slow
@pytest.mark.parametrize(("split", "clients"), [("iid", 50), ("Dirichlet(0.5)", 250)])
def test_the_page_prints_what_the_votes_choose(
    stored: dict[str, Any], split: str, clients: int
) -> None:
    page = (EXAMPLES / "dp_hype" / "README.md").read_text()
    found = fashion_votes.cell(stored, split, clients)
    assert fashion_votes.row(split, clients, found) in page


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="the figure needs matplotlib"
)
def test_the_figure_is_drawn(tmp_path: Path, stored: dict[str, Any]) -> None:
    cells = {
        (split, clients): fashion_votes.cell(stored, "iid", 50, runs=2)
        for split in fashion_votes.SPLITS
        for clients in fashion_votes.SIZES
    }
    fashion_votes.draw(cells, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().count("epsilon of the vote") >= 1
