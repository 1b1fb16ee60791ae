"""Hints on models and losses that do not suit: made-up records show it, and nothing is refused.

Here each record is computed alone, in a batch of one. A model that subtracts the mean of its
batch, or a loss that compares records, is private then, and learns little or nothing. So does a
loss of logits on outputs that are probabilities. A mean with class weights forgets the weights.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from optuna_dp.training.accuracy import reading_of
from optuna_dp.training.generators import Draws
from optuna_dp.training.record_arrays import Part, Parts, is_array, leaves, mapped
from optuna_dp.training.record_functions import Output, PairLoss, Scope, Tensors

# Arguments of a model: by place, and by name.
Call: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]

# How many records are computed together; twice as many are made up.
TOGETHER = 4
# A relative difference of outputs that is more than rounding.
_ROUNDING, _ROUNDING_OF_HALVES = 1e-3, 0.1
# Of the draws: no script sets this one.
_SEED = 615_930_274_881

_MIXES = (
    "The model's output for an input depends on the other inputs of its batch, as with "
    "x - x.mean(0), or with a recurrent layer or a transformer without batch_first=True. Here a "
    "record is computed alone, in a batch of one. So the model does something else than on a "
    "batch, and may learn nothing. Let it compute over the axes of one record only."
)
_COMPARES = (
    "The loss of one record alone has no gradient, and that of several together has one: it "
    "compares the records of a batch. Here a record's loss is computed alone, so the model learns "
    "nothing from it. Take a loss of one record, such as one that compares two views of it."
)
_FORGETS_WEIGHTS = (
    "The loss has class weights and takes a mean. A record's loss is computed alone, and a mean "
    "over one target divides by its own weight, so the weights have no effect. Give the loss "
    "reduction='sum'."
)
_SQUASHED = (
    "The loss takes logits, which are of any size, and the model's outputs lie between 0 and 1, "
    "as after a Sigmoid or a Softmax. The loss then makes probabilities of them a second time, so "
    "the model learns little, and an accuracy takes each yes-or-no output for a yes. Leave that "
    "layer out of the model; or keep a Sigmoid and take loss=torch.nn.BCELoss()."
)
# Noise in the weights that takes logits beyond 0 and 1, and how often it is drawn.
_FAR, _DRAWS = 10.0, 3


class Company:
    """A model and its loss, asked what other records do to a record's output.

    Args:
        scope: The loss of one record.
        loss: The loss of outputs and targets; None if it is not given so.
        weights: Weights near the model's.
        buffers: The model's buffers.
    """

    def __init__(
        self, scope: Scope, loss: PairLoss | None, weights: Tensors, buffers: Tensors
    ) -> None:
        self._scope, self._loss = scope, loss
        self._weights, self._buffers = weights, buffers
        self._draws = Draws(next(iter(weights.values())).device, seed=_SEED)

    def hints(self, records: Parts, inputs: Part) -> list[str]:
        """Returns what a user should know of a model or a loss.

        Args:
            records: Made-up records, twice as many as are computed together.
            inputs: Made-up inputs of the model; None if there are none.
        """
        try:
            # Trainings of other threads wait, so filters of warnings are put back in turn.
            with self._draws.for_step(), self._evaluating(), warnings.catch_warnings():
                # Of shapes, which a batch has and a record has not.
                warnings.simplefilter("ignore")
                return self._of_company(records, inputs)
        except Exception:  # It cannot take them together, so nothing is known.
            return []

    def _of_company(self, records: Parts, inputs: Part) -> list[str]:
        records = _with_inputs(records, inputs)
        calls = [self._call(_record(records, index)) for index in range(2 * TOGETHER)]
        first, second = calls[:TOGETHER], calls[TOGETHER:]
        outputs = self._outputs(_joined(first))
        # The last one stays: a recurrence along the batch axis begins at the first one.
        beside_others = self._outputs(_joined([*second[:-1], first[-1]]))
        # A model that draws gives another output each time.
        is_the_same = not _differ_in_last_row(outputs, self._outputs(_joined(first)))
        mixes = is_the_same and _differ_in_last_row(outputs, beside_others)
        hints = [_MIXES] if mixes else []
        if self._loss is not None and self._moves_only_together(self._loss, outputs, records):
            hints.append(_COMPARES)
        is_of_logits = reading_of(self._loss) in ("classes", "logits")
        if is_of_logits and self._are_shares(_joined(first)):
            hints.append(_SQUASHED)
        return hints

    def forgets_weights(self, records: Parts) -> list[str]:
        """Returns a hint if class weights have no effect on the loss of one record.

        Args:
            records: Made-up records.
        """
        seen = _WeightedMeans()
        try:
            with self._same_draws(), self._evaluating(), torch.no_grad(), seen:
                self._scope.with_tensors(
                    self._weights, self._copied_buffers(), _record(records, 0)
                )
        except Exception:
            return []
        return [_FORGETS_WEIGHTS] if seen.of_one_target else []

    def _are_shares(self, call: Call) -> bool:
        """Returns whether outputs stay between 0 and 1 whatever the weights, and are not fixed."""
        found = []
        for _ in range(_DRAWS):
            weights = {
                name: weight + _FAR * torch.randn_like(weight)
                for name, weight in self._weights.items()
            }
            found.append(torch.as_tensor(self._outputs(call, weights)))
        outputs = torch.stack(found)
        are_within = bool(((outputs >= 0.0) & (outputs <= 1.0)).all())
        return are_within and bool((outputs != outputs.flatten()[0]).any())

    def _call(self, record: Parts) -> Call:
        """Returns what the model is called with for a record; the first time, if it is often."""
        calls: list[Call] = []
        hook = self._scope.model.register_forward_pre_hook(
            lambda module, args, kwargs: calls.append((args, kwargs)), with_kwargs=True
        )
        try:
            with torch.no_grad(), self._same_draws():
                self._scope.with_tensors(self._weights, self._copied_buffers(), record)
        finally:
            hook.remove()
        return calls[0]

    def _outputs(self, call: Call, weights: Tensors | None = None) -> Output:
        tensors = {**self._copied_buffers(), **(weights or self._weights)}
        args, keywords = call
        with torch.no_grad(), self._same_draws():
            output = torch.func.functional_call(
                self._scope.model, tensors, args, dict(keywords), tie_weights=True
            )
        return getattr(output, "logits", output)

    def _moves_only_together(self, loss: PairLoss, outputs: Output, records: Parts) -> bool:
        """Returns whether a loss has a gradient for several outputs, and none for each alone."""

        def moves(rows: slice) -> bool:
            leaf = outputs[rows].detach().requires_grad_()
            targets = mapped(lambda part: part[:TOGETHER][rows], records[1])
            with torch.enable_grad(), self._same_draws():
                number = loss(leaf, targets).sum()
            if not number.requires_grad:
                return False
            (gradient,) = torch.autograd.grad(number, leaf)
            return bool(gradient.nan_to_num(0.0, 0.0, 0.0).any())

        return moves(slice(None)) and not any(moves(slice(i, i + 1)) for i in range(TOGETHER))

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Without dropout, whose draws other threads may disturb."""
        modes = [(part, part.training) for part in self._scope.model.modules()]
        self._scope.model.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode

    def _copied_buffers(self) -> Tensors:
        return {name: buffer.clone() for name, buffer in self._buffers.items()}

    @contextmanager
    def _same_draws(self) -> Iterator[None]:
        with self._draws.for_step():
            self._draws.before_computing()
            yield


