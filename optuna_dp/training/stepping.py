"""The steps of a training, the same for a private one and for one on noise alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optuna_dp.training.learner import Weights
from optuna_dp.training.schedules import Schedule


def take_steps(
    weights: Weights,
    gradient: Callable[[int], list[Any]],
    steps: int,
    schedule: Schedule,
) -> None:
    """Takes all steps of a training, and leaves the average of the last weights if asked to.

    Args:
        weights: What is trained; its optimizer has been made.
        gradient: From the number of a step, from 0, to its noisy gradient.
        steps: How many steps there are.
        schedule: How the rate falls, and which of the last weights are averaged.
    """
    averaged_steps = schedule.averaged_steps(steps)
    averages: list[Any] = []
    for step in range(steps):
        weights.step(gradient(step), schedule.factor(step, steps))
        averaged = step - (steps - averaged_steps) + 1
        if averaged == 1:
            averages = weights.weight_values()
        elif averaged > 1:
            for average, value in zip(averages, weights.weight_values(), strict=True):
                average += (value - average) / averaged
    if averages:
        weights.set_weights(averages)
