"""Private training of PyTorch modules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.modules import activation
from torch.nn.utils.parametrize import ParametrizationList

from optuna_dp.core.arrays import FloatArray
from optuna_dp.training.chunks import BLOCK, Chunk, in_chunks, usual_parts
from optuna_dp.training.company import TOGETHER, Company
from optuna_dp.training.each_record import EachRecord, Places, Rows
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.generators import Draws, seed_kept_generators
from optuna_dp.training.learner import Learner
from optuna_dp.training.made_up import features_of_order_one
from optuna_dp.training.own_model import OwnModel
from optuna_dp.training.record_arrays import Part, is_array
from optuna_dp.training.record_functions import PairLoss, RecordFunction, Scope, takes_apart
from optuna_dp.training.records import Records

# Of the gradients of the records that are computed at a time: what is quick, and what fits.
_QUICK_BYTES, _GRADIENT_BYTES = 32 * 2**20, 256 * 2**20
_FEW_RECORDS, _MANY_RECORDS = 64, 512
# Parts of a model whose inputs are plain features: of order one, as the documentation advises.
_DENSE = (nn.Linear, nn.Dropout, nn.Flatten, nn.Identity)
# Weight norm and spectral norm are parametrizations.
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, ParametrizationList)


class TorchLearner(OwnModel, Learner):
    """A module of PyTorch with its loss and its score; see :class:`Learner`.

    Args:
        model: The user's module; a copy is trained.
        loss: The loss of one record.
        loss_argument: The argument that the loss was given as.
        score: The score of one record; None if none is computed.
        score_argument: The argument that the score was given as.
        chunk_size: How many records' gradients are computed at a time, rounded up to a multiple
            of 8; None for a default.
        device: Where to train; None for a GPU if there is one, and else where the model is.
        batch_size: How many records a step is expected to have: hardly more are computed at a
            time.
        shared: What the module may hold and need not be copied: the records.
        has_logits: Whether the loss or the score is one of logits.
        has_one_logit: Whether a single output, if there is one, is the logit of the second of two
            classes.
        pair_loss: The loss of outputs and targets; None if the loss was not given so.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        loss: RecordFunction,
        loss_argument: str,
        score: RecordFunction | None,
        score_argument: str,
        chunk_size: int | None,
        device: torch.types.Device,
        batch_size: float = math.inf,
        shared: Iterable[object] = (),
        has_logits: bool = False,
        has_one_logit: bool = False,
        pair_loss: PairLoss | None = None,
    ) -> None:
        if device is None and torch.cuda.is_available():
            device = "cuda"
        super().__init__(model, device, shared, has_logits=has_logits)
        wanted = chunk_size or _records_at_a_time(self.weights)
        largest_batch = batch_size + 3.0 * math.sqrt(batch_size)
        most = wanted if wanted < largest_batch else math.ceil(largest_batch)
        self.chunk_size = -(-most // BLOCK) * BLOCK
        self.like = self._trained[0].detach()
        self._draws = Draws(self.device)
        self._moves_buffers, self._has_one_logit = False, has_one_logit
        self._scope, self._pair_loss = Scope(self._module, loss, loss_argument), pair_loss
        self._losses = EachRecord(self, self._scope, gradients=True, chunk_size=self.chunk_size)
        self._scores = None
        if score is not None:
            self._scores = EachRecord(
                self,
                Scope(self._module, score, score_argument),
                gradients=False,
                chunk_size=self.chunk_size,
            )

    @property
    def seconds_of_a_record(self) -> float | None:
        return self._losses.seconds

    @property
    def reason_of_loop(self) -> str:
        return self._losses.reason

    @property
    def is_reproducible(self) -> bool:
        return self._losses.is_reproducible

    def try_out(self, records: Records, score_records: Records | None) -> None:
        self._losses.set_up(records)
        if self._scores is not None and score_records is not None:
            with self.evaluating():
                self._scores.set_up(score_records)
        buffers = self.copied_buffers()
        with self._draws.for_step():  # Trainings of other threads draw from the same generators.
            self._losses.moves(buffers)
        self._moves_buffers = any(
            not torch.equal(buffer, self.buffers[name]) for name, buffer in buffers.items()
        )
        for some_records in (records, *(() if score_records is None else (score_records,))):
            seed_kept_generators(some_records.holders())

    def default_inputs(self, records: Records) -> FloatArray | None:
        inputs = self.on_device(usual_parts(records))[0]
        is_plain = isinstance(inputs, torch.Tensor) and inputs.is_floating_point()
        if not is_plain or not is_made_of(self._module, (*_DENSE, *_NORMS)):
            return None
        return features_of_order_one(*inputs.shape[1:])

    def as_called(self, inputs: Part) -> Part:
        features = self._losses.made_up(1)[0]
        is_as_in_loss = self._pair_loss is not None and _are_alike(inputs, features)
        is_one_argument = is_as_in_loss and not takes_apart(self._module, features)
        return (inputs,) if is_one_argument else inputs

    def outputs(self, inputs: Part) -> FloatArray:
        outputs = super().outputs(inputs)
        if self._has_one_logit and outputs.ndim == 2 and outputs.shape[1] == 1:
            return np.hstack([np.zeros_like(outputs), outputs])  # The other class has 0.
        return outputs

    def example_of_inputs(self, records: Records) -> str:
        example = _example(self.on_device(usual_parts(records))[0])
        return "" if example is None else f"For example inputs={example}."

    def hints(self, inputs: Part) -> list[str]:
        company = Company(
            self._scope, self._pair_loss, self._losses.weights_nearby(), self.buffers
        )
        records = self._losses.made_up(2 * TOGETHER)
        return [*company.hints(records, inputs), *company.forgets_weights(records)]

    def is_dense_only(self) -> bool:
        return is_made_of(self._module, _DENSE)

    def clipped_sum(
        self, records: Records, batch: npt.NDArray[np.int64], step: ExactStep
    ) -> list[torch.Tensor]:
        def of_chunk(chunk: Chunk) -> tuple[Rows, Places]:
            return self._results(self._losses, records, chunk)

        totals = [
            torch.zeros(weight.numel(), dtype=torch.float64, device=self.device)
            for weight in self._trained
        ]
        with self._draws.for_step():
            if self._moves_buffers:  # Once a step, so that no number of records decides how far.
                self._losses.moves(self.buffers)
            for _, gradients in in_chunks(of_chunk, self._losses.chunks(batch)):
                if gradients is not None:
                    for total, part in zip(totals, step.sum_of(*gradients), strict=True):
                        total += part
        return totals

    def _results(
        self, each_record: EachRecord, records: Records, chunk: Chunk
    ) -> tuple[Rows, Places]:
        self._draws.before_reading()
        parts = self.on_device(records.take(chunk.indices))
        self._draws.before_computing()
        return each_record.of(parts, chunk.places)

    def scores(self, records: Records, indices: npt.NDArray[np.int64]) -> FloatArray:
        each_score = self._scores
        assert each_score is not None

        def of_chunk(chunk: Chunk) -> FloatArray:
            (numbers,), places = self._results(each_score, records, chunk)
            clipped = numbers[places, 0].double().nan_to_num(nan=0.0).clamp(0.0, 1.0)
            return np.asarray(clipped.cpu().numpy(), dtype=np.float64)

        scores = np.zeros(len(records))
        with torch.no_grad(), self.evaluating(), self._draws.for_step():
            for some, numbers in in_chunks(of_chunk, each_score.chunks(indices)):
                if numbers is not None:
                    scores[some] = numbers
        return scores[indices]


def _are_alike(inputs: Part, features: Part) -> bool:
    """Returns whether inputs are several arrays in the way in which a record's features are."""
    if isinstance(features, Mapping):
        return isinstance(inputs, Mapping) and inputs.keys() == features.keys()
    return (
        isinstance(features, tuple)
        and isinstance(inputs, tuple | list)
        and (
            len(inputs) == len(features)
            and all(map(is_array, inputs)) == all(map(is_array, features))
        )
    )


def _example(features: Part) -> str | None:
    """Returns the code that makes up inputs of a shape; None if none is known."""
    if isinstance(features, Mapping | tuple):
        named = features.items() if isinstance(features, Mapping) else enumerate(features)
        examples = {name: _example(part) for name, part in named}
        if None in examples.values():
            return None
        if isinstance(features, tuple):
            return f"({', '.join(map(str, examples.values()))},)"
        return f"{{{', '.join(f'{name!r}: {example}' for name, example in examples.items())}}}"
    sizes = ", ".join(map(str, features.shape[1:]))
    if not features.is_floating_point():
        return f"odp.made_up_tokens(vocabulary, {sizes})" if features.ndim == 2 else None
    if features.ndim == 2:
        return f"odp.made_up_inputs(*[(-1, 1)] * {sizes})"
    return f"odp.made_up_images({sizes})" if features.ndim == 4 else f"torch.rand(64, {sizes})"


def _records_at_a_time(weights: int) -> int:
    """Returns how many gradients of so many weights are computed at a time by default."""
    quick = min(max(_QUICK_BYTES // (4 * weights), _FEW_RECORDS), _MANY_RECORDS)
    return max(1, min(quick, _GRADIENT_BYTES // (4 * weights)))


def is_made_of(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Returns whether a model has only such parts and activations, all of them trained.

    Args:
        model: The model.
        kinds: Kinds of parts. Others may be there if they have no parameters of their own.
    """
    activations = tuple(
        kind
        for name in activation.__all__
        if (kind := getattr(activation, name)) is not nn.MultiheadAttention
    )
    return all(
        isinstance(part, (*kinds, *activations)) or not list(part.parameters(recurse=False))
        for part in model.modules()
    ) and all(weight.requires_grad for weight in model.parameters())
