"""One training with Opacus: what its loop gets, what a step does, and what it shows at its end."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import torch
from opacus.accountants import RDPAccountant

from optuna_dp.errors import PlanError
from optuna_dp.opacus.mixing_check import SHOWN_RECORDS, MixingCheck
from optuna_dp.opacus.noisy_optimizer import NoisyOptimizer
from optuna_dp.opacus.record_source import Batch, RecordSource
from optuna_dp.opacus.set_up import mixing_problem
from optuna_dp.runs.run import SgdRun
from optuna_dp.runs.spending import spent_event
from optuna_dp.runs.trial_notes import Claim, note
from optuna_dp.study.entries import SPENT
from optuna_dp.training.exact_step import ExactStep
from optuna_dp.training.sampling import poisson_sample

if TYPE_CHECKING:
    from optuna.trial import Trial

# A torch.nn.Parameter, to which Opacus gives an attribute grad_sample.
Weight: TypeAlias = Any
# In how many batches the loop's mistakes are looked for that cost time to find.
_CLOSELY_WATCHED = 2
_REMEDY = (
    "Write the loss as the mean over the records of one number for each of them, or use "
    "odp.train, whose loss sees one record at a time."
)


@dataclass
class Delivery:
    """A batch that the loop got.

    Attributes:
        batch: The batch.
        size: How many records are in it.
        counted: Which of them were drawn. The gradients of the others are dropped.
        number: Its place among all batches of the run, from 0.
        is_stepped: Whether its step was taken.
    """

    batch: Batch
    size: int
    counted: slice
    number: int
    is_stepped: bool = False


class WatchedTraining:
    """A training whose loop belongs to the user.

    Args:
        run: What the run may spend.
        claim: The trial's claim of its training.
        module: The module without hooks.
        weights: The parameters that are trained; Opacus gives them attributes.
        source: The records.
        pieces: In how many batches the records of one step are delivered.
        most_shown: Largest number of records that the check for mixing may add to a batch.

    Attributes:
        trial: The trial.
        accountant: Opacus', with what was spent so far.
        batches: The number of batches that the loop gets.
    """

    def __init__(
        self,
        run: SgdRun,
        claim: Claim,
        module: torch.nn.Module,
        weights: Sequence[Weight],
        source: RecordSource,
        pieces: int,
        most_shown: int = SHOWN_RECORDS,
    ) -> None:
        self.trial: Trial = claim.trial
        self.accountant = RDPAccountant()
        self.batches = run.steps * pieces
        self._run, self._claim, self._rate = run, claim, run.sample_rate
        self._module, self._weights, self._pieces = module, weights, pieces
        self._source = source
        self._generator = np.random.default_rng(secrets.randbits(256))
        self._draws = self._all_draws()
        self._check = MixingCheck(
            source, (next(self._draws), next(self._draws)), self._generator, module, most_shown
        )
        self._loaded: Iterator[Batch] | None = None
        self._loading: deque[int] = deque()
        self._current: Delivery | None = None
        self._exact_step: ExactStep | None = None  # of the sum that is under way
        self._sums: list[torch.Tensor] = []
        self._waiting: deque[tuple[ExactStep, list[torch.Tensor]]] = deque()  # whole sums
        self._steps = 0
        self._problem: str | None = None  # for which the training was refused
        self._is_over = False

    # What the loop gets.

    def deliver(self, *, is_new_pass: bool) -> Batch:
        """Returns the next batch; raises StopIteration if there is none.

        Args:
            is_new_pass: Whether the loop has just begun to go through the batches. It gets a batch
                again then that it has not stepped on, so that a look at a batch costs nothing.
        """
        if self._current is not None and not self._current.is_stepped:
            if not is_new_pass:
                raise PlanError(
                    f"Batch {self._current.number} had no step. Step once for each batch, and "
                    "leave none out, not even a small one. Several batches cannot be added up in "
                    "one step: to bound memory, use make_private(..., physical_batch_size=...). A "
                    "wrapper that fetches batches in advance (Accelerate's loader) cannot be used."
                )
        else:
            self._current = self._next_delivery()
        if self._current.number < _CLOSELY_WATCHED:
            self._check.begin(self._current.number)
        self._check_weights_held()
        for parameter in self._weights:
            parameter.grad_sample = None  # such as a generator's pass through a discriminator
        return self._current.batch

    @property
    def is_complete(self) -> bool:
        """Whether the loop has stepped on every batch."""
        return (
            self._current is not None
            and self._current.is_stepped
            and self._current.number == self.batches - 1
        )

    def _next_delivery(self) -> Delivery:
        number = 0 if self._current is None else self._current.number + 1
        if number >= self.batches:
            raise StopIteration
        if number < _CLOSELY_WATCHED:
            return Delivery(*self._check.batch(number), number)
        if self._loaded is None:
            self._loaded = self._source.batches(self._remaining_indices())
        batch = next(self._loaded)
        size = self._loading.popleft()
        return Delivery(batch, max(size, 1), slice(0, size), number)

    def _remaining_indices(self) -> Iterator[list[int]]:
        for indices in self._draws:
            self._loading.append(len(indices))
            # No loop, collate function or model has to cope with an empty batch: it gets one
            # record, whose gradient is dropped.
            yield indices or [int(self._generator.integers(self._source.size))]

    def _all_draws(self) -> Iterator[list[int]]:
        for _ in range(self._run.steps):
            indices = poisson_sample(self._source.size, self._rate)
            for piece in np.array_split(indices, self._pieces):
                yield piece.tolist()

    # What a step does.

    def step(self, optimizer: NoisyOptimizer) -> None:
        """Takes the step that belongs to the batch that the loop has.

        Raises:
            PlanError: If there is none, or the training is not what the plan charges for.
        """
        if self._is_over:
            raise PlanError(
                f"Trial {self.trial.number} has ended, and so has its training. Take all steps "
                "inside the objective."
            )
        if self._problem is not None:
            raise PlanError(self._problem)
        delivery = self._current
        if delivery is None or delivery.is_stepped:
            raise PlanError(
                f"A step needs a batch of its own. This run may take {self._run.steps} steps and "
                f"has taken {self._steps}. Step once for each batch."
            )
        self._check_gradients(optimizer, delivery)
        if delivery.number < _CLOSELY_WATCHED:
            self._check_mixing(optimizer, delivery)
        delivery.is_stepped = True
        for parameter in self._weights:
            parameter.grad_sample = parameter.grad_sample[delivery.counted]
        if self._exact_step is None:
            self._exact_step = optimizer.exact_step()
            self._sums = optimizer.clipped_sums(self._exact_step)
        else:
            sums = optimizer.clipped_sums(self._exact_step)
            for total, part in zip(self._sums, sums, strict=True):
                total += part
        if (delivery.number + 1) % self._pieces == 0:
            self._waiting.append((self._exact_step, self._sums))
            self._exact_step = None
        # The second batch is computed at the same weights as the first. Both steps follow then:
        # the second one has a gradient at the weights before the first, which costs no privacy.
        while self._waiting and delivery.number > 0:
            self._noisy_step(optimizer, *self._waiting.popleft())

    def _noisy_step(
        self, optimizer: NoisyOptimizer, exact_step: ExactStep, sums: list[torch.Tensor]
    ) -> None:
        # Recorded first: a step that fails half-way has spent all the same.
        noise_multiplier = exact_step.noise_multiplier
        self.accountant.step(noise_multiplier=noise_multiplier, sample_rate=self._rate)
        self._steps += 1
        optimizer.noisy_step(sums, exact_step)

    # What is looked at.

    def _refuse(self, problem: str) -> NoReturn:
        """Ends the training for good: a loop that catches the error gets it again."""
        self._problem = problem
        self._check.restore()
        raise PlanError(problem)

    def _check_weights_held(self) -> None:
        """Refuses weights that others than the noisy steps may move from now on."""
        trainable = {id(p) for p in self._module.parameters() if p.requires_grad}
        if trainable != {id(p) for p in self._weights}:
            self._refuse(
                "Parameters of the module were frozen, unfrozen or replaced after make_private. "
                "Decide what is trained before make_private."
            )

    def _check_mixing(self, optimizer: NoisyOptimizer, delivery: Delivery) -> None:
        """Refuses the first two batches if a record's gradient depends on the others."""
        # First, because it names the layer: a loop's train() undoes the eval() of a frozen one.
        for name, part in self._module.named_modules():
            if (problem := mixing_problem(part)) is not None:
                self._refuse(f"{type(part).__name__} {name!r} is in train mode. {problem[1]}")
        gradients = [parameter.grad_sample for parameter in self._weights]
        if delivery.number == 0:
            self._check.end_of_first(gradients)
            return
        difference = self._check.largest_difference(gradients, optimizer.max_grad_norm)
        if difference is not None:
            self._refuse(_mixing(difference, self._check.is_random))

    def _check_gradients(self, optimizer: NoisyOptimizer, delivery: Delivery) -> None:
        names = {id(parameter): name for name, parameter in self._module.named_parameters()}
        if {id(p) for p in optimizer.params} != {id(p) for p in self._weights}:
            self._refuse(
                "The optimizer does not hold the same parameters as at the beginning, or some "
                "were frozen or unfrozen. Decide what is trained before make_private."
            )
        samples = [parameter.grad_sample for parameter in self._weights]
        if all(sample is None for sample in samples):
            self._refuse(
                "There are no gradients of single records. Call the module that make_private "
                "returned, then backward() on its loss, then step(), with no zero_grad() between "
                "backward() and step()."
            )
        for parameter, sample in zip(self._weights, samples, strict=True):
            name = names.get(id(parameter), "a parameter")
            if sample is None:
                self._refuse(
                    f"{name!r} has no gradient: its layer took no part in the loss, is in eval() "
                    "mode, or was called around. Freeze the parameter before make_private "
                    "(requires_grad_(False)), or leave the layer out."
                )
            if isinstance(sample, list):
                self._refuse(
                    f"{name!r} has gradients of {len(sample)} backward passes. Add the losses of "
                    "one batch, and call backward() once. Several batches cannot be added up in "
                    "one step: use make_private(..., physical_batch_size=...)."
                )
            if len(sample) != delivery.size:
                self._refuse(_first_axis(name, len(sample), delivery.size))

    # What it shows when the trial ends.

    def finalise(self) -> None:
        """Records what was spent; raises if the training is not what the plan charges for."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.event_json import event_to_json

        self._is_over = True
        self._check.restore()
        if not self._steps:
            raise PlanError(
                self._problem
                or "its training was set up by odp.opacus.make_private, and no step with noise "
                "was taken. Step the optimizer that make_private returned, once for each batch "
                "that it returned. The first step takes effect with the second."
            )
        note(self.trial, SPENT, event=event_to_json(spent_event(self.accountant)), final=True)
        if self._problem is not None:
            raise PlanError(self._problem)
        self._check_weights_held()
        self._claim.finish(steps=self._steps)

    def reads(self, sources: Sequence[object]) -> bool:
        """Returns whether what was handed in is the accountant that is read at the end anyway."""
        return bool(sources) and all(source is self.accountant for source in sources)


def _mixing(difference: float, is_random: bool) -> str:
    share = "beyond measure" if np.isinf(difference) else f"by {difference:.2g} of its size"
    randomness = (
        "The loop draws random numbers, by the collate_fn, by itself or by a layer, and they may "
        "be the cause: draw them record by record in the data set. "
        if is_random
        else ""
    )
    return (
        f"The gradient of a record changed {share} when the other records of its batch changed, "
        "at the same weights. Clipping does not bound what one record moves then. Usual causes: "
        "class weights or ignore_index in a mean loss, reduction='sum', a mean over all tokens of "
        "the batch, padding to the longest record of the batch, a contrastive loss, a layer that "
        "mixes records, a packed LSTM of Opacus, a collate_fn that sorts records, or a batch that "
        "make_private did not deliver. If the loop changes something from batch to batch by "
        "public numbers alone, such as the weight of a term of the loss, let it begin with the "
        "third batch. What learns from the records in the loop besides the module, such as the "
        "centres of a loss or a running mean, has no noise: leave it out. "
        f"{randomness}{_REMEDY}"
    )


def _first_axis(name: str, rows: int, size: int) -> str:
    if rows == 1:
        return (
            f"The gradient of {name!r} is one for all {size} records of the batch. Its layer gets "
            "the same input for all of them, such as positions: repeat that input for each "
            "record. Or use odp.train."
        )
    return (
        f"The gradients of {name!r} are those of {rows} rows, and the batch has {size} records. "
        "The first axis of what a layer gets must be that of the records, all of them and once: "
        "no windows, crops or tokens moved into it, no time (batch_first=True), no record left "
        "out. Otherwise pieces of records are clipped and not records. Or use odp.train, whose "
        "loss sees one record at a time."
    )
