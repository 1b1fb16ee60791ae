"""Functions of one record: losses and scores as the user gives them, made to see one record only.

``torch.func.vmap`` computes such a function for many records at once. Inside of it a tensor holds
one record, whatever the batch is: no companion exists in its scope. What cannot be computed for a
record alone, such as the statistics of BatchNorm, is an error of PyTorch's, and translated here
into what to do about it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from optuna_dp.errors import Described, InvalidArgumentError
from optuna_dp.training.records import mapped

# From a model and the parts of one record to one number.
RecordFunction = Callable[..., torch.Tensor]
# How many threads compute functions of one record, and what the switch was before the first.
_switching = threading.Lock()
_computing, _fast_path = 0, True


def loss_of_pair(loss: Callable[[Any, torch.Tensor], torch.Tensor]) -> RecordFunction:
    """Returns the loss of one record that is an input and a target.

    The model and the loss are called with a batch axis of length 1, as PyTorch's models and losses
    expect.
    """

    def of_record(model: torch.nn.Module, *record: Any) -> torch.Tensor:
        if len(record) != 2:
            raise InvalidArgumentError(
                "records",
                Described(f"records with {len(record)} part(s)"),
                "for loss= a record is an input and a target",
                "Give records=(x, y). For other records give record_loss=lambda model, *record: "
                "... in place of loss.",
            )
        features, target = record
        return loss(model(mapped(_with_batch_axis, features)), _with_batch_axis(target))

    return of_record


def accuracy_of_pair(model: torch.nn.Module, features: Any, target: torch.Tensor) -> torch.Tensor:
    """Returns whether a model is right about one record that is an input and a class.

    The largest of the model's outputs counts as its answer; of a single output, which is a logit,
    whether it is positive. Where a record has several targets, as images have pixels, it is the
    share of those that are right.
    """
    output = model(mapped(_with_batch_axis, features))
    logits = getattr(output, "logits", output)
    targets = _with_batch_axis(target)
    if logits.shape == targets.shape or logits.shape == (*targets.shape, 1):
        answers = (logits > 0).reshape(targets.shape)
        targets = targets > 0.5
    elif logits.ndim == targets.ndim + 1 and logits.shape[:1] + logits.shape[2:] == targets.shape:
        answers = logits.argmax(dim=1)  # The axis of classes as in torch's cross_entropy.
    elif logits.ndim == targets.ndim + 1 and logits.shape[:-1] == targets.shape:
        answers = logits.argmax(dim=-1)
    else:
        raise InvalidArgumentError(
            "score",
            "accuracy",
            f"the model's output of one record, {tuple(logits.shape[1:])}, holds no answer for "
            f"its target, {tuple(targets.shape[1:])}",
            "Give a score of your own: record_score=lambda model, *record: ....",
        )
    return (answers == targets).double().mean()


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

    def forward(self, *record: Any) -> torch.Tensor:
        """Returns the function's number of one record, as a tensor without axes."""
        buffers = dict(self.model.named_buffers())
        with _OwnRowsOnly():
            number = self.function(self.model, *record)
        for name, buffer in self.model.named_buffers():
            if buffer is not buffers.get(name):
                raise InvalidArgumentError(
                    "model",
                    type(self.model).__name__,
                    f"it replaces its buffer {name!r} while it is called, as running statistics "
                    "do, and the new value would hold records without noise",
                    _REMEDY_FOR_BUFFERS,
                )
        if not isinstance(number, torch.Tensor) or number.numel() != 1:
            description = (
                f"shape {tuple(number.shape)}"
                if isinstance(number, torch.Tensor)
                else type(number).__name__
            )
            raise InvalidArgumentError(
                self.argument,
                description,
                "a loss or a score of one record must be a tensor with one number",
                "Take the mean or the sum over the record's own parts.",
            )
        if number.is_complex():
            raise InvalidArgumentError(
                self.argument, "a complex number", "a loss or a score must be a real number"
            )
        return number.reshape(())


