"""What a step of odp.train costs beside a step by the hooks of Opacus, in time and in memory.

    python examples/benchmarks/train_step.py
    python examples/benchmarks/train_step.py --memory

One thread. The time of a step is that of the processor, from two trainings of different length:
their difference has no set-up in it. Each measurement is a process of its own; both ways are
measured in turn, and the median is printed. Both use Poisson sampling, expected batches of 256 (64
for the model of 2.4 million weights), the same model, and SGD. Noise of odp.train is from OpenSSL,
that of Opacus from PyTorch's generator.

Memory is what a process holds at most beyond what it holds before its training, for expected
batches of 512 and a model with 400,000 weights.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import optuna
import torch
from torch import nn

import optuna_dp as odp

BATCHES = 16  # in an epoch
REPETITIONS = 3
SHORT, LONG = 1, 3  # epochs


class Transformer(nn.Module):
    """Two layers of attention over 64 tokens, and a class from their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
        return logits


class OpacusTransformer(Transformer):
    """The same layers, with the attention that Opacus can hook."""

    def __init__(self) -> None:
        super().__init__()
        from opacus.validators import ModuleValidator

        self.encoder = ModuleValidator.fix(self.encoder)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def large_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 1500), nn.ReLU(), nn.Linear(1500, 800), nn.ReLU(), nn.Linear(800, 10)
    )


def wide_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 5400), nn.ReLU(), nn.Linear(5400, 10))


Made = Callable[[], nn.Module]
# The model, the same for Opacus, the shape of an input, and the expected batch.
MODELS: dict[str, tuple[Made, Made, tuple[int, ...], int]] = {
    "MLP 64-256-10": (mlp, mlp, (64,), 256),
    "CNN with GroupNorm, 8 x 8": (cnn, cnn, (1, 8, 8), 256),
    "transformer, 2 layers, 64 tokens": (Transformer, OpacusTransformer, (64,), 256),
    "MLP 784-1500-800-10, 2.4 million weights": (large_mlp, large_mlp, (784,), 64),
    "MLP 64-5400-10": (wide_mlp, wide_mlp, (64,), 256),
}
TIMED = list(MODELS)[:4]


def made_up_records(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    _, _, shape, batch = MODELS[model]
    records = BATCHES * batch
    if model.startswith("transformer"):
        features = torch.randint(256, (records, *shape), generator=generator)
    else:
        features = torch.randn((records, *shape), generator=generator)
    return features, torch.randint(10, (records,), generator=generator)


def by_the_engine(model: str, epochs: int, batch: int, chunk: int | None) -> tuple[float, int]:
    """Trains by odp.train; returns the processor's seconds and the number of steps."""
    records, module = made_up_records(model), MODELS[model][0]()
    plan = odp.plan_budget(
        epsilon=3.0, records=len(records[1]), batch_size=batch, epochs=epochs, pilots=0, delta=1e-5
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    run = odp.start_run(study.ask())
    start = time.process_time()
    odp.train(
        run,
        module,
        records,
        loss=nn.functional.cross_entropy,
        optimizer="sgd",
        learning_rate=0.1,
        physical_batch_size=chunk,
        score=None,
    )
    return time.process_time() - start, run.steps


def by_hooks(model: str, epochs: int) -> tuple[float, int]:
    """Trains by Opacus; returns the processor's seconds and the number of steps."""
    from opacus import PrivacyEngine

    warnings.simplefilter("ignore")
    features, targets = made_up_records(model)
    module = MODELS[model][1]()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(features, targets), batch_size=MODELS[model][3]
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    start = time.process_time()
    module, optimizer, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    steps = 0
    for _ in range(epochs):
        for batch_features, batch_targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch_features), batch_targets).backward()
            optimizer.step()
            steps += 1
    return time.process_time() - start, steps


def measure(way: str, model: str, *arguments: int) -> list[float]:
    """Returns what this program printed as a process of its own."""
    command = [sys.executable, __file__, "--measure", way, model, *map(str, arguments)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in output.split()]


def step_seconds(way: str, model: str) -> float:
    short_seconds, short_steps = measure(way, model, SHORT)
    long_seconds, long_steps = measure(way, model, LONG)
    return (long_seconds - short_seconds) / (long_steps - short_steps)


def held_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def print_memory() -> None:
    model = "MLP 64-5400-10"
    whole, physical = (
        statistics.median(measure("memory", model, chunk)[0] for _ in range(3))
        for chunk in (1024, 32)
    )
    print("| memory of a training, expected batches of 512 | MB |")
    print("|---|---|")
    print(f"| a whole batch at a time | {whole:.0f} |")
    print(f"| physical_batch_size=32 | {physical:.0f}, {physical / whole:.2f} of it |")


def print_times() -> None:
    print("| model | odp.train, ms a step | hooks of Opacus | ratio |")
    print("|---|---|---|---|")
    for model in TIMED:
        engine, hooks = [], []
        for _ in range(REPETITIONS):
            engine.append(step_seconds("engine", model))
            hooks.append(step_seconds("hooks", model))
        ours, theirs = 1e3 * statistics.median(engine), 1e3 * statistics.median(hooks)
        print(f"| {model} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", action="store_true", help="memory in place of time")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if arguments.measure:
        way, model, number = arguments.measure
        if way == "memory":
            by_the_engine("MLP 64-256-10", 1, 512, None)  # What is loaded at the first step.
            before = held_megabytes()
            by_the_engine(model, 1, 512, int(number))
            print(held_megabytes() - before)
        elif way == "engine":
            print(*by_the_engine(model, int(number), MODELS[model][3], None))
        else:
            print(*by_hooks(model, int(number)))
    elif arguments.memory:
        print_memory()
    else:
        print_times()


if __name__ == "__main__":
    main()
