"""The floor under the chance that no run hits (docs/how-to/choose-the-law.md, "What no method can
do"), beside the laws here on the runs of its proof."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

import optuna_dp as odp

sys.path.append(str(Path(__file__).parents[3] / "examples" / "laws"))

from misses import fewest_misses

LAWS = [
    odp.NegativeBinomial(shape=-0.5, mean=200),
    odp.Logarithmic(mean=30),
    odp.Geometric(mean=10),
    odp.Geometric(mean=1000),
    odp.NegativeBinomial(shape=3.0, mean=50),
]
EPSILON = 0.05


def hit(records_away: int, share: float) -> float:
    """The chance that a run hits, on the data that differ in so many records."""
    return share * math.exp(-records_away * EPSILON)


def misses(law: odp.TrialCount, records_away: int, share: float) -> float:
    return float(law.pgf(1.0 - hit(records_away, share)))


def test_the_runs_of_the_proof_are_private() -> None:
    for k in range(200):
        near, far = hit(k, 0.5), hit(k + 1, 0.5)
        assert abs(math.log(near / far)) <= EPSILON * (1 + 1e-9)
        assert abs(math.log((1 - near) / (1 - far))) <= EPSILON


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("share", [0.5, 0.05, 0.001])
def test_no_law_misses_less_often_than_its_cost_allows(law: odp.TrialCount, share: float) -> None:
    here, cost = misses(law, 0, share), law.pure_factor * EPSILON
    for k in range(0, 400, 7):
        assert here >= math.exp(-k * cost) * misses(law, k, share) * (1 - 1e-12)
    assert here >= math.exp(-cost) * fewest_misses(law.pure_factor, law.mean, share)


def test_a_cheaper_law_would_have_to_miss_more_often() -> None:
    law = odp.Geometric(mean=1000)
    assert misses(law, 0, 0.05) < fewest_misses(0.5, law.mean, 0.05)


def test_the_floor_is_the_largest_of_its_line() -> None:
    for factor, mean, share in ((1.5, 3.0, 0.05), (3.0, 100.0, 0.05), (5.0, 1e4, 0.5)):
        points = [i / 10_000 for i in range(1, 10_001)]
        best = max(x**factor * (1 - mean * share * x) for x in points)
        assert fewest_misses(factor, mean, share) == pytest.approx(best, rel=1e-3)
