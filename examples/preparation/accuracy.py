"""What the preparation by a schema costs, in points of test accuracy.

::

    python examples/preparation/accuracy.py               # the page's tables, from accuracy.csv
    python examples/preparation/accuracy.py --run FOLDER  # trains; half an hour of one core

``FOLDER`` has the tables: see ``judges.py``, which says what is public about them. The arms:

=====================  ==========================================================================
``scaler``             a scaler and dummies fitted on the training records; not private
``its own inputs``     the same; the rate is rehearsed on inputs like those, as a schema has them
``typical``            the schema with typical ranges
``twice as wide``      the same ranges, twice as wide around their middles
``ten times as wide``  the same, ten times as wide
``possible at all``    the schema with what is possible at all
``private ranges``     ranges drawn with noise within 100 times what is possible; 5 % of mu squared
=====================  ==========================================================================

Each is trained by ``odp.train`` without another word: a softmax regression, and a network with 32
units. Splits are shared. Noise and batches are not, because no seed repeats them.
"""

from __future__ import annotations

import argparse
import csv
import logging
import math
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
from judges import ALL, JUDGES, frame_of
from scipy.optimize import brentq
from scipy.stats import t as student_t

import optuna_dp as odp
from optuna_dp.planning.budget_split import squared_mu
from optuna_dp.preparation.private_ranges import private_ranges
from optuna_dp.preparation.range_query import STRENGTH_THAT_WORKS, RangeQuery

RESULTS = Path(__file__).parent / "accuracy.csv"
EPSILONS, DELTA, EPOCHS, REPETITIONS = (1.0, 3.0), 1e-5, 10, 4
SHARE_OF_RANGES, SHARE_OF_TEST, UNITS = 0.05, 0.25, 32
MODELS = ("softmax", "network")
# Points between the scaler and the majority class; where there are fewer, no arm can lose much.
LITTLE_TO_LEARN = 1.0
REFERENCE = "scaler"
REHEARSED = "scaler, its own inputs"
ARMS = (
    REHEARSED,
    "typical",
    "twice as wide",
    "ten times as wide",
    "possible at all",
    "private ranges",
)
Array = npt.NDArray[Any]

# -- trainings ------------------------------------------------------------------------------------


@cache
def plan_of(epsilon: float, records: int) -> Any:
    return odp.plan_budget(epsilon=epsilon, delta=DELTA, records=records, epochs=EPOCHS, pilots=0)


@cache
def epsilon_left(epsilon: float) -> float:
    """Returns the epsilon of the training once private ranges are charged for."""
    left = (1.0 - SHARE_OF_RANGES) * squared_mu(epsilon, DELTA)
    return float(brentq(lambda e: squared_mu(e, DELTA) - left, 0.5 * epsilon, epsilon))


def query_of(name: str, epsilon: float, records: int) -> RangeQuery:
    return RangeQuery.within(
        columns=len(ALL[name].numbers),
        records=records,
        squared_mu=SHARE_OF_RANGES * squared_mu(epsilon, DELTA),
    )


def scaled(name: str, own: Any, other: Any) -> tuple[Array, Array]:
    """Returns features by the records' means, deviations and categories; not private.

    A missing number becomes the mean, beside an indicator.
    """
    import pandas as pd  # Lazy: the tables of the page are made without it.

    judge = ALL[name]
    blocks: tuple[list[Array], list[Array]] = ([], [])
    for column in judge.numbers:
        values = own[column].to_numpy(dtype=float)
        mean, deviation = np.nanmean(values), np.nanstd(values)
        for rows, block in zip((own, other), blocks, strict=True):
            places = (rows[column].to_numpy(dtype=float) - mean) / (deviation or 1.0)
            block.append(np.nan_to_num(places)[:, None])
            if np.isnan(values).any():
                block.append(np.isnan(places)[:, None].astype(float))
    dummies = pd.get_dummies(own[[*judge.categories]].astype(str))
    of_other = pd.get_dummies(other[[*judge.categories]].astype(str))
    of_other = of_other.reindex(columns=dummies.columns, fill_value=False)
    for rows, block in zip((dummies, of_other), blocks, strict=True):
        block += [rows.to_numpy(dtype=float), np.ones((len(rows), 1))]
    return np.hstack(blocks[0]).astype(np.float32), np.hstack(blocks[1]).astype(np.float32)


def inputs_like(x: Array) -> Array:
    """Returns made-up inputs of a scaler's scale, with dummies of the records; not private."""
    rng = np.random.default_rng(0)
    inputs = x[rng.integers(len(x), size=256)]
    is_number = ~np.isin(x, (0.0, 1.0)).all(axis=0)
    inputs[:, is_number] = rng.standard_normal((len(inputs), int(is_number.sum())))
    return inputs


