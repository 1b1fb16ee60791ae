"""The simulation runs the real thing: the winner's rule and the law of T."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial

import optuna_dp as odp
from optuna_dp.evidence.ended_runs import EndedRun
from optuna_dp.samplers.selection.winner import choose

from . import simulation
from .simulation import NOTHING, Runs, draw_counts, simulate

SCORES = np.array([0.3, 0.7, 0.7, math.nan, -math.inf])


class Scripted:
    """A generator whose uniforms are written down."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.drawn: list[np.ndarray] = []

    def random(self, size: int) -> np.ndarray:
        self.drawn.append(self._rng.random(size))
        return self.drawn[-1]


def test_the_winner_is_the_one_that_a_release_would_choose() -> None:
    """Search by search, fed with the same draws and the same tie-breaks."""
    x = {"x": optuna.distributions.IntDistribution(0, 4)}
    runs = Runs(np.array([1.0]), np.full((1, 5), 0.2), SCORES)
    for seed in range(300):
        rng = Scripted(seed)
        (found,) = simulate(runs, odp.Geometric(mean=4), 1, rng)
        # One uniform for T, then per run one for lambda, one for the output, one for the tie.
        draws = [float(u[0]) for u in rng.drawn[1:]]
        trials = []
        for number, (_, u, tie) in enumerate(zip(*[iter(draws)] * 3, strict=True)):
            output = min(int(u * 5), 4)
            value = SCORES[output]
            failed = math.isnan(value)
            trial = create_trial(
                state=TrialState.FAIL if failed else TrialState.COMPLETE,
                value=None if failed else value,
                params={"x": output},
                distributions=x,
            )
            trial.number = number
            trials.append(EndedRun(trial, int(tie * 2**128)))
        chosen = choose(trials, maximize=True)
        assert found == (NOTHING if chosen is None else chosen.params["x"])


@pytest.mark.parametrize(
    "law", [odp.Geometric(mean=7), odp.Poisson(mean=2), odp.Logarithmic(mean=5).capped(9)]
)
def test_counts_follow_the_law_that_samplers_draw_from(law) -> None:
    rng = np.random.default_rng(0)
    counts = draw_counts(law, 200_000, rng)
    for k in range(12):
        p = law.pmf(k)
        assert abs((counts == k).mean() - p) < 5 * math.sqrt(p / 200_000) + 1e-9
    # TrialCount.sample inverts the same distribution function.
    for u in (0.01, 0.37, 0.5, 0.93, 0.999):
        source = SimpleNamespace(random=lambda size, u=u: np.full(size, u))
        assert draw_counts(law, 1, source)[0] == law.sample(lambda bits, u=u: int(u * 2**bits))


def test_selection_follows_the_generating_function() -> None:
    """P[winner has output below i] is phi of the mass below i."""
    law, rng = odp.Geometric(mean=6), np.random.default_rng(1)
    outputs = np.array([[0.5, 0.3, 0.15, 0.05]])
    found = simulate(Runs(np.array([1.0]), outputs, np.arange(4.0)), law, 300_000, rng)
    for i in range(1, 4):
        expected = law.pgf(float(outputs[0, :i].sum()))
        assert abs((found < i).mean() - expected) < 5 * math.sqrt(expected / 300_000)


def test_densities_are_used() -> None:
    ratio = np.array([[1.5, 0.5]])
    runs = Runs(np.array([0.5, 0.5]), np.ones((2, 1)), np.zeros(1))
    found = simulate(
        runs, odp.Geometric(mean=3), 100_000, np.random.default_rng(2),
        densities=lambda state: np.broadcast_to(ratio, (state.size, 2)),
    )  # fmt: skip
    assert abs((found == 0).mean() - 0.75) < 0.01


def test_nothing_here_is_for_real_data() -> None:
    assert "nothing here may face real data" in (simulation.__doc__ or "")
