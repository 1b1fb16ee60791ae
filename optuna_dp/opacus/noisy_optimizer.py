"""Opacus' optimizer, with clipping, noise and scaling as the plan has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from opacus.optimizers import DPOptimizer

from optuna_dp.errors import PlanError
from optuna_dp.training.gradient_norms import (
    at_least_single,
    clipping_factors,
    squared_norms,
    weighted_sum,
)
from optuna_dp.training.learner import CLIPPING_MARGIN
from optuna_dp.training.noise import GeneratorNoise, Noise, SecureNoise, is_affordable


class Watching(Protocol):
    """What decides whether a step is taken."""

    def step(self, optimizer: NoisyOptimizer) -> None:
        """Takes the step that belongs to the batch that the loop has."""


class NoisyOptimizer(DPOptimizer):
    """Steps an optimizer of torch with clipped sums and noise.

    Differs from Opacus' own in this:

    * A gradient that is not finite counts as zero. Otherwise one record could make all weights
      NaN.
    * Norms have double precision, and sums single precision at least, whatever the weights have.
    * The noise is that of :func:`optuna_dp.train` (``training.noise``). It is added in double
      precision, and then rounded to that of the weights.
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
        self._noise_norm = clipping_norm
        weights = sum(parameter.numel() for parameter in self.params)
        on_processor = all(parameter.device.type == "cpu" for parameter in self.params)
        self._noise: Noise = GeneratorNoise()
        if is_affordable(weights, expected_batch_size, on_processor):
            self._noise = SecureNoise()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
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

    def clip_and_accumulate(self) -> None:
        samples = [parameter.grad_sample for parameter in self.params]
        device = samples[0].device
        rows = [
            sample.reshape(len(sample), parameter.numel())
            for parameter, sample in zip(self.params, samples, strict=True)
        ]
        squares = torch.stack([squared_norms(row).to(device) for row in rows]).sum(0)
        factors = clipping_factors(squares, self.max_grad_norm * (1.0 - CLIPPING_MARGIN))
        for parameter, row in zip(self.params, rows, strict=True):
            gradients = row.to(at_least_single(row.dtype))
            total = weighted_sum(factors.to(gradients.device), gradients)
            parameter.summed_grad = total.view_as(parameter)
            parameter.grad_sample = None

    def add_noise(self) -> None:
        deviation = self.noise_multiplier * self._noise_norm
        for parameter in self.params:
            noisy = self._noise.added_to(parameter.summed_grad.reshape(-1), deviation)
            parameter.grad = noisy.to(parameter.dtype).view_as(parameter)

    def scale_grad(self) -> None:
        for parameter in self.params:
            parameter.grad /= self.expected_batch_size

    def noisy_step(self, sums: list[torch.Tensor], clipping_norm: float) -> None:
        """Steps the optimizer with noise.

        Args:
            sums: The sum of clipped gradients, for each weight.
            clipping_norm: The largest norm that any of them was clipped to. A schedule may have
                changed ``max_grad_norm`` since.
        """
        self._noise_norm = clipping_norm
        for parameter, total in zip(self.params, sums, strict=True):
            parameter.summed_grad = total
        self.add_noise()
        self.scale_grad()
        for parameter in self.params:
            parameter.summed_grad = None
        if self.step_hook:
            self.step_hook(self)
        self.original_optimizer.step()
