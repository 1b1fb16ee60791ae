"""Studies on a real Dask or Ray, eight workers each, of which one is killed in every study.

    python lost_workers.py dask --studies 50     # appends to lost_workers.jsonl
    python lost_workers.py ray --studies 50
    python lost_workers.py --report              # exactly T, nothing twice, the law of T

Needs optuna-dp[dask,ray]. What it prints and stores is what only a curator may see: T.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import optuna
from engines import running
from optuna.trial import TrialState
from scipy.stats import chisquare

import optuna_dp as odp
from optuna_dp.protocol.records import read_plan

STORED = Path(__file__).with_name("lost_workers.jsonl")
WORKERS = 8
LAW = odp.Poisson(mean=14)
# The killed run is one of these: with this law, 4 of 10,000 studies have fewer runs.
FATAL = (1, 2, 3)
# T falls into each of these with a probability near 1/5.
BINS = ((0, 10), (11, 12), (13, 14), (15, 17), (18, 1000))


def one_study(diary: Path, fatal: int) -> dict[str, Any]:
    """Makes a study; returns what became of its runs."""

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -1.0, 1.0)
        with open(diary, "a") as lines:
            lines.write(f"{trial.number}\n")
        if trial.number == fatal:
            os.kill(os.getpid(), 9)
        return -((x - 0.3) ** 2)

    def make_study() -> optuna.Study:
        return optuna.create_study(direction="maximize", sampler=odp.RandTuneSampler(trials=LAW))

    start = time.perf_counter()
    study = odp.distributed.optimize(make_study, objective, workers=WORKERS)
    seconds = time.perf_counter() - start
    plan = read_plan(study._storage, study._study_id)
    assert plan is not None
    trials = study.get_trials(deepcopy=False)
    began = [int(line) for line in diary.read_text().split()] if diary.exists() else []
    slots = trials[: plan.slots]
    release = odp.release(
        study, odp.gaussian(noise_multiplier=4.0), failures="chance", vouched="a simulation"
    )
    return {
        "runs": plan.slots,
        "killed": fatal in began,
        "completed": sum(t.state == TrialState.COMPLETE for t in slots),
        "failed": [t.number for t in slots if t.state == TrialState.FAIL] == [fatal],
        "twice": len(began) - len(set(began)),
        "beyond": sum(number >= plan.slots for number in began),
        "never begun": plan.slots - len(set(began)),
        "open": len(odp.recover(study)),
        "released": release.params is not None,
        "seconds": round(seconds, 2),
    }


def report() -> None:
    found = [json.loads(line) for line in STORED.read_text().splitlines()]
    for engine in sorted({line["engine"] for line in found}):
        mine = [line for line in found if line["engine"] == engine]
        killed = [line for line in mine if line["killed"]]
        summary = {
            "engine": engine,
            "studies": len(mine),
            "with a killed worker": len(killed),
            "of those, one run failed and all others completed": sum(
                line["failed"] and line["completed"] == line["runs"] - 1 for line in killed
            ),
            "runs made twice": sum(line["twice"] for line in mine),
            "runs beyond T": sum(line["beyond"] for line in mine),
            "runs never begun": sum(line["never begun"] for line in mine),
            "left open": sum(line["open"] for line in mine),
            "released": sum(line["released"] for line in mine),
        }
        print(json.dumps(summary))
    drawn = [line["runs"] for line in found]
    counts = [sum(low <= runs <= high for runs in drawn) for low, high in BINS]
    chances = [LAW.cdf(high) - (LAW.cdf(low - 1) if low else 0.0) for low, high in BINS]
    expected = [len(drawn) * chance / sum(chances) for chance in chances]
    test = chisquare(counts, expected)
    print(
        json.dumps(
            {
                "T in": [f"{low}-{high}" for low, high in BINS],
                "counts": counts,
                "expected": [round(e, 1) for e in expected],
                "chi-square": round(float(test.statistic), 2),
                "p": round(float(test.pvalue), 3),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", nargs="?", choices=["dask", "ray"])
    parser.add_argument("--studies", type=int, default=50)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    if arguments.report:
        report()
        return
    with tempfile.TemporaryDirectory() as folder, running(arguments.engine, WORKERS) as all_there:
        for number in range(arguments.studies):
            all_there()
            found = one_study(Path(folder) / str(number), random.choice(FATAL))
            with STORED.open("a") as lines:
                lines.write(json.dumps({"engine": arguments.engine, **found}) + "\n")
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
