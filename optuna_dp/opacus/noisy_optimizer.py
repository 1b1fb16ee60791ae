"""Opacus' optimizer, with clipping, noise and scaling as the plan has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from opacus.optimizers import DPOptimizer

from optuna_dp.errors import PlanError
from optuna_dp.training.exact_step import ExactStep

_Loss = TypeVar("_Loss")


class Watching(Protocol):
    """What decides whether a step is taken."""

    def step(self, optimizer: NoisyOptimizer) -> None:
        """Takes the step that belongs to the batch that the loop has."""


class NoisyOptimizer(DPOptimizer):
    """Steps an optimizer of torch with clipped sums and noise.

    Differs from Opacus' own in this:

    * Clipping, sums and noise are those of :func:`optuna_dp.train`: whole numbers on a grid, added
      without error, with noise from OpenSSL's generator (``training.exact_step``).
    * A gradient that is not finite counts as zero. Otherwise one record could make all weights
      NaN.
    * Nothing is left over after a step, so a forgotten ``zero_grad`` does no harm.

    Args:
        optimizer: The optimizer of torch.
        noise_multiplier: Noise of a step in clipping norms.
        clipping_norm: Largest norm of one record's gradient.
        expected_batch_size: What sums are divided by.
        watching: Decides whether a step is taken.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        noise_multiplier: float,
        clipping_norm: float,
        expected_batch_size: float,
        watching: Watching,
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=clipping_norm,
            expected_batch_size=expected_batch_size,
        )
        self._watching = watching

    def step(self, closure: Callable[[], _Loss] | None = None) -> _Loss | None:
        """Takes a step if the batch ends one; returns what the closure returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._watching.step(self)
        return loss

    def signal_skip_step(self, do_skip: bool = True) -> None:
        raise PlanError(
            "Several batches cannot be added up in one step: the plan charges for one batch a "
            "step. To bound memory, use make_private(..., physical_batch_size=...) in place of "
            "BatchMemoryManager and signal_skip_step."
        )

    def exact_step(self) -> ExactStep:
        """Returns what clips, adds and adds noise, with the numbers that the optimizer has now."""
        weights = sum(parameter.numel() for parameter in self.params)
        return ExactStep(self.max_grad_norm, self.noise_multiplier, weights)

    def clipped_sums(self, exact_step: ExactStep) -> list[torch.Tensor]:
        """Returns the sum of the clipped gradients for each parameter, in units of the grid."""
        rows = [
            parameter.grad_sample.reshape(len(parameter.grad_sample), parameter.numel())
            for parameter in self.params
        ]
        for parameter in self.params:
            parameter.grad_sample = None
        return exact_step.sum_of(rows)

    def noisy_step(self, sums: list[torch.Tensor], exact_step: ExactStep) -> None:
        """Steps the optimizer with noise.

        Args:
            sums: What :meth:`clipped_sums` returned, or a sum of such.
            exact_step: What clipped them.
        """
        noisy = exact_step.with_noise(sums)
        for parameter, total in zip(self.params, noisy, strict=True):
            gradient = total / self.expected_batch_size
            parameter.grad = gradient.to(parameter.dtype).view_as(parameter)
        if self.step_hook:
            self.step_hook(self)
        self.original_optimizer.step()
