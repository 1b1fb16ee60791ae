"""Optimizer, schedule and averaging of softmax regressions and small networks, tasks left out.

::

    python examples/known_without_data/linear.py --run       # trains what is not stored yet
    python examples/known_without_data/linear.py             # the tables, from linear.json

Nine tasks choose: wine, diabetes, pairs of characters and a last layer on the text of Python's own
library, the wind at New York's airports, and four synthetic ones. Six others judge: the digits,
breast cancer in two scalings, two questions about flights, and Fashion-MNIST. Rates and schedules
of a setting share batches and noise, so that their difference is theirs. A rate is given by its
size: how far noise moves the logits, as the rehearsal measures it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tasks
from tasks import Floats, Labels, Task
from training import Model

import optuna_dp as odp

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
    "flights origin",
    "Fashion-MNIST",
)
MODELS = {"softmax": Model(), "64 tanh units": Model((64,))}
OPTIMIZERS = ("sgd", "adam")
DECAYS = ("constant", "linear", "cosine")
SHARES = (0.0, 0.25, 0.5)
SIZES = tuple(float(2.0 ** (k / 2.0)) for k in range(-4, 8))
WORKS = (1.0, 4.0)  # of the plan, as multiples of ten epochs
EPOCHS, NORM, DELTA = 10.0, 1.0, 1e-5
LARGE = 5_000  # From so many records on, epsilons are smaller and seeds fewer.


# -- records --------------------------------------------------------------------------------------


def shuffled(x: Any, y: Any, schema: Any, records: int) -> Task:
    return Task(np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.int64), schema, records)


@cache
def load(name: str) -> Task:
    """A task by its name; the flights, the wind and the clothes need a package."""
    if name == "wind":
        from network_tasks.weather import RECORDS, SCHEMA
        from network_tasks.weather import load as wind

        x, y = wind()
        order = np.random.default_rng(0).permutation(len(x))[: round(RECORDS / 0.75)]
        return shuffled(x[order], y[order], SCHEMA, RECORDS)
    if name == "Fashion-MNIST":
        from idx_files import load as clothes
        from idx_files import scaled

        images = clothes()
        parts = [scaled(images.train_images), scaled(images.test_images)]
        x = np.concatenate(parts).reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)
        y = np.concatenate([images.train_labels, images.test_labels])
        return shuffled(x, y, ((0.0, 1.0),) * 196, 52_500)
    if name in ("pairs of characters", "last layer, text"):
        import families

        x, y, more_x, more_y = families.texts()
        ids, labels = np.concatenate([x, more_x]), np.concatenate([y, more_y])
        if name == "last layer, text":
            import torch

            features = families.frozen_features(torch.tensor(ids)).numpy()
            return shuffled(features, labels, ((-1.7, 1.7),) * features.shape[1], 2_135)
        pairs = (ids[:, :-1] * 97 + ids[:, 1:] * 31) % 64
        counts = np.stack([np.bincount(row, minlength=64) for row in pairs]) / 4.0
        return shuffled(counts, labels, ((0.0, 0.35),) * 64, 2_135)
    return tasks.load(name)


def epsilons(task: Task) -> tuple[float, ...]:
    return (0.1, 0.3, 1.0) if task.records >= LARGE else (1.0, 3.0, 8.0)


# -- trainings ------------------------------------------------------------------------------------


def noise_of_size(model: Model, task: Task, size: float) -> float:
    """The noise of a weight at which it moves the logits of made-up inputs so far."""
    inputs = odp.made_up_inputs(*task.schema).astype(np.float32)
    rng = np.random.default_rng(0)
    start = model.start(inputs.shape[1], task.classes, rng)
    before = model.logits(start, inputs)
    draws = [[rng.standard_normal(layer.shape) for layer in start] for _ in range(8)]

    def measured(noise: float) -> float:
        moved = [
            model.logits([w + noise * d for w, d in zip(start, draw, strict=True)], inputs)
            for draw in draws
        ]
        return float(np.sqrt(np.mean([np.var(m - before, axis=1).mean() for m in moved])))

    low, high = 1e-4, 1e2
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if measured(middle) < size else (low, middle)
    return (low * high) ** 0.5


def rate_of(run: odp.Fidelity, optimizer: str, decay: str, noise: float) -> float:
    """The first rate for a noise of a weight in the last weights, without the closed rule's cap."""
    tiny = 1e-9
    schedule = odp.Schedule(decay)
    return run.learning_rate(optimizer, noise_per_weight=tiny, schedule=schedule) * noise / tiny


