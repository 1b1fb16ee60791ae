"""arXiv 2211.01852 ("Constant-overhead"), Theorem 2: is T of order log n? SIMULATION NOISE.

The theorem says that the loop ends within O(log n) iterations but for a probability of
O(n^(-g k e0 / 4) log n). Printed: that probability with every hidden constant at 1, the mean of
T / log2 n, and the share of loops that are longer than 5 log2(n + 1), where the capped loop
of the library ends. Candidates have utilities uniform on (0, 1), as in the paper's Figure 4.

::

    python examples/propose_test/theorem_2.py
"""

from __future__ import annotations

import numpy as np
from claims import asymptotic_claim_delta_constant_overhead
from simulated_loops import simulate_loops

from optuna_dp.mechanisms import DoublingPlan

K, LOOPS, GRANULARITY = 10, 1000, 0.01
K_EPSILONS, CANDIDATES = (1, 10, 100, 1000), (3, 100, 1000)


def main() -> None:
    rng = np.random.default_rng(0)
    print(
        "k e0   candidates   claimed probability   mean of T / log2 n   longer than 5 log2(n + 1)"
    )
    for k_epsilon in K_EPSILONS:
        plan = DoublingPlan(k_epsilon / K, granularity=GRANULARITY, variant="capped")
        claimed = asymptotic_claim_delta_constant_overhead(
            k_epsilon / K, n=plan.n, n_partitions=K, granularity=GRANULARITY
        )
        for candidates in CANDIDATES:
            utilities = rng.random((LOOPS, candidates))
            loops = simulate_loops(utilities, plan, K, LOOPS, rng, stop_at_bound=False)
            used, longer = loops.iterations, loops.iterations > plan.iteration_bound
            print(
                f"{k_epsilon:4}   {candidates:10}   {claimed:19.2g}   "
                f"{used.mean() / np.log2(plan.n):18.1f}   {longer.mean():25.1%}"
            )


if __name__ == "__main__":
    main()
