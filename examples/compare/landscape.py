"""Landscapes: what trainings of a task came to, for every configuration, length and noise.

    python landscape.py digits wine       # makes landscapes/digits.npz and landscapes/wine.npz
    python landscape.py --beyond wine     # adds what no space has, for short lists
    python landscape.py network_tasks/text.py   # networks, by odp.train: landscapes/networks/

A search on a landscape looks its runs up, so that thousands take a minute. A run of any noise and
length is read off between the nearest ones that took place (linearly in their logarithms), from
one of the repetitions at random, each with a split of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from task import HERE, Array, Params, Predict, Task, load

import optuna_dp as odp
from optuna_dp.planning.batch import noise_of_training
from optuna_dp.runs.run import Run

FOLDER = HERE / "landscapes"
NETWORK_TASKS = HERE / "network_tasks"
# All public feature maps of a task, side by side; in no space, last in a landscape.
JOINED = "joined"
DELTA = 1e-5
# Caps of the losses, in logarithms of the number of classes.
CAPS = (1.0, 1.5, 2.0, 3.0)
MEASURES = ("score", *(f"loss {cap:g}" for cap in CAPS), "test", "test accuracy")
LENGTHS = (1.0, 0.4, 0.16)
# From the signal of one run at the largest epsilon to that of a faint pilot at the smallest.
FAINTEST, APART = 0.08, 2.2
# So many points beyond, for pilots at a third of the smallest epsilon.
FURTHER = 2
# So many records of each kind tell a measure, the same ones for all configurations.
_TOLD = 6000
_LARGEST = 16.0  # of a measure; stored in steps of a quarter of a thousandth


def measured(task: Task, predict: Predict, private: Array, test: Array) -> list[float]:
    """The measures of a model: what a score is made of, then what counts."""
    found: list[float] = []
    for rows, of_test in ((private, False), (test, True)):
        logits = predict(task.x[rows]).astype(np.float64)
        right = np.argmax(logits, axis=1) == task.y[rows]
        score = float(task.values(logits, rows).mean())
        if of_test:
            found += [score, float(right.mean())]
            continue
        losses = losses_of(logits, task.y[rows]) * task.weights[task.y[rows]]
        caps = np.array(CAPS) * math.log(task.classes)
        found += [score, *np.minimum(losses[:, None], caps).mean(axis=0)]
    return found


def losses_of(logits: Array, y: Array) -> Array:
    """Cross entropies, (n,)."""
    top = logits.max(axis=1, keepdims=True)
    whole = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return whole - logits[np.arange(len(y)), y]


def noise_at(signal: float, rate: float, steps: int) -> float:
    """The noise multiplier of a training with this mu, in the central limit."""
    return 1.0 / math.sqrt(math.log1p(signal**2 / (rate**2 * steps)))


def signal_at(noise: float, rate: float, steps: int) -> float:
    """mu of a training, in the central limit (Dong et al., arXiv 1905.02383v3)."""
    return rate * math.sqrt(steps * math.expm1(noise**-2))


@dataclass(frozen=True)
class Landscape:
    """What trainings came to.

    Attributes:
        configurations: In the order of the first axis; those of the task's space, then any beyond.
        steps: Lengths, falling.
        noises: Noise multipliers, rising, (lengths, noises).
        whole: Noise multipliers of one run that spends a whole epsilon of the task, (epsilons,).
        found: Measures, (configurations, lengths, noises, repetitions, measures).
    """

    configurations: list[Params]
    steps: Array
    noises: Array
    whole: Array
    found: Array

    @classmethod
    def read(cls, name: str, beyond: bool = False) -> Landscape:
        """Reads what is on file; with ``beyond`` the configurations that only lists have, too."""
        with np.load(FOLDER / f"{name}.npz") as file:
            every = json.loads(str(file["configurations"]))
            if not beyond:
                every = [params for params in every if params.get("features") != JOINED]
            found = file["found"][: len(every)].astype(np.float32) * (_LARGEST / 65535)
            return cls(
                every,
                *(file[name] for name in ("steps", "noises", "whole")),
                found,
            )

    def save(self, name: str) -> None:
        shares = np.rint(np.clip(self.found, 0.0, _LARGEST) * (65535 / _LARGEST)).astype(np.uint16)
        np.savez_compressed(
            FOLDER / f"{name}.npz",
            configurations=json.dumps(self.configurations),
            steps=self.steps,
            noises=self.noises,
            whole=self.whole,
            found=shares,
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {json.dumps(one, sort_keys=True): i for i, one in enumerate(self.configurations)}

    @property
    def repetitions(self) -> int:
        return int(self.found.shape[3])

    def place(self, params: Params) -> int:
        return self._places[json.dumps(params, sort_keys=True)]

    def run(self, params: Params, noise: float, steps: int, repetition: int) -> Array:
        """The measures of one run, (measures,)."""
        return self.at(noise, steps)[self.place(params), repetition]

    def at(self, noise: float, steps: int) -> Array:
        """The measures of runs of all, (configurations, repetitions, measures)."""
        logs = np.log(self.steps[::-1])
        upper = int(np.clip(np.searchsorted(logs, math.log(steps)), 1, len(logs) - 1))
        share = (math.log(steps) - logs[upper - 1]) / (logs[upper] - logs[upper - 1])
        share = min(max(share, 0.0), 1.0)
        ends = [len(logs) - 1 - i for i in (upper - 1, upper)]
        lower, higher = (self._at(length, noise, steps) for length in ends)
        return (1.0 - share) * lower + share * higher

    def _at(self, length: int, noise: float, steps: int) -> Array:
        """Those of one length with as much signal as a run has."""
        # Noise multipliers of equal signal differ by the root of the length.
        logs = np.log(self.noises[length])
        wanted = math.log(noise * math.sqrt(self.steps[length] / steps))
        i = int(np.clip(np.searchsorted(logs, wanted), 1, len(logs) - 1))
        share = min(max((wanted - logs[i - 1]) / (logs[i] - logs[i - 1]), 0.0), 1.0)
        found: Array = (1.0 - share) * self.found[:, length, i - 1] + share * self.found[
            :, length, i
        ]
        return found


def make(task: Task, repetitions: int, seed: int = 0) -> Landscape:
    """Trains everything; the noise has a seed, because nothing here is released."""
    rate = task.batch / task.records
    whole = np.array([noise_of_training(e, DELTA, rate, task.steps) for e in task.epsilons])
    largest = signal_at(whole.min(), rate, task.steps)
    least = FAINTEST * signal_at(whole.max(), rate, task.steps)
    count = 1 + math.ceil(math.log(largest / least) / math.log(APART))
    apart = (least / largest) ** (1.0 / (count - 1))
    signals = largest * apart ** np.arange(count + FURTHER)
    steps = np.array([round(share * task.steps) for share in LENGTHS])
    noises = np.array([[noise_at(mu, rate, length) for mu in signals] for length in steps])
    every = task.configurations()
    found = runs(task, every, steps, noises, repetitions, seed)
    return Landscape(every, steps, noises, whole, found)


def extended(task: Task, land: Landscape, seed: int = 0) -> Landscape:
    """Trains what no space has, at the noises and lengths that are there."""
    before = len(task.configurations())
    every = [*land.configurations[:before], *task.beyond]
    more = list(task.beyond)
    found = runs(task, more, land.steps, land.noises, land.repetitions, seed, before)
    return replace(land, configurations=every, found=np.concatenate([land.found[:before], found]))


def runs(
    task: Task,
    every: list[Params],
    steps: Array,
    noises: Array,
    repetitions: int,
    seed: int,
    first: int = 0,
) -> Array:
    """Measures, (configurations, lengths, noises, repetitions, measures); ``first`` for seeds."""
    found = np.zeros((len(every), *noises.shape, repetitions, len(MEASURES)))
    for r, (k, params) in itertools.product(range(repetitions), enumerate(every)):
        start = time.process_time()
        if k == 0:
            private, test = task.split(r)
            shown = [rows[:: 1 + len(rows) // _TOLD] for rows in (private, test)]
            x, y = task.x[private], task.y[private]
        for i, j in np.ndindex(noises.shape):
            run = bare_run(task, noises[i, j], int(steps[i]))
            rng = np.random.default_rng([seed, first + k, r, i, j])
            found[k, i, j, r] = measured(task, task.train(x, y, params, run, rng), *shown)
        print(task.name, r, params, f"{time.process_time() - start:.1f} s", flush=True)
    return found


def bare_run(task: Task, noise: float, steps: int) -> Run:
    """A run of this noise and length that nobody pays for."""
    rate = task.batch / task.records
    training = odp.dp_sgd(noise_multiplier=float(noise), sample_rate=rate, steps=steps)
    return Run(
        noise_multiplier=float(noise),
        steps=steps,
        sample_rate=rate,
        score_noise_multiplier=None,
        batch_size=float(task.batch),
        event=training,
        training=training,
        is_pilot=False,
        rung=0,
    )


def has_networks(name: str) -> bool:
    """Whether a task, by its name or file, is one of real networks; these are kept apart."""
    return Path(name).parent.name == NETWORK_TASKS.name


def stored_name(name: str) -> str:
    """Where the landscape of a task is kept, by the task's name or file."""
    return f"networks/{Path(name).stem}" if has_networks(name) else Path(name).stem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", help="names, or files")
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--beyond", action="store_true", help="add what no space has")
    options = parser.parse_args()
    for name in options.tasks:
        if options.beyond:
            known = Landscape.read(stored_name(name), beyond=True)
            extended(load(name), known).save(stored_name(name))
            continue
        make(load(name), options.repetitions).save(stored_name(name))


if __name__ == "__main__":
    main()
