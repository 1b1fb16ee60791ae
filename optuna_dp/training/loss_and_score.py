"""The user's loss and score, and the learner that is made of a model and them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeGuard

from optuna_dp.errors import InvalidArgumentError, MissingExtraError, Text, type_of
from optuna_dp.training.learner import Learner
from optuna_dp.training.softmax_regression import SoftmaxLearner, SoftmaxRegression

if TYPE_CHECKING:
    import torch

    from optuna_dp.training.record_functions import PairLoss, RecordFunction

# What is computed of a target unless something else is asked for.
USUAL_SCORES: dict[str, Literal["accuracy", "closeness"]] = {
    "classes": "accuracy", "number": "closeness"
}  # fmt: skip
_EXAMPLES = {
    "loss": "For example loss=torch.nn.functional.cross_entropy.",
    "record_loss": "For example record_loss=lambda model, *record: ....",
    "record_score": "For example record_score=lambda model, *record: ....",
}


@dataclass(frozen=True)
class LossAndScore:
    """The user's loss and score.

    Attributes:
        loss: Of a model's output and a target; None if it is ``record_loss``, or the usual one.
        record_loss: Of a model and the parts of one record; None if it is ``loss``.
        score: "accuracy" or "closeness"; None if it is ``record_score``, or there is none.
        record_score: Of a model and the parts of one record; None if it is ``score``.
        task: What a schema says of the target: "classes" or "number"; None if nothing.

    Raises:
        InvalidArgumentError: If two are given of which one is allowed, one is no function, or the
            score does not suit the target.
    """

    loss: PairLoss | None
    record_loss: RecordFunction | None
    score: str | None
    record_score: RecordFunction | None
    task: str | None

    def __post_init__(self) -> None:
        for first, second in (("loss", "record_loss"), ("score", "record_score")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise InvalidArgumentError(
                    second,
                    getattr(self, second),
                    problem=f"give {first} or {second}, and not both",
                )
        for argument, function in self.functions().items():
            if isinstance(function, type):
                raise InvalidArgumentError(
                    argument,
                    function,
                    problem="it is a class, and the function is what the class makes",
                    fix=f"Add the parentheses: {argument}={function.__name__}().",
                )
            if not callable(function):
                raise InvalidArgumentError(
                    argument,
                    type_of(function),
                    allowed="it must be a function, and not its result or its name",
                    fix=_EXAMPLES[argument],
                )
        self._check_score()

    def _check_score(self) -> None:
        if self.score not in (None, *USUAL_SCORES.values()):
            raise InvalidArgumentError(
                "score",
                self.score,
                allowed="it must be 'accuracy', 'closeness', 'auto' or None",
                fix="For another score give record_score=lambda model, *record: ....",
            )
        if self.score == "closeness" and self.task != "number":
            raise InvalidArgumentError(
                "score",
                self.score,
                problem="it is in units of the target's range, and these records have no schema "
                "with one",
                fix="Encode the records by odp.Schema(..., target=...), or give record_score=.",
            )
        if self.score == "accuracy" and self.task == "number":
            raise InvalidArgumentError(
                "score",
                self.score,
                problem="it is the share of records with the right class, and the target is a "
                "number",
                fix="Take it away, or write score='closeness'.",
            )

    @property
    def has_score(self) -> bool:
        """Whether a score is asked for."""
        return self.score is not None or self.record_score is not None

    def functions(self) -> dict[str, Callable[..., torch.Tensor]]:
        """Returns the functions that the user gave, by their argument."""
        given = {
            "loss": self.loss,
            "record_loss": self.record_loss,
            "record_score": self.record_score,
        }
        return {argument: function for argument, function in given.items() if function is not None}


def made_learner(
    model: object,
    functions: LossAndScore,
    *,
    chunk_size: int | None,
    device: torch.types.Device,
    batch_size: float,
    holders: Iterable[object],
) -> Learner:
    """Returns what trains a copy of a model.

    Args:
        model: The user's model.
        functions: The user's loss and score.
        chunk_size: How many records' gradients are computed at a time; None for a default.
        device: Where to train; None for a default.
        batch_size: How many records a step is expected to have.
        holders: The records; a model that holds them shares them with its copy.

    Raises:
        InvalidArgumentError: If the model cannot be trained with this loss.
        MissingExtraError: If it needs PyTorch and that is not installed.
    """
    if isinstance(model, SoftmaxRegression):
        _check_softmax(model, functions, device)
        return SoftmaxLearner(model, chunk_size=chunk_size)
    try:
        import torch  # An extra.
    except ImportError:
        raise MissingExtraError("torch", "torch") from None
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(
            "model",
            Text(f"a value of type {type(model).__name__}"),
            allowed="it must be a torch.nn.Module, an optuna_dp.SoftmaxRegression, or a function "
            "that makes one",
        )
    _check_no_other_parameters(functions)
    # Lazy: only models of PyTorch need it.
    from optuna_dp.training import record_functions as of_records
    from optuna_dp.training.accuracy import accuracy_of_pair, reading_of
    from optuna_dp.training.torch_learner import TorchLearner

    loss, record_loss, loss_argument = functions.loss, functions.record_loss, "record_loss"
    if record_loss is None:
        loss_argument = "loss"
        if loss is None and functions.task is None:
            raise InvalidArgumentError(
                "loss",
                None,
                problem="a PyTorch module needs a loss",
                fix="For records (input, target), loss=torch.nn.functional.cross_entropy for "
                "example; for others record_loss=lambda model, *record: ....",
            )
        loss = of_records.usual_loss(functions.task) if loss is None else loss
        record_loss = of_records.loss_of_pair(loss)
    reading = reading_of(loss)
    record_score, score_argument = functions.record_score, "record_score"
    if functions.score is not None:
        score_argument, record_score = "score", of_records.closeness_of_pair
        if functions.score == "accuracy":
            record_score = accuracy_of_pair(loss, reading)
    return TorchLearner(
        model,
        loss=record_loss,
        loss_argument=loss_argument,
        score=record_score,
        score_argument=score_argument,
        chunk_size=chunk_size,
        device=device,
        batch_size=batch_size,
        shared=holders,
        has_logits=functions.score == "accuracy" or reading == "logits",
        has_one_logit=reading == "logits",
        pair_loss=loss,
    )


def is_module(value: object) -> TypeGuard[torch.nn.Module]:
    """Returns whether a value is a module of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _check_softmax(
    model: SoftmaxRegression, functions: LossAndScore, device: torch.types.Device
) -> None:
    for argument, function in functions.functions().items():
        raise InvalidArgumentError(
            argument,
            function,
            problem="a SoftmaxRegression has its own loss, the cross entropy, and is scored by "
            "accuracy",
            fix="Take the argument away, or give a PyTorch module.",
        )
    if functions.task == "number":
        raise InvalidArgumentError(
            "model",
            model,
            problem="a SoftmaxRegression predicts classes, and the target is a number",
            fix="Give a PyTorch module with one output, such as torch.nn.Linear(schema.width, 1).",
        )
    if device is not None:
        raise InvalidArgumentError(
            "device", device, problem="a SoftmaxRegression is trained by the processor"
        )


def _check_no_other_parameters(functions: LossAndScore) -> None:
    for argument, function in functions.functions().items():
        if is_module(function) and any(p.requires_grad for p in function.parameters()):
            raise InvalidArgumentError(
                argument,
                function,
                problem="it has parameters of its own that require a gradient, and only the "
                "model's are trained",
                fix="Make them part of the model, or call requires_grad_(False) on them.",
            )
