"""Refutes a false noise multiplier by one Opacus training, with canaries among its gradients.

In each step, some coordinates of the gradient become canaries: by a fair coin, a made-up record is
added to the batch whose gradient lies along that coordinate and is a thousand times as long as the
clipping norm. A training that clips each record's gradient makes it as long as the norm. Somebody
who knows everything but the coins sees the noisy sum and guesses them. Where a step adds Gaussian
noise of s clipping norms, nobody guesses a coin right with more than the chance

    p = Phi(1 / (2 s)).

So the share V of right guesses in a step has mean at most p, whatever happened before, and

    wealth = product over steps of (1 + b (V / p - 1)),    0 < b < 1,

has mean at most 1: it exceeds 1 / error with probability at most ``error`` (Markov). An honest
training is accused no more often than that. What the canaries have added is taken out again after
the guess, so the training goes on as if they had not been there. It is seen how gradients are
clipped and how much noise is added; who joins the batches, and what was done to the records
before, is not.

    pip install torch==2.13.0 && pip install ".[opacus]"
    OMP_NUM_THREADS=1 python examples/audits/one_training.py --tries 100

trains a small network on scikit-learn's digits, each time with an audit of its own.
``README.md`` beside it has what it found.
"""

from __future__ import annotations

import argparse
import math
import secrets
import statistics
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from scipy.special import ndtr, ndtri
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp

BATCH, EPOCHS = 128, 6
CANARIES = 64  # in each step
LENGTH = 1000.0  # of a canary's gradient, in clipping norms
STAKE = 0.95  # b

warnings.filterwarnings("ignore", module="(opacus|torch)")
torch.set_num_threads(1)


class Canaries:
    """The canaries of one optimizer: put in before the clipping, guessed after the noise.

    Args:
        optimizer: Of Opacus, with one clipping norm over all layers, on one machine.
        shares: The share of right guesses in each step is put in here.
    """

    def __init__(self, optimizer: DPOptimizer, shares: list[float]) -> None:
        assert type(optimizer) is DPOptimizer, (
            "it needs clipping='flat' and grad_sample_mode='hooks'"
        )
        self.optimizer, self.shares = optimizer, shares
        self.clip, self.noise = optimizer.clip_and_accumulate, optimizer.add_noise
        # Coins that the training cannot know, and no seed of its own can repeat.
        self.rng = np.random.default_rng(secrets.randbits(256))
        self.records: torch.Tensor | None = None

    @torch.no_grad()
    def clip_and_accumulate(self) -> None:
        """Clips a batch, or a piece of one. The first piece has the canaries of the step."""
        clipped = self._clipped_sum()
        if self.records is None:
            self.coordinates = torch.as_tensor(
                self.rng.choice(len(clipped), CANARIES, replace=False)
            )
            self.included = torch.as_tensor(self.rng.random(CANARIES) < 0.5)
            self._append(self.coordinates[self.included])
        self.records = clipped if self.records is None else self.records + clipped
        self.clip()

    @torch.no_grad()
    def add_noise(self) -> None:
        """Lets the optimizer add its noise, guesses, and takes the canaries out again."""
        self.noise()
        assert self.records is not None
        norm = float(self.optimizer.max_grad_norm)
        flat = torch.cat([p.grad.reshape(-1) for p in self.optimizer.params])
        seen = (flat - self.records)[self.coordinates] / norm
        self.shares.append(float(((seen > 0.5) == self.included).double().mean()))
        flat[self.coordinates[self.included]] -= norm
        self.records, begin = None, 0
        for p in self.optimizer.params:
            p.grad = flat[begin : begin + p.numel()].view_as(p).clone()
            begin += p.numel()

    def _clipped_sum(self) -> torch.Tensor:
        """What the records give: each gradient cut down to the clipping norm, as a flat sum."""
        parts = [g.reshape(len(g), -1) for g in self.optimizer.grad_samples]
        norms = torch.stack([g.norm(2, dim=1) for g in parts], dim=1).norm(2, dim=1)
        factor = (float(self.optimizer.max_grad_norm) / (norms + 1e-6)).clamp(max=1.0)
        return torch.cat([(factor[:, None] * g).sum(dim=0) for g in parts])

    def _append(self, coordinates: torch.Tensor) -> None:
        """Puts the gradients of the included canaries behind those of the records."""
        total = sum(p.numel() for p in self.optimizer.params)
        rows = torch.zeros((len(coordinates), total))
        rows[torch.arange(len(coordinates)), coordinates] = LENGTH * float(
            self.optimizer.max_grad_norm
        )
        begin = 0
        for p in self.optimizer.params:
            part = rows[:, begin : begin + p.numel()].view(len(coordinates), *p.shape)
            samples = p.grad_sample
            if isinstance(samples, list):
                samples[-1] = torch.cat([samples[-1], part])
            else:
                p.grad_sample = torch.cat([samples, part])
            begin += p.numel()


