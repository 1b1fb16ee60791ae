"""around: its law is the one it states, in every sampler that takes it; what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from refusals import refuses
from scipy import stats
from support import RUN

import optuna_dp as odp

RANGE = FloatDistribution(0.1, 3.0, log=True)
SPACE = {"noise": RANGE, "other": FloatDistribution(0.0, 1.0)}
PRIOR = odp.around({"noise": 0.3})


def law(center: float, sd: float, low: float, high: float) -> Any:
    ends = [(math.log(end) - math.log(center)) / sd for end in (low, high)]
    return stats.truncnorm(*ends, loc=math.log(center), scale=sd)


def follows(values: Any, center: float = 0.3, sd: float = 1.0) -> bool:
    """Kolmogorov's test, wrong less than once in a million."""
    cut = law(center, sd, RANGE.low, RANGE.high)
    return bool(stats.kstest(np.log(values), cut.cdf).pvalue > 1e-6)


@pytest.mark.parametrize(("center", "sd"), [(0.3, 0.7), (0.1, 0.2), (3.0, 0.5)])
def test_its_logarithm_is_normal_within_the_range(center: float, sd: float) -> None:
    prior = odp.around({"noise": center}, sd=sd)
    found = prior.sample(SPACE, 20_000, np.random.default_rng(1)).columns
    assert follows(found["noise"], center, sd)
    assert not follows(found["noise"], center, 1.2 * sd)
    assert stats.kstest(found["other"], "uniform").pvalue > 1e-6
    assert abs(stats.spearmanr(found["noise"], found["other"]).statistic) < 0.04


def test_a_parameter_asked_for_alone_has_the_same_law() -> None:
    rng = np.random.default_rng(2)
    assert follows([PRIOR.draw_one("noise", RANGE, rng) for _ in range(2000)])
    drawn = [PRIOR.draw_one("other", SPACE["other"], rng) for _ in range(500)]
    assert stats.kstest(drawn, "uniform").pvalue > 1e-6


def test_the_default_spread_is_that_of_the_documentation() -> None:
    assert PRIOR.fingerprint(SPACE) == {"prior": "around", "centers": {"noise": 0.3}, "sd": 1.0}


@pytest.mark.slow
def test_a_release_says_what_runs_were_drawn_from() -> None:
    sampler = odp.RandTuneSampler(SPACE, trials=odp.Geometric(5), prior=PRIOR, run=RUN)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("noise", 0.1, 3.0, log=True)

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    statement = odp.release(study, vouched="a test").statement()
    assert "(noise 0.3): ln(value / guess) is normal with standard deviation 1," in statement


def test_a_dp_hypo_that_may_not_adapt_follows_the_law() -> None:
    with pytest.warns(odp.errors.SeedWarning):
        sampler = odp.DPHyPOSampler(
            SPACE,
            trials=odp.Geometric(200),
            prior=PRIOR,
            startup_runs=10_000,
            seed=4,
            run=RUN,
        )
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("noise", 0.1, 3.0, log=True))
    found = [t.params["noise"] for t in study.trials if t.params]
    assert len(found) > 50
    assert follows(found)


def test_a_randtune_follows_the_law() -> None:
    with pytest.warns(odp.errors.SeedWarning):
        sampler = odp.RandTuneSampler(
            SPACE, trials=odp.Geometric(200), prior=PRIOR, seed=4, run=RUN
        )
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("noise", 0.1, 3.0, log=True))
    found = [t.params["noise"] for t in study.trials if t.params]
    assert len(found) > 50
    assert follows(found)


@pytest.mark.parametrize(
    ("centers", "sd", "space", "argument"),
    [
        ({}, 0.7, SPACE, "centers"),
        (0.3, 0.7, SPACE, "centers"),
        ({"noise": -1.0}, 0.7, SPACE, "centers['noise']"),
        ({"noise": 0.3}, 0.0, SPACE, "sd"),
        ({"nose": 0.3}, 0.7, SPACE, "centers"),
        ({"other": 0.3}, 0.7, SPACE, "search_space['other']"),
        ({"count": 3.0}, 0.7, {"count": IntDistribution(1, 9, log=True)}, "search_space['count']"),
        ({"noise": 4.0}, 0.7, SPACE, "centers['noise']"),
        ({"noise": 0.3}, 0.7, None, "search_space"),
    ],
)
def test_it_refuses_what_it_does_not_fit(
    centers: Any, sd: float, space: Any, argument: str
) -> None:
    with refuses(argument):
        odp.RandTuneSampler(space, prior=odp.around(centers, sd=sd), run=RUN)
