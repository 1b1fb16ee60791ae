"""Rate, schedule and averaging on seven families of models, fitted with families left out.

::

    python examples/known_without_data/families.py --run       # 12 minutes of one core
    python examples/known_without_data/families.py             # the tables, from families.json

Each training is DP-SGD with the plan's batch and steps. All rates and schedules of a setting see
the same batches and the same noise, so that their difference is theirs. A rate is given by the
noise of a weight, c; how far noise moves the model's logits at a c is what
``odp.rehearse_module`` says on made-up inputs.

The text is Python's own library: the classes are packages, and what is public, for the models that
are trained before, are other modules.
"""

from __future__ import annotations

import argparse
import json
import math
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad, vmap

import optuna_dp as odp
from optuna_dp.runs.rehearsal import SEQUENCE_SIZE, SIZE

RESULTS = Path(__file__).parent / "families.json"
CONSTANT = odp.Schedule("constant")
RECORDS, EPOCHS, NORM = 1347, 10, 1.0
SIZES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
TAIL = 0.25
# Usual rates, and the closed rule.
LINEAR = ("softmax, digits", "last layer, text")
# Trained weights act through attention or recurrence; some are in held_back.py.
SEQUENCES = (
    "LoRA, text",
    "transformer, text",
    "half the width, text",
    "fine-tuned, text",
    "LSTM, text",
    "two blocks, text",
    "double width, text",
)
USUAL = {"adam": (0.01, 0.005, 0.001), "sgd": (0.1,), "momentum": ()}
RULE = 0.3
PACKAGES = ("asyncio", "email", "encodings", "idlelib", "tkinter", "unittest")
CHARACTERS, LENGTH, WIDTH = 96, 24, 24

Records = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


# -- records --------------------------------------------------------------------------------------


@cache
def digits() -> Records:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = torch.tensor(x[order] / 16.0, dtype=torch.float32), torch.tensor(y[order])
    return x[:RECORDS], y[:RECORDS], x[RECORDS:], y[RECORDS:]


def images() -> Records:
    x, y, test_x, test_y = digits()
    return x.reshape(-1, 1, 8, 8), y, test_x.reshape(-1, 1, 8, 8), test_y


def characters(text: str) -> np.ndarray:
    """Printable ASCII as whole numbers from 1; all else is 0."""
    codes = np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8).astype(int) - 31
    return np.where((codes > 0) & (codes < CHARACTERS), codes, 0)


@cache
def source(package: str) -> np.ndarray:
    """All text of a package, or of the modules at the top, which are the public ones."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(root.glob("*.py") if package == "" else (root / package).rglob("*.py"))
    return characters("".join(path.read_text("utf8", "replace") for path in paths))


@cache
def texts() -> Records:
    """Windows of the packages' text, and which package each is of."""
    rng = np.random.default_rng(1)
    y = rng.integers(len(PACKAGES), size=RECORDS + 1500)
    windows = []
    for label in y:
        text = source(PACKAGES[label])
        start = rng.integers(len(text) - LENGTH)
        windows.append(text[start : start + LENGTH])
    x, labels = torch.tensor(np.array(windows)), torch.tensor(y)
    return x[:RECORDS], labels[:RECORDS], x[RECORDS:], labels[RECORDS:]


# -- models ---------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor, causal: bool) -> torch.Tensor:
        q, k, v = self.mixed(self.first(x)).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores + torch.full(scores.shape[-2:], -1e9).triu(1)
        x = x + self.out(scores.softmax(-1) @ v)
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    """One or more blocks over characters; as a language model, or with a head over the mean."""

    def __init__(self, width: int = WIDTH, depth: int = 1) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(CHARACTERS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(PACKAGES))

    def features(self, ids: torch.Tensor, causal: bool = False) -> torch.Tensor:
        x = self.letters(ids) + self.places(torch.arange(ids.shape[-1]))
        for block in self.blocks:
            x = block(x, causal)
        return self.norm(x)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(ids).mean(-2))