@contextmanager
def canaries_in_opacus() -> Iterator[list[float]]:
    """Puts canaries into each step of Opacus; yields the shares of right guesses."""
    shares: list[float] = []
    original = DPOptimizer.pre_step

    def pre_step(optimizer: DPOptimizer, closure: object = None) -> object:
        if "add_noise" not in vars(optimizer):
            canaries = Canaries(optimizer, shares)
            optimizer.clip_and_accumulate = canaries.clip_and_accumulate
            optimizer.add_noise = canaries.add_noise
        return original(optimizer, closure)

    DPOptimizer.pre_step = pre_step
    try:
        yield shares
    finally:
        DPOptimizer.pre_step = original


def best_chance(noise: float) -> float:
    """Returns p, the largest chance of a right guess where a step has this noise multiplier."""
    return float(ndtr(1.0 / (2.0 * noise)))


def log_wealth(shares: list[float], chance: float) -> float:
    return float(np.log1p(STAKE * (np.array(shares) / chance - 1.0)).sum())


def noise_at_most(shares: list[float], error: float) -> float:
    """Returns a bound on the noise multiplier of the quietest step; inf if nothing is known.

    Every step has more noise than the bound with probability at most ``error``.
    """
    low, high = 0.5, 1.0  # between a chance that is refuted, and one that is not
    if log_wealth(shares, low) < -math.log(error):
        return math.inf
    while high - low > 1e-9:
        middle = (low + high) / 2
        is_refuted = log_wealth(shares, middle) >= -math.log(error)
        low, high = (middle, high) if is_refuted else (low, middle)
    return 1.0 / (2.0 * float(ndtri(low))) if low > 0.5 else math.inf


def train(dataset: TensorDataset, noise: float, ratio: float) -> None:
    """Trains with the stated noise times a ratio: 1 is honest."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5),
        data_loader=DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=noise,
        max_grad_norm=1.0,
    )
    optimizer.noise_multiplier = ratio * noise
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(x), y).backward()
            optimizer.step()


def epsilon_of(noise: float, batches: int) -> float:
    """Returns what the training costs with this noise, at delta 1e-5; 0 if the noise is inf."""
    if math.isinf(noise):
        return 0.0
    event = odp.dp_sgd(noise_multiplier=noise, sample_rate=1 / batches, steps=EPOCHS * batches)
    return odp.Guarantee(event).epsilon(delta=1e-5)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--noise", type=float, nargs="+", default=[1.2])
    parser.add_argument("--ratio", type=float, nargs="+", default=[1.0, 0.5])
    parser.add_argument("--error", type=float, default=0.05, help="chance of a false accusation")
    arguments = parser.parse_args()
    pixels, labels = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels))
    batches = len(DataLoader(dataset, batch_size=BATCH))
    print("| stated noise | noise used | said to violate | epsilon at least (median) | claimed |")
    print("|---|---|---|---|---|")
    for noise in arguments.noise:
        for ratio in arguments.ratio:
            violations, epsilons = 0, []
            for _ in range(arguments.tries):
                with canaries_in_opacus() as shares:
                    train(dataset, noise, ratio)
                wealth = log_wealth(shares, best_chance(noise))
                violations += wealth >= -math.log(arguments.error)
                epsilons.append(epsilon_of(noise_at_most(shares, arguments.error), batches))
            print(
                f"| {noise} | {ratio * noise:.2g} | {violations} of {arguments.tries} | "
                f"{statistics.median(epsilons):.2f} | {epsilon_of(noise, batches):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