def over_records(
    model: torch.nn.Module, function: RecordFunction, argument: str, *, gradients: bool
) -> Callable[..., Any]:
    """Returns a function from trained weights and a chunk of records to each one's own result.

    Args:
        model: The model.
        function: A function of the model and one record.
        argument: The argument that it was given as.
        gradients: Whether each record's gradient is computed (of the trained weights, by name),
            or each record's number.
    """
    scope = Scope(model, function, argument)

    def of_record(weights: Mapping[str, torch.Tensor], *record: Any) -> torch.Tensor:
        parameters = {**_frozen(model), **weights}
        tensors = {f"model.{name}": tensor for name, tensor in parameters.items()}
        # Tied weights have one name, and the tie is kept.
        return torch.func.functional_call(scope, tensors, record, tie_weights=True)

    def number_of_record(weights: Mapping[str, torch.Tensor], *record: Any) -> torch.Tensor:
        # Within a transform that differentiates: vmap alone cannot take nn.LSTM.
        number: torch.Tensor
        number, _ = torch.func.vjp(
            lambda values: _as_float(of_record(values, *record)), dict(weights)
        )
        return number

    function_of_record = torch.func.grad(of_record) if gradients else number_of_record

    def of_chunk(weights: Mapping[str, torch.Tensor], *records: Any) -> Any:
        axes = (None, *(0 for _ in records))
        with without_fast_path(), warnings.catch_warnings():
            # PyTorch's own advice for its developers, where it takes records one after another.
            warnings.filterwarnings("ignore", "There is a performance drop")
            return torch.func.vmap(function_of_record, in_dims=axes, randomness="different")(
                weights, *records
            )

    return of_chunk


class _OwnRowsOnly(TorchFunctionMode):
    """Keeps a lookup in a table of a record's own within that table.

    ``torch.func.vmap`` looks up in all records' tables at once, put below each other. An index
    that is negative or too large would find a row of another record, and raise no error. Here it
    finds what is not a number, so the record counts as zero.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if function not in (torch.nn.functional.embedding, torch.embedding):
            return function(*args, **keywords)
        names = ["input", "weight"] if function is not torch.embedding else ["weight", "indices"]
        keywords.update(zip(names, args, strict=False))
        index = "indices" if "indices" in keywords else "input"
        indices, table = keywords[index], keywords["weight"]
        if not _is_of_each_record(table):
            return function(*args, **(kwargs or {}))
        is_row = (indices >= 0) & (indices < table.shape[0])
        keywords[index] = torch.where(is_row, indices, 0)
        rows = function(*(keywords.pop(name) for name in names), *args[2:], **keywords)
        return torch.where(is_row.unsqueeze(-1), rows, torch.nan)


def _is_of_each_record(tensor: torch.Tensor) -> bool:
    """Returns whether every record has a tensor of its own in place of this one."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def _frozen(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the tensors of a model that are not trained, by name.

    They are passed to the call as well, so that a model that replaces one does so in the call
    only.
    """
    parameters = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}
    return {**parameters, **dict(model.named_buffers())}


def _as_float(number: torch.Tensor) -> torch.Tensor:
    """Returns a truth value or a whole number as a float, which derivatives need."""
    return number if number.is_floating_point() or number.is_complex() else number.double()


def _with_batch_axis(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.unsqueeze(0)


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Turns off PyTorch's fast path of transformers in evaluation mode, which vmap cannot take.

    It is off as long as any thread computes, because PyTorch has one switch for all of them.
    """
    global _computing, _fast_path
    with _switching:
        if not _computing:
            _fast_path = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(False)
        _computing += 1
    try:
        yield
    finally:
        with _switching:
            _computing -= 1
            if not _computing:
                torch.backends.mha.set_fastpath_enabled(_fast_path)


@contextmanager
def errors_translated(argument: str) -> Iterator[None]:
    """Turns errors of PyTorch about functions of one record into what to do about them.

    Args:
        argument: The argument that the function was given as.
    """
    try:
        yield
    except InvalidArgumentError:
        raise
    except Exception as error:
        text = str(error)
        for parts, about, allowed, remedy in _TRANSLATIONS:
            if any(part in text for part in parts):
                raise InvalidArgumentError(about or argument, _APPLIED, allowed, remedy) from error
        raise InvalidArgumentError(
            argument,
            _APPLIED,
            f"it failed on a made-up record of zeros: {type(error).__name__}: {text}",
            _HOW_IT_IS_CALLED,
        ) from error


