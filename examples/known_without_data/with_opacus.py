"""The learning rate that follows from public numbers beside usual ones, trained by Opacus.

    pip install torch==2.13.0 && pip install "optuna-dp[opacus]"
    python examples/known_without_data/with_opacus.py --repetitions 6

A small network learns handwritten digits. Batch 64, ten epochs, SGD with rate 0.1 and clipping
norm 1 are those of Opacus's MNIST example; 0.001 is PyTorch's rate of Adam. The last two ways take
about the batch that accounting favors for four times the computing. Five minutes on one core.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

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
Rate = Callable[[odp.Fidelity], float]
WAYS: dict[str, tuple[str, tuple[int, int], Rate]] = {
    "SGD, rate 0.1, batch 64": ("sgd", USUAL, lambda run: 0.1),
    "SGD, rule, batch 64": ("sgd", USUAL, lambda run: run.learning_rate("sgd")),
    "SGD, rule, batch 337": ("sgd", LARGER, lambda run: run.learning_rate("sgd")),
    "Adam, rate 0.001, batch 64": ("adam", USUAL, lambda run: 0.001),
    "Adam, rule, batch 64": ("adam", USUAL, lambda run: run.learning_rate("adam")),
    "Adam, rule, batch 337": ("adam", LARGER, lambda run: run.learning_rate("adam")),
}
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


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
    run: odp.Fidelity,
    kind: str,
    rate: float,
) -> float:
    """Of one training, on the records that are not among the first of the order."""
    train, test = order[:RECORDS], order[RECORDS:]
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=6)
    repetitions = parser.parse_args().repetitions
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)
    orders = [
        torch.tensor(np.random.default_rng(r).permutation(len(x))) for r in range(repetitions)
    ]
    print("| | epsilon 1 | 3 | 8 |\n|---|---|---|---|")
    for name, (kind, (batches, steps), rate) in WAYS.items():
        cells = []
        for epsilon in (1.0, 3.0, 8.0):
            run = plan(epsilon, batches, steps).final
            found = [100.0 * accuracy(x, y, order, run, kind, rate(run)) for order in orders]
            half = 1.96 * np.std(found, ddof=1) / repetitions**0.5
            cells.append(f"{np.mean(found):.1f} ± {half:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
