"""Private training of PyTorch modules: gradients of single records by ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.modules import activation

from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.training.companions import reliance
from optuna_dp.training.gradient_norms import (
    at_least_single,
    clipping_factors,
    squared_norms,
    weighted_sum,
)
from optuna_dp.training.learner import (
    CLIPPING_MARGIN,
    RECORDS_LOOKED_AT,
    Learner,
    by_chunk,
    mark_as_trained,
    trained_before,
    usual_parts,
)
from optuna_dp.training.record_functions import RecordFunction, errors_translated, over_records
from optuna_dp.training.records import ArrayRecords, Records, mapped
from optuna_dp.training.schema import features_of_order_one
from optuna_dp.training.secret_draws import (
    SecretDraws,
    generators_kept,
    seed_kept_generators,
    while_no_training_computes,
)
from optuna_dp.training.torch_memory import claim_memory
from optuna_dp.training.torch_weights import TorchWeights, renew_lists_of_weights
from optuna_dp.training.unchanged import (
    HOOKS_OF_MODULES,
    HOOKS_OF_OPTIMIZERS,
    difference,
    digest_of_values,
    fingerprint,
    has_own_rule_for_batches,
    holder_of,
    mode_of_a_script,
    operators_named_in,
    reachable,
    unwraps_records,
)

# Of the gradients of the records that are computed at a time.
_GRADIENT_BYTES = 256 * 2**20
_MOST_RECORDS_AT_A_TIME = 1024
# Of computing records while other threads set seeds.
_ATTEMPTS = 8
# Parts of a model whose inputs are plain features: of order one, as the documentation advises.
_DENSE = (nn.Linear, nn.Dropout, nn.Flatten, nn.Identity)
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

_Value = TypeVar("_Value")


class TorchLearner(TorchWeights, Learner):
    """A module of PyTorch with its loss and its score; see :class:`Learner`.

    Args:
        model: The module. Its parameters that require a gradient are trained, in place.
        loss: The loss of one record.
        loss_argument: The argument that the loss was given as.
        score: The score of one record; None if none is computed.
        score_argument: The argument that the score was given as.
        clipping_norm: The largest norm of one record's gradient.
        chunk_size: How many records' gradients are computed at a time; None for a default.
        device: Where to train; None for a GPU if there is one, and else where the model is.
        functions: The user's own functions, by argument.
        optimizer: The user's function that makes the optimizer, or a name.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        loss: RecordFunction,
        loss_argument: str,
        score: RecordFunction | None,
        score_argument: str,
        clipping_norm: float,
        chunk_size: int | None,
        device: Any,
        functions: dict[str, Any],
        optimizer: Any,
    ) -> None:
        super().__init__(model)
        _check_no_other_parameters(functions)
        self._loss_argument, self._score_argument = loss_argument, score_argument
        self._gradients = over_records(model, loss, loss_argument, gradients=True)
        self._score = None
        if score is not None:
            self._score = over_records(model, score, score_argument, gradients=False)
        self._norm = clipping_norm * (1.0 - CLIPPING_MARGIN)
        self._functions, self._optimizer_factory = functions, optimizer
        self._operators = operators_named_in({"model": model, **functions})
        self._home = self._trained[0].device
        self._device = self._move(device)
        self.on_processor = self._device.type == "cpu"
        affordable = max(1, _GRADIENT_BYTES // (4 * self.weights))
        self.chunk_size = chunk_size or min(affordable, _MOST_RECORDS_AT_A_TIME)
        self._draws = SecretDraws(self._device)
        self._is_seeded = False
        self._until_closed = ExitStack()
        self._unchanged: dict[str, bytes] = {}
        self._is_taken_over = False

    def _move(self, device: Any) -> torch.device:
        if device is None:
            device = "cuda" if torch.cuda.is_available() else self._home
        try:
            target = torch.device(device)
            if target != self._home:
                self._model.to(target)
                self._left = [weight.to(target) for weight in self._left]
        except (RuntimeError, TypeError, AssertionError) as error:
            raise InvalidArgumentError(
                "device", device, f"PyTorch cannot train there: {error}"
            ) from error
        return self._trained[0].device

    @property
    def _roots(self) -> dict[str, Any]:
        return {
            "model": self._model,
            **self._functions,
            "global hooks": HOOKS_OF_MODULES,
            "operators": self._operators,
        }

    @property
    def _roots_and_optimizer(self) -> dict[str, Any]:
        return {**self._roots, "optimizer": [self._optimizer_factory, HOOKS_OF_OPTIMIZERS]}

    def try_out(self, records: Records, score_records: Records | None) -> None:
        holder = holder_of(
            self._roots_and_optimizer,
            [*records.holders(), *([] if score_records is None else score_records.holders())],
        )
        if holder is not None:
            raise InvalidArgumentError(
                holder.split(".")[0].split("[")[0],
                holder,
                "it holds the records themselves, so the loss of one record could see others, or "
                "a step could use them without noise",
                "A loss or a score gets the record as its arguments and must use nothing else.",
            )
        mode = mode_of_a_script()
        if mode is not None:
            raise InvalidArgumentError(
                "model",
                f"under the mode {mode}",
                "every operation of the training would go through it, and it sees many records "
                "at once",
                "Call odp.train outside of it.",
            )
        for path, part in reachable(self._roots):
            if isinstance(part, torch.jit.ScriptModule):
                raise InvalidArgumentError(
                    path.split(".")[0].split("[")[0],
                    path,
                    "it is a module of torch.jit, which may keep records where nobody sees them",
                    "Pass the module that was scripted or traced.",
                )
            if has_own_rule_for_batches(part):
                raise InvalidArgumentError(
                    path.split(".")[0].split("[")[0],
                    path,
                    "it has a rule of its own for torch.func.vmap, which may mix records",
                    "Let PyTorch make the rule: generate_vmap_rule = True in a Function.",
                )
            if unwraps_records(part):
                raise InvalidArgumentError(
                    path.split(".")[0].split("[")[0],
                    path,
                    "it reaches behind torch.func, where it would see other records",
                    "A loss or a score must use its own record only.",
                )
        for argument, argument_records in (("records", records), ("score_records", score_records)):
            if argument_records is not None:
                self._check_reading(argument, argument_records)
        self.clipped_sum(records, np.zeros(0, dtype=np.int64))
        for count in (1, 2):
            with while_no_training_computes(), errors_translated(self._loss_argument):
                self._clipped(self._made_up(records, count))
            if self._score is not None and score_records is not None:
                translated = errors_translated(self._score_argument)
                with while_no_training_computes(), translated, self._evaluating():
                    self._scores_of(self._made_up(score_records, count))
            earlier, self._unchanged = self._unchanged, self._fingerprint()
            changed = difference(earlier, self._unchanged) if earlier else None
            if changed is not None:
                raise InvalidArgumentError(
                    changed.split(".")[0].split("[")[0],
                    changed,
                    "it changes when a loss or a score is computed, and would hold records "
                    "without noise after the training",
                    "A model, a loss and a score must keep nothing. Running statistics: call "
                    ".eval() on that part of the model.",
                )
        self._check_companions(records, score_records)

    def _check_reading(self, argument: str, records: Records) -> None:
        """Refuses a data set that notes what it reads where the training would see it.

        Everything is read twice, so that a table that is made once is no matter. The second time
        ends with another record.
        """
        if isinstance(records, ArrayRecords):
            return
        self._read_some(records)
        earlier_fingerprint = fingerprint(self._roots_and_optimizer, [])
        self._read_some(records, -1)
        changed = difference(earlier_fingerprint, fingerprint(self._roots_and_optimizer, []))
        if changed is not None:
            raise InvalidArgumentError(
                argument,
                f"a data set that changes {changed}",
                "the model, the loss or the optimizer would see there what was read of other "
                "records",
                "A data set must return what belongs to a record, and note it nowhere else.",
            )

    def _read_some(self, records: Records, step: int = 1) -> None:
        looked_at = np.arange(min(len(records), RECORDS_LOOKED_AT))[::step]
        for _ in by_chunk(records.take, looked_at, 1):
            pass

    def _check_companions(self, records: Records, score_records: Records | None) -> None:
        """Refuses a loss or a score of a made-up record that changes with the one beside it."""
        checks: list[tuple[str, Records, Callable[..., torch.Tensor]]] = [
            (self._loss_argument, records, self._gradient_sizes)
        ]
        if self._score is not None and score_records is not None:
            checks.append((self._score_argument, score_records, self._scores_in_rows))
        for argument, argument_records, rows in checks:
            made_up, is_half = self._made_up(argument_records, 1), self._is_half()
            with self._evaluating() if rows == self._scores_in_rows else nullcontext():
                result = reliance(rows, made_up, self._device, is_half=is_half)
            self._draws.are_shared |= result.draws_are_shared
            if result.fault is not None:
                raise InvalidArgumentError(argument, "applied to one record", *result.fault)

    def _is_half(self) -> bool:
        """Returns whether some of the computing is in half precision."""
        kinds = (at_least_single(weight.dtype) != weight.dtype for weight in self._trained)
        return any(kinds) or torch.is_autocast_enabled(self._device.type)

    def _gradient_sizes(self, chunk: tuple[Any, ...]) -> torch.Tensor:
        """Returns two numbers for each parameter's gradient, shape (records, numbers)."""
        gradients = self._gradient_rows(chunk)
        norms = [squared_norms(gradient).sqrt() for gradient in gradients]
        sums = [gradient.sum(1, dtype=torch.float64) for gradient in gradients]
        return torch.stack([*norms, *sums], dim=1)

    def _scores_in_rows(self, chunk: tuple[Any, ...]) -> torch.Tensor:
        return self._scores_of(chunk).double().unsqueeze(1)

    def _fingerprint(self) -> dict[str, bytes]:
        renew_lists_of_weights(self._model)
        return fingerprint(self._roots, self._trained)

    def keep_in_mind(self) -> None:
        self._unchanged = self._fingerprint()

    def default_inputs(self, records: Records) -> Any:
        inputs = self._made_up(records, 1)[0]
        if not is_made_of(self._model, (*_DENSE, *_NORMS)) or not isinstance(inputs, torch.Tensor):
            return None
        return features_of_order_one(*inputs.shape[1:]) if inputs.is_floating_point() else None

    def is_dense_only(self) -> bool:
        return is_made_of(self._model, _DENSE)

    def _made_up(self, records: Records, count: int) -> tuple[Any, ...]:
        """Returns records of zeros; only the shapes of the first few records are used."""
        usual_tensors = self.on_device(usual_parts(records))
        return tuple(
            mapped(lambda part: part.new_zeros((count, *part.shape[1:])), part)
            for part in usual_tensors
        )

    def take_over(self, trial: int) -> None:
        # Frozen layers and teachers that another run has trained are refused as well.
        used_tensors = self._used_tensors()
        mark_as_trained(self._trained, trial, used_tensors)
        if not claim_memory(self._trained, used_tensors):
            raise trained_before()
        self._is_taken_over = True
        self._until_closed.enter_context(generators_kept(self._device))

    def seed_readers(self, *records: Records) -> None:
        for argument_records in records:
            seed_kept_generators(argument_records.holders())

    def _used_tensors(self) -> list[torch.Tensor]:
        """Returns all tensors that the training uses, as the anchors of a loss, and buffers."""
        roots = {**self._roots, "optimizer": self._optimizer_factory}
        parts = {id(part): part for _, part in reachable(roots)}
        return [part for part in parts.values() if isinstance(part, torch.Tensor)]

    def trained_sizes(self) -> list[int]:
        return [weight.nbytes for weight in self._trained]

    def trained_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        return _digests(self._trained, sizes)

    def used_digests(self, sizes: Collection[int]) -> Iterator[tuple[int, bytes]]:
        return _digests(self._used_tensors(), sizes)

    def clipped_sum(self, records: Records, batch: npt.NDArray[np.int64]) -> list[torch.Tensor]:
        def of_chunk(chunk: npt.NDArray[np.int64]) -> list[torch.Tensor]:
            return self._computed(self._clipped, records, chunk)

        self._draws.begin_step()
        totals = self._zeros()
        for _, sums in by_chunk(of_chunk, batch, self.chunk_size):
            if sums is not None:
                for total, part in zip(totals, sums, strict=True):
                    total += part
        self._check_seed()
        return totals

    def _computed(
        self,
        compute: Callable[[tuple[Any, ...]], _Value],
        records: Records,
        chunk: npt.NDArray[np.int64],
    ) -> _Value:
        """Returns what is computed of some records, with draws that nobody can know.

        Another thread of the script may seed a generator meanwhile. Then it is computed again.
        """
        with self._draws.for_reading():
            parts = self.on_device(records.take(chunk))
        for _ in range(_ATTEMPTS):
            with self._draws.for_computing():
                value = compute(parts)
                if self._draws.are_secret():
                    return value
        self._is_seeded = True
        return value

    def _check_seed(self) -> None:
        """Raises an error if the training has set seeds by itself; no record decides that."""
        if self._is_seeded:
            raise PlanError(
                "The model or the loss sets the seed of PyTorch's generator while the training "
                "computes, so the draws of each record, as for dropout, are known. Do not use "
                "this model or its score. Call torch.manual_seed before the training."
            )

    def _zeros(self) -> list[torch.Tensor]:
        return [
            torch.zeros(weight.numel(), dtype=at_least_single(weight.dtype), device=weight.device)
            for weight in self._trained
        ]

    def _clipped(self, chunk: tuple[Any, ...]) -> list[torch.Tensor]:
        """Returns the sum of the clipped gradients of some records, a vector for each weight."""
        gradients = [g.to(at_least_single(g.dtype)) for g in self._gradient_rows(chunk)]
        squares = torch.stack([squared_norms(gradient) for gradient in gradients]).sum(0)
        factors = clipping_factors(squares, self._norm)
        return [weighted_sum(factors, gradient) for gradient in gradients]

    def _gradient_rows(self, chunk: tuple[Any, ...]) -> list[torch.Tensor]:
        """Returns the gradients of some records for each weight, one in each row."""
        values = {n: w.detach() for n, w in zip(self._names, self._trained, strict=True)}
        by_name = self._gradients(values, *chunk)
        return [
            by_name[name].flatten(1) if by_name[name].ndim > 1 else by_name[name].unsqueeze(1)
            for name in self._names
        ]

    def weights_digest(self) -> Callable[[], bytes]:
        model = self._model

        def digest() -> bytes:
            # As it is then: a parameter may be replaced, and what is frozen trained later.
            return digest_of_values([*model.parameters(), *model.buffers()])

        return digest

    def check_unchanged(self) -> None:
        self.check_left()
        self._forget_gradients()
        changed = difference(self._unchanged, self._fingerprint())
        if changed is not None:
            raise PlanError(
                f"The training changed {changed}, which is not among the weights that it trains, "
                "so it may hold records without noise. Do not use this model or its score. A "
                "model, a loss and a score must keep nothing of the records."
            )

    def scores(self, records: Records) -> FloatArray:
        def of_chunk(chunk: npt.NDArray[np.int64]) -> FloatArray:
            numbers = self._computed(self._scores_of, records, chunk)
            clipped = numbers.double().nan_to_num(nan=0.0).clamp(0.0, 1.0)
            return np.asarray(clipped.cpu().numpy(), dtype=np.float64)

        self._draws.begin_step()
        scores = np.zeros(len(records))
        with self._evaluating():
            for chunk, numbers in by_chunk(of_chunk, np.arange(len(records)), self.chunk_size):
                if numbers is not None:
                    scores[chunk] = numbers
        self._check_seed()
        return scores

    def _scores_of(self, chunk: tuple[Any, ...]) -> torch.Tensor:
        assert self._score is not None
        values = {n: w.detach() for n, w in zip(self._names, self._trained, strict=True)}
        with torch.no_grad():
            scores: torch.Tensor = self._score(values, *chunk)
        return scores

    def close(self) -> None:
        super().close()
        self._until_closed.close()
        if self._device != self._home:
            self._model.to(self._home)
        if self._is_taken_over:  # The weights may be in other memory by now.
            claim_memory(self._trained, [])


def _digests(
    weights: Iterable[torch.Tensor], sizes: Collection[int]
) -> Iterator[tuple[int, bytes]]:
    for weight in weights:
        if weight.nbytes in sizes:
            yield weight.nbytes, digest_of_values([weight])


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


def _check_no_other_parameters(functions: dict[str, Any]) -> None:
    for argument, function in functions.items():
        if isinstance(function, torch.nn.Module) and any(
            parameter.requires_grad for parameter in function.parameters()
        ):
            raise InvalidArgumentError(
                argument,
                type(function).__name__,
                "it has parameters of its own that require a gradient, and only the model's are "
                "trained",
                "Make them part of the model, or call requires_grad_(False) on them.",
            )
