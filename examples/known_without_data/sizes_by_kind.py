"""Size and schedule chosen together, on tables, bags, recurrent layers, transformers and others.

::

    python examples/known_without_data/sizes_by_kind.py --run      # half an hour of one core
    python examples/known_without_data/sizes_by_kind.py            # the tables, from kinds.json

Three sizes of the rehearsal, each with a constant rate and the last quarter averaged, and with a
linear decay from the rate that its own rehearsal gives. The arms were fixed before the first
training; none of these tasks judges anything elsewhere. The engine is that of ``families.py``: all
arms of a setting see the same batches and the same noise. Adam, epsilon 1 and 8, two seeds; of the
first twelve tasks the second seed is stored for epsilon 1 only.

Nearly everything comes with scikit-learn and with Python: the tables are its data sets with their
numbers cut into ranges of equal width, made-up clouds, made-up rows of codes, and the tokens of
Python's own library; the models of words read its help and its packages. Fashion-MNIST is Debian's
``dataset-fashion-mnist``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sysconfig
import time
import tokenize
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import families as first
import numpy as np
import schema_tasks
import torch
from families import Family, Records, Row
from torch import nn

import optuna_dp as odp

RESULTS = Path(__file__).parent / "kinds.json"
SIZES = (0.85, 1.0, 1.7)
SCHEDULES = {
    "constant, last quarter averaged": odp.Schedule("constant", first.TAIL),
    "linear decay": odp.Schedule("linear"),
}
EPSILONS, SEEDS, EPOCHS, TESTS = (1.0, 8.0), 2, 10, 1500


# -- tables ---------------------------------------------------------------------------------------


class Table(nn.Module):
    """An embedding for each column of codes beside the numbers, then one hidden layer.

    Args:
        widths: How many codes each of the first columns has; all others are numbers in [0, 1].
        numbers: How many of these there are.
        classes: How many outputs.
        wide: Whether each code has a weight for each class too.
    """

    def __init__(self, widths: tuple[int, ...], numbers: int, classes: int, wide: bool) -> None:
        super().__init__()
        self.widths = widths
        self.embeddings = nn.ModuleList(nn.Embedding(width, 4) for width in widths)
        self.hidden = nn.Linear(4 * len(widths) + numbers, 32)
        self.head = nn.Linear(32, classes)
        self.wide = nn.ModuleList(nn.Embedding(width, classes) for width in widths if wide)
        for embedding in self.wide:
            nn.init.zeros_(embedding.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = x[..., : len(self.widths)].long().unbind(-1)
        parts = [own(code) for own, code in zip(self.embeddings, codes, strict=True)]
        numbers = 2.0 * x[..., len(self.widths) :] - 1.0
        logits = self.head(torch.relu(self.hidden(torch.cat([*parts, numbers], -1))))
        if len(self.wide):
            logits = logits + sum(own(c) for own, c in zip(self.wide, codes, strict=True))
        return logits


def split(x: Any, y: Any, records: int) -> Records:
    order = np.random.default_rng(5).permutation(len(x))
    inputs, labels = torch.tensor(np.asarray(x)[order]), torch.tensor(np.asarray(y)[order])
    if inputs.is_floating_point():
        inputs = inputs.float()
    end = records + TESTS
    return inputs[:records], labels[:records], inputs[records:end], labels[records:end]


def in_ranges(x: Any, low: Any, high: Any, codes: int) -> Any:
    """Which of so many ranges of equal width a number lies in."""
    return np.clip((x - low) / (high - low) * codes, 0, codes - 1).astype(int)


@cache
def scikit(name: str) -> tuple[Records, tuple[int, ...]]:
    """Half of the columns of a data set as codes, the others as numbers."""
    from sklearn import datasets

    if name == "digits":  # Every fourth pixel, which is a whole number from 0 to 16.
        x, y = datasets.load_digits(return_X_y=True)
        return split(x[:, ::4], y, 1347), (17,) * 16
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name == "diabetes":
        y = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    low, high = x.min(0), x.max(0)
    half = x.shape[1] // 2
    codes = in_ranges(x, low, high, 8)[:, :half]
    x = np.concatenate([codes, ((x - low) / (high - low))[:, half:]], 1)
    return split(x, y, round(0.75 * len(x))), (8,) * half


@cache
def clouds(name: str, classes: int, records: int) -> tuple[Records, tuple[int, ...]]:
    """Made-up clouds, all of whose numbers are cut into eight ranges."""
    task = schema_tasks.load(name)
    own = task.y < classes
    x = in_ranges(task.x[own], -3.0, 3.0, 8)
    return split(x.astype(float), task.y[own], records), (8,) * x.shape[1]


CODES = (3, 12, 24, 300)


@cache
def rows_of_codes() -> tuple[Records, tuple[int, ...]]:
    """Made-up rows: each code and each pair of the first two has a say in one of eight classes."""
    rng = np.random.default_rng(11)
    shares = [rng.dirichlet(np.full(width, 1.0)) for width in CODES]
    x = np.stack([rng.choice(len(share), 6500, p=share) for share in shares], 1)
    logits = sum(rng.normal(0.0, 0.8, (w, 8))[x[:, i]] for i, w in enumerate(CODES))
    logits = logits + rng.normal(0.0, 1.0, (CODES[0], CODES[1], 8))[x[:, 0], x[:, 1]]
    return split(x.astype(float), np.argmax(logits + rng.gumbel(size=(6500, 8)), 1), 5000), CODES


@cache
def tokens() -> tuple[Records, tuple[int, ...]]:
    """Tokens of Python's own library: which of sixteen kinds comes after the last two."""
    texts = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-m]*.py")):
        own = tokenize.generate_tokens(io.StringIO(path.read_text("utf8", "replace")).readline)
        try:
            texts.append([token for token in own if token.string.strip()])
        except (tokenize.TokenError, SyntaxError):
            continue
    every = [token for text in texts for token in text]
    common = [word for word, _ in Counter(token.string for token in every).most_common(299)]
    codes = {word: code for code, word in enumerate(common, 1)}
    targets = {word: code for code, word in enumerate(common[:12])}
    others = {tokenize.NAME: 12, tokenize.NUMBER: 13, tokenize.STRING: 14}
    rng, x, y = np.random.default_rng(12), [], []
    for _ in range(4000 + TESTS):
        text = texts[rng.integers(len(texts))]
        at = int(rng.integers(2, max(len(text), 3)))
        if at >= len(text):
            continue
        before, last, token = text[at - 2 : at + 1]
        row = [codes.get(before.string, 0), codes.get(last.string, 0)]
        x.append([*row, min(last.start[1] // 4, 15), min(last.start[1] / 80.0, 1.0)])
        y.append(targets.get(token.string, others.get(token.type, 15)))
    return split(np.array(x), np.array(y), len(x) - TESTS), (300, 300, 16)


def table(load: Callable[[], tuple[Records, tuple[int, ...]]], wide: bool) -> Family:
    def shape() -> tuple[tuple[int, ...], int, int]:
        (x, y, _, _), widths = load()
        return widths, x.shape[1] - len(widths), int(y.max()) + 1

    def inputs() -> torch.Tensor:
        widths, numbers, _ = shape()
        rng = np.random.default_rng(0)
        codes = [rng.integers(width, size=256) for width in widths]
        x = np.stack([*codes, *rng.random((numbers, 256))], 1)
        return torch.tensor(x, dtype=torch.float32)

    return Family(lambda: Table(*shape(), wide), lambda: load()[0], inputs)


# -- texts ----------------------------------------------------------------------------------------

PACKAGES = ("json", "logging", "http", "xml", "multiprocessing", "importlib", "ctypes", "sqlite3")


def windows(texts: list[list[str]], length: int, vocabulary: int, records: int) -> Records:
    """Words in a row, hashed, and which text they are of; its last quarter is for tests."""
    rng = np.random.default_rng(13)
    ids = [np.array([zlib.crc32(word.encode()) % vocabulary for word in text]) for text in texts]
    parts: list[Any] = []
    for count, low, high in ((records, 0.0, 0.75), (TESTS, 0.75, 1.0)):
        y = rng.integers(len(texts), size=count)
        starts = [
            int(rng.integers(int(low * len(ids[c])), int(high * len(ids[c])) - length)) for c in y
        ]
        x = np.stack([ids[c][at : at + length] for c, at in zip(y, starts, strict=True)])
        parts += [torch.tensor(x), torch.tensor(y)]
    return parts[0], parts[1], parts[2], parts[3]


@cache
def packages(length: int = 40, vocabulary: int = 2000, records: int = 2000) -> Records:
    root = Path(sysconfig.get_path("stdlib"))
    texts = [
        " ".join(p.read_text("utf8", "replace") for p in sorted((root / name).rglob("*.py")))
        for name in PACKAGES
    ]
    return windows([text.split() for text in texts], length, vocabulary, records)


@cache
def topics(length: int, vocabulary: int, records: int = 2000) -> Records:
    """The twelve longest pages of Python's own help."""
    from pydoc_data.topics import topics as pages

    longest = sorted(sorted(pages), key=lambda name: -len(pages[name]))[:12]
    return windows([pages[name].split() for name in longest], length, vocabulary, records)


class Bag(nn.Module):
    def __init__(self, vocabulary: int, classes: int, width: int = 8) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, classes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(ids).mean(-2))


class Words(nn.Module):
    """One block of a transformer over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(500, 16), nn.Embedding(12, 16)
        self.block, self.norm = first.Block(16), nn.LayerNorm(16)
        self.head = nn.Linear(16, 12)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[-1]))
        return self.head(self.norm(self.block(x, False)).mean(-2))


class GatedWords(nn.Module):
    """A GRU, written out, over words."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(500, width), nn.Linear(width, 12)
        self.of_word, self.of_state = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.width = width

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(ids.shape[0], self.width)
        for word in self.words(ids).unbind(-2):
            of_word, of_state = self.of_word(word).chunk(3, -1), self.of_state(state).chunk(3, -1)
            reset = torch.sigmoid(of_word[0] + of_state[0])
            update = torch.sigmoid(of_word[1] + of_state[1])
            new = torch.tanh(of_word[2] + reset * of_state[2])
            state = update * state + (1.0 - update) * new
        return self.head(state)


# -- others ---------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """An LSTM, written out, over rows of numbers."""

    def __init__(self, inputs: int = 8, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.of_row, self.of_state = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width)
        self.head, self.width = nn.Linear(width, classes), width

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = cell = torch.zeros(x.shape[0], self.width)
        for row in self.rows(x).unbind(-2):
            gates = self.of_row(row) + self.of_state(state)
            i, f, g, o = gates.chunk(4, -1)
            cell = torch.sigmoid(f + 1.0) * cell + torch.sigmoid(i) * torch.tanh(g)
            state = torch.sigmoid(o) * torch.tanh(cell)
        return self.head(state)


class RecurrentWords(Recurrent):
    """An LSTM over the embeddings of words."""

    def __init__(self) -> None:
        super().__init__(16, 8)
        self.words = nn.Embedding(500, 16)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return self.words(x)


class Pieces(nn.Module):
    """One block of a transformer over the rows, or the squares, of a picture.

    Args:
        count: How many pieces.
        size: How many numbers each has.
        classes: How many outputs.
        cut: From pictures to pieces.
    """

    def __init__(
        self, count: int, size: int, classes: int, cut: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        super().__init__()
        self.of_piece, self.places = nn.Linear(size, 16), nn.Embedding(count, 16)
        self.block, self.norm = first.Block(16), nn.LayerNorm(16)
        self.head, self.cut, self.count = nn.Linear(16, classes), cut, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pieces = self.of_piece(self.cut(x)) + self.places(torch.arange(self.count))
        return self.head(self.norm(self.block(pieces, False)).mean(-2))


@cache
def digits_of_half(*, is_public: bool) -> Records:
    """The digits below five, or those from five on."""
    x, y, test_x, test_y = first.digits()
    x, y = torch.cat([x, test_x]), torch.cat([y, test_y])
    own = (y < 5) == is_public
    x, y = x[own], y[own] % 5
    return x[:700], y[:700], x[700:], y[700:]


@cache
def of_public_digits() -> dict[str, torch.Tensor]:
    """Weights of a transformer that was trained on the digits below five, without privacy."""
    torch.manual_seed(3)
    model = Pieces(8, 8, 5, rows_of)
    x, y, _, _ = digits_of_half(is_public=True)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(40):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.state_dict()


def fine_tuned() -> nn.Module:
    """That transformer, with a new head."""
    public = of_public_digits()
    model = Pieces(8, 8, 5, rows_of)
    own_head = {f"head.{name}": part for name, part in model.head.state_dict().items()}
    model.load_state_dict(public | own_head)
    return model


FASHION = Path("/usr/share/datasets/fashion-mnist")  # apt install dataset-fashion-mnist


@cache
def fashion() -> Records:
    """5,000 pictures of Fashion-MNIST."""
    pixels, labels = (
        gzip.decompress((FASHION / f"train-{name}-ubyte.gz").read_bytes())
        for name in ("images-idx3", "labels-idx1")
    )
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 784) / 255.0
    y = np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    return split(x[: 5000 + TESTS], y[: 5000 + TESTS], 5000)


def pixels_of_fashion() -> Any:
    return odp.made_up_inputs(*[(0, 1)] * 784)


class RecurrentPicture(Recurrent):
    def __init__(self) -> None:
        super().__init__(28, 10)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (28, 28))


def large_squares_of(x: torch.Tensor) -> torch.Tensor:
    """Sixteen squares of seven times seven pixels."""
    parts = x.unflatten(-1, (4, 7, 4, 7)).transpose(-3, -2)
    return parts.flatten(-4, -3).flatten(-2)


def rows_of(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (8, 8))


def squares_of(x: torch.Tensor) -> torch.Tensor:
    """Nine squares of four times four pixels, of three colours."""
    parts = x.unflatten(-1, (3, 4)).unflatten(-3, (3, 4))  # (..., 3, 3, 4, 3, 4)
    return parts.movedim(-5, -1).transpose(-4, -3).flatten(-3).flatten(-3, -2)


@cache
def patches() -> Records:
    """Pieces of two photographs, twelve pixels wide: which third of which they are of."""
    from sklearn.datasets import load_sample_images

    rng, x, y = np.random.default_rng(14), [], []
    pictures = [np.asarray(p)[::2, ::2] / 255.0 for p in load_sample_images().images]
    for _ in range(2000 + TESTS):
        label = int(rng.integers(6))
        picture = pictures[label // 3]
        third = picture.shape[0] // 3
        top = label % 3 * third + int(rng.integers(third - 12))
        left = int(rng.integers(picture.shape[1] - 12))
        x.append(picture[top : top + 12, left : left + 12].transpose(2, 0, 1))
        y.append(label)
    return split(np.array(x), np.array(y), 2000)


def convolved() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.GroupNorm(4, 12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 6),
    )


TASKS = {
    "breast cancer, wide and deep, 2": table(lambda: scikit("breast_cancer"), True),
    "diabetes, deep, 4": table(lambda: scikit("diabetes"), False),
    "digits, deep, 10": table(lambda: scikit("digits"), False),
    "clouds, deep, 5": table(lambda: clouds("clouds 5 of 50", 5, 4000), False),
    "clouds, wide and deep, 16": table(lambda: clouds("clouds 20 of 50", 16, 4000), True),
    "codes, wide and deep, 8": table(rows_of_codes, True),
    "tokens, wide and deep, 16": table(tokens, True),
    "packages, bag, 8": Family(
        lambda: Bag(2000, 8), packages, lambda: odp.made_up_tokens(2000, 40)
    ),
    "help, bag, 12": Family(
        lambda: Bag(1000, 12),
        lambda: topics(30, 1000),
        lambda: odp.made_up_tokens(1000, 30),
    ),
    "photographs, CNN, 6": Family(convolved, patches, lambda: odp.made_up_images(3, 12, 12)),
    "digits, LSTM, 10": Family(Recurrent, first.digits, lambda: first.pixels(64)),
    "help, transformer, 12": Family(
        Words, lambda: topics(12, 500), lambda: odp.made_up_tokens(500, 12)
    ),
    "help, GRU, 12": Family(
        GatedWords, lambda: topics(12, 500, 8000), lambda: odp.made_up_tokens(500, 12)
    ),
    "packages, LSTM, 8": Family(
        RecurrentWords, lambda: packages(16, 500, 8000), lambda: odp.made_up_tokens(500, 16)
    ),
    "digits, transformer over rows, 10": Family(
        lambda: Pieces(8, 8, 10, rows_of), first.digits, lambda: first.pixels(64)
    ),
    "photographs, transformer over squares, 6": Family(
        lambda: Pieces(9, 48, 6, squares_of), patches, lambda: odp.made_up_images(3, 12, 12)
    ),
    "digits, fine-tuned transformer over rows, 5": Family(
        fine_tuned, lambda: digits_of_half(is_public=False), lambda: first.pixels(64)
    ),
    "Fashion-MNIST, transformer over squares, 10": Family(
        lambda: Pieces(16, 49, 10, large_squares_of), fashion, pixels_of_fashion
    ),
    "Fashion-MNIST, LSTM over rows, 10": Family(RecurrentPicture, fashion, pixels_of_fashion),
}
TOKENS = ("help, transformer, 12", "help, GRU, 12", "packages, LSTM, 8")
RECURRENT = ("digits, LSTM, 10", "Fashion-MNIST, LSTM over rows, 10")
NUMBERS = (
    "digits, transformer over rows, 10",
    "photographs, transformer over squares, 6",
    "digits, fine-tuned transformer over rows, 5",
    "Fashion-MNIST, transformer over squares, 10",
)


# -- trainings ------------------------------------------------------------------------------------


@cache
def plan(epsilon: float, records: int) -> odp.Run:
    return odp.plan_budget(epsilon=epsilon, records=records, epochs=EPOCHS, pilots=0).final


def rates(family: Family, run: odp.Run) -> list[float]:
    """The first rate of each arm."""
    torch.manual_seed(0)
    model = family.model()
    inputs = torch.as_tensor(family.inputs())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            odp.rehearse_module(
                run, model, inputs, optimizer="adam", schedule=schedule, size=size
            ).learning_rate
            for size in SIZES
            for schedule in SCHEDULES.values()
        ]


