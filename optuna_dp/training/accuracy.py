"""Whether a model is right about a record: what its outputs mean, and which targets count.

An output of 0.3 is a yes if it is a logit, and a no if it is a probability. The model does not say
which. Its loss does, and it is asked by made-up numbers (:func:`reading_of`): no record decides.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.generators import Draws
from optuna_dp.training.record_arrays import Part, mapped
from optuna_dp.training.record_functions import (
    PairLoss,
    RecordFunction,
    called,
    pair_of,
    with_batch_axis,
)

# How a loss reads outputs: the largest is the answer; a positive one is a yes; or one above 0.5.
Reading = Literal["classes", "logits", "shares"]
# Of a single output and its target, as losses expect them.
_SHAPES_OF_ONE = (((1, 1), (1,)), ((1, 1), (1, 1)), ((1,), (1,)))
_LEFT_OUT = -100  # By PyTorch's losses, unless they are told another number.


def reading_of(loss: PairLoss | None) -> Reading | None:
    """Returns how a loss reads a model's outputs, by what it says of made-up ones.

    Args:
        loss: The loss of an output and a target; None if it is not known.

    Returns:
        None if the loss does not tell. A squared error does not: its targets may be 0 and 1, or -1
        and 1.
    """
    if loss is None:
        return None
    # The loss may draw, and the generators are shared with trainings of other threads.
    # They wait for one another, so filters of warnings are put back in turn, too.
    with Draws(torch.device("cpu"), seed=0).for_step(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if _compares_classes(loss):
            return "classes"
        readings = (_reading_of_one(partial(_at, loss, *shapes)) for shapes in _SHAPES_OF_ONE)
        return next((reading for reading in readings if reading is not None), None)


def _compares_classes(loss: PairLoss) -> bool:
    """Returns whether outputs are compared with each other: a number added to all does nothing."""
    outputs = torch.tensor([[3.0, 1.0, 0.0]], device="cpu")
    shares = torch.tensor([[1.0, 0.0, 0.0]], device="cpu")
    try:
        right, shifted, wrong = (float(loss(o, shares)) for o in (outputs, outputs - 5, -outputs))
    except Exception:
        return False
    return right < wrong and math.isclose(right, shifted, abs_tol=1e-5)


def _at(
    loss: PairLoss,
    output_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    output: float,
    target: float,
) -> float:
    """Returns the loss of a single output; NaN if it raises an error."""
    outputs = torch.full(output_shape, output, device="cpu")
    try:
        return float(loss(outputs, torch.full(target_shape, target, device="cpu")))
    except Exception:
        return math.nan


def _reading_of_one(value: Callable[[float, float], float]) -> Reading | None:
    """Returns how a loss reads a single output; None if it does not tell.

    Args:
        value: The loss of an output and a target.
    """
    losses = [value(output, 1.0) for output in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    if all(before > after for before, after in itertools.pairwise(losses)):
        return "logits"  # The larger the better, without an end.
    prefers_yes = value(0.9, 1.0) < value(0.1, 1.0)
    if prefers_yes and not math.isfinite(value(2.0, 1.0)):
        return "shares"  # One less the output has no logarithm.

    def turns_at(middle: float, no: float) -> bool:
        """Returns whether the middle is as good an answer to one target as to the other."""
        as_good = math.isclose(value(middle, 1.0), value(middle, no), abs_tol=1e-5)
        near, far = (value(middle + sign * 0.4, no) for sign in (-1.0, 1.0))
        return prefers_yes and as_good and near < far

    is_of_shares, is_of_signs = turns_at(0.5, 0.0), turns_at(0.0, -1.0)
    if is_of_shares == is_of_signs:
        return None
    return "shares" if is_of_shares else "logits"


def left_out_by(loss: object) -> int:
    """Returns the target that a loss leaves out."""
    keywords = loss.keywords if isinstance(loss, partial) else {}
    number = keywords.get("ignore_index", getattr(loss, "ignore_index", _LEFT_OUT))
    return number if isinstance(number, int) else _LEFT_OUT


def accuracy_of_pair(loss: PairLoss | None, reading: Reading | None) -> RecordFunction:
    """Returns the function that says whether a model is right about an input and its target.

    Where outputs have an axis of classes, the largest is the answer. Elsewhere each output is a
    yes or a no, and the loss says which. Where a record has several targets, as images have
    pixels and texts have labels, it is the share of those that are right. Targets that the loss
    leaves out, and those that are not numbers, do not count; a record with no others counts as 0.

    Args:
        loss: The loss of an output and a target; None if it is not known.
        reading: How it reads outputs; see :func:`reading_of`.
    """
    left_out = left_out_by(loss)

    def of_record(model: torch.nn.Module, *record: Part) -> torch.Tensor:
        features, target = pair_of(record)
        output = called(model, mapped(with_batch_axis, features))
        outputs = getattr(output, "logits", output)
        targets = mapped(with_batch_axis, target)
        if not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
            raise _unknown(
                f"the model returns a {type(outputs).__name__} and the target is a "
                f"{type(targets).__name__}, so no largest output is known"
            )
        if reading == "classes" and outputs.shape == targets.shape and targets.ndim > 1:
            targets = targets.argmax(dim=1)  # Each class's share, as cross entropy takes them.
        counts = ~((targets == left_out) | targets.isnan())
        right = _are_right(outputs, targets, reading) & counts
        return right.double().sum() / counts.double().sum().clamp(min=1.0)

    return of_record


def _are_right(
    outputs: torch.Tensor, targets: torch.Tensor, reading: Reading | None
) -> torch.Tensor:
    """Returns which targets of a record a model's outputs are right about."""
    is_one_each = outputs.shape == targets.shape or outputs.shape == (*targets.shape, 1)
    if is_one_each or outputs.numel() == targets.numel() == 1:
        if reading not in ("logits", "shares"):
            raise _unknown(
                "the model has one output for each target, and the loss does not tell whether it "
                "is a logit or a probability",
                "Give loss=torch.nn.BCEWithLogitsLoss() to a model that ends in a linear layer, "
                "loss=torch.nn.BCELoss() to one that ends in a Sigmoid. Or say what is right: "
                "record_score=lambda model, x, y: "
                "((model(x[None]).flatten() > 0.5) == (y.flatten() > 0.5)).double().mean()",
            )
        answers = outputs > (0.0 if reading == "logits" else 0.5)
        return answers.reshape(targets.shape) == (targets > 0.5)
    if outputs.ndim == targets.ndim + 1:
        if outputs.shape[:1] + outputs.shape[2:] == targets.shape:
            return outputs.argmax(dim=1) == targets  # As in torch's cross_entropy.
        if outputs.shape[:-1] == targets.shape:
            return outputs.argmax(dim=-1) == targets
    raise _unknown(
        f"the model's output of one record, {tuple(outputs.shape[1:])}, holds no answer for its "
        f"target, {tuple(targets.shape[1:])}"
    )


def _unknown(problem: str, fix: str = "") -> InvalidArgumentError:
    return InvalidArgumentError(
        "score",
        "accuracy",
        problem=problem,
        fix=fix or "Give a score of your own: record_score=lambda model, *record: ....",
    )
