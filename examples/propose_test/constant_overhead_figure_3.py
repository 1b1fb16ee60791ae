"""arXiv 2211.01852 ("Constant-overhead"), Figure 3: fidelity over iterations. SIMULATION NOISE.

8 seeds for several k*e0 as in the paper, and the mean over 1000. Dashed: report-noisy-max at the
budget that a guarantee for this loop needs (capped at m = ceil(5 log2(n + 1)), delta 1e-5), with
k = 100 partitions. The results also hold a comparison at a total epsilon of 1.
"""

from __future__ import annotations

import numpy as np
from figures import COLOURS, DELTA, main, rounded, total_epsilon
from plotly.subplots import make_subplots
from scipy.optimize import brentq
from simulated_loops import fidelity, simulate_loops, simulate_noisy_max

from optuna_dp.mechanisms import DoublingPlan

CANDIDATES, K = 100, 100
K_EPSILONS = [0.5, 1, 5, 10, 100]


def reproduce(quick: bool, rng: np.random.Generator):
    runs = 100 if quick else 1000
    utilities = rng.random((runs, CANDIDATES))
    figure = make_subplots(1, len(K_EPSILONS), shared_yaxes=True,
                           subplot_titles=[f"k*e0 = {x:g}" for x in K_EPSILONS])  # fmt: skip
    results = {"k": K, "delta": DELTA}
    for column, k_epsilon in enumerate(K_EPSILONS, start=1):
        plan = DoublingPlan(k_epsilon / K, variant="capped")
        loops = simulate_loops(utilities, plan, K, runs, rng, stop_at_bound=False)
        alpha = np.stack([fidelity(utilities, choice) for choice in loops.choices])
        total = total_epsilon(plan)
        rival = fidelity(utilities, simulate_noisy_max(utilities, total, K, runs, rng)).mean()
        time = np.arange(len(alpha))
        for run in range(8):
            last = loops.iterations[run] + 1
            figure.add_scatter(
                x=time[:last],
                y=alpha[:last, run],
                opacity=0.4,
                showlegend=False,
                line={"width": 1, "color": COLOURS[0]},
                row=1,
                col=column,
            )
        first = column == 1
        for y, name, line in (
            (alpha.mean(axis=1), "mean", {"color": COLOURS[3], "width": 3}),
            (np.full(len(time), rival), "noisy max, same total budget", {"dash": "dash"}),
        ):
            line = {"color": "black", **line}
            figure.add_scatter(
                x=time, y=y, name=name, line=line, showlegend=first, row=1, col=column
            )
        capped = simulate_loops(utilities, plan, K, runs, rng)
        results[f"k*e0={k_epsilon:g}"] = {
            "final_fidelity_mean": round(float(alpha[-1].mean()), 3),
            "final_fidelity_sd": round(float(alpha[-1].std()), 3),
            "final_fidelity_capped": round(float(fidelity(utilities, capped.choice).mean()), 3),
            "total_epsilon_guaranteed_capped": round(total, 3),
            "fidelity_noisy_max_same_budget": round(float(rival), 3),
            "series": rounded(alpha.mean(axis=1)),
        }
    one = brentq(lambda e0: total_epsilon(DoublingPlan(e0, variant="capped")) - 1.0, 1e-3, 1.0)
    for k in (10, 100, 1000):
        loops = simulate_loops(utilities, DoublingPlan(one, variant="capped"), k, runs, rng)
        rival = simulate_noisy_max(utilities, 1.0, k, runs, rng)
        results[f"total epsilon 1, k={k}"] = {
            "e0": round(one, 4),
            "fidelity_doubling": round(float(fidelity(utilities, loops.choice).mean()), 3),
            "fidelity_noisy_max": round(float(fidelity(utilities, rival).mean()), 3),
        }
    figure.update_xaxes(title="iteration")
    figure.update_yaxes(title="fidelity", row=1, col=1)
    return figure, results


if __name__ == "__main__":
    main("constant_overhead_figure_3", __doc__, reproduce)