class _WeightedMeans(TorchFunctionMode):
    """Sees whether a loss with class weights takes the mean over a single target."""

    of_one_target = False

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        keywords = dict(kwargs or {})
        if function in (nn.functional.cross_entropy, nn.functional.nll_loss):
            given = inspect.signature(function).bind(*args, **keywords).arguments
            weights = given.get("weight")
            is_mean = given.get("reduction", "mean") == "mean" and given["target"].numel() == 1
            if weights is not None and is_mean and bool((weights != weights[0]).any()):
                self.of_one_target = True
        return function(*args, **keywords)


def _with_inputs(records: Parts, inputs: Part) -> Parts:
    """Returns records with made-up inputs as their first part, if those are of its shape."""
    features, *others = records
    if not is_array(inputs) or not is_array(features) or len(inputs) < len(features):
        return records
    if tuple(inputs.shape[1:]) != tuple(features.shape[1:]):
        return records
    rows = torch.as_tensor(inputs[: len(features)], device=features.device)
    return (rows.to(features.dtype), *others)


def _record(records: Parts, index: int) -> Parts:
    return tuple(mapped(lambda part: part[index], part) for part in records)


def _joined(calls: list[Call]) -> Call:
    """Returns the calls of a model with one input each as one call with all of them."""
    columns = iter(zip(*map(leaves, calls), strict=True))

    def together(value: object) -> object:
        column = next(columns)
        return torch.cat(column) if isinstance(value, torch.Tensor) else value

    args, keywords = mapped(together, calls[0])
    return args, keywords


def _differ_in_last_row(output: Output, other_output: Output) -> bool:
    """Returns whether the outputs for the last inputs differ by more than rounding."""
    if not isinstance(output, torch.Tensor) or len(output) != TOGETHER:
        return False
    limit = _ROUNDING_OF_HALVES if output.element_size() == 2 else _ROUNDING
    row, other_row = (rows[-1].double().nan_to_num() for rows in (output, other_output))
    return bool((row - other_row).norm() > limit * torch.maximum(row.norm(), other_row.norm()))
