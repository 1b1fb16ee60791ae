"""What the preparation by a schema costs where a number is predicted, in points of R squared.

::

    python examples/preparation/number_targets.py               # the page's table, from its csv
    python examples/preparation/number_targets.py --run FOLDER  # trains; some minutes of one core

Tables, splits and arms are those of ``accuracy.py``, for the two targets that are numbers: wages
and rented bicycles. Every arm has the target in the same public range, the reference too. A linear
model and a network with 32 units have one output each; ``odp.train`` gets no other word.
"""

from __future__ import annotations

import argparse
import csv
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from accuracy import (
    EPSILONS,
    REFERENCE,
    REPETITIONS,
    SHARE_OF_TEST,
    UNITS,
    epsilon_left,
    plan_of,
    query_of,
    scaled,
)
from judges import JUDGES, frame_of

import optuna_dp as odp
from optuna_dp.preparation.private_ranges import private_ranges

RESULTS = Path(__file__).parent / "number_targets.csv"
TABLES = tuple(name for name, judge in JUDGES.items() if judge.number_target is not None)
MODELS = ("linear", "network")
ARMS = ("typical", "twice as wide", "possible at all", "private ranges")


def r_squared_of(
    kind: str, epsilon: float, records: Any, x: Any, schema: odp.Schema, truth: Any
) -> float:
    """Trains once and returns R squared on the test records, in per cent."""
    import torch
    from torch import nn

    is_plain = isinstance(records, tuple)
    words: dict[str, Any] = {"loss": nn.functional.mse_loss, "score": None} if is_plain else {}
    count = len(records[0]) if is_plain else len(records)
    width = x.shape[1]
    model = nn.Linear(width, 1)
    if kind == "network":
        model = nn.Sequential(nn.Linear(width, UNITS), nn.ReLU(), nn.Linear(UNITS, 1))
    study = optuna.create_study(
        direction="maximize", sampler=odp.BudgetSampler(plan_of(epsilon, count))
    )
    odp.train(odp.start_run(study.ask()), model, records, **words)
    with torch.no_grad():
        predicted = schema.decode(model(torch.tensor(np.array(x, dtype=np.float32))).numpy())
    errors = np.mean((predicted - truth) ** 2)
    return 100.0 * float(1.0 - errors / np.var(truth))


def train_arms(name: str, epsilon: float, repetition: int, folder: str) -> list[dict[str, Any]]:
    judge, frame = JUDGES[name], frame_of(name, folder).drop(columns="class")
    order = np.random.default_rng([repetition, 1]).permutation(len(frame))
    held_out = round(SHARE_OF_TEST * len(frame))
    test, own = frame.iloc[order[:held_out]], frame.iloc[order[held_out:]]
    query, unknown = query_of(name, epsilon, len(own)), judge.unknown()
    columns = [own[column].to_numpy(dtype=float) for column in unknown]
    drawn = dict(zip(unknown, private_ranges(columns, [*unknown.values()], query), strict=True))
    ranges = {
        "typical": judge.typical(),
        "twice as wide": judge.typical(2.0),
        "possible at all": judge.possible(),
        "private ranges": drawn,
    }
    truth, rows = test["number"].to_numpy(dtype=float), []
    for kind in MODELS:
        for arm in (REFERENCE, *ARMS):
            described = {**ranges.get(arm, judge.typical()), **judge.categories}
            schema = odp.Schema({**described, "number": judge.number_target}, target="number")
            left = epsilon_left(epsilon) if arm == "private ranges" else epsilon
            encoded = schema.encode(own)
            records: Any = encoded
            x = schema.encode(test).x
            if arm == REFERENCE:
                own_x, x = scaled(name, own, test)
                records = (own_x, encoded.y)
            found = r_squared_of(kind, left, records, x, schema, truth)
            rows.append(
                {
                    "table": name,
                    "records": len(own),
                    "epsilon": epsilon,
                    "strength": round(query.strength, 1),
                    "model": kind,
                    "repetition": repetition,
                    "arm": arm,
                    "r_squared": round(found, 2),
                }
            )
    return rows


def run_all(folder: str) -> None:
    rows: list[dict[str, Any]] = []
    for repetition in range(REPETITIONS):
        for name in TABLES:
            for epsilon in EPSILONS:
                rows += train_arms(name, epsilon, repetition, folder)
            with RESULTS.open("w", newline="") as file:
                writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(f"{name}, {repetition}", flush=True)


def table() -> str:
    """Returns R squared of the reference, and how many points behind it each arm is."""
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [
        f"| table, records | epsilon | model | scaler | {' | '.join(ARMS)} | strength |",
        "|---" * (5 + len(ARMS)) + "|",
    ]
    settings = [(n, e, kind) for n in TABLES for e in EPSILONS for kind in MODELS]
    for setting in settings:
        own = [
            row for row in rows if (row["table"], float(row["epsilon"]), row["model"]) == setting
        ]
        means = {
            arm: np.mean([float(row["r_squared"]) for row in own if row["arm"] == arm])
            for arm in (REFERENCE, *ARMS)
        }
        behind = " | ".join(f"{round(means[REFERENCE] - means[arm], 1) + 0.0:.1f}" for arm in ARMS)
        name, epsilon, kind = setting
        lines.append(
            f"| {name}, {int(own[0]['records']):,} | {epsilon:.0f} | {kind} "
            f"| {means[REFERENCE]:.1f} | {behind} | {float(own[0]['strength']):.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", metavar="FOLDER", help="train, and store what comes out")
    options = parser.parse_args()
    if options.run:
        warnings.simplefilter("ignore")  # Many studies of one run each.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.disable(logging.WARNING)
        run_all(options.run)
    print(table())


if __name__ == "__main__":
    main()
