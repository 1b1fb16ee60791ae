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
from optuna_dp.training.each_record import Computed, EachRecord
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.generators import Draws, seed_kept_generators
from optuna_dp.training.learner import Learner
from optuna_dp.training.made_up import features_of_order_one
from optuna_dp.training.own_model import OwnModel
from optuna_dp.training.record_arrays import Part, is_array
from optuna_dp.training.record_functions import PairLoss, RecordFunction, Scope, takes_apart
from optuna_dp.training.records import Records

# Of the gradients of the records that are computed at a time on a processor: what is quick, and
# what fits. On a GPU: the share of the memory that is free.
_QUICK_BYTES, _GRADIENT_BYTES = 32 * 2**20, 256 * 2**20
_SHARE_OF_GPU = 0.25
_FEW_RECORDS, _MANY_RECORDS = 64, 512
# What a step holds beside the gradients of the records, for each weight: the sum, the noise, and
# the moments of Adam.
_BYTES_OF_STEP = 8 + 8 + 8
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
            of 8; None for as many as are quick and as the memory allows.
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
        self._is_chunk_given = chunk_size is not None
        largest_batch = batch_size + 3.0 * math.sqrt(batch_size)
        self._most = math.inf if chunk_size is None else chunk_size
        self._most = min(self._most, largest_batch)
        self.like = self._trained[0].detach()
        self._draws = Draws(self.device)
        self._moves_buffers, self._has_one_logit = False, has_one_logit
        self._scope, self._pair_loss = Scope(self._module, loss, loss_argument), pair_loss
        self._score_scope = None
        if score is not None:
            self._score_scope = Scope(self._module, score, score_argument)
        self._prepare()

    def _prepare(self) -> None:
        count = self._at_a_time(self.weights)
        self._losses = EachRecord(self, self._scope, gradients=True, chunk_size=count)
        self._scores = None
        if self._score_scope is not None:
            self._scores = EachRecord(self, self._score_scope, gradients=False, chunk_size=count)

    def _at_a_time(self, numbers: int) -> int:
        """Sets and returns how many records are computed at a time, a multiple of 8.

        Args:
            numbers: How many numbers the gradient of a record has.
        """
        most = self._most
        if not self._is_chunk_given:
            most = min(most, _records_at_a_time(numbers, self.device))
        self.chunk_size = math.ceil(most / BLOCK) * BLOCK
        return self.chunk_size

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
        while True:
            try:
                self._try_out(records, score_records)
                return
            except (RuntimeError, MemoryError) as error:
                is_small = self._is_chunk_given or self.chunk_size == BLOCK
                if is_small or not is_out_of_memory(error):
                    raise
            self._most = self.chunk_size / 2
            self._prepare()

    def _try_out(self, records: Records, score_records: Records | None) -> None:
        # A training by so many at a time has this, too.
        held_bytes = 0 if self._is_chunk_given else _BYTES_OF_STEP * self.weights
        held = torch.empty(held_bytes, dtype=torch.uint8, device=self.device)
        self._losses.set_up(records, self._at_a_time)
        if self._scores is not None and score_records is not None:
            self._scores.chunk_size = self.chunk_size
            with self.evaluating():
                self._scores.set_up(score_records)
        del held
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
        def of_chunk(chunk: Chunk) -> Computed:
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
                    step.add(totals, gradients.rows, gradients.places, gradients.looked_up)
        return totals

    def _results(self, each_record: EachRecord, records: Records, chunk: Chunk) -> Computed:
        self._draws.before_reading()
        parts = self.on_device(records.take(chunk.indices))
        self._draws.before_computing()
        return each_record.of(parts, chunk.places)

    def scores(self, records: Records, indices: npt.NDArray[np.int64]) -> FloatArray:
        each_score = self._scores
        assert each_score is not None

        def of_chunk(chunk: Chunk) -> FloatArray:
            computed = self._results(each_score, records, chunk)
            numbers = computed.rows[0][computed.places, 0]
            clipped = numbers.double().nan_to_num(nan=0.0).clamp(0.0, 1.0)
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


def _example(features: Part, rows: str = "") -> str | None:
    """Returns the code that makes up inputs of a shape; None if none is known.

    Args:
        features: Those of some records.
        rows: The argument that says how many are made up; empty for the functions' own numbers,
            which differ.
    """
    if isinstance(features, Mapping | tuple):
        named = features.items() if isinstance(features, Mapping) else enumerate(features)
        examples = {name: _example(part, ", rows=64") for name, part in named}
        if None in examples.values():
            return None
        if isinstance(features, tuple):
            return f"({', '.join(map(str, examples.values()))},)"
        return f"{{{', '.join(f'{name!r}: {example}' for name, example in examples.items())}}}"
    sizes = ", ".join(map(str, features.shape[1:]))
    if not features.is_floating_point():
        return f"odp.made_up_tokens(vocabulary, {sizes}{rows})" if features.ndim == 2 else None
    if features.ndim == 2:
        return f"odp.made_up_inputs(*[(-1, 1)] * {sizes}{rows})"
    return (
        f"odp.made_up_images({sizes}{rows})" if features.ndim == 4 else f"torch.rand(64, {sizes})"
    )


def _records_at_a_time(numbers: int, device: torch.device) -> int:
    """Returns how many gradients of so many numbers are computed at a time by default."""
    bytes_each = 4 * numbers
    if device.type == "cuda":
        return max(1, min(_MANY_RECORDS, int(_SHARE_OF_GPU * _free_bytes(device)) // bytes_each))
    quick = min(max(_QUICK_BYTES // bytes_each, _FEW_RECORDS), _MANY_RECORDS)
    return max(1, min(quick, _GRADIENT_BYTES // bytes_each))


def _free_bytes(device: torch.device) -> int:
    """Returns what is free on a GPU, and what this process has freed there and keeps."""
    free, _ = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(free + kept)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error says that memory is short, on a GPU or on the processor."""
    is_named_so = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return is_named_so or "can't allocate memory" in str(error)


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
