"""Optimizers of a private training: by name, or made by a function of the user's own.

An optimizer sees noisy gradients only, so any of them is as private as any other. It must step the
weights that are trained, all of them and nothing else: a step on a weight without noise would not
be private.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.training.learning_rate import OPTIMIZERS, check_optimizer

if TYPE_CHECKING:
    import torch

# From the weights and the rate of the first step to an optimizer.
OptimizerFactory: TypeAlias = Callable[
    [list["torch.nn.Parameter"], float], "torch.optim.Optimizer"
]
_MOMENTUM, _BETAS, _EPSILON = 0.9, (0.9, 0.999), 1e-8
_ADAMW_DECAY = 0.01


# Where the rate of the first step came from, as trials and statements say it.
GIVEN, REHEARSED = "given", "rehearsed"
_OWN_OPTIMIZER = "function"
OPTIMIZER_NAMES = (*OPTIMIZERS, _OWN_OPTIMIZER)


def optimizer_name(optimizer: str | OptimizerFactory) -> str:
    """Returns what trials and statements call an optimizer."""
    return optimizer if isinstance(optimizer, str) else _OWN_OPTIMIZER


def torch_optimizer(
    optimizer: str | OptimizerFactory, weights: list[torch.nn.Parameter], learning_rate: float
) -> torch.optim.Optimizer:
    """Returns an optimizer of PyTorch's for some weights.

    Args:
        optimizer: A name, or a function from the weights and the rate to an optimizer.
        weights: The weights that are trained.
        learning_rate: The rate of the first step.

    Raises:
        InvalidArgumentError: If it is no optimizer, does not hold these weights, each once, or
            wants to compute losses by itself.
    """
    import torch  # An extra.

    if isinstance(optimizer, str):
        check_optimizer(optimizer)
        if optimizer in ("sgd", "momentum"):
            momentum = _MOMENTUM if optimizer == "momentum" else 0.0
            return torch.optim.SGD(weights, lr=learning_rate, momentum=momentum)
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.AdamW
        return kind(weights, lr=learning_rate)
    if not callable(optimizer) or isinstance(optimizer, torch.optim.Optimizer | type):
        raise InvalidArgumentError(
            "optimizer",
            Text(
                f"the class {optimizer.__name__}"
                if isinstance(optimizer, type)
                else f"a value of type {type(optimizer).__name__}"
            ),
            allowed=f"it must be one of {', '.join(map(repr, OPTIMIZERS))}, or a function that "
            "makes an optimizer",
            fix="For example optimizer='adam', or optimizer=lambda parameters, learning_rate: "
            "torch.optim.RMSprop(parameters, lr=learning_rate).",
        )
    built = optimizer(list(weights), learning_rate)
    name = type(built).__name__
    if not isinstance(built, torch.optim.Optimizer):
        raise InvalidArgumentError(
            "optimizer", name, allowed="the function must return one of torch.optim's optimizers"
        )
    closure = inspect.signature(type(built).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise InvalidArgumentError(
            "optimizer",
            name,
            problem="it computes losses by itself, without noise",
            fix="Take one whose step() needs no closure, such as SGD or Adam.",
        )
    weight_ids = [id(weight) for group in built.param_groups for weight in group["params"]]
    if sorted(weight_ids) != sorted(map(id, weights)):
        raise InvalidArgumentError(
            "optimizer",
            name,
            allowed="it must hold the parameters that are trained (those that require a "
            "gradient), each once, and no others",
            fix="Make it of the parameters that the function is given.",
        )
    return built


class ArrayOptimizer:
    """An optimizer of one numpy array, with PyTorch's rules and defaults.

    Args:
        name: "sgd", "momentum", "adam" or "adamw"; anything else is refused.
        weights: The array, changed in place.
        learning_rate: The rate of the first step.
    """

    def __init__(
        self, name: str | OptimizerFactory, weights: FloatArray, learning_rate: float
    ) -> None:
        check_optimizer(name)
        self._name, self._weights, self._rate = str(name), weights, learning_rate
        self._velocity, self._square = np.zeros_like(weights), np.zeros_like(weights)
        self._steps = 0

    @property
    def sgd_momentum(self) -> float | None:
        """The momentum of SGD; None for other optimizers."""
        return {"sgd": 0.0, "momentum": _MOMENTUM}.get(self._name)

    def step(self, gradient: FloatArray, factor: float) -> None:
        """Takes a step.

        Args:
            gradient: The noisy gradient, of the weights' shape.
            factor: What the rate is multiplied by.
        """
        self._steps += 1
        rate = self._rate * factor
        if self._name in ("sgd", "momentum"):
            momentum = _MOMENTUM if self._name == "momentum" else 0.0
            self._velocity *= momentum
            self._velocity += gradient
            self._weights -= rate * self._velocity
            return
        if self._name == "adamw":
            self._weights *= 1.0 - rate * _ADAMW_DECAY
        for average, value, beta in zip(
            (self._velocity, self._square), (gradient, gradient * gradient), _BETAS, strict=True
        ):
            average *= beta
            average += (1.0 - beta) * value
        mean_correction, square_correction = (1.0 - beta**self._steps for beta in _BETAS)
        root = np.sqrt(self._square / square_correction) + _EPSILON
        self._weights -= rate * (self._velocity / mean_correction) / root
