"""The noise of a step.

*secure* noise is a sum of four independent Gaussians, halved. Each is made by Box-Muller in double
precision from OpenSSL's cryptographic generator. A single floating-point Gaussian has gaps, and
they tell which sums it was added to (Mironov, CCS 2012). In a sum of several nobody knows how to
find them (Holohan and Braghin, "Secure Random Sampling in Differential Privacy", arXiv:2107.10138;
Opacus does the same as its secure mode).

*generator* noise comes from a fast generator that is not cryptographic, and that the operating
system seeds: numpy's with 256 bits for the processor, PyTorch's with 64 bits for a GPU. PyTorch's
generator for the processor uses 32 bits of its seed only, so it is not used here.
"""

from __future__ import annotations

import math
import secrets
import ssl
from typing import Any, Protocol

import numpy as np

SECURE, GENERATOR = "secure", "generator"
# Secure noise takes about 55 ns for a weight, and the gradients of a step on a processor at least
# 2.4 ns for a weight and record. So from 256 records on it is below a tenth of a step. A GPU waits
# for the processor; 100,000 weights are 5 ms there.
_SMALL_MODEL_WEIGHTS = 100_000
_LARGE_BATCH_RECORDS = 256
# Of weights at a time: what is made of them fits the processor's cache.
_BLOCK = 1 << 14
_GAUSSIANS = 4
_KEY_BITS = 63


class Noise(Protocol):
    """A source of noise.

    Attributes:
        word: "secure" or "generator".
    """

    word: str

    def added_to(self, total: Any, scale: float) -> Any:
        """Returns a vector plus independent Gaussians, in double precision.

        Args:
            total: A numpy array or a tensor, shape (n,).
            scale: The standard deviation of each Gaussian.
        """


def is_affordable(weights: int, batch_size: float, on_processor: bool) -> bool:
    """Returns whether secure noise takes less than about a tenth of a step.

    Args:
        weights: The number of weights that are trained.
        batch_size: The expected number of records in a step.
        on_processor: Whether the weights are in the memory of the processor.
    """
    return weights <= _SMALL_MODEL_WEIGHTS or (on_processor and batch_size >= _LARGE_BATCH_RECORDS)


class SecureNoise(Noise):
    """Sums of four Gaussians from a cryptographic generator."""

    word = SECURE

    def added_to(self, total: Any, scale: float) -> Any:
        if isinstance(total, np.ndarray):
            return total + scale * np.concatenate([np.zeros(0), *self._blocks(np, len(total))])
        import torch  # An extra.

        blocks = [torch.zeros(0), *self._blocks(torch, len(total))]
        return total.double() + scale * torch.cat(blocks).to(total.device)

    def _blocks(self, library: Any, count: int) -> list[Any]:
        return [
            _four_gaussians(library, min(_BLOCK, count - start))
            for start in range(0, count, _BLOCK)
        ]


class GeneratorNoise(Noise):
    """Gaussians from a fast generator that the operating system seeded."""

    word = GENERATOR

    def __init__(self) -> None:
        self._numpy = np.random.Generator(np.random.PCG64DXSM(secrets.randbits(256)))
        self._by_device: dict[Any, Any] = {}

    def added_to(self, total: Any, scale: float) -> Any:
        if isinstance(total, np.ndarray):
            return total + self._numpy.normal(0.0, scale, total.shape)
        import torch  # An extra.

        if total.device.type == "cpu":
            return total.double() + torch.from_numpy(self._numpy.normal(0.0, scale, total.shape))
        if total.device not in self._by_device:
            generator = torch.Generator(total.device)
            generator.manual_seed(secrets.randbits(64))
            self._by_device[total.device] = generator
        return total.double() + scale * torch.randn(
            total.shape,
            dtype=torch.float64,
            device=total.device,
            generator=self._by_device[total.device],
        )


def _four_gaussians(library: Any, count: int) -> Any:
    """Returns sums of four independent standard Gaussians, halved; shape (count,).

    A pair of uniform numbers makes two Gaussians by Box-Muller, which go to two different weights.

    Args:
        library: numpy or torch, whose functions are used.
        count: How many sums.
    """
    half = (count + 1) // 2
    # Lazy conversion: torch does not share memory that is read-only.
    keys = np.frombuffer(bytearray(ssl.RAND_bytes(2 * _GAUSSIANS * half * 8)), dtype=np.int64)
    numbers: Any = (keys & (2**_KEY_BITS - 1)).astype(np.float64)
    if library is not np:
        numbers = library.from_numpy(numbers)
    radius_keys, angle_keys = numbers.reshape(2, _GAUSSIANS, half)
    # In (0, 1]: the logarithm is finite, and its largest size is that of 63 bits (9.3 deviations).
    radius = library.sqrt(-2.0 * library.log((radius_keys + 1.0) * 2.0**-_KEY_BITS))
    angle = angle_keys * (2.0 * math.pi * 2.0**-_KEY_BITS)
    cosines, sines = radius * library.cos(angle), radius * library.sin(angle)
    sums = library.concatenate([cosines.sum(0), sines.sum(0)]) / math.sqrt(_GAUSSIANS)
    return sums[:count]
