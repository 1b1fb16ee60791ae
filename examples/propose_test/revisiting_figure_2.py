"""arXiv 2211.01852 ("Revisiting"), Figure 2: iterations against (u* - u0)/g. SIMULATION NOISE.

k = 10, e0 = 0.1 as in the paper, and k = 1000, where the noise lets the loop see the utilities.
u0 = 0 and g varies. The right panel shows what the iterations buy, and report-noisy-max at the
same guaranteed total budget.
"""

from __future__ import annotations

import numpy as np
from figures import COLOURS, DELTA, main, rounded, total_epsilon
from plotly.subplots import make_subplots
from simulated_loops import fidelity, simulate_loops, simulate_noisy_max

from optuna_dp.mechanisms import DoublingPlan

CANDIDATES, EPSILON = 100, 0.1
GRANULARITIES = [0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001]


def reproduce(quick: bool, rng: np.random.Generator):
    runs = 50 if quick else 500
    figure = make_subplots(1, 2, subplot_titles=("iterations", "fidelity"))
    n = [DoublingPlan(EPSILON, granularity=g).n for g in GRANULARITIES]
    totals = [total_epsilon(DoublingPlan(EPSILON, granularity=g)) for g in GRANULARITIES]
    results = {"n": n, "iterations_guaranteed": [2 * i - 1 for i in n], "delta": DELTA}
    results["total_epsilon_guaranteed"] = rounded(totals)
    utilities = rng.random((runs, CANDIDATES))
    for colour, k in zip(COLOURS, (10, 1000), strict=False):
        mean, most, ours, rival = [], [], [], []
        for g, total in zip(GRANULARITIES, totals, strict=True):
            plan = DoublingPlan(EPSILON, granularity=g)
            loops = simulate_loops(utilities, plan, k, runs, rng)
            mean.append(loops.iterations.mean())
            most.append(loops.iterations.max())
            ours.append(fidelity(utilities, loops.choice).mean())
            rival.append(
                fidelity(utilities, simulate_noisy_max(utilities, total, k, runs, rng)).mean()
            )
        for row, name, dash in (
            (mean, f"mean, k={k}", None),
            (most, f"largest of {runs}, k={k}", "dot"),
        ):
            line = {"color": colour, "dash": dash}
            figure.add_scatter(x=n, y=row, name=name, line=line, row=1, col=1)
        for row, name, dash in (
            (ours, f"doubling, k={k}", None),
            (rival, f"noisy max, k={k}", "dash"),
        ):
            line = {"color": colour, "dash": dash}
            figure.add_scatter(x=n, y=row, name=name, line=line, row=1, col=2)
        results[f"k={k}"] = {
            "iterations_mean": rounded(mean),
            "iterations_max": [int(i) for i in most],
            "fidelity_doubling": rounded(ours),
            "fidelity_noisy_max_same_budget": rounded(rival),
            "iterations_per_doubling_of_n": round(float(np.polyfit(np.log2(n), mean, 1)[0]), 3),
        }
    figure.add_scatter(
        x=n, y=[2 * i - 1 for i in n], name="guarantee 2n-1", line={"color": "red"}, row=1, col=1
    )
    figure.update_xaxes(title="(1 - u0) / g", type="log")
    figure.update_yaxes(type="log", row=1, col=1)
    return figure, results


if __name__ == "__main__":
    main("revisiting_figure_2", __doc__, reproduce)
