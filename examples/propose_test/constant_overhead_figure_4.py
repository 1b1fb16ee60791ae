"""arXiv 2211.01852 ("Constant-overhead"), Figure 4: T against log n. SIMULATION NOISE.

100 candidates, utilities uniform on (0, 1), no stop at u = 1 and no cap, as in the paper; more
repetitions than its 10. The lines are c log2(n) for c = 1, 3, 5; report-noisy-max asks once. The
right panel is the fidelity, with report-noisy-max at the budget that the capped loop needs.
"""

from __future__ import annotations

import numpy as np
from figures import COLOURS, DELTA, main, rounded, total_epsilon
from plotly.subplots import make_subplots
from simulated_loops import fidelity, simulate_loops, simulate_noisy_max

from optuna_dp.mechanisms import DoublingPlan

CANDIDATES, K = 100, 10
K_EPSILONS = [1, 10, 100]
GRANULARITIES = [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001]


def reproduce(quick: bool, rng: np.random.Generator):
    runs = 30 if quick else 300
    utilities = rng.random((runs, CANDIDATES))
    n = np.array([DoublingPlan(1.0, granularity=g).n for g in GRANULARITIES])
    figure = make_subplots(1, 2, subplot_titles=("iterations T", "fidelity"))
    results = {"k": K, "n": n.tolist(), "delta": DELTA}
    for colour, k_epsilon in zip(COLOURS, K_EPSILONS, strict=False):
        plans = [
            DoublingPlan(k_epsilon / K, granularity=g, variant="capped") for g in GRANULARITIES
        ]
        loops = [simulate_loops(utilities, p, K, runs, rng, stop_at_bound=False) for p in plans]
        used = np.array([loop.iterations for loop in loops])
        found = [fidelity(utilities, loop.choice).mean() for loop in loops]
        totals = [total_epsilon(p) for p in plans]
        rival = [
            fidelity(utilities, simulate_noisy_max(utilities, total, K, runs, rng)).mean()
            for total in totals
        ]
        figure.add_scatter(x=n, y=used.mean(axis=1), name=f"k*e0 = {k_epsilon}",
                           error_y={"array": used.std(axis=1)}, line={"color": colour},
                           row=1, col=1)  # fmt: skip
        figure.add_scatter(x=n, y=found, showlegend=False, line={"color": colour}, row=1, col=2)
        figure.add_scatter(x=n, y=rival, name=f"noisy max, budget of k*e0 = {k_epsilon}",
                           line={"color": colour, "dash": "dash"}, row=1, col=2)  # fmt: skip
        caps = np.array([plan.iteration_bound for plan in plans])[:, None]
        results[f"k*e0={k_epsilon}"] = {
            "T_mean": rounded(used.mean(axis=1)),
            "T_sd": rounded(used.std(axis=1)),
            "T_max": used.max(axis=1).tolist(),
            "T_mean_over_log2_n": rounded(used.mean(axis=1) / np.log2(n)),
            "share_above_5_log2": rounded((used > caps).mean(axis=1)),
            "total_epsilon_guaranteed_capped": rounded(totals),
            "fidelity_doubling": rounded(found),
            "fidelity_noisy_max_same_budget": rounded(rival),
        }
    for c, dash in ((1, "dot"), (3, "dash"), (5, "dashdot")):
        figure.add_scatter(x=n, y=c * np.log2(n), name=f"{c} log2 n",
                           line={"color": "grey", "dash": dash}, row=1, col=1)  # fmt: skip
    figure.add_scatter(x=n, y=np.ones(len(n)), name="noisy max: one query",
                       line={"color": "black"}, row=1, col=1)  # fmt: skip
    figure.update_xaxes(title="n", type="log")
    return figure, results


if __name__ == "__main__":
    main("constant_overhead_figure_4", __doc__, reproduce)
