"""What a step of odp.train costs beside a step by Opacus, in time and in memory.

    python examples/benchmarks/train_step.py
    python examples/benchmarks/train_step.py --ranks
    python examples/benchmarks/train_step.py --memory
    python examples/benchmarks/train_step.py --set-up

One thread. The time of a step is that of the processor, from two trainings of different length:
their difference has no set-up in it. Each measurement is a process of its own; all ways are
measured in turn, ``--rounds`` times, and the median is printed. All use Poisson sampling, expected
batches of 256 (64 for the model of 2.4 million weights), the same model, and SGD. Noise of
odp.train is from OpenSSL, that of Opacus from PyTorch's generator. Opacus computes gradients of
single records in two ways, by hooks and by functorch; or their norms only, and the sum by a second
pass back (ghost clipping).

``--ranks`` measures the processor's time of rank 0, which draws the noise as well, with a training
by one process and by two of torchrun, one thread each.

``--memory`` measures what a process holds at most beyond what it held before, for language models
of 10 and 60 million weights, and what docs/how-to/fine-tuning.md calculates. A small model was
trained in the process before, which hides some 70 MB.

``--set-up`` measures what comes before the first step, for models of 0.1 to 10 million weights: a
training of six steps, less the time of six steps; and the rehearsal that finds a learning rate of
Adam for 300 steps.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
import torch
from torch import nn

import optuna_dp as odp

BATCHES = 6  # in an epoch
WORDS = 20_000
SHORT, LONG, LONG_OF_SLOW = 1, 7, 2  # epochs
REHEARSED = 300  # steps


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


class WithLora(nn.Module):
    """A frozen linear layer and a trained matrix of rank 4 beside it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, 4, bias=False)
        self.up = nn.Linear(4, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.frozen(x) + self.up(self.down(x))
        return result


class Block(nn.Module):
    """A layer of a language model, with its attention trained by LoRA, or all of it."""

    def __init__(self, width: int, heads: int, kind: str) -> None:
        super().__init__()
        linear = WithLora if kind == "LoRA" else nn.Linear
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.joined = linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        for part in (self.first, self.second, self.joined, self.dense):
            part.requires_grad_(kind == "full")
        if kind == "last layer":
            self.attention.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        parts = self.attention(self.first(x)).reshape(count, length, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.joined(mixed.transpose(1, 2).reshape(count, length, width))
        result: torch.Tensor = x + self.dense(self.second(x))
        return result


class LanguageModel(nn.Module):
    """Predicts the token after a text.

    Args:
        kind: What is trained: "full", "last layer" or "LoRA".
        vocabulary: How many tokens there are.
        width: Of a token.
        depth: How many layers there are.
    """

    def __init__(self, kind: str, vocabulary: int = 256, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width).requires_grad_(kind == "full")
        self.blocks = nn.Sequential(*(Block(width, width // 16, kind) for _ in range(depth)))
        self.head = nn.Linear(width, vocabulary).requires_grad_(kind != "LoRA")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(self.embedding(tokens))[:, -1])
        return logits


class Bag(nn.Module):
    """The mean of the embeddings of 30 words out of 20,000, and a class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, 16), nn.Linear(16, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.embedding(tokens).mean(dim=1))
        return logits


def lora() -> nn.Module:
    return LanguageModel("LoRA")


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


def wide_mlp(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def large_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 1500), nn.ReLU(), nn.Linear(1500, 800), nn.ReLU(), nn.Linear(800, 10)
    )


Made = Callable[[], nn.Module]
# From a model and a number of epochs to seconds and a number of steps.
Way = Callable[[str, int], Sequence[float]]
# The model, the same for Opacus, the shape of an input, and the expected batch.
MODELS: dict[str, tuple[Made, Made, tuple[int, ...], int]] = {
    "MLP 64-256-10": (mlp, mlp, (64,), 256),
    "CNN with GroupNorm, 8 x 8": (cnn, cnn, (1, 8, 8), 256),
    "transformer, 2 layers, 64 tokens": (Transformer, OpacusTransformer, (64,), 256),
    "LoRA on a language model, 64 tokens": (lora, lora, (64,), 256),
    "bag of embeddings, 20,000 words": (Bag, Bag, (30,), 256),
    "MLP 784-1500-800-10, 2.4 million weights": (large_mlp, large_mlp, (784,), 64),
}
COMPARED = list(MODELS)
MODELS |= {
    f"MLP, {millions} million weights": ((made := partial(wide_mlp, width)), made, (64,), batch)
    for millions, width, batch in (("0.1", 280, 256), ("1", 960, 256), ("10", 3120, 8))
}
OF_SET_UP = ["CNN with GroupNorm, 8 x 8", *(name for name in MODELS if name not in COMPARED)]
# Models of tokens, and how many tokens there are.
VOCABULARIES = {
    "transformer, 2 layers, 64 tokens": 256,
    "LoRA on a language model, 64 tokens": 256,
    "bag of embeddings, 20,000 words": WORDS,
}
SLOW = (
    "transformer, 2 layers, 64 tokens",
    "LoRA on a language model, 64 tokens",
    "MLP 784-1500-800-10, 2.4 million weights",
    "MLP, 10 million weights",
)
OPACUS = ("hooks", "functorch", "ghost")


def made_up_records(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    _, _, shape, batch = MODELS[model]
    records = BATCHES * batch
    if model in VOCABULARIES:
        tokens = VOCABULARIES[model]
        features = torch.randint(tokens, (records, *shape), generator=generator)
    else:
        features = torch.randn((records, *shape), generator=generator)
    return features, torch.randint(10, (records,), generator=generator)


def plan_of(model: str, epochs: int) -> Any:
    batch = MODELS[model][3]
    return odp.plan_budget(
        epsilon=3.0, records=BATCHES * batch, batch_size=batch, epochs=epochs, pilots=0, delta=1e-5
    )


def by_the_engine(model: str, epochs: int) -> tuple[float, int]:
    """Trains by odp.train; returns the processor's seconds and the number of steps."""
    sampler = odp.BudgetSampler(plan_of(model, epochs))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    run = odp.start_run(study.ask())
    start = time.process_time()
    trained_by_the_engine(run, model)
    return time.process_time() - start, run.steps


def trained_by_the_engine(run: odp.Run, model: str) -> None:
    odp.train(
        run,
        MODELS[model][0](),
        made_up_records(model),
        loss=nn.functional.cross_entropy,
        score=None,
        optimizer="sgd",
        learning_rate=0.1,
    )


def by_ranks(model: str, epochs: int) -> tuple[float, int] | None:
    """Trains by all ranks; returns the processor's seconds and the number of steps, in rank 0."""
    plan = plan_of(model, epochs)
    seconds = []

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        start = time.process_time()
        trained_by_the_engine(run, model)
        seconds.append((time.process_time() - start, run.steps))
        return 0.0

    study = odp.distributed.optimize_ranks(
        lambda: optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan)),
        objective,
    )
    return None if study is None else seconds[0]


def by_opacus(mode: str, model: str, epochs: int) -> tuple[float, int]:
    """Trains by Opacus; returns the processor's seconds and the number of steps."""
    from opacus import PrivacyEngine

    warnings.simplefilter("ignore")
    features, targets = made_up_records(model)
    module = MODELS[model][1]()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(features, targets), batch_size=MODELS[model][3]
    )
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    start = time.process_time()
    criterion = nn.CrossEntropyLoss()
    module, optimizer, *others = PrivacyEngine().make_private(
        module=module,
        optimizer=optimizer,
        criterion=criterion,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    loader = others[-1]
    if mode == "ghost":
        criterion = others[0]
    steps = 0
    for _ in range(epochs):
        for batch_features, batch_targets in loader:
            optimizer.zero_grad()
            criterion(module(batch_features), batch_targets).backward()
            optimizer.step()
            steps += 1
    return time.process_time() - start, steps


def measure(way: str, model: str, *arguments: object, ranks: int = 0) -> list[float]:
    """Returns what this program printed as a process of its own, or as ranks of torchrun."""
    command = [sys.executable, __file__]
    if ranks:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(ranks), __file__]
    command += ["--measure", way, model, *map(str, arguments)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in output.split()]


def step_seconds(way: Way, model: str) -> float:
    """Returns the seconds of a step."""
    short_seconds, short_steps = way(model, SHORT)
    long_seconds, long_steps = way(model, LONG_OF_SLOW if model in SLOW else LONG)
    return (long_seconds - short_seconds) / (long_steps - short_steps)


def medians_in_turn(measures: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Returns the median of each measure, in milliseconds."""
    times = [[each() for each in measures] for _ in range(rounds)]
    return [1e3 * statistics.median(column) for column in zip(*times, strict=True)]


def print_times(models: list[str], rounds: int) -> None:
    print("| model | odp.train, ms a step | Opacus: hooks | functorch | ghost clipping |")
    print("|---|---|---|---|---|")

    def measured(way: str, model: str) -> float:
        return measure(way, model)[0]

    for model in models:
        ways = [partial(measured, way, model) for way in ("odp.train", *OPACUS)]
        times = medians_in_turn(ways, rounds)
        print(f"| {model} | {' | '.join(f'{each:.0f}' for each in times)} |", flush=True)


def print_ranks(models: list[str], rounds: int) -> None:
    print("| model | one process, ms a step | two | ratio |")
    print("|---|---|---|---|")
    ways: list[Way] = [partial(measure, "ranks", ranks=ranks) for ranks in (1, 2)]
    for model in models:
        measures = [partial(step_seconds, way, model) for way in ways]
        one, two = medians_in_turn(measures, rounds)
        print(f"| {model} | {one:.0f} | {two:.0f} | {two / one:.2f} |", flush=True)


def set_up_seconds(model: str) -> tuple[float, float]:
    """Returns the seconds before the first step with a given rate, and those of a rehearsal."""
    by_the_engine(model, SHORT)  # What is loaded at the first step.
    seconds, steps = by_the_engine(model, SHORT)
    seconds -= steps * step_seconds(by_the_engine, model)
    run = plan_of(model, REHEARSED // BATCHES).final
    start = time.process_time()
    odp.rehearse_module(
        run, MODELS[model][0](), torch.randn((256, *MODELS[model][2])), optimizer="adam"
    )
    return seconds, time.process_time() - start


def print_set_up(rounds: int) -> None:
    print("| model | rate is given, s | and to find it, s |")
    print("|---|---|---|")
    for model in OF_SET_UP:
        columns = zip(*(measure("set-up", model) for _ in range(rounds)), strict=True)
        given, found = map(statistics.median, columns)
        print(f"| {model} | {given:.1f} | {found:.1f} |", flush=True)


# Width, depth and vocabulary of a language model, and kinds of training.
MEASURED = ((384, 4, 4096), (640, 10, 8192))
KINDS = (("full", 8), ("last layer", 8), ("last layer", 32), ("LoRA", 8), ("LoRA", 32))
TOKENS = 64


def calculated_megabytes(model: LanguageModel, kind: str, at_a_time: int) -> float:
    """Returns what docs/how-to/fine-tuning.md calculates, without the weights of the model."""
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    layers = 1 if kind == "last layer" else len(model.blocks)
    width = model.head.in_features
    activations = 96 * at_a_time * TOKENS * width * layers
    return (4 * trained * at_a_time + 52 * trained + activations) / 1e6


def held_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def training_megabytes(
    kind: str, width: int, depth: int, vocabulary: int, at_a_time: int
) -> tuple[float, float, float]:
    """Returns million weights, and megabytes that a training adds: measured, calculated."""
    by_the_engine("MLP 64-256-10", 1)  # What is loaded at the first step.
    model = LanguageModel(kind, vocabulary, width, depth)
    tokens = torch.randint(vocabulary, (64, TOKENS), generator=torch.Generator().manual_seed(0))
    before = held_megabytes()
    plan = odp.plan_budget(
        epsilon=3.0, records=64, batch_size=at_a_time, epochs=at_a_time / 16, pilots=0, delta=1e-5
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    odp.train(
        odp.start_run(study.ask()),
        model,
        (tokens, tokens[:, 0]),
        loss=nn.functional.cross_entropy,
        score=None,
        optimizer="adam",
        learning_rate=1e-3,
        physical_batch_size=at_a_time,
    )
    weights = sum(weight.numel() for weight in model.parameters())
    calculated = calculated_megabytes(model, kind, at_a_time)
    return weights / 1e6, held_megabytes() - before, calculated


def print_memory() -> None:
    print("| million weights | trained | records at a time | measured, MB | calculated, MB |")
    print("|---|---|---|---|---|")
    for sizes in MEASURED:
        for kind, at_a_time in KINDS:
            weights, measured, calculated = measure("memory", kind, *sizes, at_a_time)
            row = f"{weights:.0f} | {kind} | {at_a_time} | {measured:.0f} | {calculated:.0f}"
            print(f"| {row} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", action="store_true", help="memory in place of time")
    parser.add_argument("--ranks", action="store_true", help="one process and two of torchrun")
    parser.add_argument("--set-up", action="store_true", help="what comes before the first step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=COMPARED)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if arguments.measure:
        way, model, *numbers = arguments.measure
        if way == "memory":
            print(*training_megabytes(model, *map(int, numbers)))
        elif way == "set-up":
            print(*set_up_seconds(model))
        elif way == "ranks":
            print(*(by_ranks(model, int(numbers[0])) or ()))
        else:
            trained = by_the_engine if way == "odp.train" else partial(by_opacus, way)
            trained(model, SHORT)  # What is loaded at the first step.
            print(step_seconds(trained, model))
    elif arguments.memory:
        print_memory()
    elif arguments.set_up:
        print_set_up(arguments.rounds)
    elif arguments.ranks:
        print_ranks(arguments.models, arguments.rounds)
    else:
        print_times(arguments.models, arguments.rounds)


if __name__ == "__main__":
    main()