# Stands for the value in messages.
_APPLIED = "applied to one record"
_HOW_IT_IS_CALLED = (
    "loss(output, target) and the model are called with a batch axis of length 1, "
    "record_loss(model, *record) and record_score(model, *record) with one record without a batch "
    "axis."
)
_REMEDY_FOR_BUFFERS = (
    "Take GroupNorm or LayerNorm in place of BatchNorm, or keep the statistics fixed: call "
    ".eval() on that part of the model. InstanceNorm: track_running_stats=False."
)
# Parts of PyTorch's messages, the argument at fault (None: the function's own), what is wrong, and
# the remedy.
_TRANSLATIONS: tuple[tuple[tuple[str, ...], str | None, str, str], ...] = (
    (
        (
            "mutate a captured Tensor",
            "which will be updated in place",
            "vmap: inplace",
            "Expected more than 1 value",
        ),
        "model",
        "it writes into a tensor that outlives the record, or needs several records at once, as "
        "BatchNorm in training mode does. What is written there has no noise",
        _REMEDY_FOR_BUFFERS,
    ),
    (
        ("calling .item()", "data-dependent control flow"),
        None,
        "the model or the function looks at a number of the record in Python (.item(), if, "
        "float(...)), as Hugging Face models do with an attention mask of two axes (.all())",
        "Use torch.where and the like. For an attention mask of one record, shape (n,), pass "
        "attention_mask=mask[None, None, None, :].bool().expand(1, 1, n, n), or no mask and "
        "records of equal length.",
    ),
    (
        ("dynamic shape",),
        None,
        "a tensor's shape depends on the record's numbers, as with x[mask]",
        "Use torch.where(mask, x, 0) and divide by mask.sum().",
    ),
    (
        ("doesn't have storage", "Cannot access data pointer", "numpy()", "tolist"),
        None,
        "the model or the function leaves PyTorch, for numpy or lists of Python",
        "Compute it with functions of torch.",
    ),
    (
        ("doesn't match the broadcast shape",),
        "model",
        "it changes a tensor in place in a way that gradients of single records do not allow, as "
        "PyTorch's nn.GRU, nn.RNN and recurrent cells do",
        "Take nn.LSTM, or write the cell with nn.Linear. In code of your own write h = h + x in "
        "place of h += x.",
    ),
    (
        ("embedding_renorm_",),
        "model",
        "an embedding with max_norm= changes its weights while it is called",
        "Leave max_norm out; the clipping bounds what a record changes.",
    ),
    (
        ("SparseCPU", "SparseCUDA"),
        "model",
        "gradients of single records cannot be sparse",
        "Make the embedding with sparse=False.",
    ),
    (
        ("setup_context",),
        "model",
        "an autograd.Function of its own, or a backward hook, does not say how it is computed for "
        "one record",
        "Write the function with setup_context and generate_vmap_rule = True. Take "
        "register_full_backward_hook away.",
    ),
    (
        ("saved tensor hooks",),
        "model",
        "gradient checkpointing cannot be used with gradients of single records",
        "Switch it off. To bound memory, give physical_batch_size=.",
    ),
    (
        ("inplace randomness on an unbatched tensor",),
        "model",
        "it draws the first values of a layer while it is called, so the layer would be new to "
        "the training",
        "Make all layers in __init__, or call the model once on zeros of a record's shape.",
    ),
    (
        ("to have the same dtype", "must have the same dtype", "Input type"),
        "records",
        "their numbers have another precision than the model's weights",
        "Convert one of them: x.to(torch.float64) or model.float(), for example.",
    ),
    (
        ("Expected dtype int32/int64 for index", "Expected tensor for argument #1 'indices'"),
        "records",
        "labels and tokens must be whole numbers, of int64",
        "Convert them: y.long(), or y.astype('int64').",
    ),
    (
        ("can't convert np.ndarray of type",),
        "records",
        "texts, dates and objects are no numbers",
        "Turn them into numbers beforehand, by a rule that depends on no other record.",
    ),
    (
        ("same device", "different devices"),
        "device",
        "a tensor that is no parameter or buffer of the model stays on another device",
        "Register it as a buffer, or give device='cpu'.",
    ),
)
