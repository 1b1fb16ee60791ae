"""A private training's own copy of a PyTorch module, with the optimizer that steps its weights.

A training works on a copy. So nothing that the module, its hooks or a script keep while it
computes leaves the training: only noisy weights do (:meth:`OwnModel.hand_over`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch.nn.modules.batchnorm import _NormBase

from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.training.learner import Rehearsable
from optuna_dp.training.noise_paths import sequence_layers
from optuna_dp.training.optimizers import OptimizerFactory, torch_optimizer
from optuna_dp.training.record_arrays import Array, Part, leaves, mapped, some_rows
from optuna_dp.training.record_functions import REMEDY_FOR_STATISTICS

_WRAPPERS = ("opacus", "torch.nn.parallel", "torch.distributed")
# Of a model's outputs, such as those at all tokens of all texts: enough to know their deviation.
_ROWS_LOOKED_AT = 512
# Of the inputs whose way through the model is followed; it is the same for all.
_ROWS_FOLLOWED = 2


@contextmanager
def without_cached_casts() -> Iterator[None]:
    """Lets an autocast around a training cast weights anew in each call, as they change."""
    is_enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(is_enabled)


class OwnModel(Rehearsable):
    """The parameters of a module that require a gradient, in a copy; see :class:`Rehearsable`.

    Args:
        model: The user's module. It is not changed before :meth:`hand_over`.
        device: Where to train; None for where the module is.
        shared: What the module may hold and need not be copied, such as a table.
        has_logits: Whether its outputs are known to be logits; see :class:`Rehearsable`.

    Attributes:
        user_parts: The user's parameters that are trained.
        device: Where the copy is.
        names: The names of the trained parameters.
        buffers: The buffers of the copy, by name.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.types.Device = None,
        shared: Iterable[object] = (),
        *,
        has_logits: bool = False,
    ) -> None:
        _check_model(model)
        self.has_logits = has_logits
        by_name = trained_parameters(model)
        self._user_model = model
        self.names, self.user_parts = list(by_name), list(by_name.values())
        home = self.user_parts[0].device
        self.device = home if device is None else _checked_device(device)
        self._module = _copied(model, shared, is_moved=self.device != home)
        if self.device != home:
            _move(self._module, self.device)
        own_by_name = dict(self._module.named_parameters())
        self._trained = [own_by_name[name] for name in self.names]
        self.buffers = dict(self._module.named_buffers())
        self.weights = sum(weight.numel() for weight in self._trained)
        self._optimizer: torch.optim.Optimizer | None = None
        self._rates: list[float] = []

    def begin(self, optimizer: str | OptimizerFactory, learning_rate: float) -> None:
        # A step without a gradient, to see that it works; it may decay weights.
        trial_optimizer = torch_optimizer(optimizer, self._trained, learning_rate)
        beginning = [weight.detach().clone() for weight in self._trained]
        try:
            for weight in self._trained:
                weight.grad = torch.zeros_like(weight)
            trial_optimizer.step()
        except Exception as error:
            raise InvalidArgumentError(
                "optimizer",
                trial_optimizer,
                problem=f"it failed at a step without a gradient: {type(error).__name__}: {error}",
            ) from error
        finally:
            self.set_weights(beginning)
        self._optimizer = torch_optimizer(optimizer, self._trained, learning_rate)
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    def step(self, gradient: list[torch.Tensor], factor: float) -> None:
        assert self._optimizer is not None
        for weight, vector in zip(self._trained, gradient, strict=True):
            weight.grad = vector.to(weight.dtype).reshape(weight.shape)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.step()

    def weight_values(self) -> list[torch.Tensor]:
        return [weight.detach().to(torch.float64, copy=True) for weight in self._trained]

    def set_weights(self, values: list[torch.Tensor]) -> None:
        with torch.no_grad():
            for weight, value in zip(self._trained, values, strict=True):
                weight.copy_(value)

    @property
    def sgd_momentum(self) -> float | None:
        if not isinstance(self._optimizer, torch.optim.SGD):
            return None
        return float(max(group["momentum"] for group in self._optimizer.param_groups))

    def noise(self, draw: int) -> Callable[[float], list[torch.Tensor]]:
        generator = torch.Generator(self.device).manual_seed(draw)

        def gradient(deviation: float) -> list[torch.Tensor]:
            return [
                torch.empty(
                    weight.numel(),
                    dtype=torch.promote_types(weight.dtype, torch.float32),
                    device=self.device,
                ).normal_(0.0, deviation, generator=generator)
                for weight in self._trained
            ]

        return gradient

    @without_cached_casts()
    def outputs(self, inputs: Part) -> FloatArray:
        parts = self.on_device(self.as_called(inputs))
        with torch.no_grad():
            output = self._output(parts)
        if not isinstance(output, torch.Tensor):
            raise InvalidArgumentError(
                "learning_rate",
                None,
                problem=f"no rate is known for a model that returns a {type(output).__name__}, "
                "because its logits are not known",
                fix="Give learning_rate=, the rate of the first step. Or let the model return "
                "logits alone.",
            )
        if output.ndim == 1 and len(output) == len(leaves(parts)[0]):
            output = output[:, None]  # One number for each input.
        if output.ndim < 2:
            return np.asarray(output.double().cpu().numpy())
        rows = output.flatten(0, -2)
        rows = rows[:: -(-len(rows) // _ROWS_LOOKED_AT)]
        return np.asarray(rows.double().cpu().numpy())

    def all_numbers(self) -> list[torch.Tensor]:
        return [*self._module.parameters(), *self._module.buffers()]

    @without_cached_casts()
    def sequence_layers(self, inputs: Part) -> set[str]:
        parts = self.on_device(self.as_called(some_rows(inputs, _ROWS_FOLLOWED)))
        with torch.enable_grad(), _not_compiled():
            output = self._output(parts)
        return sequence_layers(output) if isinstance(output, torch.Tensor) else set()

    def as_called(self, inputs: Part) -> Part:
        """Returns inputs in the way in which the module is called with them.

        Args:
            inputs: A tuple for several arguments, a mapping for arguments by name, or the only
                argument.
        """
        return inputs

    def _output(self, parts: Part) -> object:
        """Returns what the copy answers in evaluation mode, the logits if they have that name."""
        with self.evaluating(), torch.random.fork_rng(devices=[]):
            if isinstance(parts, Mapping):
                output = self._module(**parts)
            elif isinstance(parts, tuple | list):
                output = self._module(*parts)
            else:
                output = self._module(parts)
        return getattr(output, "logits", output)

    def hand_over(self) -> None:
        with torch.no_grad():
            for part, weight in zip(self.user_parts, self._trained, strict=True):
                part.copy_(weight)
            for name, buffer in self._user_model.named_buffers():
                if not torch.equal(buffer, self.buffers[name].to(buffer.device)):
                    buffer.copy_(self.buffers[name])
        self._user_model.eval()

    def copied_weights(self) -> dict[str, torch.Tensor]:
        """Returns copies of the trained weights, by name."""
        return {n: w.detach().clone() for n, w in zip(self.names, self._trained, strict=True)}

    def copied_buffers(self) -> dict[str, torch.Tensor]:
        """Returns copies of the buffers, which a call may change."""
        return {name: buffer.clone() for name, buffer in self.buffers.items()}

    def on_device(self, arrays: Part) -> Part:
        """Returns arrays as tensors where the model is, floating-point numbers in its precision.

        Args:
            arrays: An array or a tensor, or a tuple or mapping of these.
        """
        precision = self._trained[0].dtype

        def moved(array: Array) -> torch.Tensor:
            # A script may have set another device for what is made without one.
            tensor = torch.as_tensor(array, device=self.device).detach()
            dtype = precision if tensor.is_floating_point() else tensor.dtype
            return tensor.to(dtype)

        return mapped(moved, arrays)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Puts the copy into evaluation mode for a while, and each part back into its own."""
        modes = [(part, part.training) for part in self._module.modules()]
        self._module.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode


def _not_compiled() -> AbstractContextManager[object]:
    """Lets a compiled module run as it was written, so that its operations are seen."""
    set_stance = getattr(torch.compiler, "set_stance", None)  # From PyTorch 2.6 on.
    return nullcontext() if set_stance is None else set_stance("force_eager")


def _copied(
    model: torch.nn.Module, shared: Iterable[object], *, is_moved: bool
) -> torch.nn.Module:
    """Returns a copy of a module; frozen parameters are shared if it stays on its device."""
    kept = [] if is_moved else [p for p in model.parameters() if not p.requires_grad]
    memo = {id(value): value for value in [*kept, *shared]}
    for part in model.modules():
        for value in vars(part).values():
            # What an earlier call has computed: PyTorch does not copy it.
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise InvalidArgumentError(
            "model",
            model,
            problem=f"it is trained in a copy, and it cannot be copied: {type(error).__name__}: "
            f"{error}",
            fix="Take out of the model what copy.deepcopy cannot copy, such as an open file, a "
            "lock or a generator.",
        ) from error


def _checked_device(device: torch.device | str | int) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(
            "device", device, problem=f"PyTorch does not know it: {error}"
        ) from error


def _move(module: torch.nn.Module, device: torch.device) -> None:
    try:
        module.to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidArgumentError(
            "device", str(device), problem=f"PyTorch cannot train there: {error}"
        ) from error


def _check_model(model: torch.nn.Module) -> None:
    if type(model).__module__.startswith(_WRAPPERS):
        raise InvalidArgumentError(
            "model",
            model,
            allowed="it must be the plain module: odp.train computes each record's gradient by "
            "itself",
            fix="Pass the module that was wrapped.",
        )
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise InvalidArgumentError(
                "model",
                model,
                problem=f"its part {name!r} was scripted or traced, so it cannot be copied",
                fix="Pass the module that was scripted or traced.",
            )
        if isinstance(part, _NormBase) and part.training and part.track_running_stats:
            raise InvalidArgumentError(
                "model",
                part,
                problem=f"its part {name!r} keeps running statistics of the records without noise",
                fix=REMEDY_FOR_STATISTICS,
            )


def trained_parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Returns the parameters that require a gradient, tied ones once, by name.

    Args:
        model: The module.

    Raises:
        InvalidArgumentError: If there are none, or one cannot be trained.
    """
    parameter_by_name = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in parameter_by_name.items():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise InvalidArgumentError(
                "model",
                Text(f"one whose parameter {name!r} has no shape yet"),
                allowed="a lazy module must know its shapes before the training",
                fix="Call the model once on zeros of a record's shape.",
            )
        if parameter.is_inference():
            raise InvalidArgumentError(
                "model",
                Text(f"one whose parameter {name!r} was made under torch.inference_mode()"),
                problem="such a parameter cannot be trained",
                fix="Make the model outside of it.",
            )
        if any(n > 1 and not s for n, s in zip(parameter.shape, parameter.stride(), strict=True)):
            raise InvalidArgumentError(
                "model",
                Text(f"one whose parameter {name!r} has several numbers in one place"),
                problem="a step could not move them one by one, after expand() for example",
                fix=f"Give it memory of its own: {name}.data = {name}.data.clone().",
            )
        if not parameter.is_floating_point():
            raise InvalidArgumentError(
                "model",
                Text(f"one whose parameter {name!r} is {parameter.dtype}"),
                allowed="trained parameters must be real floating-point numbers",
            )
    if not math.fsum(parameter.numel() for parameter in parameter_by_name.values()):
        raise InvalidArgumentError(
            "model",
            model,
            problem="none of its parameters requires a gradient, so there is nothing to train",
            fix="Call requires_grad_(True) on those that are to be trained.",
        )
    if len({parameter.device for parameter in parameter_by_name.values()}) > 1:
        raise InvalidArgumentError(
            "model", model, allowed="its trained parameters must be on one device"
        )
    return parameter_by_name
