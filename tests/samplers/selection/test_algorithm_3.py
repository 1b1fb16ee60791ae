"""DP-HyPO's Algorithm 3 with the paper's settings, from the public sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses
from support import exactly, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.surrogate import GaussianProcess
from optuna_dp.study.entries import DRAW

GRID = [round(0.05 * i, 2) for i in range(21)]
SPACE: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
PUBLISHED: dict[str, Any] = {
    "density_bounds": (0.75, 2.0),
    "projection": "l2",
    "tau": 0.1,
    "beta": 1.0,
    "standardize": False,
}
SCALE = 30.0  # Of the scores, so that the bounds are met and the projection does something.


def objective(trial: optuna.Trial) -> float:
    return -SCALE * (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2


def sampler(**arguments: Any) -> odp.DPHyPOSampler:
    prior = FixedCandidates([{"x": x} for x in GRID])
    return odp.DPHyPOSampler(SPACE, trials=exactly(8), prior=prior, seed=5, **arguments)


def projected(w: Any, c: float, big_c: float) -> Any:
    """Equation 3.1 by the shape of its solution: clip(w - nu), with mean 1."""
    low, high = w.min() - big_c, w.max() - c
    for _ in range(200):
        nu = 0.5 * (low + high)
        low, high = (nu, high) if np.clip(w - nu, c, big_c).mean() > 1.0 else (low, nu)
    return np.clip(w - nu, c, big_c)


def test_every_run_is_drawn_from_the_density_that_the_paper_says() -> None:
    """Scores mu + tau sigma, softmax with beta, raw scores, projected by equation 3.1."""
    study = study_of(sampler(**PUBLISHED))
    study.optimize(objective)
    grid = np.array(GRID)[:, None]
    ratios, expected = [], []
    for run in study.trials[1:]:
        history = study.trials[: run.number]
        x = np.array([[trial.params["x"]] for trial in history])
        y = np.array([trial.value for trial in history])
        mean, deviation = GaussianProcess().fit(x, y).predict(grid)
        weights = np.exp(1.0 * (mean + 0.1 * deviation))
        density = projected(weights / weights.mean(), 0.75, 2.0)
        ratios.append(run.system_attrs[DRAW.key]["density_ratio"])
        expected.append(density[GRID.index(run.params["x"])])
    np.testing.assert_allclose(ratios, expected, atol=1e-9)
    assert len({round(ratio, 6) for ratio in ratios}) > 2


@pytest.mark.parametrize(
    "changed",
    [{"standardize": True}, {"projection": "kl"}, {"tau": 0.5}, {"beta": 4.0}],
)
def test_each_of_the_papers_settings_is_part_of_the_plan(changed: dict[str, Any]) -> None:
    study = study_of(sampler(**PUBLISHED))
    study.optimize(objective, n_trials=1)
    study.sampler = sampler(**{**PUBLISHED, **changed})
    with pytest.raises(PlanError):
        study.optimize(objective, n_trials=1)


def test_standardize_is_a_bool() -> None:
    with refuses("standardize"):
        odp.DPHyPOSampler(standardize="no")  # type: ignore[arg-type]
