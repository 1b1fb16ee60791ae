"""One script for every rank: torchrun --nproc-per-node 2 tune_ranks.py."""

import numpy as np
import optuna
from torch import nn

import optuna_dp as odp

rng = np.random.default_rng(0)
x = rng.normal(size=(2000, 20)).astype("float32")  # all records, in each process
y = (x[:, 0] + x[:, 1] > 0).astype("int64")
plan = odp.plan_budget(epsilon=3.0, records=2000, batch_size=200, epochs=5, pilots=2)


def objective(trial: optuna.Trial) -> float:
    width = trial.suggest_int("width", 8, 32)
    run = odp.start_run(trial)
    trained = odp.train(
        run,
        lambda: nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 2)),
        (x, y),
        loss=nn.functional.cross_entropy,
        score="accuracy",
    )
    return trained.score


study = odp.distributed.optimize_ranks(
    lambda: optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan)),
    objective,
)
if study is not None:  # in rank 0 only
    print(f"epsilon: {odp.release(study).guarantee.epsilon(delta=1e-5):.3f}")
