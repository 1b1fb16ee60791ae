"""The two mechanisms on one table of utilities, on OpenDP's noise, with what they cost.

Run: ``python examples/propose_test/choose.py``. Partitions, planning, choice, statement of cost;
the utilities are made up here where a real script would train on each partition.
"""

from __future__ import annotations

import argparse

import numpy as np

import optuna_dp as odp
from optuna_dp.mechanisms import (
    DoublingPlan,
    NoisyMaxPlan,
    Utilities,
    noisy_max,
    partition,
    plan_utilities,
    propose_test,
)

DELTA = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer partitions")
    k = 100 if parser.parse_args().quick else 1000
    places = partition(50 * k, k)
    fewest = np.bincount(places, minlength=k).min()
    print(f"{50 * k} records on {k} partitions, {fewest} or more each")

    loop = DoublingPlan(0.05, granularity=0.02, variant="capped")
    total = odp.Guarantee(loop.event()).epsilon(DELTA)
    for plan in (loop, NoisyMaxPlan(total)):
        report = plan_utilities(plan, n_candidates=30, n_partitions=k, delta=DELTA)
        print(f"{type(plan).__name__}: {report.message()}")

    # Non-private trainings would go here: one row per candidate, one column per partition.
    rng = np.random.default_rng(0)
    accuracy = np.clip(np.linspace(0.5, 0.9, 30)[:, None] + rng.normal(0, 0.05, (30, k)), 0, 1)
    utilities = Utilities.from_scores(accuracy)

    ended = propose_test(utilities, loop)
    print(f"doubling loop: candidate {ended.choice}, {ended.iterations} iterations used,")
    print(f"  guarantee {total:.3f} at delta {DELTA:g} for {loop.iteration_bound} iterations")
    print(f"noisy max: candidate {noisy_max(utilities, total)}, the same epsilon, delta 0")


if __name__ == "__main__":
    main()
