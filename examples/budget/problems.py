"""Other models and spaces on the digits: a network, Adam, six hyperparameters, Opacus.

A problem says what is searched over and trains one model; :mod:`more` tunes it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna

sys.path.insert(0, str(Path(__file__).parents[1] / "headline"))

from engine import Model, predict, train
from tasks import Split

Params = dict[str, Any]
Labels = npt.NDArray[np.int64]
BATCH = 64


@dataclass(frozen=True)
class Run:
    """How one model is trained.

    Attributes:
        noise_multiplier: Of a step.
        sample_rate: Chance of a record to join a step.
        steps: Number of steps.
        factor: What the searched learning rate is multiplied by.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    factor: float = 1.0


@dataclass(frozen=True)
class Problem:
    """Attributes:
    suggest: The space.
    default: What somebody who does not tune would take.
    fit: Trains on private records; predicted labels of private and of test records.
    scaled: Whether a pilot's learning rate is scaled to the noise that a weight has in the end.
    """

    suggest: Callable[[optuna.Trial], Params]
    default: Params
    fit: Callable[[Split, Params, Run], tuple[Labels, Labels]]
    scaled: bool = True


def two(low: float, high: float) -> Callable[[optuna.Trial], Params]:
    def suggest(trial: optuna.Trial) -> Params:
        return {
            "learning_rate": trial.suggest_float("learning_rate", low, high, log=True),
            "clipping_norm": trial.suggest_float("clipping_norm", 0.05, 5.0, log=True),
        }

    return suggest


def six(trial: optuna.Trial) -> Params:
    return {
        **two(0.01, 10.0)(trial),
        "hidden": trial.suggest_categorical("hidden", [8, 16, 32, 64]),
        "spread": trial.suggest_float("spread", 0.1, 3.0, log=True),
        "decay": trial.suggest_float("decay", 0.01, 1.0),
        "shrinkage": trial.suggest_float("shrinkage", 1e-5, 1e-2, log=True),
    }


def with_engine(optimiser: Any, hidden: int) -> Callable[[Split, Params, Run], Any]:
    def fit(split: Split, params: Params, run: Run) -> tuple[Labels, Labels]:
        model = Model(10, params.get("hidden", hidden), optimiser, params.get("spread", 1.0))
        weights = train(
            model,
            *split.private,
            [params["learning_rate"] * run.factor],
            [params["clipping_norm"]],
            noise_multiplier=run.noise_multiplier,
            sample_rate=run.sample_rate,
            steps=run.steps,
            batch=BATCH,
            decay=params.get("decay", 1.0),
            shrinkage=params.get("shrinkage", 0.0),
        )
        return predict(weights, split.private[0])[0], predict(weights, split.test[0])[0]

    return fit


def with_opacus(split: Split, params: Params, run: Run) -> tuple[Labels, Labels]:
    """A network with 32 tanh units in PyTorch, trained by Opacus."""
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    # About hooks, and that the noise is not from a cryptographic source.
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)
    x, y = (torch.tensor(part) for part in split.private)
    model = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    )
    private = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(private.parameters(), lr=params["learning_rate"] * run.factor),
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=params["clipping_norm"],
        expected_batch_size=BATCH,
    )
    batches = UniformWithReplacementSampler(
        num_samples=len(x), sample_rate=run.sample_rate, steps=run.steps
    )
    for batch in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(x[batch]), y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        found = [model(torch.tensor(part[0])).argmax(1) for part in (split.private, split.test)]
    return found[0].numpy(), found[1].numpy()


SGD_DEFAULT = {"learning_rate": 0.1, "clipping_norm": 1.0}
SIX_DEFAULT = {**SGD_DEFAULT, "hidden": 32, "spread": 1.0, "decay": 1.0, "shrinkage": 0.0}

PROBLEMS = {
    "network": Problem(two(0.01, 10.0), SGD_DEFAULT, with_engine("sgd", 32)),
    "six hyperparameters": Problem(six, SIX_DEFAULT, with_engine("sgd", 32)),
    "Adam": Problem(
        two(1e-4, 1.0),
        {"learning_rate": 0.001, "clipping_norm": 1.0},
        with_engine("adam", 0),
        scaled=False,
    ),
    "Opacus": Problem(two(0.01, 10.0), SGD_DEFAULT, with_opacus),
}
