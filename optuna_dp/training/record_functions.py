"""Functions of one record: losses and scores as the user gives them, made to see one record only.

``torch.func.vmap`` computes such a function for many records at once. Inside of it a tensor holds
one record, whatever the batch is: no other record exists in its scope. What vmap cannot take is
computed for one record after another (:func:`of_one`): recurrent layers other than LSTM,
models that look at numbers in Python, sparse gradients, gradient checkpointing.

A function is called with weights and buffers that are handed in, so nothing that a model writes
into them outlives the call.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from optuna_dp.errors import InvalidArgumentError, Text, type_of
from optuna_dp.training.record_arrays import Part, Parts, mapped

# From a model and the parts of one record to one number.
RecordFunction = Callable[..., torch.Tensor]
# What a model returns: mostly a tensor; some return a tuple, or an object with logits.
Output: TypeAlias = Any
# From a model's output and a target to one number.
PairLoss: TypeAlias = Callable[[Output, Part], torch.Tensor]
Tensors = Mapping[str, torch.Tensor]
# One tensor; of gradients a tensor for each weight, by name.
Results: TypeAlias = Any
# From weights, buffers and the parts of records to each record's own result.
OfRecords = Callable[..., Results]


def loss_of_pair(loss: PairLoss) -> RecordFunction:
    """Returns the loss of one record that is an input and a target.

    The model and the loss are called with a batch axis of length 1, as PyTorch's models and losses
    expect. A loss of PyTorch's own gets an output with as many numbers as the target in the shape
    of the target: otherwise it would compare each output with each target. A loss of the user's
    own gets it as the model returns it, because it may take an axis away by itself.
    """
    shaped = _in_shape_of if _is_of_torch(loss) else lambda targets, output: output

    def of_record(model: torch.nn.Module, *record: Part) -> torch.Tensor:
        features, target = pair_of(record)
        output = called(model, mapped(with_batch_axis, features))
        targets = mapped(with_batch_axis, target)
        try:
            return loss(shaped(targets, output), targets)
        except (TypeError, AttributeError) as error:
            if isinstance(output, torch.Tensor):
                raise
            raise InvalidArgumentError(
                "loss",
                Text(f"a loss of a model that returns a {type(output).__name__}"),
                problem=f"the loss failed on it: {error}",
                fix="Take the tensor out of it: loss=lambda output, target: "
                "torch.nn.functional.cross_entropy(output[0], target), or output.logits.",
            ) from error

    return of_record


def called(model: torch.nn.Module, features: Part) -> Output:
    """Returns a model's output for features, each of several an argument if it takes them so."""
    if takes_apart(model, features):
        return model(**features) if isinstance(features, Mapping) else model(*features)
    return model(features)


def takes_apart(model: torch.nn.Module, features: Part) -> bool:
    """Returns whether several features are arguments of their own to a model.

    A mapping's are if its keys are names of arguments; a tuple's if the model takes so many.
    """
    if not isinstance(features, Mapping | tuple):
        return False
    arguments = inspect.signature(model.forward).parameters
    if isinstance(features, Mapping):
        return set(features) <= set(arguments)
    kinds = [argument.kind for argument in arguments.values()]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes_any = inspect.Parameter.VAR_POSITIONAL in kinds
    return takes_any or sum(kind in by_place for kind in kinds) >= len(features)


def closeness_of_pair(model: torch.nn.Module, *record: Part) -> torch.Tensor:
    """Returns one minus the distance of a prediction and a target, in units of the target's range.

    Targets lie between -1 and 1, so the range has length 2.
    """
    features, target = pair_of(record)
    output = called(model, mapped(with_batch_axis, features))
    prediction = getattr(output, "logits", output)
    if not isinstance(prediction, torch.Tensor) or prediction.numel() != target.numel():
        raise InvalidArgumentError(
            "score",
            "closeness",
            allowed="the model must have one output for a target that is a number",
            fix="Give its last layer schema.outputs outputs.",
        )
    distance: torch.Tensor = (prediction.reshape(target.shape) - target).abs().mean()
    return 1.0 - distance / 2.0


def usual_loss(task: str | None) -> PairLoss:
    """Returns the usual loss for a target: "classes" or a "number"."""
    functional = torch.nn.functional
    return functional.cross_entropy if task == "classes" else functional.mse_loss


def pair_of(record: Parts) -> tuple[Part, Part]:
    """Returns the input and the target of a record, or refuses what is no such pair."""
    if len(record) != 2:
        raise InvalidArgumentError(
            "records",
            Text(f"records with {len(record)} part(s)"),
            problem="for loss= a record is an input and a target",
            fix="Give records=(x, y). Several inputs are one part: records=((a, b), y). For other "
            "records give record_loss=lambda model, *record: ... in place of loss.",
        )
    features, target = record
    if isinstance(features, torch.Tensor) and features.ndim == 0 and features.is_floating_point():
        raise InvalidArgumentError(
            "records",
            Text("inputs of shape (n,)"),
            problem="a model gets the features of a record along an axis of their own",
            fix="Write x[:, None] for records of a single feature.",
        )
    return features, target


