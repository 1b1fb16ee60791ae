"""Compares Opacus in a run with the event: noise, clipping, steps and batches."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from optuna_dp.arrays import FloatArray
from optuna_dp.testing.gradient_steps import Steps
from optuna_dp.testing.stated_training import StatedTraining

# A test that an honest training fails less than once in ten million runs.
_RARELY = 1e-7
_DEVIATIONS = 6.0
_SAMPLE = 256


class OpacusRun:
    """What was seen of Opacus in one run.

    Args:
        at_end: Called after each step, with its number from 1.

    Attributes:
        steps: Noisy steps.
        batch_sizes: Records in each step's batch.
        noise: Noise multiplier of each step as measured: the noise's root mean square over the
            clipping norm.
        precision: Relative standard error of each of ``noise``.
        sample_rates: Of the Poisson loaders that were made.
        stated_noise: Noise multipliers of its optimizers, by their own word.
        samples: Some of the noise of each step, in clipping norms.
    """

    def __init__(self, at_end: Callable[[int], None] = lambda step: None) -> None:
        self.steps = 0
        self.batch_sizes: list[int] = []
        self.noise: list[float] = []
        self.precision: list[float] = []
        self.sample_rates: set[float] = set()
        self.stated_noise: set[float] = set()
        self.samples: list[FloatArray] = []
        self._pending = 0
        self._at_end = at_end

    def has_noise_of(self, reference: OpacusRun) -> bool:
        """Returns whether the first step had the very same noise in both runs, up to rounding."""
        return bool(self.samples and reference.samples) and _alike(
            self.samples[0], reference.samples[0]
        )

    def is_training_of(self, reference: OpacusRun) -> bool:
        """Returns whether all steps had the very same noise, so that the models are the same."""
        return 0 < self.steps == reference.steps and all(
            map(_alike, self.samples, reference.samples)
        )

    def note_batch(self, size: int) -> None:
        """Notes a batch, or a piece of one."""
        self._pending += size

    def note_noise(self, optimizer: Any, noise: Any) -> None:
        """Notes a step's noise, flat, in units of the gradient's sum."""
        scale = float(np.linalg.norm(np.atleast_1d(optimizer.max_grad_norm)))
        values = noise.detach().cpu().double().numpy()
        self.stated_noise.add(float(optimizer.noise_multiplier))
        self.noise.append(float(np.sqrt(np.mean(values**2))) / scale)
        self.precision.append(1.0 / math.sqrt(2.0 * values.size))
        self.samples.append(values[:_SAMPLE] / scale)
        self.batch_sizes.append(self._pending)
        self._pending = 0
        self.steps += 1
        self._at_end(self.steps)


def opacus_is_loaded() -> bool:
    """Returns whether anything has imported Opacus, which takes seconds."""
    return "opacus" in sys.modules


def _alike(noise: FloatArray, reference: FloatArray) -> bool:
    # What the noise was added to differs between runs, and so do the last digits.
    size = float(np.abs(noise).max(initial=0.0))
    return noise.shape == reference.shape and bool(
        np.allclose(noise, reference, atol=1e-2 * size, rtol=0)
    )


@contextmanager
def watching_opacus(run: OpacusRun, steps: Steps) -> Iterator[None]:
    """Watches every Opacus optimizer and Poisson loader; does nothing before Opacus is loaded."""
    if not opacus_is_loaded():
        yield
        return
    from opacus.data_loader import DPDataLoader  # an extra

    from optuna_dp.testing.opacus_canaries import watched_optimizers  # an extra

    original_init = DPDataLoader.__init__

    def made(loader: Any, *arguments: Any, **settings: Any) -> None:
        original_init(loader, *arguments, **settings)
        run.sample_rates.add(float(loader.sample_rate))

    DPDataLoader.__init__ = made
    try:
        with watched_optimizers(lambda optimizer: _Watched(optimizer, run, steps)):
            yield
    finally:
        DPDataLoader.__init__ = original_init


class _Watched:
    def __init__(self, optimizer: Any, run: OpacusRun, steps: Steps) -> None:
        self._optimizer, self._run, self._steps = optimizer, run, steps
        self._clip, self._noise = optimizer.clip_and_accumulate, optimizer.add_noise

    def clip_and_accumulate(self) -> None:
        sample = self._optimizer.params[0].grad_sample
        if sample is not None:  # ghost clipping keeps none
            last_sample = sample[-1] if isinstance(sample, list) else sample
            self._run.note_batch(len(last_sample))
        self._clip()

    def add_noise(self) -> None:
        import torch  # an extra; Opacus needs it

        params = self._optimizer.params
        clipped_sum = torch.cat([p.summed_grad.detach().reshape(-1).clone() for p in params])
        self._noise()
        noisy_sum = torch.cat([p.grad.detach().reshape(-1) for p in params])
        norm = float(np.linalg.norm(np.atleast_1d(self._optimizer.max_grad_norm)))
        self._steps.add(clipped_sum.cpu().numpy(), norm)
        self._run.note_noise(self._optimizer, noisy_sum - clipped_sum)


def too_little_noise(run: OpacusRun, training: StatedTraining) -> float | None:
    """Returns the smallest noise multiplier seen if it is below the stated one beyond chance."""
    if not run.noise:
        return None
    noise, precision = np.array(run.noise), np.array(run.precision)
    # The least of many steps lies some deviations lower than one step does.
    deviations = _DEVIATIONS + math.sqrt(2.0 * math.log(len(noise)))
    is_low = noise < training.noise_multiplier * (1.0 - np.minimum(0.9, deviations * precision))
    weights = precision**-2
    mean = math.sqrt(float(np.sum(noise**2 * weights) / weights.sum()))
    mean_low = mean < training.noise_multiplier * (
        1.0 - _DEVIATIONS / math.sqrt(weights.sum()) - 1e-6
    )
    if is_low.any():
        return float(noise.min())
    return mean if mean_low else None


def not_poisson(batch_sizes: Sequence[int], rate: float) -> bool:
    """Returns whether more batches have one size than Poisson sampling gives, beyond chance."""
    from scipy.stats import binom  # start-up time: scipy.stats is slow to load

    sizes = [size for size in batch_sizes if size]
    if not sizes or rate >= 1.0:
        return False
    values, times = np.unique(sizes, return_counts=True)
    largest_count = int(times.max())
    records = max(1, round(float(np.mean(sizes)) / rate))
    likeliest = float(binom.pmf(math.floor((records + 1) * rate), records, rate))
    chance = float(binom.sf(largest_count - 1, len(sizes), likeliest)) * len(values)
    return chance < _RARELY


def batches_too_large(run: OpacusRun, training: StatedTraining) -> float | None:
    """Returns the largest sampling rate of a loader if it exceeds the stated one."""
    rate = max(run.sample_rates, default=0.0)
    return rate if rate > training.sample_rate * (1.0 + 1e-6) else None
