"""Accuracy on the digits of odp.train and of the hooks of Opacus, at equal settings.

    python examples/benchmarks/train_accuracy.py

A network with 32 hidden units and a softmax regression, SGD at a constant rate, the same noise,
sampling rate, number of steps and clipping norm for both; 24 repetitions, each with a split of its
own that both share (it does not look at the records). Prints mean accuracies on held-out records
and their paired difference with a 95 % interval. About three minutes on one core.
"""

from __future__ import annotations

import warnings

import numpy as np
import optuna
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

REPETITIONS = 24
TRAINING_RECORDS, BATCH, EPOCHS = 1347, 64, 8
EPSILONS = (1.0, 3.0)
RATES = {"softmax regression": 0.5, "network": 0.5}


def fresh_model(kind: str) -> nn.Module:
    if kind == "softmax regression":
        return nn.Linear(64, 10)
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def accuracy(model: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(features).argmax(1) == targets).double().mean())


def granted_run(epsilon: float) -> odp.Run:
    plan = odp.plan_budget(
        epsilon=epsilon,
        records=TRAINING_RECORDS,
        batch_size=BATCH,
        epochs=EPOCHS,
        pilots=0,
        delta=1e-5,
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    return odp.start_run(study.ask())


def train_by_hooks(
    run: odp.Run, model: nn.Module, records: tuple[torch.Tensor, torch.Tensor], rate: float
) -> None:
    from opacus import PrivacyEngine

    dataset = torch.utils.data.TensorDataset(*records)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=torch.utils.data.DataLoader(dataset, batch_size=BATCH),
        noise_multiplier=run.noise_multiplier,
        max_grad_norm=1.0,
    )
    steps = 0
    while steps < run.steps:
        for features, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(features), targets).backward()
            optimizer.step()
            steps += 1
            if steps == run.steps:
                break


def pair_of_accuracies(kind: str, epsilon: float, repetition: int) -> tuple[float, float]:
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(repetition).permutation(len(pixels))
    features = torch.tensor(pixels[order] / 16.0, dtype=torch.float32)
    targets = torch.tensor(labels[order])
    records = features[:TRAINING_RECORDS], targets[:TRAINING_RECORDS]
    held_out = features[TRAINING_RECORDS:], targets[TRAINING_RECORDS:]
    rate = RATES[kind]
    engine_run = granted_run(epsilon)
    engine_model = fresh_model(kind)
    odp.train(
        engine_run,
        engine_model,
        records,
        loss=nn.functional.cross_entropy,
        optimizer="sgd",
        learning_rate=rate,
        schedule=odp.Schedule("constant"),
        score=None,
    )
    hooked_model = fresh_model(kind)
    train_by_hooks(engine_run, hooked_model, records, rate)
    return accuracy(engine_model, *held_out), accuracy(hooked_model, *held_out)


def main() -> None:
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(1)
    print("| model | epsilon | odp.train, % | Opacus, % | difference |")
    print("|---|---|---|---|---|")
    for kind in RATES:
        for epsilon in EPSILONS:
            pairs = 100 * np.array(
                [pair_of_accuracies(kind, epsilon, r) for r in range(REPETITIONS)]
            )
            differences = pairs[:, 0] - pairs[:, 1]
            error = stats.sem(differences) * stats.t.ppf(0.975, REPETITIONS - 1)
            print(
                f"| {kind} | {epsilon:g} | {pairs[:, 0].mean():.1f} | {pairs[:, 1].mean():.1f} | "
                f"{differences.mean():+.1f} +- {error:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
