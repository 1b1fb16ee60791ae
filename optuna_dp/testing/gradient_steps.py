"""The gradient steps of a training, and how far one record moves them.

DP-SGD adds Gaussian noise to a sum of gradients, each of which is clipped. So if a training is
repeated with the same randomness and one record replaced by another, then the first noisy sum that
differs at all differs by at most two clipping norms, C for each of the two records:

    || sum' - sum ||_2  <=  2 C.

A record with enormous values has a gradient far longer than C before it is clipped. Who clips
the mean of a batch, forgets a layer, normalises with statistics of the batch (BatchNorm) or of the
data, exceeds the bound; who clips each record's gradient cannot. This is a comparison of two
vectors, and no statistical test: the noise is the same in both.

Of a loop of PyTorch's own only the noisy mean is seen, and neither C nor the batch size is known.
But noise of standard deviation s in each of d coordinates is claimed to hide 2 C at a noise
multiplier of C-units sigma, so 2 C <= 2 s / sigma; and s is at most the mean's root mean square,
divided by 1 - t, but for a chance below 1e-8 with t = 6 / sqrt(2 d).
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from optuna_dp.arrays import FloatArray

# Numbers that are kept of one run: 64 MB. Later steps are counted only.
_MOST_KEPT = 16_000_000
_ROUNDING = 1e-4
_FEWEST_COORDINATES = 100


@dataclass
class Steps:
    """The gradient steps of one training.

    Attributes:
        count: How many there were.
        sums: What each step added up, flat; of the first steps only if they are large.
        clipping: The clipping norm of each of ``sums``; NaN if it is not known.
    """

    count: int = 0
    sums: list[FloatArray] = field(default_factory=list)
    clipping: list[float] = field(default_factory=list)
    _kept: int = 0

    def add(self, summed: Any, clipping: float = math.nan) -> None:
        """Notes a step's sum of clipped gradients, or a noisy mean of unknown clipping norm."""
        self.count += 1
        values: npt.NDArray[Any] = np.array(summed, dtype=np.float32).ravel()  # half the memory
        self._kept += values.size
        if self._kept <= _MOST_KEPT:
            self.sums.append(values)
            self.clipping.append(clipping)

    def digest(self) -> str:
        """Returns the same for equal steps, whatever their last digits are."""
        size = [float(f"{np.linalg.norm(values):.3g}") for values in self.sums]
        return hashlib.sha256(repr((self.count, size)).encode()).hexdigest()


@contextmanager
def watching_optimizers(steps: Steps) -> Iterator[None]:
    """Notes the gradients of every PyTorch optimizer, but of those that Opacus wraps."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    from torch.optim.optimizer import register_optimizer_step_pre_hook  # an extra

    def note(optimizer: Any, arguments: Any, settings: Any) -> None:
        params = [p for group in optimizer.param_groups for p in group["params"]]
        if any(hasattr(p, "summed_grad") for p in params) or hasattr(
            optimizer, "noise_multiplier"
        ):
            return  # of Opacus: noted before the noise is added
        gradients = [p.grad.detach().reshape(-1) for p in params if p.grad is not None]
        if gradients:
            steps.add(torch.cat(gradients).cpu().numpy())

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield
    finally:
        handle.remove()


def same(steps: Steps, reference: Steps) -> bool:
    """Returns whether two trainings took the same steps, up to rounding."""
    return steps.count == reference.count and all(map(_close, steps.sums, reference.sums))


def first_move(base: Steps, odd: Steps, noise_multiplier: float) -> tuple[float, float] | None:
    """Returns how far the first step that differs moves, and how far it may; None if none differs.

    Args:
        base: Of a training.
        odd: Of the same training with the same randomness and one record replaced.
        noise_multiplier: That is claimed.
    """
    for a, b, clipping in zip(base.sums, odd.sums, base.clipping, strict=False):
        if a.shape != b.shape or _close(a, b):
            continue
        distance = float(np.linalg.norm(a.astype(np.float64) - b))
        limit = 2.0 * clipping if clipping == clipping else _hidden(a, noise_multiplier)
        return (distance, limit) if math.isfinite(limit) else None
    return None


def _hidden(noisy: FloatArray, noise_multiplier: float) -> float:
    """Returns the longest move that a noisy mean may claim to hide; inf if it is too short."""
    if noisy.size < _FEWEST_COORDINATES:
        return math.inf
    noise = float(np.sqrt(np.mean(noisy.astype(np.float64) ** 2)))
    return 2.0 * noise / (1.0 - 6.0 / math.sqrt(2.0 * noisy.size)) / noise_multiplier


def _close(vector: FloatArray, reference: FloatArray) -> bool:
    if vector.shape != reference.shape:
        return False
    size = max(float(np.linalg.norm(vector)), 1e-30)
    return bool(np.linalg.norm(vector - reference) <= _ROUNDING * size)


def too_far(distance: float, limit: float) -> bool:
    """Returns whether a move exceeds what is allowed by more than rounding."""
    return not distance <= limit * (1.0 + 1e-2)
