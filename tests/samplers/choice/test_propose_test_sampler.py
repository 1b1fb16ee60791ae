"""The doubling loop as an Optuna sampler."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from samplers.choice.utility_support import GRID, MAKERS, SPACE, evaluated, mean_utility, run

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
)
from optuna_dp.mechanisms import DoublingPlan
from optuna_dp.samplers.choice.choice import read_trace

# What both samplers share is in test_noisy_max_sampler.py and test_noisy_max_refusals.py.


def test_the_guarantee_is_the_composition_of_the_iteration_bound() -> None:
    study = run(MAKERS["propose_test"](SPACE))
    guarantee = odp.release(study).guarantee
    plan = DoublingPlan(0.2, 0.1)
    assert plan.iteration_bound == 19
    assert guarantee.event == plan.event()
    assert guarantee.epsilon(1e-5) == pytest.approx(3.3666, abs=1e-4)
    assert len(read_trace(study)) < 19  # What was used is not what is charged.


def test_the_statement_says_that_epsilon_is_per_iteration() -> None:
    text = odp.release(run(MAKERS["propose_test"](SPACE))).statement()
    assert "PER ITERATION" in text
    assert "at most 19 iterations" in text
    assert "ONE ITERATION" in (odp.ProposeTestSampler.__doc__ or "")


def test_the_capped_variant() -> None:
    study = run(MAKERS["propose_test"](SPACE, variant="capped", max_iterations=7))
    assert (
        odp.release(study).guarantee.event
        == DoublingPlan(0.2, 0.1, variant="capped", max_iterations=7).event()
    )
    assert len(read_trace(study)) <= 7


def test_nothing_may_be_chosen() -> None:
    """No utility reaches the lower bound: that is an outcome like any other."""
    sampler = MAKERS["propose_test"](SPACE, lower_bound=0.8)
    study = run(sampler, lambda trial: mean_utility(trial) / 2)
    release = odp.release(study)
    assert release.params is None
    assert release.value is None
    assert odp.publish(release, optuna.storages.InMemoryStorage(), "nothing").trials == []


def test_the_trace_of_another_study() -> None:
    for study in (optuna.create_study(), run(MAKERS["noisy_max"](SPACE))):
        with pytest.raises(PlanError):
            read_trace(study)


def _work(path: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = JournalStorage(JournalFileBackend(path))
    study = optuna.load_study(
        study_name="s", storage=storage, sampler=MAKERS["propose_test"](SPACE)
    )
    study.optimize(mean_utility)


@pytest.mark.slow
def test_three_processes_agree_on_the_choice(tmp_path: Path) -> None:
    path = str(tmp_path / "study.log")
    storage = JournalStorage(JournalFileBackend(path))
    optuna.create_study(study_name="s", storage=storage, direction="maximize")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        for job in [pool.submit(_work, path) for _ in range(3)]:
            job.result()
    study = optuna.load_study(study_name="s", storage=storage)
    release = odp.release(study)
    assert release == odp.release(study)
    assert release.params in [t.params for t in evaluated(study)]
    assert [t.params["x"] for t in evaluated(study)] == pytest.approx(GRID)


@pytest.mark.slow
def test_the_choice_has_the_law_of_the_mechanism() -> None:
    """The sampler chooses as the mechanism itself does on the same utilities.

    Fails falsely with probability below 2e-8: 5.9 standard errors of the difference, four times.
    """
    from optuna_dp.mechanisms import Utilities, propose_test

    plan, k, runs = DoublingPlan(0.5, 0.1), 20, 480
    utilities = Utilities.from_means(GRID, k)
    sampler = {"n_partitions": k, "epsilon": 0.5, "granularity": 0.1, "resolve": 1e9}
    chosen: list[float] = []
    for _ in range(runs):
        study = run(
            odp.ProposeTestSampler(SPACE, **sampler),
            lambda trial: trial.suggest_float("x", 0.0, 1.0, step=0.1),
        )
        params = odp.release(study).params
        chosen.append(-0.1 if params is None else params["x"])
    direct = [propose_test(utilities, plan).choice for _ in range(10 * runs)]
    for edge in (-0.05, 0.25, 0.55, 0.85):
        mine = sum(x > edge for x in chosen) / runs
        theirs = sum(c is not None and GRID[c] > edge for c in direct) / len(direct)
        assert abs(mine - theirs) < 6.2 * (0.25 / runs) ** 0.5, edge


@pytest.mark.slow
def test_the_example_prints_the_accountants_epsilon() -> None:
    """100 candidates on the digits, the choice, the final training, one statement."""
    root = Path(odp.__file__).parents[1]
    said = subprocess.run(
        [sys.executable, str(root / "examples" / "propose_test_digits.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ).stdout
    training = odp.compose(
        odp.dp_sgd(noise_multiplier=2.0, sample_rate=64 / 1355, steps=424), odp.gaussian(8.0)
    )
    whole = odp.Guarantee(odp.compose(odp.pure_dp(1.0), training))
    assert f"epsilon of the pipeline: {whole.epsilon(1e-5):.4f}" in said
    assert "Final training" in said
    assert "100: a list fixed beforehand" in said