class Adapted(nn.Module):
    """A frozen linear layer with a trained difference of rank 4 (LoRA, arXiv:2106.09685)."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + 2.0 * self.up(self.down(x))


@cache
def pretrained() -> dict[str, torch.Tensor]:
    """A language model of the public modules: it says the next character."""
    torch.manual_seed(7)
    rng, text = np.random.default_rng(7), source("")
    model, head = Transformer(), nn.Linear(WIDTH, CHARACTERS)
    steps = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(500):
        starts = rng.integers(len(text) - LENGTH, size=64)
        ids = torch.tensor(np.stack([text[start : start + LENGTH] for start in starts]))
        logits = head(model.features(ids, causal=True)[:, :-1])
        steps.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        steps.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def transformer() -> nn.Module:
    return Transformer()


def adapted() -> nn.Module:
    head = nn.Linear(WIDTH, len(PACKAGES))
    model = Transformer().requires_grad_(False)
    model.load_state_dict(pretrained())
    model.head = head
    for block in model.blocks:
        block.mixed = Adapted(block.mixed)
    return model


def frozen_features(ids: torch.Tensor) -> torch.Tensor:
    model = Transformer()
    model.load_state_dict(pretrained())
    with torch.no_grad():
        return model.features(ids).mean(-2)


@cache
def features() -> Records:
    x, y, test_x, test_y = texts()
    return frozen_features(x), y, frozen_features(test_x), test_y


class Bag(nn.Module):
    """The mean of embeddings of pairs of characters, hashed to 256 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs, self.head = nn.Embedding(256, 8), nn.Linear(8, len(PACKAGES))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        pairs = (ids[..., :-1] * 97 + ids[..., 1:] * 31) % 256
        return self.head(self.pairs(pairs).mean(-2))


def grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.GroupNorm(4, 8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


@dataclass(frozen=True)
class Family:
    """Models and records of a kind, and how much of the grid they get.

    Attributes:
        model: Makes one, from torch's seed.
        records: Training inputs and labels, and those for the accuracy.
        inputs: Made-up inputs of the public schema.
        optimizers: Those that are tried.
        epsilons: Those that are tried.
        decays: Schedules of the rate; each with its last weights and with the average.
        powers: The noises of a weight, as powers of two of the rehearsed one.
        seeds: How many repetitions.
    """

    model: Callable[[], nn.Module]
    records: Callable[[], Records]
    inputs: Callable[[], Any]
    optimizers: tuple[str, ...] = ("sgd", "momentum", "adam")
    epsilons: tuple[float, ...] = (1.0, 3.0, 8.0)
    decays: tuple[str, ...] = ("constant", "linear", "cosine")
    powers: tuple[float, ...] = (-3, -2, -1, 0, 1, 2, 3)
    seeds: int = 2


def slow(**others: Any) -> dict[str, Any]:
    return {
        "optimizers": ("sgd", "adam"),
        "epsilons": (1.0, 8.0),
        "decays": ("constant", "linear"),
        "powers": (-2, -1, 0, 1, 2),
        "seeds": 1,
        **others,
    }


def pixels(*shape: int) -> Any:
    return odp.made_up_inputs(*[(0, 1)] * 64).reshape(-1, *shape)


def letters() -> Any:
    return odp.made_up_tokens(CHARACTERS, LENGTH)


FAMILIES = {
    "softmax, digits": Family(lambda: zero(nn.Linear(64, 10)), digits, lambda: pixels(64)),
    "two layers, digits": Family(
        lambda: nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)),
        digits,
        lambda: pixels(64),
        **slow(epsilons=(1.0, 3.0, 8.0)),
    ),
    "bag of embeddings, text": Family(Bag, texts, letters, **slow()),
    "last layer, text": Family(
        lambda: zero(nn.Linear(WIDTH, len(PACKAGES))),
        features,
        lambda: frozen_features(torch.tensor(letters())),
    ),
    "CNN with GroupNorm, digits": Family(
        grouped, images, lambda: odp.made_up_images(1, 8, 8), **slow()
    ),
    "LoRA, text": Family(adapted, texts, letters, **slow(optimizers=("adam",))),
    "transformer, text": Family(transformer, texts, letters, **slow(optimizers=("adam",))),
}


def zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


# -- trainings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One training: its first rate, and how it falls."""

    decay: str
    rate: float
    noise_per_weight: float


def rate_of(run: odp.Run, optimizer: str, decay: str, noise: float) -> float:
    """The rate for a noise of a weight in the last weights, without the closed rule's cap."""
    tiny = 1e-9
    schedule = odp.Schedule(decay)
    rate = run.learning_rate(optimizer, noise_per_weight=tiny, schedule=schedule)
    return rate * noise / tiny


def rows_of(family: Family, run: odp.Run, optimizer: str, center: float) -> list[Row]:
    """The grid, the closed rule, four times it, and the usual rates."""
    found = []
    for decay in family.decays:
        noises = [center * 2.0**power for power in family.powers] + [RULE]
        if decay == "linear":
            noises.append(4.0 * RULE * odp.Schedule("linear").noise_factor(run.steps))
        found += [Row(decay, rate_of(run, optimizer, decay, noise), noise) for noise in noises]
    for rate in USUAL[optimizer]:
        noise = rate / rate_of(run, optimizer, "constant", 1.0)
        found.append(Row("constant", rate, noise))
    return found


def accuracies(
    family: Family, run: odp.Run, optimizer: str, rows: list[Row], seed: int
) -> tuple[list[float], list[float]]:
    """Trains all rows side by side; accuracy of the last weights and of the averaged ones."""
    torch.manual_seed(seed)
    model = family.model().eval()
    x, y, test_x, test_y = family.records()
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    weights = {name: p.expand(len(rows), *p.shape).clone() for name, p in trained.items()}

    def loss(own: Any, record: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        logits = functional_call(model, {**frozen, **own}, (record[None],))
        return nn.functional.cross_entropy(logits, label[None])

    def clipped_sum(own: Any, batch: torch.Tensor, labels: torch.Tensor) -> Any:
        each = vmap(grad(loss), (None, 0, 0))(own, batch, labels)
        squares = sum(part.flatten(1).square().sum(1) for part in each.values())
        factors = (NORM / squares.sqrt()).clamp(max=1.0)
        return {name: torch.tensordot(factors, part, 1) for name, part in each.items()}

    of_rows = vmap(clipped_sum, (0, None, None))
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    rates = torch.tensor([row.rate for row in rows])
    first = {name: torch.zeros_like(part) for name, part in weights.items()}
    second = {name: torch.zeros_like(part) for name, part in weights.items()}
    averages = {name: torch.zeros_like(part) for name, part in weights.items()}
    tail = odp.Schedule("constant", TAIL).averaged_steps(run.steps)
    for step in range(run.steps):
        batch = torch.tensor(np.flatnonzero(rng.random(len(x)) < run.sample_rate))
        sums = of_rows(weights, x[batch], y[batch])
        factors = torch.tensor([odp.Schedule(row.decay).factor(step, run.steps) for row in rows])
        for name, part in weights.items():
            noise = torch.randn(part.shape[1:], generator=generator)
            gradient = (sums[name] + run.noise_multiplier * NORM * noise) / run.batch_size
            each = (rates * factors).reshape(-1, *[1] * (part.ndim - 1))
            if optimizer == "adam":
                first[name].lerp_(gradient, 0.1)
                second[name].lerp_(gradient.square(), 0.001)
                root = (second[name] / (1.0 - 0.999 ** (step + 1))).sqrt() + 1e-8
                part -= each * first[name] / (1.0 - 0.9 ** (step + 1)) / root
            else:
                kept = 0.9 if optimizer == "momentum" else 0.0
                first[name].mul_(kept).add_(gradient)
                part -= each * first[name]
            if step >= run.steps - tail:
                averages[name] += part / tail

    def right(all_rows: Any) -> list[float]:
        found = []
        with torch.no_grad():
            for row in range(len(rows)):
                own = {name: part[row] for name, part in all_rows.items()}
                logits = functional_call(model, {**frozen, **own}, (test_x,))
                found.append(100.0 * float((logits.argmax(-1) == test_y).double().mean()))
        return found

    return right(weights), right(averages)


def rehearsed(family: Family) -> dict[str, float]:
    """The noise of a weight at which noise moves the logits by each size."""
    torch.manual_seed(0)
    model, inputs, run = family.model(), family.inputs(), plan(3.0)
    found = {}
    for size in SIZES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit of SGD's steps: it is measured here
            rehearsal = odp.rehearse_module(
                run, model, inputs, optimizer="sgd", schedule=CONSTANT, size=size
            )
        found[str(size)] = rehearsal.noise_per_weight
    return found


@cache
def plan(epsilon: float) -> odp.Run:
    return odp.plan_budget(epsilon=epsilon, records=RECORDS, epochs=EPOCHS, pilots=0).final


def settings() -> Iterator[tuple[str, int, str, float]]:
    """All of them, those first that every family has."""
    for optimizer in ("adam", "sgd", "momentum"):
        for epsilon in (1.0, 8.0, 3.0):
            for name, family in FAMILIES.items():
                for seed in range(family.seeds):
                    if epsilon in family.epsilons and optimizer in family.optimizers:
                        yield name, seed, optimizer, epsilon


def run_all() -> None:
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sizes": {}, "curves": []}
    known = {(c["family"], c["seed"], c["optimizer"], c["epsilon"]) for c in stored["curves"]}
    for name, seed, optimizer, epsilon in settings():
        if (name, seed, optimizer, epsilon) in known:
            continue
        began = time.process_time()
        family, run = FAMILIES[name], plan(epsilon)
        if name not in stored["sizes"]:
            found = {k: float(f"{c:.4g}") for k, c in rehearsed(family).items()}
            stored["sizes"][name] = found
        rows = rows_of(family, run, optimizer, stored["sizes"][name]["1.0"])
        last, averaged = accuracies(family, run, optimizer, rows, seed)
        stored["curves"].append(
            {
                "family": name,
                "seed": seed,
                "optimizer": optimizer,
                "epsilon": epsilon,
                "rows": [
                    [row.decay, float(f"{row.rate:.4g}"), float(f"{row.noise_per_weight:.4g}"),
                     round(a, 2), round(b, 2)]
                    for row, a, b in zip(rows, last, averaged, strict=True)
                ],
            }
        )  # fmt: skip
        RESULTS.write_text(json.dumps(stored) + "\n")
        taken = time.process_time() - began
        print(f"{name}, {optimizer}, {epsilon:g}: {taken:.0f} s, best {max(last):.1f}", flush=True)


# -- tables ---------------------------------------------------------------------------------------

Variant = tuple[str, float]
VARIANTS: list[Variant] = [
    (decay, share) for decay in ("constant", "linear", "cosine") for share in (0.0, TAIL)
]


@dataclass(frozen=True)
class Cell:
    """One family with one optimizer at one epsilon, its seeds averaged.

    Attributes:
        family: Its name.
        optimizer: Its name.
        epsilon: Of the one training.
        rows: Decay, rate, noise of a weight, accuracy, accuracy of the averaged weights.
    """

    family: str
    optimizer: str
    epsilon: float
    rows: list[tuple[str, float, float, float, float]]

    @property
    def best(self) -> float:
        """The best of all rates and schedules, on the records that it is chosen on."""
        return max(max(row[3:]) for row in self.rows)

    def loss_at(self, variant: Variant, noise: float) -> float | None:
        """Points below the best where the returned weights have so much noise."""
        decay, share = variant
        steps = plan(self.epsilon).steps
        lower = odp.Schedule(decay, share).noise_factor(steps)
        lower /= odp.Schedule(decay).noise_factor(steps)
        own = sorted(
            (row[2] * lower, row[4 if share else 3]) for row in self.rows if row[0] == decay
        )
        if not own:
            return None
        noises, found = np.array(own).T
        return self.best - float(np.interp(np.log(noise), np.log(noises), found))

    def loss_of(self, decay: str, rate: float) -> float | None:
        """Points below the best at a rate, if it was trained with."""
        own = [row for row in self.rows if row[0] == decay and abs(row[1] / rate - 1.0) < 1e-3]
        return self.best - own[0][3] if own else None


def cells(stored: dict[str, Any]) -> list[Cell]:
    found: dict[tuple[str, str, float], list[Any]] = {}
    for curve in stored["curves"]:
        place = curve["family"], curve["optimizer"], curve["epsilon"]
        found.setdefault(place, []).append(curve["rows"])
    return [
        Cell(
            *place,
            rows=[
                (*of_seeds[0][:3], *np.mean([row[3:] for row in of_seeds], axis=0))
                for of_seeds in zip(*seeds, strict=True)
            ],
        )
        for place, seeds in found.items()
    ]


Losses = dict[Cell, float]


def by_family(losses: Losses) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for cell, loss in losses.items():
        found.setdefault(cell.family, []).append(loss)
    return {family: float(np.mean(own)) for family, own in found.items()}


def summary(losses: list[float]) -> str:
    numbers = [np.mean(losses), *np.quantile(losses, [0.5, 0.9]), max(losses)]
    return " | ".join(f"{number:.1f}" for number in numbers)


def rehearsed_losses(
    all_cells: list[Cell], sizes: dict[str, dict[str, float]], variant: Variant, size: str
) -> list[float]:
    losses = [cell.loss_at(variant, sizes[cell.family][size]) for cell in all_cells]
    return [loss for loss in losses if loss is not None]


def size_before(family: str) -> float:
    """The size of the package before it asked for the kind of a model."""
    return 1.7 if family in LINEAR else 1.0


def noise_of_size(sizes: dict[str, float], size: float) -> float:
    """The noise of a weight at a size between those that were rehearsed."""
    logs = np.log([[float(known), noise] for known, noise in sizes.items()]).T
    return float(np.exp(np.interp(np.log(size), *logs)))


def as_shipped(family: str, sizes: dict[str, float]) -> float:
    """The noise of a weight at the size of the package, which depends on the kind of a model."""
    return noise_of_size(sizes, SEQUENCE_SIZE if family in SEQUENCES else SIZE)


def left_out(
    all_cells: list[Cell], sizes: dict[str, dict[str, float]], variants: list[Variant]
) -> tuple[dict[str, list[float]], set[tuple[Variant, str]]]:
    """Losses of each family at the constant and schedule that were best on the others."""
    found, chosen = {}, set()
    families = {cell.family for cell in all_cells}

    def mean_of_others(family: str, variant: Variant, size: str) -> float:
        means = []
        for other in families - {family}:
            own = [cell for cell in all_cells if cell.family == other]
            losses = rehearsed_losses(own, sizes, variant, size)
            means.append(np.mean(losses) if losses else np.nan)
        return float(np.nanmean(means))

    for family in families:
        variant, size = min(
            ((variant, str(size)) for variant in variants for size in SIZES),
            key=lambda pair: mean_of_others(family, *pair),
        )
        own = [cell for cell in all_cells if cell.family == family]
        found[family] = rehearsed_losses(own, sizes, variant, size)
        chosen.add((variant, size))
    return found, chosen


def words(variant: Variant) -> str:
    return f"{variant[0]}, last quarter averaged" if variant[1] else variant[0]


def tables() -> None:
    stored = json.loads(RESULTS.read_text())
    found, sizes = cells(stored), stored["sizes"]
    families = [name for name in FAMILIES if any(cell.family == name for cell in found)]
    trainings = sum(len(curve["rows"]) for curve in stored["curves"])
    print(f"{len(found)} cells of {len(families)} families, {trainings} trainings\n")
    print(f"| rate, schedule | sizes | mean | median | 90 % | worst | {' | '.join(families)} |")
    print(f"|---|---|---|---|---|---|{'---|' * len(families)}")

    def line(name: str, constants: str, losses: dict[str, list[float]]) -> None:
        means = [f"{np.mean(losses[f]):.1f}" if losses.get(f) else "" for f in families]
        together = [loss for own in losses.values() for loss in own]
        if together:
            print(f"| {name} | {constants} | {summary(together)} | {' | '.join(means)} |")

    everywhere = [variant for variant in VARIANTS if variant[0] != "cosine"]
    for name, variants in [
        ("rehearsal, schedule left out too", everywhere),
        *((f"rehearsal, {words(variant)}", [variant]) for variant in VARIANTS),
    ]:
        losses, chosen = left_out(found, sizes, variants)
        shown = ", ".join(sorted({size for _, size in chosen}, key=float))
        line(name, shown, losses)
    for size in ("0.7", "1.0", "1.4", "2.0"):
        for variant in everywhere:
            losses = {
                f: rehearsed_losses([c for c in found if c.family == f], sizes, variant, size)
                for f in families
            }
            line(f"rehearsal at one size, {words(variant)}", size, losses)

    shipped: dict[str, list[float]] = {}
    before: dict[str, list[float]] = {}
    for cell in found:
        own = sizes[cell.family]
        for losses, noise in (
            (shipped, as_shipped(cell.family, own)),
            (before, noise_of_size(own, size_before(cell.family))),
        ):
            loss = cell.loss_at(("constant", TAIL), noise)
            assert loss is not None
            losses.setdefault(cell.family, []).append(loss)
    line("**as shipped: rehearsal, constant, last quarter averaged**", "0.85, 1.7", shipped)
    line("before: the same at one size, linear models 1.7", "1.0, 1.7", before)

    def fixed(
        name: str, loss: Callable[[Cell], float | None], optimizers: tuple[str, ...]
    ) -> None:
        losses: dict[str, list[float]] = {}
        for cell in found:
            if cell.optimizer in optimizers and (value := loss(cell)) is not None:
                losses.setdefault(cell.family, []).append(value)
        line(name, "", losses)

    every = ("adam", "sgd", "momentum")
    fixed("closed rule, constant", lambda cell: cell.loss_at(("constant", 0.0), RULE), every)
    fixed(
        "four times the closed rule, linear",
        lambda cell: cell.loss_at(
            ("linear", 0.0), 4.0 * RULE * odp.Schedule("linear").noise_factor(150)
        ),
        every,
    )
    for optimizer, rates in USUAL.items():
        for rate in rates:
            fixed(
                f"{optimizer} {rate:g}, constant",
                lambda cell, rate=rate: cell.loss_of("constant", rate),  # type: ignore[misc]
                (optimizer,),
            )
    print("\n| family | best | c of size 1 | c of the best constant rate |\n|---|---|---|---|")
    for family in families:
        own = [cell for cell in found if cell.family == family]
        best = [
            max((row for row in cell.rows if row[0] == "constant"), key=lambda row: row[3])[2]
            for cell in own
        ]
        shown = " to ".join(
            f"{cell:.1f}" for cell in (min(c.best for c in own), max(c.best for c in own))
        )
        between = f"{min(best):.2g} to {max(best):.2g}"
        print(f"| {family} | {shown} | {sizes[family]['1.0']:.2g} | {between} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="train what is not stored yet")
    if parser.parse_args().run:
        run_all()
    tables()


if __name__ == "__main__":
    main()
