"""The learning rate that follows from public numbers beside usual ones, trained by Opacus.

    pip install torch==2.13.0 && pip install ".[opacus]"
    python examples/known_without_data/with_opacus.py --repetitions 6
    python examples/known_without_data/with_opacus.py --network cnn --curves --repetitions 3

A small network learns handwritten digits. Batch 64, ten epochs, SGD with rate 0.1 and clipping
norm 1 are those of Opacus's MNIST example; 0.001 is PyTorch's rate of Adam. Two ways of each take
about the batch that accounting favors for four times the computing. Five minutes on one core; with
``--curves``, which tries nine rates around the rule's, twenty.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
RECORDS = 1348
# Batches in an epoch (Opacus draws each with rate one over their number), and steps.
USUAL, LARGER = (21, 210), (4, 150)
Rate = Callable[[odp.Run], float]
Kind = Literal["sgd", "adam"]
WAYS: dict[str, tuple[Kind, tuple[int, int], Rate]] = {
    "SGD, rate 0.1, batch 64": ("sgd", USUAL, lambda run: 0.1),
    "SGD, rule, batch 64": ("sgd", USUAL, lambda run: run.learning_rate("sgd")),
    "SGD, rule, batch 337": ("sgd", LARGER, lambda run: run.learning_rate("sgd")),
    "Adam, rate 0.001, batch 64": ("adam", USUAL, lambda run: 0.001),
    "Adam, rule, batch 64": ("adam", USUAL, lambda run: run.learning_rate("adam")),
    "Adam, rule, batch 337": ("adam", LARGER, lambda run: run.learning_rate("adam")),
}
OPTIMIZERS: dict[Kind, Any] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    ),
}
FACTORS = [2.0**k for k in range(-4, 5)]  # Rates of a curve over the rule's.


def plan(epsilon: float, batches: int, steps: int) -> odp.BudgetPlan:
    return odp.plan_budget(
        epsilon=epsilon,
        records=RECORDS,
        batch_size=RECORDS / batches,
        epochs=steps / batches,
        pilots=0,
        score=None,
    )


def accuracy(
    x: torch.Tensor,
    y: torch.Tensor,
    order: torch.Tensor,
    network: str,
    run: odp.Run,
    kind: Kind,
    rate: float,
) -> float:
    """Of one training, on the records that are not among the first of the order."""
    train, test = order[:RECORDS], order[RECORDS:]
    model = NETWORKS[network]()
    batch = -(-RECORDS * run.sample_rate // 1)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=OPTIMIZERS[kind](model.parameters(), lr=rate),
        data_loader=DataLoader(TensorDataset(x[train], y[train]), batch_size=int(batch)),
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=1.0,
    )
    assert abs(1.0 / len(loader) - run.sample_rate) < 1e-9
    taken = 0
    while taken < run.steps:
        for features, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(features), labels).backward()
            optimizer.step()
            taken += 1
            if taken == run.steps:
                break
    with torch.no_grad():
        return float((model(x[test]).argmax(1) == y[test]).double().mean())


def rehearsed(network: str, run: odp.Run, kind: Kind) -> float:
    return odp.rehearse_module(
        run,
        NETWORKS[network](),
        odp.made_up_images(1, 8, 8),
        optimizer=lambda parameters, rate: OPTIMIZERS[kind](parameters, lr=rate),
        schedule=odp.Schedule("constant"),
    ).learning_rate


def text(found: list[float]) -> str:
    half = 1.96 * np.std(found, ddof=1) / len(found) ** 0.5
    return f"{np.mean(found):.1f} ± {half:.1f}"


Trained = Callable[[odp.Run, Kind, float], list[float]]


def compare(trained: Trained) -> None:
    print("| | epsilon 1 | 3 | 8 |\n|---|---|---|---|")
    for name, (kind, (batches, steps), rate) in WAYS.items():
        runs = [plan(epsilon, batches, steps).final for epsilon in (1.0, 3.0, 8.0)]
        cells = [text(trained(run, kind, rate(run))) for run in runs]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def curves(network: str, trained: Trained) -> None:
    print("| optimizer, batch | epsilon | rule | rehearsal | best of nine rates | best / rule |")
    print("|---|---|---|---|---|---|")
    for kind, epsilon in itertools.product(OPTIMIZERS, (1.0, 3.0, 8.0)):
        for batches, steps in (USUAL, LARGER):
            run = plan(epsilon, batches, steps).final
            rule = run.learning_rate(kind)
            found = {factor: trained(run, kind, factor * rule) for factor in FACTORS}
            best = max(FACTORS, key=lambda factor: np.mean(found[factor]))
            cells = [found[1.0], trained(run, kind, rehearsed(network, run, kind)), found[best]]
            print(
                f"| {kind}, {RECORDS // batches} | {epsilon:g} | "
                f"{' | '.join(text(cell) for cell in cells)} | {best:g} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--network", choices=list(NETWORKS), default="dense")
    parser.add_argument("--curves", action="store_true", help="rates around the rule's")
    options = parser.parse_args()
    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor(pixels / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels)
    orders = [
        torch.tensor(np.random.default_rng(r).permutation(len(x)))
        for r in range(options.repetitions)
    ]

    def trained(run: odp.Run, kind: Kind, rate: float) -> list[float]:
        return [100.0 * accuracy(x, y, o, options.network, run, kind, rate) for o in orders]

    if options.curves:
        curves(options.network, trained)
    else:
        compare(trained)


if __name__ == "__main__":
    main()
