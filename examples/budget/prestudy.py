"""What the defaults of a budget study were decided by; on splits that no result is from.

::

    python examples/budget/prestudy.py                 # every part; resumes where it stopped
    python examples/budget/prestudy.py --tables        # what came of it, as Markdown

``prestudy.jsonl`` has a line per setting: the setting, the pilots' noise, and the test accuracies.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from simulated import Experiment, Setting

RESULTS = Path(__file__).with_name("prestudy.jsonl")
LADDER = Setting(ladder=(16, 4))


def usual(epsilon: float) -> float:
    return 1.15 if epsilon < 2 else 1.08


@dataclass(frozen=True)
class Part:
    """Settings that are compared with each other, on the same splits."""

    settings: list[Setting]
    splits: int
    seed: int


def ladders() -> Iterator[Setting]:
    shapes = ((16,), (12, 3), (16, 4), (24, 6, 2), (8, 2), (8,))
    for ladder, increase in product(shapes, (1.08, 1.15, 1.3, 1.5)):
        yield Setting(1.0, ladder, increase)


def looser() -> Iterator[Setting]:
    for increase, ladder in product((1.08, 1.15), ((16,), (16, 4), (12, 3), (8, 2))):
        yield Setting(3.0, ladder, increase)
    yield Setting(8.0, (16,))
    yield Setting(8.0, (16, 4))
    for epsilon, ladder in product((1.0, 3.0), ((16,), (16, 4))):
        yield Setting(epsilon, ladder, usual(epsilon), proposer="tpe")


def details() -> Iterator[Setting]:
    base = Setting(1.0, (12, 3), 1.15)
    yield base
    for name, values in (
        ("score_share", (0.1, 0.35, 0.5)),
        ("rate_power", (0.0, 0.5, 0.75, 1.25)),
        ("clip_power", (0.5, -0.5)),
        ("only_rate", (0.1, 0.5, 1.0)),
        ("batch", (16, 256)),
        ("length", (0.5, 0.125)),
    ):
        for value in values:
            yield replace(base, **{name: value})


def transfer() -> Iterator[Setting]:
    for epsilon in (1.0, 3.0):
        base = replace(LADDER, epsilon=epsilon, increase=usual(epsilon))
        yield base
        for power in (1.0, 0.0):
            for optimiser in ("momentum", "adam"):
                yield replace(base, optimiser=optimiser, rate_power=power)  # type: ignore[arg-type]
            yield replace(base, hidden=32, rate_power=power)
        if epsilon == 3.0:
            yield replace(base, rate_power=0.0)
            yield replace(base, rate_power=0.5)
            yield replace(base, clip_power=0.5)
            yield replace(base, clip_power=-0.5)
            yield replace(base, only_rate=0.5)
            yield replace(base, batch=256)
        for length in (0.5, 0.1):
            yield replace(base, length=length)
        yield replace(base, hidden=32, length=0.1)


def adam() -> Iterator[Setting]:
    for epsilon, power in product((1.0, 3.0), (0.0, 1.0)):
        yield replace(
            LADDER,
            epsilon=epsilon,
            increase=usual(epsilon),
            optimiser="adam",
            rate_power=0.0,
            length=0.1,
            length_power=power,
        )


PARTS = {
    "ladders": Part(list(ladders()), 100, 1),
    "looser": Part(list(looser()), 60, 3),
    "details": Part(list(details()), 80, 2),
    "transfer": Part(list(transfer()), 40, 4),
    "adam": Part(list(adam()), 40, 5),
}


def as_setting(kept: dict[str, Any]) -> Setting:
    names = {field.name for field in fields(Setting)}
    given = {name: value for name, value in kept.items() if name in names}
    return Setting(**{**given, "ladder": tuple(given["ladder"])})


def read(path: Path) -> dict[tuple[str, Setting], dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {(kept["part"], as_setting(kept)): kept for kept in found}


def run(names: list[str], path: Path) -> None:
    done = read(path)
    for name in names:
        part = PARTS[name]
        for setting in part.settings:
            if (name, setting) in done:
                continue
            result = Experiment(setting, range(part.splits), part.seed).run()
            with path.open("a") as file:
                file.write(json.dumps({"part": name, **asdict(setting), **result}) + "\n")
            print(name, in_words(setting), f"{100 * np.mean(result['best']):.1f}", flush=True)


def in_words(setting: Setting) -> str:
    """What differs from the default."""
    default = Setting()
    found = {
        field.name: getattr(setting, field.name)
        for field in fields(Setting)
        if field.name == "ladder"
        or (
            field.name != "epsilon"
            and getattr(setting, field.name) != getattr(default, field.name)
        )
    }
    return ", ".join(f"{name} {value}" for name, value in found.items())


def tables(path: Path) -> None:
    done = read(path)
    for name, part in PARTS.items():
        print(f"## {name}: {part.splits} splits\n\n| setting | noise | best score | smoothed |")
        print("| --- | --- | --- | --- |")
        for setting in part.settings:
            kept = done.get((name, setting))
            if kept is None:
                continue
            cells = []
            for by in ("best", "model"):
                values = 100 * np.array(kept[by])
                half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
                cells.append(f"{values.mean():.1f} ± {half:.1f}")
            noises = ", ".join(f"{noise:.1f}" for noise in kept["noises"])
            row = [f"epsilon {setting.epsilon:g}, {in_words(setting)}", noises, *cells]
            print("| " + " | ".join(row) + " |")
        print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=list(PARTS), action="append", help="all by default")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.tables:
        tables(options.results)
    else:
        run(options.part or list(PARTS), options.results)