class Scope(torch.nn.Module):
    """A model and a function of it and one record, to be called with other weights.

    Args:
        model: The model.
        function: The function.
        argument: The argument that it was given as.
    """

    def __init__(self, model: torch.nn.Module, function: RecordFunction, argument: str) -> None:
        super().__init__()
        self.model = model
        self.function = function
        self.argument = argument

    def forward(self, *record: Part) -> torch.Tensor:
        """Returns the function's number of one record, as a tensor without axes."""
        buffers = dict(self.model.named_buffers())
        number = self.function(self.model, *record)
        for name, buffer in self.model.named_buffers():
            if buffer is not buffers.get(name):
                raise running_statistics(self.model, name)
        if not isinstance(number, torch.Tensor) or number.numel() != 1:
            # Its type or shape: the number itself is made of a record.
            shape = tuple(number.shape) if isinstance(number, torch.Tensor) else None
            raise InvalidArgumentError(
                self.argument,
                type_of(number) if shape is None else Text(f"tensor of shape {shape}"),
                allowed="a loss or a score of one record must be a tensor with one number",
                fix="Take the mean or the sum over the record's own parts.",
            )
        if number.is_complex():
            raise InvalidArgumentError(
                self.argument,
                Text("a complex number"),
                allowed="a loss or a score must be a real number",
            )
        return number.reshape(())

    def with_tensors(self, weights: Tensors, buffers: Tensors, record: Parts) -> torch.Tensor:
        """Returns the number of one record with these weights and buffers in the model."""
        named = {f"model.{name}": tensor for name, tensor in {**buffers, **weights}.items()}
        # Tied weights have one name, and the tie is kept.
        number: torch.Tensor = torch.func.functional_call(self, named, record, tie_weights=True)
        return number


def at_once(scope: Scope, *, gradients: bool, draws: str = "different") -> OfRecords:
    """Returns what computes many records at once, each in a scope of its own.

    Args:
        scope: The function of one record.
        gradients: Whether each record's gradient is computed (of the weights, by name), or each
            record's number.
        draws: Whether the records' draws are "different" or the "same".
    """

    def of_record(weights: Tensors, buffers: Tensors, *record: Part) -> torch.Tensor:
        return scope.with_tensors(weights, buffers, record)

    def number_of_record(weights: Tensors, buffers: Tensors, *record: Part) -> torch.Tensor:
        # Within a transform that differentiates: vmap alone cannot take nn.LSTM.
        number: torch.Tensor = torch.func.vjp(
            lambda values: _as_float(of_record(values, buffers, *record)), dict(weights)
        )[0]
        return number

    return vmapped(torch.func.grad(of_record) if gradients else number_of_record, draws)


def vmapped(of_record: OfRecords, draws: str) -> OfRecords:
    """Returns a function of weights, buffers and one record as one of many records.

    Args:
        of_record: The function.
        draws: Whether the records' draws are "different" or the "same".
    """

    def of_records(weights: Tensors, buffers: Tensors, *records: Part) -> Results:
        axes = (None, None, *(0 for _ in records))
        with _without_fast_path(), warnings.catch_warnings():
            # PyTorch's own advice for its developers, where it takes records one after another.
            warnings.filterwarnings("ignore", "There is a performance drop")
            return torch.func.vmap(of_record, in_dims=axes, randomness=draws)(
                weights, buffers, *records
            )

    return of_records


