"""The trained weights of a PyTorch module, and the optimizer that steps them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.training.gradient_norms import at_least_single
from optuna_dp.training.learner import Rehearsable
from optuna_dp.training.optimizers import OptimizerFactory, torch_optimizer
from optuna_dp.training.records import mapped

_WRAPPERS = ("opacus", "torch.nn.parallel", "torch.distributed")
# Of a model's outputs, such as those at all tokens of all texts: enough to know their deviation.
_ROWS_LOOKED_AT = 512
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TorchWeights(Rehearsable):
    """The parameters of a module that require a gradient; see :class:`Rehearsable`.

    Args:
        model: The module. Its parameters that require a gradient are trained, in place.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        _check_model(model)
        self._model = model
        self._names, self._trained = _trained_parameters(model)
        self.weights = sum(weight.numel() for weight in self._trained)
        self._optimizer: torch.optim.Optimizer | None = None
        self._rates: list[float] = []
        # Copies of the weights, as they were last left here.
        self._left = [weight.detach().clone() for weight in self._trained]

    def begin(self, optimizer: str | OptimizerFactory, learning_rate: float) -> None:
        self.check_left()
        # A step without a gradient, to see that it works; it may decay weights.
        trial_optimizer = torch_optimizer(optimizer, self._trained, learning_rate)
        weight_copies = [weight.detach().clone() for weight in self._trained]
        try:
            for weight in self._trained:
                weight.grad = torch.zeros_like(weight)
            trial_optimizer.step()
        except Exception as error:
            raise InvalidArgumentError(
                "optimizer",
                type(trial_optimizer).__name__,
                f"it failed at a step without a gradient: {type(error).__name__}: {error}",
            ) from error
        finally:
            self._assign(weight_copies)
            self._forget_gradients()
        self._optimizer = torch_optimizer(optimizer, self._trained, learning_rate)
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    def step(self, gradient: list[torch.Tensor], factor: float) -> None:
        assert self._optimizer is not None
        self.check_left()
        for weight, vector in zip(self._trained, gradient, strict=True):
            weight.grad = vector.to(weight.dtype).reshape(weight.shape)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.step()
        self._keep_left()

    def check_left(self) -> None:
        """Raises :class:`PlanError` if anything but a step has moved the weights."""
        for weight, left_weight in zip(self._trained, self._left, strict=True):
            if not torch.equal(_bits(weight), _bits(left_weight)):
                raise PlanError(
                    "Something has changed the trained weights between two steps, without noise: "
                    "a data set, a loss or another thread. Do not use this model or its score. "
                    "Only the training may change its weights."
                )

    def _keep_left(self) -> None:
        for weight, left_weight in zip(self._trained, self._left, strict=True):
            left_weight.copy_(weight.detach())

    def weight_values(self) -> list[torch.Tensor]:
        return [weight.detach().to(torch.float64, copy=True) for weight in self._trained]

    def set_weights(self, values: list[torch.Tensor]) -> None:
        self._assign(values)
        self._keep_left()

    def _assign(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for weight, value in zip(self._trained, values, strict=True):
                weight.copy_(value)

    def _forget_gradients(self) -> None:
        for weight in self._trained:
            weight.grad = None

    @property
    def sgd_momentum(self) -> float | None:
        if not isinstance(self._optimizer, torch.optim.SGD):
            return None
        return float(max(group["momentum"] for group in self._optimizer.param_groups))

    def noise(self, draw: int) -> Callable[[float], list[torch.Tensor]]:
        device = self._trained[0].device
        generator = torch.Generator(device).manual_seed(draw)

        def gradient(deviation: float) -> list[torch.Tensor]:
            return [
                torch.empty(
                    weight.numel(), dtype=at_least_single(weight.dtype), device=device
                ).normal_(0.0, deviation, generator=generator)
                for weight in self._trained
            ]

        return gradient

    def outputs(self, inputs: Any) -> FloatArray:
        parts = self.on_device(inputs)
        with torch.no_grad(), self._evaluating(), torch.random.fork_rng(devices=[]):
            if isinstance(parts, Mapping):
                output = self._model(**parts)
            elif isinstance(parts, tuple | list):
                output = self._model(*parts)
            else:
                output = self._model(parts)
        output = getattr(output, "logits", output)
        if not isinstance(output, torch.Tensor):
            raise TypeError(f"its output is a {type(output).__name__}, not a tensor of logits")
        if output.ndim < 2:
            return np.asarray(output.double().cpu().numpy())
        rows = output.flatten(0, -2)
        rows = rows[:: -(-len(rows) // _ROWS_LOOKED_AT)]
        return np.asarray(rows.double().cpu().numpy())

    def close(self) -> None:
        """Leaves the model as it was, but for its weights."""
        self._forget_gradients()
        renew_lists_of_weights(self._model)

    def on_device(self, arrays: Any) -> Any:
        """Returns arrays as tensors where the model is, doubles in its precision.

        Args:
            arrays: An array or a tensor, or a tuple or mapping of these.
        """
        trained = self._trained[0]

        def moved(array: Any) -> torch.Tensor:
            tensor = torch.as_tensor(array)
            precision = trained.dtype if tensor.dtype == torch.float64 else tensor.dtype
            return tensor.detach().to(trained.device, precision)

        return mapped(moved, arrays)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Puts the model into evaluation mode for a while, and each part back into its own."""
        modes = [(part, part.training) for part in self._model.modules()]
        self._model.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode


def _bits(weight: torch.Tensor) -> torch.Tensor:
    """Returns a weight's numbers as whole ones, so that what is no number equals itself."""
    return weight.detach().view(_WHOLE[weight.element_size()])


def renew_lists_of_weights(model: torch.nn.Module) -> None:
    """Makes the lists of weights that recurrent layers keep hold their parameters again.

    Such a layer puts whatever weights it is called with into its list, here those of a step.
    Setting a parameter renews the list.
    """
    for part in model.modules():
        if isinstance(part, torch.nn.RNNBase):
            for name, parameter in part.named_parameters(recurse=False):
                setattr(part, name, parameter)


def _check_model(model: Any) -> None:
    if type(model).__module__.startswith(_WRAPPERS):
        raise InvalidArgumentError(
            "model",
            type(model).__name__,
            "it must be the plain module: odp.train computes each record's gradient by itself",
            "Pass the module that was wrapped.",
        )


def _trained_parameters(
    model: torch.nn.Module,
) -> tuple[list[str], list[torch.nn.Parameter]]:
    """Returns the parameters that require a gradient, tied ones once, with their names."""
    parameter_by_name = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in parameter_by_name.items():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise InvalidArgumentError(
                "model",
                f"one whose parameter {name!r} has no shape yet",
                "a lazy module must know its shapes before the training",
                "Call the model once on zeros of a record's shape.",
            )
        if parameter.is_inference():
            raise InvalidArgumentError(
                "model",
                f"one whose parameter {name!r} was made under torch.inference_mode()",
                "such a parameter cannot be trained",
                "Make the model outside of it.",
            )
        if any(
            n > 1 and not stride
            for n, stride in zip(parameter.shape, parameter.stride(), strict=True)
        ):
            raise InvalidArgumentError(
                "model",
                f"one whose parameter {name!r} has several numbers in one place",
                "a step could not move them one by one, after expand() for example",
                f"Give it memory of its own: {name}.data = {name}.data.clone().",
            )
        if not parameter.is_floating_point():
            raise InvalidArgumentError(
                "model",
                f"one whose parameter {name!r} is {parameter.dtype}",
                "trained parameters must be real floating-point numbers",
            )
    if not math.fsum(parameter.numel() for parameter in parameter_by_name.values()):
        raise InvalidArgumentError(
            "model",
            type(model).__name__,
            "none of its parameters requires a gradient, so there is nothing to train",
            "Call requires_grad_(True) on those that are to be trained.",
        )
    if len({parameter.device for parameter in parameter_by_name.values()}) > 1:
        raise InvalidArgumentError(
            "model", type(model).__name__, "its trained parameters must be on one device"
        )
    return list(parameter_by_name), list(parameter_by_name.values())
