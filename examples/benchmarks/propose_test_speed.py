"""How long the private choices of propose-test and noisy-max take, and how much memory.

Run it with ``python examples/benchmarks/propose_test_speed.py``. CPU seconds of one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from optuna_dp.mechanisms import DoublingPlan, Utilities, noisy_max, propose_test
from optuna_dp.mechanisms.sparse_vector import above_threshold

sys.path.insert(0, str(Path(__file__).parents[1] / "propose_test"))

from simulated_loops import simulate_loops


def measure(what: str, function: Callable[[], object]) -> None:
    start = time.process_time()
    function()
    print(f"{what}: {time.process_time() - start:.3f} s")


def main() -> None:
    rng = np.random.default_rng(0)
    means = rng.random(100)
    hundred = Utilities.from_means(means, 100)
    plan = DoublingPlan(0.1)
    noisy_max(hundred, 1.0)  # OpenDP is imported when it is first used.
    measure(
        "1000 simulated loops, 100 candidates",
        lambda: simulate_loops(means, plan, 100, 1000, rng),
    )
    measure(
        "1000 loops on OpenDP's noise, 100 candidates",
        lambda: [propose_test(hundred, plan) for _ in range(1000)],
    )
    many = Utilities.from_means(rng.random(10_000) * 0.5, 1000)
    measure(
        "one AboveThreshold pass over 10,000 candidates",
        lambda: above_threshold(many, 0.95, 1.0),
    )
    million = Utilities.from_means(rng.random(1_000_000) * 0.5, 1000)
    measure("one noisy max over a million candidates", lambda: noisy_max(million, 1.0))
    status = Path("/proc/self/status")
    if status.is_file():
        peak = int(status.read_text().split("VmHWM:")[1].split()[0])
        print(f"peak memory of this process: {peak / 1e3:.0f} MB")


if __name__ == "__main__":
    main()