def accuracy(
    kind: str,
    epsilon: float,
    records: Any,
    test: tuple[Array, Array],
    classes: int,
    inputs: Array | None = None,
) -> float:
    """Trains once and returns the test accuracy in per cent."""
    import torch
    from torch import nn

    count = len(records[0]) if isinstance(records, tuple) else len(records)
    width = test[0].shape[1]
    words: dict[str, Any] = {"score": "accuracy"} if isinstance(records, tuple) else {}
    if inputs is not None:
        words["inputs"] = torch.tensor(inputs) if kind == "network" else inputs
    model: Any
    if kind == "softmax":
        model = odp.SoftmaxRegression(width, classes)
    else:
        model = nn.Sequential(nn.Linear(width, UNITS), nn.ReLU(), nn.Linear(UNITS, classes))
        if words:
            words["loss"] = nn.functional.cross_entropy
    study = optuna.create_study(
        direction="maximize", sampler=odp.BudgetSampler(plan_of(epsilon, count))
    )
    odp.train(odp.start_run(study.ask()), model, records, **words)
    x, y = test
    if kind == "softmax":
        predicted = model.predict(x)
    else:
        with torch.no_grad():
            predicted = model(torch.tensor(np.asarray(x, dtype=np.float32))).argmax(1).numpy()
    return 100.0 * float(np.mean(predicted == y))


def accuracies(
    name: str, epsilon: float, repetition: int, folder: str, arms: list[str]
) -> list[dict[str, Any]]:
    judge, frame = ALL[name], frame_of(name, folder).drop(columns="number")
    order = np.random.default_rng([repetition, 1]).permutation(len(frame))
    held_out = round(SHARE_OF_TEST * len(frame))
    test, own = frame.iloc[order[:held_out]], frame.iloc[order[held_out:]]
    y, test_y = own["class"].to_numpy(), test["class"].to_numpy()
    query = query_of(name, epsilon, len(own))
    unknown = judge.unknown()
    columns = [own[column].to_numpy(dtype=float) for column in unknown]
    drawn = private_ranges(columns, [*unknown.values()], query)
    schemas = {
        "typical": judge.schema(judge.typical()),
        "twice as wide": judge.schema(judge.typical(2.0)),
        "ten times as wide": judge.schema(judge.typical(10.0)),
        "possible at all": judge.schema(judge.possible()),
        "private ranges": judge.schema(dict(zip(unknown, drawn, strict=True))),
    }
    majority = 100.0 * float(np.mean(test_y == np.bincount(y).argmax()))
    rows = []
    for kind in MODELS:
        for arm in arms:
            left = epsilon_left(epsilon) if arm == "private ranges" else epsilon
            records: Any
            inputs = None
            if arm in (REFERENCE, REHEARSED):
                x, test_x = scaled(name, own, test)
                records = (x, y)
                inputs = inputs_like(x) if arm == REHEARSED else None
            else:
                records, test_x = schemas[arm].encode(own), schemas[arm].encode(test).x
            found = accuracy(kind, left, records, (test_x, test_y), judge.class_count, inputs)
            rows.append(
                {
                    "table": name,
                    "records": len(own),
                    "epsilon": epsilon,
                    "strength": round(query.strength, 1),
                    "majority": round(majority, 2),
                    "model": kind,
                    "repetition": repetition,
                    "arm": arm,
                    "accuracy": round(found, 2),
                }
            )
    return rows


def run_all(folder: str, names: list[str]) -> None:
    rows: list[dict[str, Any]] = stored_rows() if RESULTS.exists() else []
    for repetition in range(REPETITIONS):
        for name in names:
            key = (name, repetition)
            done = {row["arm"] for row in rows if (row["table"], row["repetition"]) == key}
            arms = [arm for arm in (REFERENCE, *ARMS) if arm not in done]
            if not arms:
                continue
            began = time.perf_counter()
            for epsilon in EPSILONS:
                rows += accuracies(name, epsilon, repetition, folder, arms)
            with RESULTS.open("w", newline="") as file:
                writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(f"{name}, {repetition}: {time.perf_counter() - began:.0f} s", flush=True)


# -- tables ---------------------------------------------------------------------------------------

Cell = dict[str, Any]


