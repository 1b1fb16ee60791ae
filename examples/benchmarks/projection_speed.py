"""How long a projection onto densities within [c, C] takes, and how long cvxpy takes::

    python examples/benchmarks/projection_speed.py [--quick] [--output FILE]

Both solve DP-HyPO's equation 3.1 (L2) in this one process on the same weights: cvxpy with the
problem built at every run, as one writes it down, and with the problem built once and its data
exchanged, which is the kindest way to use it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from optuna_dp.priors.densities.projection import Projection, project_log

BOUNDS = (0.75, 2.0)


def ms(function: Any, repeats: int) -> float:
    """Median CPU milliseconds."""
    function()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return 1e3 * statistics.median(found)


def cvxpy_l2(n: int) -> Any:
    """Builds equation 3.1 and returns (its parameter, the problem, its variable)."""
    import cvxpy as cp

    f, w = cp.Variable(n), cp.Parameter(n)
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(f - w)), [f >= BOUNDS[0], f <= BOUNDS[1], cp.sum(f) == n]
    )
    return w, problem, f


def solved(parts: Any, weights: Any) -> Any:
    w, problem, f = parts
    w.value = weights
    problem.solve(solver="OSQP")
    return f.value


def measure(sizes: tuple[int, ...], repeats: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    results = {}
    for n in sizes:
        logs = 2.0 * rng.normal(size=n)
        projections: tuple[Projection, ...] = ("l2", "kl")
        for projection in projections:
            found = ms(lambda p=projection, x=logs: project_log(x, BOUNDS, p), repeats)
            results[f"{projection} {n}"] = round(found, 3)
    return results


def against_cvxpy(n: int, repeats: int) -> dict[str, float]:
    logs = 2.0 * np.random.default_rng(0).normal(size=n)
    weights = np.exp(logs) / np.exp(logs).mean()
    built = cvxpy_l2(n)
    once = ms(lambda: solved(built, weights), repeats)
    each = ms(lambda: solved(cvxpy_l2(n), weights), repeats)
    ours = ms(lambda: project_log(logs, BOUNDS, "l2"), 5 * repeats)
    off = float(np.abs(solved(built, weights) - project_log(logs, BOUNDS, "l2").ratios).max())
    return {
        f"cvxpy, built at every run, l2 {n}": round(each, 3),
        f"cvxpy, built once, l2 {n}": round(once, 3),
        f"exact l2 {n}": round(ours, 3),
        f"cvxpy as used / exact at {n}": round(each / ours, 1),
        f"cvxpy built once / exact at {n}": round(once / ours, 1),
        "largest difference of the two densities": round(off, 6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 20,000 weights")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()
    sizes = (512, 2500, 20_000) if options.quick else (512, 2500, 20_000, 100_000, 1_000_000)
    results = measure(sizes, 3 if options.quick else 9)
    results.update(against_cvxpy(2500, 3 if options.quick else 9))
    for name, value in results.items():
        print(f"{name:45}{value:12.3f}{'' if '/' in name or 'diff' in name else ' ms'}")
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