def run_all(names: list[str]) -> None:
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": []}
    known = {(c["task"], c["epsilon"], c["seed"]) for c in found["cells"]}
    for seed in range(SEEDS):
        for epsilon in EPSILONS:
            for name in names:
                if (name, epsilon, seed) in known:
                    continue
                began, family = time.process_time(), TASKS[name]
                run = plan(epsilon, len(family.records()[0]))
                found_rates = rates(family, run)
                rows = [
                    Row(("constant", "linear")[place % 2], rate, 0.0)
                    for place, rate in enumerate(found_rates)
                ]
                last, averaged = first.accuracies(family, run, "adam", rows, seed)
                shown = [(averaged, last)[place % 2][place] for place in range(len(rows))]
                found["cells"].append(
                    {
                        "task": name,
                        "epsilon": epsilon,
                        "seed": seed,
                        "rates": [float(f"{rate:.4g}") for rate in found_rates],
                        "accuracy": [round(accuracy, 2) for accuracy in shown],
                    }
                )
                RESULTS.write_text(
                    '{"cells": [\n' + ",\n".join(map(json.dumps, found["cells"])) + "\n]}\n"
                )
                taken = time.process_time() - began
                print(f"{name}, {epsilon:g}, {seed}: {taken:.0f} s, {shown}", flush=True)


