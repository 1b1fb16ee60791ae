"""A small study of each procedure, as a script has it: from the plan to the guarantee.

``tests/trusted_base.py`` watches which files of the package they run. ``tests/test_sabotage.py``
runs them while a file is broken. Each of them says what it is doing, so that both know which part
of it ran a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

import optuna_dp as odp

DELTA = 1e-5
RECORDS = 300
SPACE = {"noise_per_weight": FloatDistribution(0.03, 3.0, log=True)}
CANDIDATES = [{"x": 0.25}, {"x": 0.75}]

# Says what a study does until the block ends: "plan" or "training".
Part: TypeAlias = Callable[[str], AbstractContextManager[None]]


@contextmanager
def unwatched(part: str) -> Iterator[None]:
    """For who does not want to know."""
    yield


def run_plan() -> odp.RunPlan:
    """The plan of each run of a private selection."""
    return odp.RunPlan(
        records=RECORDS, batch_size=50, steps=8, noise_multiplier=2.0, score_noise_multiplier=20.0
    )


def table() -> dict[str, list[Any]]:
    """Made-up rows of patients."""
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, RECORDS)
    return {
        "age": age.tolist(),
        "income": rng.uniform(0, 80_000, RECORDS).tolist(),
        "sex": rng.choice(["F", "M"], RECORDS).tolist(),
        "died": np.where(age > 60, "yes", "no").tolist(),
    }


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Made-up records of four numbers, and the class of each."""
    x = np.random.default_rng(0).uniform(-1, 1, (RECORDS, 4))
    return x, (x[:, 0] > 0).astype(int)


def finished(sampler: Any, objective: Callable[[optuna.Trial], float]) -> odp.Release:
    """What a study releases."""
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, delta=DELTA)
    release.guarantee.epsilon(DELTA)
    return release


def budget(part: Part) -> odp.Release:
    """`BudgetSampler` with pilots on two rungs; a table with a `Schema`, rehearsed rates."""
    with part("plan"):
        plan = odp.plan_budget(
            epsilon=3.0, delta=DELTA, records=RECORDS, batch_size=50, epochs=2, pilots=(2, 2)
        )
    rows = table()
    with part("training"):
        schema = odp.Schema(
            age=(20, 80), income=(0, 80_000), sex=["F", "M"], died=["no", "yes"], target="died"
        )

    def objective(trial: optuna.Trial) -> float:
        optimizer = trial.suggest_categorical("optimizer", ["adam", "adamw"])
        run = odp.start_run(trial)
        with part("training"):
            model = odp.SoftmaxRegression(schema.width, schema.outputs)
            return odp.train(run, model, schema.encode(rows), optimizer=optimizer).score

    return finished(odp.BudgetSampler(plan), objective)


def py_torch(part: Part) -> odp.Release:
    """`RandTuneSampler` with a geometric number of runs; a network of PyTorch."""
    # Needs the extra "torch".
    import torch
    from torch import nn

    x, y = arrays()
    records = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)

    def objective(trial: optuna.Trial) -> float:
        width = trial.suggest_int("width", 2, 8)
        run = odp.start_run(trial)
        with part("training"):
            model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
            loss = nn.functional.cross_entropy
            return odp.train(run, model, records, loss=loss, score="accuracy").score

    return finished(odp.RandTuneSampler(trials=odp.Geometric(mean=4), run=run_plan()), objective)


def trains_arrays(part: Part) -> Callable[[optuna.Trial], float]:
    """An objective that trains on arrays, with a rate from what the noise does to a weight."""
    records = arrays()

    def objective(trial: optuna.Trial) -> float:
        noise_per_weight = trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True)
        run = odp.start_run(trial)
        with part("training"):
            rate = run.learning_rate(noise_per_weight=noise_per_weight)
            model = odp.SoftmaxRegression(4, 2)
            return odp.train(
                run, model, records, score="accuracy", optimizer="sgd", learning_rate=rate
            ).score

    return objective


def private_selection(part: Part) -> odp.Release:
    """`RandTuneSampler` with a geometric number of runs; arrays."""
    sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=4), run=run_plan())
    return finished(sampler, trains_arrays(part))


def with_density_bounds(part: Part) -> odp.Release:
    """`DPHyPOSampler` with a geometric number of runs; arrays."""
    sampler = odp.DPHyPOSampler(SPACE, trials=odp.Geometric(mean=6), candidates=8, run=run_plan())
    return finished(sampler, trains_arrays(part))


def chosen(sampler: Any, partitions: int) -> odp.Release:
    return finished(
        sampler,
        lambda trial: odp.report_utilities(trial, [trial.suggest_float("x", 0, 1)] * partitions),
    )


def noisy_max(part: Part) -> odp.Release:
    """`NoisyMaxSampler`: two candidates on 500 partitions; no training of the package's."""
    sampler = odp.NoisyMaxSampler(candidates=CANDIDATES, n_partitions=500, epsilon=1.0)
    return chosen(sampler, 500)


def doubling(part: Part) -> odp.Release:
    """`ProposeTestSampler`: two candidates on 20,000 partitions; no training of the package's."""
    sampler = odp.ProposeTestSampler(
        candidates=CANDIDATES, n_partitions=20_000, epsilon=0.5, granularity=0.2, resolve=0.4
    )
    return chosen(sampler, 20_000)


def votes(part: Part) -> odp.Release:
    """`FederatedVote` of twelve clients with a secure sum; Flower in one process."""
    # Needs the extra "federated".
    from federated.in_process import app

    from optuna_dp.federated import FederatedVote, InProcessGrid, SecureSum

    grid = InProcessGrid(app(), [{"optimum": 3.0} for _ in range(12)])
    vote = FederatedVote(
        {"x": FloatDistribution(0.0, 10.0, step=0.5)},
        candidates="grid",
        k=3,
        epsilon=2.0,
        secure_aggregation=SecureSum(),
        progress=lambda text: None,
    )
    release = vote.start(grid, grid.server_context())
    release.guarantee.epsilon(DELTA)
    return release


# By the names that the page has for them.
STUDIES: dict[str, Callable[[Part], odp.Release]] = {
    "budget": budget,
    "private selection": private_selection,
    "PyTorch": py_torch,
    "density bounds": with_density_bounds,
    "noisy max": noisy_max,
    "doubling": doubling,
    "votes": votes,
}


def state(release: odp.Release) -> Any:
    """What a release says of itself, as JSON."""
    release.statement()
    return release.to_json()


# What some of them need besides the package.
NEEDS = {"PyTorch": "torch", "votes": "flwr"}