def stored_rows() -> list[dict[str, Any]]:
    """Returns what is stored: one training a row."""
    kinds = {"records": int, "repetition": int} | dict.fromkeys(
        ("epsilon", "strength", "majority", "accuracy"), float
    )
    with RESULTS.open(newline="") as file:
        return [
            {name: kinds.get(name, str)(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def cells_of(rows: list[dict[str, Any]]) -> list[Cell]:
    """Returns for each cell the reference's mean accuracy, and how far behind it each arm is."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["table"], row["epsilon"], row["model"]), []).append(row)
    cells = []
    for own in groups.values():
        means = {
            arm: np.mean([row["accuracy"] for row in own if row["arm"] == arm])
            for arm in (REFERENCE, *ARMS)
        }
        cells.append(
            {
                **{name: own[0][name] for name in ("table", "records", "epsilon", "model")},
                "strength": own[0]["strength"],
                "majority": np.mean([row["majority"] for row in own]),
                REFERENCE: means[REFERENCE],
                **{arm: means[REFERENCE] - means[arm] for arm in ARMS},
            }
        )
    return cells


def _shown(points: Any) -> str:
    """Returns points with one digit, without a minus before a zero."""
    return f"{round(float(points), 1) + 0.0:.1f}"


def mean_of_tables(cells: list[Cell], arm: str, beside: str | None = None) -> str:
    """Returns the mean over tables of an arm's points behind, with a 95 % interval."""
    points: dict[str, list[float]] = {}
    for cell in cells:
        behind = cell[arm] - (cell[beside] if beside else 0.0)
        points.setdefault(cell["table"], []).append(behind)
    means = [np.mean(own) for own in points.values()]
    if len(means) < 2:
        return _shown(means[0]) if means else "-"
    half = student_t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / math.sqrt(len(means))
    return f"{_shown(np.mean(means))} ± {half:.1f}"


def summary(cells: list[Cell]) -> str:
    """Returns one row for each arm, of the judges only."""
    judging = [cell for cell in cells if cell["table"] in JUDGES]
    groups = [(arm, arm, judging) for arm in ARMS]
    works = [cell for cell in judging if cell["strength"] >= STRENGTH_THAT_WORKS]
    others = [cell for cell in judging if cell["strength"] < STRENGTH_THAT_WORKS]
    limit = f"{STRENGTH_THAT_WORKS:.0f}"
    groups += [
        (f"private ranges, strength {limit} or more", "private ranges", works),
        (f"private ranges, below {limit}", "private ranges", others),
    ]
    lines = [
        "| preparation | cells | points behind the scaler | behind the scaler, its own inputs "
        "| softmax | network | epsilon 1 | epsilon 3 | much to learn | worst cell |",
        "|---" * 10 + "|",
    ]
    for words, arm, own in groups:
        if not own:
            continue
        parts = [
            *([cell for cell in own if cell["model"] == kind] for kind in MODELS),
            *([cell for cell in own if cell["epsilon"] == epsilon] for epsilon in EPSILONS),
            [cell for cell in own if cell[REFERENCE] > cell["majority"] + LITTLE_TO_LEARN],
        ]
        beside = "-" if arm == REHEARSED else mean_of_tables(own, arm, REHEARSED)
        shown = [mean_of_tables(own, arm), beside, *(mean_of_tables(part, arm) for part in parts)]
        worst = max(own, key=lambda cell: float(cell[arm]))
        lines.append(
            f"| {words} | {len(own)} | {' | '.join(shown)} "
            f"| {worst[arm]:.1f} ({worst['table']}, {worst['model']}, {worst['epsilon']:.0f}) |"
        )
    return "\n".join(lines)


def by_table(cells: list[Cell]) -> str:
    """Returns one row for each cell, with the table that is no judge at the end."""
    lines = [
        "| table, records | epsilon | model | majority | scaler | "
        + " | ".join(ARMS)
        + " | strength |",
        "|---" * (6 + len(ARMS)) + "|",
    ]
    for cell in sorted(cells, key=lambda cell: [*ALL].index(cell["table"])):
        behind = " | ".join(_shown(cell[arm]) for arm in ARMS)
        lines.append(
            f"| {cell['table']}, {cell['records']:,} | {cell['epsilon']:.0f} | {cell['model']} "
            f"| {cell['majority']:.1f} | {cell[REFERENCE]:.1f} | {behind} "
            f"| {cell['strength']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", metavar="FOLDER", help="train what is not stored yet")
    parser.add_argument("--tables", nargs="*", default=list(ALL))
    options = parser.parse_args()
    if options.run:
        warnings.simplefilter("ignore")  # Many studies of one run each.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.disable(logging.WARNING)
        run_all(options.run, options.tables)
    cells = cells_of(stored_rows())
    print(f"{summary(cells)}\n\n{by_table(cells)}")


if __name__ == "__main__":
    main()
