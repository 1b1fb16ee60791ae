"""Trainings of PyTorch models by ``odp.train``, for tasks of the comparison.

Rate, schedule and averaging are what ``odp.train`` takes by itself. The optimizer is Adam for last
layers too, as the stored landscapes were made. A rate for Adam depends on the model and the number
of steps, and on no record, so each is rehearsed once.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import torch
from task import Array, Params, Predict, Train
from torch import nn

import optuna_dp as odp
from optuna_dp.runs.run import Run

# Records whose logits are computed at a time.
CHUNK = 1000
optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Architecture:
    """A kind of model.

    Attributes:
        model: Makes one, from torch's seed.
        made_up_inputs: Inputs of the public schema, as the model takes them.
        inputs: A public map from records to what the model takes, each record by itself.
    """

    model: Callable[[], nn.Module]
    made_up_inputs: Callable[[], Any]
    inputs: Callable[[Array], Array] = lambda x: x


def started(noise_multiplier: float, steps: int, batch: float, records: int) -> Run:
    """A run with these numbers that a trial has started, as ``odp.train`` asks for.

    Nothing is released, so the number of runs of its study does not matter.
    """
    plan = odp.RunPlan(
        records=records,
        batch_size=batch,
        steps=steps,
        noise_multiplier=noise_multiplier,
        score=None,
    )
    sampler = odp.RandTuneSampler(trials=odp.Poisson(mean=2000.0), run=plan)
    return odp.start_run(optuna.create_study(direction="maximize", sampler=sampler).ask())


def trained_by_train(architecture_of: Callable[[Params], Architecture], records: int) -> Train:
    """Returns the training of a task.

    Args:
        architecture_of: The model of a configuration.
        records: The public number of records.
    """

    @functools.cache
    def architecture(configuration: str) -> Architecture:
        return architecture_of(json.loads(configuration))

    @functools.cache
    def learning_rate(configuration: str, steps: int, batch: float) -> float:
        torch.manual_seed(0)
        kind = architecture(configuration)
        return float(
            odp.rehearse_module(
                started(1.0, steps, batch, records), kind.model(), kind.made_up_inputs()
            ).learning_rate
        )

    def train(x: Array, y: Array, params: Params, run: Run, rng: np.random.Generator) -> Predict:
        configuration = json.dumps(params, sort_keys=True)
        kind = architecture(configuration)
        assert run.batch_size is not None
        # Adam's rate does not depend on the noise.
        rate = learning_rate(configuration, run.steps, run.batch_size)
        torch.manual_seed(int(rng.integers(2**31)))
        model = kind.model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the study that is never released
            odp.train(
                started(run.noise_multiplier, run.steps, run.batch_size, records),
                model,
                (torch.as_tensor(kind.inputs(x)), torch.as_tensor(y)),
                loss=nn.functional.cross_entropy,
                optimizer="adam",
                learning_rate=rate,
                score=None,
            )

        def predict(at: Array) -> Array:
            with torch.no_grad():
                inputs = torch.as_tensor(kind.inputs(at))
                return torch.cat([model(part) for part in inputs.split(CHUNK)]).numpy()

        model.eval()
        return predict

    return train
