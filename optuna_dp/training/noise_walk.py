"""What the noise of a private training alone does to one weight.

Gradients of noise do not depend on the weights, and the optimizers that have a name treat each
weight by itself. So some numbers of noise stand for all weights of a model, however large it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optuna_dp.training.learner import Weights, take_steps
from optuna_dp.training.optimizers import ArrayOptimizer, OptimizerFactory
from optuna_dp.training.schedules import Schedule

_NUMBERS = 2000


@dataclass(frozen=True)
class NoiseWalk:
    """Where noise alone leaves a weight.

    Attributes:
        pull: What the first value is multiplied by; below one only with weight decay.
        deviation: Standard deviation of the noise that is added.
    """

    pull: float
    deviation: float


class _Numbers(Weights):
    """Numbers that an optimizer steps: half of them begin at zero, half at one."""

    weights = 2 * _NUMBERS

    def __init__(self) -> None:
        self._values = np.repeat([[0.0], [1.0]], _NUMBERS, axis=1)
        self._optimizer = ArrayOptimizer("sgd", self._values, 0.0)

    @property
    def sgd_momentum(self) -> float | None:
        return self._optimizer.sgd_momentum

    def begin(self, optimizer: str | OptimizerFactory, learning_rate: float) -> None:
        self._optimizer = ArrayOptimizer(optimizer, self._values, learning_rate)

    def step(self, gradient: list[Any], factor: float) -> None:
        self._optimizer.step(gradient[0], factor)

    def weight_values(self) -> list[Any]:
        return [self._values.copy()]

    def set_weights(self, values: list[Any]) -> None:
        self._values[...] = values[0]


def noise_walk(
    optimizer: str, learning_rate: float, deviation: float, steps: int, schedule: Schedule
) -> NoiseWalk:
    """Takes the steps of a training whose gradients are noise alone.

    Args:
        optimizer: Its name.
        learning_rate: The rate of the first step.
        deviation: Standard deviation of the noise of each gradient.
        steps: How many steps there are.
        schedule: How the rate falls, and which of the last weights are averaged.
    """
    rng = np.random.default_rng(0)
    numbers = _Numbers()
    numbers.begin(optimizer, learning_rate)

    def gradient(step: int) -> list[Any]:
        return [np.tile(rng.normal(0.0, deviation, _NUMBERS), (2, 1))]

    with np.errstate(over="ignore", invalid="ignore"):
        take_steps(numbers, gradient, steps, schedule)
        from_zero, from_one = numbers.weight_values()[0]
        return NoiseWalk(
            float(np.mean(from_one - from_zero)), float(np.sqrt(np.mean(from_zero**2)))
        )