# -- tables of results ----------------------------------------------------------------------------

Accuracies = dict[str, Any]


def accuracies(epsilons: tuple[float, ...] = EPSILONS) -> Accuracies:
    """Of each task, (sizes, schedules), the mean over epsilons of the mean over seeds."""
    found: dict[str, dict[float, list[Any]]] = {}
    for cell in json.loads(RESULTS.read_text())["cells"]:
        own = np.reshape(cell["accuracy"], (len(SIZES), len(SCHEDULES)))
        found.setdefault(cell["task"], {}).setdefault(cell["epsilon"], []).append(own)
    return {
        name: np.mean([np.mean(found[name][epsilon], axis=0) for epsilon in epsilons], axis=0)
        for name in TASKS
        if name in found
    }


def of_tasks(found: Accuracies) -> str:
    """Accuracies of all arms."""
    lines = [
        "| task, model, classes | "
        + " | ".join(f"{size:g}" for size in SIZES)
        + " | "
        + " | ".join(f"{size:g}, decay" for size in SIZES)
        + " |",
        "|---" * (1 + 2 * len(SIZES)) + "|",
    ]
    for name, own in found.items():
        numbers = " | ".join(f"{accuracy:.1f}" for accuracy in own.T.flatten())
        lines.append(f"| {name} | {numbers} |")
    return "\n".join(lines)


