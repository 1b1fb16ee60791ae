"""Canaries in the steps of an Opacus training, whatever code runs it.

While :func:`canaries_in_opacus` is active, every ``DPOptimizer`` puts the canaries' gradients, far
longer than the clipping norm, among those of the batch. They are clipped with the others, and
noise is added to the sum; so a training that clips too little is found out like one that adds too
little noise. Batches are drawn as ever: how is not seen here (see ``optuna_dp.check_objective``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from optuna_dp.errors import InvalidArgumentError, MissingExtraError
from optuna_dp.testing.gradient_canaries import LENGTH, Coins, GradientCanaries


@contextmanager
def canaries_in_opacus(canaries: GradientCanaries) -> Iterator[None]:
    """Puts ``canaries`` into every step of every Opacus optimizer while it is active.

    Raises:
        MissingExtraError: If Opacus is not installed.
        InvalidArgumentError: At the first step, if the optimizer clips otherwise than by one norm
            over all parameters (per layer, adaptively, ghost clipping), or is a distributed one.
    """
    with watched_optimizers(lambda optimizer: _CanarySteps(optimizer, canaries)):
        yield


@contextmanager
def watched_optimizers(watch: Any) -> Iterator[None]:
    """Calls ``watch(optimizer)`` before the first step of each Opacus optimizer.

    What it returns is asked for ``clip_and_accumulate`` and ``add_noise``, which take the place of
    the optimizer's own until the block ends.

    Raises:
        MissingExtraError: If Opacus is not installed.
    """
    try:
        from opacus.optimizers import DPOptimizer  # an extra
    except ImportError:
        raise MissingExtraError("opacus", "opacus") from None
    optimizers: list[Any] = []
    original_pre_step = DPOptimizer.pre_step

    def pre_step(optimizer: Any, closure: Any = None) -> Any:
        if not any(optimizer is known_optimizer for known_optimizer in optimizers):
            optimizers.append(optimizer)
            watcher = watch(optimizer)
            # On the instance: whatever a subclass has made of the two is called from there.
            optimizer.clip_and_accumulate = watcher.clip_and_accumulate
            optimizer.add_noise = watcher.add_noise
        return original_pre_step(optimizer, closure)

    DPOptimizer.pre_step = pre_step
    try:
        yield
    finally:
        DPOptimizer.pre_step = original_pre_step
        for optimizer in optimizers:
            vars(optimizer).pop("clip_and_accumulate", None)
            vars(optimizer).pop("add_noise", None)


def clips_flat(optimizer: Any) -> bool:
    """Returns whether an optimizer clips by one norm over all parameters, on one machine."""
    from opacus.optimizers import DPOptimizer  # an extra; the caller has it

    kind = type(optimizer)
    return kind is DPOptimizer or not kind.__module__.startswith("opacus.")


class _CanarySteps:
    """What one optimizer does in place of its own two methods."""

    def __init__(self, optimizer: Any, canaries: GradientCanaries) -> None:
        if not clips_flat(optimizer):
            raise InvalidArgumentError(
                "train",
                type(optimizer).__name__,
                "canaries need one clipping norm over all parameters, on one machine",
                "Audit with clipping='flat' and grad_sample_mode='hooks'.",
            )
        self._optimizer = optimizer
        self._canaries = canaries
        self._clip, self._noise = optimizer.clip_and_accumulate, optimizer.add_noise
        self._coins: Coins | None = None
        self._records: Any = None  # the sum of the records' clipped gradients, flat

    def clip_and_accumulate(self) -> None:
        """Adds this step's canaries to the batch; a batch may come in several pieces."""
        import torch  # an extra; Opacus needs it

        optimizer = self._optimizer
        with torch.no_grad():
            records_sum = self._clipped_sum()
            self._records = records_sum if self._records is None else self._records + records_sum
            if self._coins is None:
                self._coins = self._canaries.toss(int(records_sum.numel()))
                self._append(self._coins)
        self._clip()
        if optimizer.params and optimizer.params[0].summed_grad is None:
            raise AssertionError("Opacus no longer keeps the clipped sum in summed_grad.")

    def add_noise(self) -> None:
        """Lets the optimizer add its noise, guesses, and takes the canaries out again."""
        import torch  # an extra; Opacus needs it

        self._noise()
        assert self._coins is not None
        coins, self._coins = self._coins, None
        records, self._records = self._records, None
        norm = float(self._optimizer.max_grad_norm)
        with torch.no_grad():
            flat = torch.cat([p.grad.reshape(-1) for p in self._optimizer.params])
            at = torch.as_tensor(coins.coordinates, device=flat.device)
            noisy_values = ((flat[at] - records[at]).double() / norm).cpu().numpy()
            self._canaries.guess(coins, np.asarray(noisy_values, dtype=np.float64))
            flat[at[torch.as_tensor(coins.included, device=at.device)]] -= norm
            begin = 0
            for p in self._optimizer.params:
                p.grad = flat[begin : begin + p.numel()].view_as(p).clone()
                begin += p.numel()

    def _clipped_sum(self) -> Any:
        """What the records should give: each gradient cut down to the clipping norm, as a sum."""
        import torch  # an extra; Opacus needs it

        parts = [g.reshape(len(g), -1) for g in self._optimizer.grad_samples]
        norms = torch.stack([g.norm(2, dim=1) for g in parts], dim=1).norm(2, dim=1)
        factor = (float(self._optimizer.max_grad_norm) / (norms + 1e-6)).clamp(max=1.0)
        return torch.cat([(factor[:, None] * g).sum(dim=0) for g in parts])

    def _append(self, coins: Coins) -> None:
        """Puts the gradients of the included canaries behind those of the records."""
        import torch  # an extra; Opacus needs it

        coordinates = coins.coordinates[coins.included]
        length = LENGTH * float(self._optimizer.max_grad_norm)
        begin = 0
        for p in self._optimizer.params:
            samples = p.grad_sample
            last_samples = samples[-1] if isinstance(samples, list) else samples
            rows = torch.zeros(
                (len(coordinates), p.numel()), dtype=last_samples.dtype, device=last_samples.device
            )
            inside = (coordinates >= begin) & (coordinates < begin + p.numel())
            rows[np.flatnonzero(inside), coordinates[inside] - begin] = length
            begin += p.numel()
            joined = torch.cat(
                [last_samples, rows.view(len(coordinates), *last_samples.shape[1:])]
            )
            if isinstance(samples, list):
                samples[-1] = joined
            else:
                p.grad_sample = joined