def accuracies(
    model: Model, task: Task, run: odp.Fidelity, optimizer: str, rows: list[Any], seed: int
) -> np.ndarray:
    """In per cent, (rows, shares): of the last weights, and of their averages."""
    rng = np.random.default_rng([seed, len(task.x)])
    own, test = task.split(rng)
    start = model.start(task.x.shape[1], task.classes, rng)
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
        gradients = clipped_sums(model, weights, task.x[drawn], one_hot[task.y[drawn]])
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
        logits = [model.logits([w[0, row] for w in layers], task.x[test]) for row in range(len(rows))]
        return [100.0 * float(np.mean(np.argmax(own, 1) == task.y[test])) for own in logits]

    return np.array([right(weights), *(right(parts) for parts in averages.values())]).T


def clipped_sums(
    model: Model, weights: list[Floats], x: Floats, targets: Labels | Floats
) -> list[Floats]:
    """Sums of clipped gradients, a tensor (1, rows, inputs, outputs) for each layer."""
    kept, top = model.forward(weights, x[None, None])
    top = top - top.max(axis=-1, keepdims=True)
    np.exp(top, out=top)
    top /= top.sum(axis=-1, keepdims=True)
    top -= targets
    errors = model.errors(weights, kept, top)
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
def plan(records: int, epsilon: float, work: float) -> odp.Fidelity:
    found = odp.plan_budget(
        epsilon=epsilon, records=records, epochs=EPOCHS, work=work, pilots=0, score=None
    )
    return found.final


def settings(models: list[str], names: list[str]) -> Any:
    for model in models:
        for name in names:
            for work in WORKS if model == "softmax" else WORKS[:1]:
                for place in range(3):
                    for optimizer in OPTIMIZERS:
                        yield model, name, work, place, optimizer


def seeds_of(task: Task, model: str) -> int:
    if len(task.x) >= 20_000 or model != "softmax":
        return 1 if task.records >= LARGE else 3
    return 2 if task.records >= LARGE else 8


def run_all(models: list[str], names: list[str]) -> None:
    cells = json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []
    known = {(c["model"], c["task"], c["work"], c["place"], c["optimizer"]) for c in cells}
    for model, name, work, place, optimizer in settings(models, names):
        if (model, name, work, place, optimizer) in known:
            continue
        began, task = time.process_time(), load(name)
        run = plan(task.records, epsilons(task)[place], work)
        noise = [noise_of_size(MODELS[model], task, size) for size in SIZES]
        rows = [
            (decay, rate_of(run, optimizer, decay, c), size)
            for decay in DECAYS
            for size, c in zip(SIZES, noise, strict=True)
        ]
        found = [
            accuracies(MODELS[model], task, run, optimizer, rows, seed)
            for seed in range(seeds_of(task, model))
        ]
        mean = np.mean(found, axis=0).reshape(len(DECAYS), len(SIZES), len(SHARES))
        cells.append(
            {
                "model": model,
                "task": name,
                "work": work,
                "place": place,
                "epsilon": epsilons(task)[place],
                "optimizer": optimizer,
                "steps": run.steps,
                "batch": run.batch_size,
                "seeds": len(found),
                "accuracy": [
                    {str(share): np.round(mean[i, :, j], 2).tolist() for j, share in enumerate(SHARES)}
                    for i in range(len(DECAYS))
                ],
            }
        )
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        RESULTS.write_text(f'{{"sizes": {json.dumps(SIZES)}, "cells": [\n{lines}\n]}}\n')
        taken = time.process_time() - began
        best = mean.max()
        print(f"{model}, {name}, {work:g}, {run.steps}, {epsilons(task)[place]:g}, {optimizer}: {taken:.1f} s, {best:.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="train what is not stored yet")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--tasks", nargs="+", default=[*CHOOSING, *JUDGING])
    options = parser.parse_args()
    if options.run:
        run_all(options.models, options.tasks)