def differences(epsilons: tuple[float, ...] = EPSILONS) -> dict[str, list[float]]:
    """Of each task, by what is compared with what."""
    found = accuracies(epsilons)
    tokens, recurrent, numbers = (
        [found[name] for name in names if name in found] for names in (TOKENS, RECURRENT, NUMBERS)
    )
    others = [own for name, own in found.items() if name not in (*TOKENS, *RECURRENT, *NUMBERS)]
    by_kind = [own[2] for own in others + numbers] + [own[0] for own in tokens + recurrent]
    every = others + numbers + tokens + recurrent
    return {
        "size 1.7 over 1.0, without attention and recurrence": [
            own[2, 0] - own[1, 0] for own in others
        ],
        "size 1.7 over 1.0, attention over numbers": [own[2, 0] - own[1, 0] for own in numbers],
        "size 0.85 over 1.0, recurrence over numbers": [
            own[0, 0] - own[1, 0] for own in recurrent
        ],
        "size 0.85 over 1.0, attention or recurrence over tokens": [
            own[0, 0] - own[1, 0] for own in tokens
        ],
        "size by kind over 1.0": [
            own[0] - one[1, 0] for own, one in zip(by_kind, every, strict=True)
        ],
        "linear decay over averages, size by kind": [own[1] - own[0] for own in by_kind],
        **{
            f"linear decay over averages, size {size:g}": [
                own[place, 1] - own[place, 0] for own in every
            ]
            for place, size in enumerate(SIZES)
        },
    }


def of_differences() -> str:
    """Means with their standard errors, tasks as the unit."""
    columns = [differences(), *(differences((epsilon,)) for epsilon in EPSILONS)]
    lines = ["| what, over what | points | at epsilon 1 | at 8 | ahead in |", "|---" * 5 + "|"]
    for what in columns[0]:
        shown = []
        for column in columns:
            own = column[what]
            error = np.std(own, ddof=1) / len(own) ** 0.5
            shown.append(f"{np.mean(own):+.2f} ± {error:.2f}")
        both = columns[0][what]
        ahead = f"{sum(one > 0 for one in both)} of {len(both)}"
        lines.append(f"| {what} | {' | '.join(shown)} | {ahead} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", nargs="*", help="train what is not stored yet; tasks")
    names = parser.parse_args().run
    if names is not None:
        run_all(names or list(TASKS))
    print(of_tasks(accuracies()) + "\n\n" + of_differences())


if __name__ == "__main__":
    main()
