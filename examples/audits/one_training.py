"""How often one audit of one Opacus training finds half the noise, and accuses an honest one.

A small network on scikit-learn's digits, with gradient canaries in every step. Each try is a
training of its own and an audit of it.

    pip install torch==2.13.0 && pip install ".[opacus]"
    OMP_NUM_THREADS=1 python examples/audits/one_training.py --tries 100

``README.md`` beside it has what it found.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
import warnings

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp
from optuna_dp.testing import audit_training

BATCH, EPOCHS = 128, 6

warnings.filterwarnings("ignore", module="(opacus|torch)")
torch.set_num_threads(1)


def data() -> TensorDataset:
    pixels, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels))


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


def event(dataset: TensorDataset, noise: float) -> object:
    steps = len(DataLoader(dataset, batch_size=BATCH))
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=1 / steps, steps=EPOCHS * steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--noise", type=float, nargs="+", default=[1.2])
    parser.add_argument("--ratio", type=float, nargs="+", default=[1.0, 0.5])
    arguments = parser.parse_args()
    dataset, seconds = data(), []
    print("| stated noise | noise used | said to violate | epsilon at least (median) | claimed |")
    print("|---|---|---|---|---|")
    for noise, ratio in itertools.product(arguments.noise, arguments.ratio):
        found = []
        for _ in range(arguments.tries):
            begin = time.perf_counter()
            found.append(
                audit_training(
                    functools.partial(train, dataset, noise, ratio),
                    event(dataset, noise),
                    access="opacus",
                    confidence=0.95,
                )
            )
            seconds.append(time.perf_counter() - begin)
        violates = sum(result.verdict == "violates" for result in found)
        epsilon = statistics.median(result.epsilon for result in found)
        print(
            f"| {noise} | {ratio * noise:.2g} | {violates} of {arguments.tries} | "
            f"{epsilon:.2f} | {found[0].claimed:.2f} |",
            flush=True,
        )
    print(f"The slowest audit, its training included, took {max(seconds):.1f} seconds.")


if __name__ == "__main__":
    main()
