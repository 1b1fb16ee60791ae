"""Table 1 of both propose-test papers (arXiv 2211.01852), with numbers.

    python examples/propose_test/table_1.py

The papers compare privacy budgets in O(.) notation. Here every row is a number: what is proved in
this library, at delta 1e-5, for a training of epsilon 1 and a space of 100 settings; and beside it
what the tables say with every hidden constant taken to be 1. No simulation: nothing is drawn.
"""

from __future__ import annotations

import argparse

from claims import (
    asymptotic_claim_epsilon_constant_overhead,
    asymptotic_claim_epsilon_revisiting,
)

import optuna_dp as odp
from optuna_dp.mechanisms import DoublingPlan, NoisyMaxPlan

DELTA = 1e-5
SETTINGS = 100
PLAN = DoublingPlan(0.1, granularity=0.01)


def rows() -> list[tuple[str, str, str, str, float]]:
    """Method, full search, private training per run, the papers' budget, epsilon here."""
    one = odp.calibrate(
        target_epsilon=1.0,
        delta=DELTA,
        run=odp.gaussian,
        trials=odp.Binomial(1, mean=1),  # one run for certain
        tolerance=1e-4,
    )
    run = odp.gaussian(noise_multiplier=one.value)
    guarantee = odp.Guarantee(run)
    gain = 1.0  # u* - u0 at its largest
    claims = (
        asymptotic_claim_epsilon_revisiting(
            PLAN.epsilon, utility_gain=gain, granularity=PLAN.granularity
        ),
        asymptotic_claim_epsilon_constant_overhead(PLAN.epsilon, n=gain / PLAN.granularity),
    )
    return [
        (
            "naive: all 100 published",
            "yes",
            "yes",
            f"sqrt(100) epsilon = {SETTINGS**0.5:.0f}",
            guarantee.compose(*[run] * (SETTINGS - 1)).epsilon(DELTA),
        ),
        (
            "RandTune, 100 on average, geometric",
            "no",
            "yes",
            "2 or 3 epsilon",
            odp.selection_guarantee(run, odp.Geometric(mean=SETTINGS)).epsilon(DELTA),
        ),
        (
            "RandTune, 10 on average, geometric",
            "no",
            "yes",
            "2 or 3 epsilon",
            odp.selection_guarantee(run, odp.Geometric(mean=10)).epsilon(DELTA),
        ),
        (
            "propose-test, then one training",
            "yes",
            "no",
            f"epsilon + sqrt(gain / g) e0 = {1 + claims[0]:.1f}; "
            f"epsilon + log(gain / g) e0 = {1 + claims[1]:.2f}",
            guarantee.compose(PLAN.event()).epsilon(DELTA),
        ),
        (
            "report-noisy-max (Gumbel), then one training",
            "yes",
            "no",
            "(not in the tables)",
            guarantee.compose(NoisyMaxPlan(PLAN.epsilon, "gumbel").event()).epsilon(DELTA),
        ),
    ]


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("| method | searches all | private trainings | the papers say | epsilon, proved |")
    print("|---|---|---|---|---|")
    for name, full, private, said, epsilon in rows():
        print(f"| {name} | {full} | {private} | {said} | {epsilon:.2f} |")


if __name__ == "__main__":
    main()
