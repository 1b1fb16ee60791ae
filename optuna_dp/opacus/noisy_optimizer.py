"""Opacus' optimizer, with clipping, noise and scaling as the plan has them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from opacus.optimizers import DPOptimizer

from optuna_dp.errors import PlanError


class Watching(Protocol):
    """What decides whether a step is taken."""

    def step(self, optimizer: NoisyOptimizer) -> None:
        """Takes the step that belongs to the batch that the loop has."""


class NoisyOptimizer(DPOptimizer):
    """Steps an optimizer of torch with clipped sums and noise.

    Differs from Opacus' own in this:

    * A gradient that is not finite counts as zero. Otherwise one record could make all weights
      NaN.
    * Norms, sums and noise have single precision at least, whatever the weights have.
    * The noise is added in double precision, and then rounded to that of the weights.
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
        self._noise = np.random.default_rng(secrets.randbits(256))
        self._noise_on_devices: dict[torch.device, torch.Generator] = {}

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
        norms = torch.stack(
            [
                torch.linalg.vector_norm(
                    sample.reshape(len(sample), parameter.numel()),
                    dim=1,
                    dtype=_wide(sample.dtype),
                ).to(device)
                for parameter, sample in zip(self.params, samples, strict=True)
            ],
            dim=1,
        ).norm(2, dim=1)
        infinite = ~torch.isfinite(norms)
        factors = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)
        factors = torch.where(infinite, torch.zeros_like(factors), factors)
        for parameter, sample in zip(self.params, samples, strict=True):
            values = sample.to(_wide(sample.dtype))
            if bool(infinite.any()):
                rows = infinite.to(values.device).view(-1, *[1] * (values.dim() - 1))
                values = torch.where(rows, torch.zeros_like(values), values)
            parameter.summed_grad = torch.einsum(
                "i,i...", factors.to(values.device, values.dtype), values
            )
            parameter.grad_sample = None

    def add_noise(self) -> None:
        deviation = self.noise_multiplier * self.max_grad_norm
        for parameter in self.params:
            noise = self._standard_noise(parameter.summed_grad) * deviation
            noisy = parameter.summed_grad.to(torch.float64) + noise
            parameter.grad = noisy.to(parameter.dtype).view_as(parameter)

    def scale_grad(self) -> None:
        for parameter in self.params:
            parameter.grad /= self.expected_batch_size

    def noisy_step(self, sums: list[torch.Tensor]) -> None:
        """Steps the optimizer with noise.

        Args:
            sums: The sum of clipped gradients, for each weight.
        """
        for parameter, total in zip(self.params, sums, strict=True):
            parameter.summed_grad = total
        self.add_noise()
        self.scale_grad()
        for parameter in self.params:
            parameter.summed_grad = None
        if self.step_hook:
            self.step_hook(self)
        self.original_optimizer.step()

    def _standard_noise(self, like: torch.Tensor) -> torch.Tensor:
        """Returns standard Gaussian noise in double precision."""
        device = like.device
        if device.type == "cpu":
            return torch.from_numpy(np.asarray(self._noise.standard_normal(tuple(like.shape))))
        if device not in self._noise_on_devices:
            generator = torch.Generator(device=device)
            generator.manual_seed(secrets.randbits(63))
            self._noise_on_devices[device] = generator
        return torch.randn(
            like.shape,
            dtype=torch.float64,
            device=device,
            generator=self._noise_on_devices[device],
        )


def _wide(kind: torch.dtype) -> torch.dtype:
    return torch.float64 if kind == torch.float64 else torch.float32
