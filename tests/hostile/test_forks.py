"""Workers forked from one process, and threads of one sampler, never draw the same."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from samplers.budget.budget_support import budget
from support import exactly, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.mechanisms.sparse_vector import DiscreteLaplace
from optuna_dp.study.entries import PLAN, SLOT

X = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(X, trials=exactly(4)),
    "define-by-run": lambda: odp.RandTuneSampler(trials=exactly(4)),
    "dp_hypo": lambda: odp.DPHyPOSampler(X, trials=exactly(4), candidates=8),
    "budget": lambda: odp.BudgetSampler(budget(3)),
    "proposer": lambda: odp.BudgetSampler(
        budget(3), search_space=X, proposer=optuna.samplers.RandomSampler()
    ),
    "noisy_max": lambda: odp.NoisyMaxSampler(X, candidates=4, n_partitions=900, epsilon=1.0),
}


def draws(sampler: Any) -> dict[str, list[Any]]:
    """All that is random in a study of its own: candidates, tie-breaks, nonce, choice."""
    study = study_of(sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    runs = [t for t in study.trials if t.params]
    # The last run of a budget repeats a pilot.
    drawn = runs[:3] if isinstance(sampler, odp.BudgetSampler) else runs
    return {
        "candidates": [t.params["x"] for t in drawn],
        "tie-breaks": [t.system_attrs[SLOT.key]["tie_break"] for t in runs],
        "nonce": [study.trials[0].system_attrs[PLAN.key]["nonce"]],
    }


def in_forks(work: Callable[[], Any], count: int = 2) -> list[Any]:
    """What ``work`` returns in each of several forks of this very process."""
    pipes = []
    for _ in range(count):
        read, written = os.pipe()
        child = os.fork()
        if child == 0:  # No return from here: pytest must not run twice.
            try:
                with os.fdopen(written, "w") as out:
                    json.dump(work(), out)
            finally:
                os._exit(0)
        os.close(written)
        pipes.append((child, read))
    answers = []
    for child, read in pipes:
        with os.fdopen(read) as text:
            answers.append(text.read())
        os.waitpid(child, 0)
    return [json.loads(answer) for answer in answers]


def all_different(found: list[dict[str, list[Any]]]) -> None:
    for kind in found[0]:
        everything = [value for one in found for value in one[kind]]
        assert everything
        assert len(set(everything)) == len(everything), kind


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")


@pytest.mark.promise("a process is forked")
@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SAMPLERS)
def test_forked_workers_never_draw_the_same(name: str) -> None:
    sampler = SAMPLERS[name]()
    # Used before the fork, so that whatever it keeps is there to be shared.
    before = draws(sampler)
    all_different([before, *in_forks(lambda: draws(sampler)), draws(sampler)])


@pytest.mark.promise("a process is forked")
@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_noise_and_t_are_not_shared_across_forks() -> None:
    noise, law = DiscreteLaplace(1e9), odp.Geometric(mean=1e9)

    def work() -> dict[str, list[Any]]:
        return {"noise": noise.draw(4).tolist(), "T": [law.sample() for _ in range(2)]}

    all_different([work(), *in_forks(work), work()])


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_comparison_catches_a_shared_generator() -> None:
    shared = np.random.default_rng()
    with pytest.raises(AssertionError):
        all_different(in_forks(lambda: {"candidates": [shared.random()]}))


@pytest.mark.promise("a process is forked")
@pytest.mark.parametrize("name", SAMPLERS)
def test_threads_of_one_sampler_never_draw_the_same(name: str) -> None:
    sampler = SAMPLERS[name]()
    found: list[dict[str, list[Any]]] = []
    threads = [threading.Thread(target=lambda: found.append(draws(sampler))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    all_different(found)


def test_a_fork_of_a_study_in_memory_trains_in_one_process_only() -> None:
    """Otherwise the fork's training would be another one, which no trial shows."""
    plan = odp.RunPlan(
        records=20, batch_size=10, steps=2, noise_multiplier=2.0, score_noise_multiplier=9.0
    )
    study = study_of(odp.RandTuneSampler(trials=exactly(1), run=plan))
    trial = study.ask()
    run = odp.start_run(trial)
    records = np.zeros((20, 4)), np.zeros(20, dtype=int)

    def train() -> str:
        try:
            odp.train(odp.start_run(trial), odp.SoftmaxRegression(4, 2), records, score=None)
        except PlanError:
            return "refused"
        return "trained"

    assert in_forks(train) == ["refused"] * 2
    odp.train(run, odp.SoftmaxRegression(4, 2), records, score=None)
