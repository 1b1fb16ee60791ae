"""How long the accounting takes, and how much memory: the promises of the reference page.

    python examples/benchmarks/accounting_speed.py          # a table; exit code 1 if one is broken
    python examples/benchmarks/accounting_speed.py --json

Times are the process's own (CPU) seconds on one thread, so that a busy machine does not change
them much; every measurement uses events that were not asked about before.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import optuna_dp as odp  # noqa: E402 - after the thread counts

RATE, STEPS, DELTA = 256 / 60000, 2344, 1e-5
MEMORY_LIMIT = 1e9


def sgd(noise: float) -> Any:
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=RATE, steps=STEPS)


def one_run() -> float:
    return odp.Guarantee(sgd(1.0)).epsilon(DELTA)


def selection() -> float:
    return odp.selection_guarantee(sgd(1.0), odp.Geometric(11)).epsilon(DELTA)


def asked_again() -> float:
    return odp.selection_guarantee(sgd(1.0), odp.Geometric(11)).epsilon(DELTA)


def history() -> float:
    return odp.selection_guarantee(
        sgd(1.0), odp.Geometric(11), density_bounds=(0.75, 2.0)
    ).epsilon(DELTA)


def composition() -> float:
    chosen = odp.selection_guarantee(sgd(1.0), odp.Geometric(11))
    return chosen.compose(sgd(4.0)).epsilon(DELTA)


def noise_for_a_target() -> float:
    return odp.calibrate(target_epsilon=2.5, delta=DELTA, run=sgd, trials=odp.Geometric(11)).value


def noise_with_adaptivity() -> float:
    return odp.calibrate(
        target_epsilon=3.0,
        delta=DELTA,
        run=sgd,
        trials=odp.Geometric(12),
        density_bounds=(0.75, 2.0),
    ).value


def runs_for_a_target() -> float:
    return odp.calibrate(
        target_epsilon=3.1,
        delta=DELTA,
        run=sgd(1.0),
        trials=odp.Geometric,
        density_bounds=(0.75, 2.0),
    ).value


def poisson() -> float:
    return odp.selection_guarantee(sgd(1.0), odp.Poisson(100)).epsilon(DELTA)


def history_of(trials: odp.TrialCount, startup_runs: int = 0) -> Callable[[], float]:
    def epsilon() -> float:
        guarantee = odp.selection_guarantee(
            sgd(1.0), trials, density_bounds=(0.75, 2.0), startup_runs=startup_runs
        )
        return guarantee.epsilon(DELTA)

    return epsilon


def plan_of(records: int, batch_size: int, epochs: float) -> Callable[[], float]:
    def share() -> float:
        plan = odp.plan_budget(
            epsilon=1.0,
            delta=0.01 / records,
            records=records,
            batch_size=batch_size,
            epochs=epochs,
        )
        return plan.guarantee.epsilon(plan.delta)

    return share


def planner() -> float:
    # Rows are computed when they are read.
    return float(len(odp.selection_plan(sgd(1.01), delta=DELTA).to_json()["rows"]))


# What is measured, its limit in seconds, and what it returns.
MEASURED: list[tuple[str, Callable[[], float], float, str]] = [
    ("epsilon of one DP-SGD run, 2344 steps (builds the base profile)", one_run, 5.0, "epsilon"),
    ("epsilon of a selection, base profile cached", selection, 1.0, "epsilon"),
    ("the same with Poisson T of mean 100", poisson, 2.0, "epsilon"),
    ("the same, asked again", asked_again, 0.02, "epsilon"),
    ("epsilon under a history policy, base profile cached", history, 5.0, "epsilon"),
    ("the same, Poisson T of mean 100", history_of(odp.Poisson(100)), 5.0, "epsilon"),
    (
        "the same, negative binomial T, shape 0.2, mean 50",
        history_of(odp.NegativeBinomial(shape=0.2, mean=50)),
        10.0,
        "epsilon",
    ),
    ("the same, geometric T, 8 start-up runs", history_of(odp.Geometric(11), 8), 10.0, "epsilon"),
    ("plan_budget, 1348 records, batches of 64", plan_of(1348, 64, 10), 2.0, "epsilon"),
    ("plan_budget, 60,000 records, batches of 256", plan_of(60_000, 256, 10), 2.0, "epsilon"),
    ("plan_budget, a million records, batches of 16", plan_of(10**6, 16, 1), 5.0, "epsilon"),
    ("selection composed with another release", composition, 10.0, "epsilon"),
    ("calibrate: noise, no adaptivity", noise_for_a_target, 20.0, "noise"),
    ("calibrate: noise, history policy", noise_with_adaptivity, 20.0, "noise"),
    ("calibrate: mean of T, history policy", runs_for_a_target, 20.0, "mean"),
    ("the whole planner table, attacks included", planner, 30.0, "rows"),
]


def largest_memory() -> float | None:
    """Bytes of the largest resident set so far; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def measure() -> dict[str, Any]:
    odp.Guarantee(odp.gaussian(1.0)).epsilon(DELTA)  # imports are not what is measured
    rows = []
    for name, work, limit, unit in MEASURED:
        begin = time.process_time()
        value = work()
        seconds = time.process_time() - begin
        rows.append(
            {"name": name, "seconds": seconds, "limit": limit, "value": value, "unit": unit}
        )
    return {"rows": rows, "memory": largest_memory(), "memory_limit": MEMORY_LIMIT}


def kept(found: dict[str, Any]) -> bool:
    in_time = all(row["seconds"] <= row["limit"] for row in found["rows"])
    return in_time and (found["memory"] or 0.0) <= found["memory_limit"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the accounting.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args().json
    found = measure()
    if as_json:
        print(json.dumps({**found, "kept": kept(found)}, indent=1))
    else:
        for row in found["rows"]:
            late = "" if row["seconds"] <= row["limit"] else "  TOO SLOW"
            print(
                f"{row['seconds']:7.3f} s of {row['limit']:5.2f}  {row['name']}"
                f" ({row['unit']} {row['value']:.4g}){late}"
            )
        if found["memory"] is not None:
            print(f"{found['memory'] / 1e6:7.0f} MB of {found['memory_limit'] / 1e6:.0f}  at most")
    return 0 if kept(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