def of_one(scope: Scope, *, gradients: bool) -> OfRecords:
    """Returns what computes a single record by itself, without vmap; see :func:`at_once`."""

    def of_record(weights: Tensors, buffers: Tensors, *record: Part) -> Results:
        if not gradients:
            return _as_float(scope.with_tensors(weights, buffers, record))
        leaves, number = _with_graph(scope, weights, buffers, record)
        if not number.requires_grad:  # It depends on no trained weight.
            return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        values = torch.autograd.grad(
            number, list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        return {
            name: value.to_dense() if value.is_sparse else value
            for name, value in zip(leaves, values, strict=True)
        }

    return of_record


def depends_on_weights(scope: Scope, weights: Tensors, buffers: Tensors, record: Parts) -> bool:
    """Returns whether PyTorch knows a path from the weights to the result for this record."""
    return _with_graph(scope, weights, buffers, record)[1].requires_grad


def _with_graph(
    scope: Scope, weights: Tensors, buffers: Tensors, record: Parts
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
    with torch.enable_grad():
        return leaves, scope.with_tensors(leaves, buffers, record)


class OwnTables(TorchFunctionMode):
    """Raises an error where a function looks up in a table of the record's own.

    ``torch.func.vmap`` looks up in all records' tables at once, put below each other. An index
    that is negative or too large would find a row of another record, and raise no error.
    """

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        keywords = kwargs or {}
        if function in (torch.nn.functional.embedding, torch.embedding):
            place = 0 if function is torch.embedding else 1
            table = keywords["weight"] if "weight" in keywords else args[place]
            if _is_of_each_record(table):
                raise RuntimeError("it looks up in a table that is made of the record")
        return function(*args, **keywords)


def _is_of_each_record(tensor: torch.Tensor) -> bool:
    """Returns whether every record has a tensor of its own in place of this one."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def _as_float(number: torch.Tensor) -> torch.Tensor:
    """Returns a truth value or a whole number as a float, which derivatives need."""
    return number if number.is_floating_point() else number.double()


def with_batch_axis(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a part of one record as a batch of length 1."""
    return tensor.unsqueeze(0)


def _is_of_torch(loss: object) -> bool:
    """Returns whether a loss is a function or a module of PyTorch, or one with arguments set."""
    function = loss.func if isinstance(loss, partial) else loss
    owner = type(function) if isinstance(function, torch.nn.Module) else function
    return str(getattr(owner, "__module__", "")).split(".")[0] == "torch"


def _in_shape_of(targets: Part, output: Output) -> Output:
    """Returns an output in its targets' shape, if they differ by axes of length 1 only."""
    if not isinstance(output, torch.Tensor) or not isinstance(targets, torch.Tensor):
        return output
    lengths, wanted = ([n for n in value.shape if n != 1] for value in (output, targets))
    is_one_more = output.ndim == targets.ndim + 1
    if lengths != wanted or not (is_one_more or output.numel() == 1):
        return output
    return output.reshape(targets.shape)


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Switches PyTorch's fast path of transformers in evaluation mode off: vmap cannot take it.

    PyTorch has one switch for all threads. Trainings take turns at computing (:class:`Draws`), so
    none of them finds it on.
    """
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)


def running_statistics(model: torch.nn.Module, name: str) -> InvalidArgumentError:
    """Returns the error for a model that keeps something of the records in a buffer."""
    owner = model.get_submodule(name.rpartition(".")[0])
    of_torch = _is_of_torch(owner)
    return InvalidArgumentError(
        "model",
        model,
        problem=f"it changes its buffer {name!r} while it is called, as running statistics do, "
        "and the new value would hold records without noise",
        fix=REMEDY_FOR_STATISTICS
        if of_torch
        else "Leave that out, or give the buffer a public value before the training and keep it.",
    )


def translated(error: Exception, argument: str) -> InvalidArgumentError:
    """Returns an error of a function of one record with what to do about it.

    Args:
        error: What PyTorch raised when it was computed on a made-up record.
        argument: The argument that the function was given as.
    """
    if isinstance(error, InvalidArgumentError):
        return error
    text = str(error)
    for parts, about, problem, remedy in _TRANSLATIONS:
        if any(part in text for part in parts):
            return InvalidArgumentError(about or argument, _APPLIED, problem=problem, fix=remedy)
    return InvalidArgumentError(
        argument,
        _APPLIED,
        problem=f"it failed on a made-up record: {type(error).__name__}: {text}",
        fix="loss(output, target) and the model are called with a batch axis of length 1, "
        "record_loss(model, *record) and record_score(model, *record) with one record without a "
        "batch axis.",
    )


# Stands for the value in messages.
_APPLIED = Text("applied to one record")
REMEDY_FOR_STATISTICS = (
    "Take GroupNorm or LayerNorm in place of BatchNorm, or keep the statistics fixed: call "
    ".eval() on that part of the model. InstanceNorm: track_running_stats=False."
)
# Parts of PyTorch's messages, the argument at fault (None: the function's own), what is wrong, and
# the remedy.
_TRANSLATIONS: tuple[tuple[tuple[str, ...], str | None, str, str], ...] = (
    (
        ("Expected more than 1 value",),
        "model",
        "it needs several records at once, as BatchNorm in training mode does",
        REMEDY_FOR_STATISTICS,
    ),
    (
        ("to have the same dtype", "must have the same dtype", "Input type"),
        "records",
        "their numbers have another precision than the model's weights",
        "Convert one of them: x.to(torch.float64) or model.float(), for example.",
    ),
    (
        (
            "Expected dtype int32/int64 for index",
            "Expected tensor for argument #1 'indices'",
            "expected target dtype to be",
            "expected scalar type Long",
        ),
        "records",
        "labels and tokens must be whole numbers, of int64",
        "Convert them: y.long(), or y.astype('int64').",
    ),
    (
        ("for target with class probabilities",),
        "model",
        "a record has as many outputs as targets, so cross entropy takes the targets for shares "
        "of classes, and whole numbers are none",
        "A model with one output: let its last layer end with schema.outputs, or 2 of two "
        "classes. Or give loss=torch.nn.functional.binary_cross_entropy_with_logits, and targets "
        "that are floats. One-hot targets: give the class instead, y.argmax(1).",
    ),
    (
        ("multi-target not supported",),
        "records",
        "the target of a record has an axis, and cross entropy needs the number of its class",
        "Take the axis away: y[:, 0]. One-hot targets: y.argmax(1).",
    ),
    (
        ("same device", "different devices"),
        "device",
        "a tensor that is no parameter or buffer of the model stays on another device",
        "Register it as a buffer, or give device='cpu'.",
    ),
)
