"""Compares searches at the same total (epsilon, 1e-5); anybody's tasks and arms.

::

    python run.py --task digits wine --arms one_good budget randtune --repetitions 200
    python run.py --task mine.py --arms budget,randtune,mine.py --epsilon 1 3 --real
    python run.py --task digits --arms one_good budget --real --repetitions 20

A task is the name of one in ``tasks/`` or a file like those, an arm likewise of ``arms/``. A file
may also have many, in ``TASKS`` or ``ARMS``, by name: ``../headline/rates.py`` has both. Runs
are looked up on the task's landscape, if it has one; ``--real`` trains. What is on file is not run
again. Prints the table, with differences to the first arm in the same repetitions, and draws the
figure.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from bench import Bench
from landscape import DELTA, FOLDER, Landscape, has_networks, stored_name
from results import figure, table
from task import HERE, Task, from_file, load

import optuna_dp as odp

FIELDS = ("task", "epsilon", "repetition", "arm", "real", "test", "runs", "work", "params")


def names(given: list[str]) -> list[str]:
    """What is separated by spaces or commas."""
    return [name for part in given for name in part.split(",") if name]


def tasks_of(name: str) -> list[Task]:
    """A task, or all those of a file that has many."""
    many = getattr(from_file(Path(name)), "TASKS", {}) if name.endswith(".py") else {}
    return [made() for made in many.values()] or [load(name)]


def arms_of(name: str) -> dict[str, Any]:
    """An arm by its name, or all those of a file that has many."""
    path = Path(name) if name.endswith(".py") else HERE / "arms" / f"{name}.py"
    module = from_file(path)
    found: dict[str, Any] = getattr(module, "ARMS", {path.stem: module})
    return found


def on_file(path: Path) -> set[tuple[str, ...]]:
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    with path.open(newline="") as file:
        return {tuple(row[name] for name in FIELDS[:5]) for row in csv.DictReader(file)}


def check(paid: Path, key: str, epsilon: float) -> None:
    """Computes what an arm costs again, from what is stored of its guarantee."""
    kept = json.loads(paid.read_text())[key]
    again = odp.Guarantee.from_json(kept["guarantee"]).epsilon(DELTA)
    if not again <= min(epsilon, kept["epsilon"] * (1.0 + 1e-9)):
        raise ValueError(f"{key}: epsilon {again}, and {kept['epsilon']} was stored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="+", required=True, help="names, or files")
    parser.add_argument(
        "--arms", nargs="+", required=True, help="names, or files; first: compared"
    )
    parser.add_argument("--epsilon", nargs="+", type=float, help="those of the task by default")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--real", action="store_true", help="train, whether there is a landscape")
    parser.add_argument("--results", type=Path, default=Path("compared"), help="a folder")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # What is said about small plans and conditional spaces is known here.
    warnings.simplefilter("ignore")
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "searches.csv"
    done = on_file(path)
    arms = {arm: made for name in names(options.arms) for arm, made in arms_of(name).items()}
    paid = options.results / "guarantees.json"
    stored: dict[str, Any] = json.loads(paid.read_text()) if paid.exists() else {}
    tasks = [(name, task) for name in names(options.task) for task in tasks_of(name)]
    for name, task in tasks:
        stored_as = stored_name(name) if has_networks(name) else task.name
        mapped = not options.real and (FOLDER / f"{stored_as}.npz").exists()
        landscape = Landscape.read(stored_as, beyond=True) if mapped else None
        for epsilon in options.epsilon or task.epsilons:
            for arm, made in arms.items():
                start, plan = time.process_time(), None
                for repetition in range(options.repetitions):
                    row = (task.name, f"{epsilon:g}", str(repetition), arm, str(not mapped))
                    if row in done:
                        continue
                    if plan is None:
                        plan = made.plan(task, epsilon)
                        if plan is None:
                            break  # the arm does not apply here
                        key = f"{task.name}, epsilon {epsilon:g}, {arm}"
                        spent = plan.guarantee.epsilon(DELTA)
                        stored[key] = {"epsilon": spent, "guarantee": plan.guarantee.to_json()}
                        paid.write_text(json.dumps(stored, indent=0))
                        check(paid, key, epsilon)
                    bench = Bench(task, epsilon, repetition, landscape, np.random.default_rng())
                    found = made.search(bench, plan)
                    with path.open("a", newline="") as file:
                        csv.writer(file).writerow(
                            [
                                *row,
                                f"{found.test:.4f}",
                                found.runs,
                                f"{found.work:.3g}",
                                json.dumps(found.params),
                            ]
                        )
                if plan is not None:
                    took = time.process_time() - start
                    print(f"{task.name}, epsilon {epsilon:g}, {arm}: {took:.1f} s", flush=True)
    print(table(path, list(arms)))
    figure(path, list(arms), options.results / "compared.svg")


if __name__ == "__main__":
    main()
