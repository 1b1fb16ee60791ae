"""A choice before a training: Gumbel noise where both together cost less with it."""

from __future__ import annotations

import pytest
from samplers.choice.utility_support import MAKERS, SPACE, mean_utility, run

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
)
from optuna_dp.study.trials import read_plan


@pytest.mark.slow
def test_a_training_that_follows_decides_the_noise_and_the_plan_records_it() -> None:
    training = odp.gaussian(4.0)
    study = run(MAKERS["noisy_max"](SPACE, training=training))
    release = odp.release(study)
    assert release.guarantee.event == odp.bounded_range(1.0)
    assert release.guarantee.epsilon(1e-5) <= 1.0
    assert release.params == {"x": pytest.approx(0.4, abs=0.15)}
    assert "Gumbel" in release.statement()
    whole = release.with_training(training).guarantee
    assert whole.event == odp.compose(odp.bounded_range(1.0), training)
    pure = odp.Guarantee(odp.compose(odp.pure_dp(1.0), training))
    assert whole.epsilon(1e-5) < 0.9 * pure.epsilon(1e-5)
    plan = read_plan(study)
    assert plan is not None
    assert plan.design.settings["mechanism"] == {"epsilon": 1.0, "noise": "gumbel"}


def test_a_choice_alone_has_exponential_noise() -> None:
    study = run(MAKERS["noisy_max"](SPACE))
    assert odp.release(study).guarantee.event == odp.pure_dp(1.0)
    plan = read_plan(study)
    assert plan is not None
    assert plan.design.settings["mechanism"] == {"epsilon": 1.0, "noise": "exponential"}


@pytest.mark.slow
def test_workers_with_different_noise_do_not_mix() -> None:
    study = run(MAKERS["noisy_max"](SPACE), n_trials=2)
    study.sampler = MAKERS["noisy_max"](SPACE, training=odp.gaussian(4.0))
    with pytest.raises(PlanError, match="noise"):
        study.optimize(mean_utility)
