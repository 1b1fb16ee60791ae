"""arXiv 2211.01852 ("Revisiting"), Figure 1: step-u traces of 1000 seeds. SIMULATION NOISE.

Settings of the paper: k = 10, e0 = 0.1, 100 candidates with utilities uniform on (0, 1), g = 0.01,
u0 = 0. The right panel adds what the figure leaves out: the utility of the candidate that is
chosen, and the same for report-noisy-max at the same total budget.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from figures import COLOURS, DELTA, main, rounded, total_epsilon
from plotly.subplots import make_subplots
from simulated_loops import fidelity, simulate_loops, simulate_noisy_max

from optuna_dp.mechanisms import DoublingPlan

K, CANDIDATES = 10, 100
PLAN = DoublingPlan(0.1, granularity=0.01)


def reproduce(quick: bool, rng: np.random.Generator):
    runs = 100 if quick else 1000
    utilities = rng.random((runs, CANDIDATES))
    loops = simulate_loops(utilities, PLAN, K, runs, rng)
    total = total_epsilon(PLAN)
    rival = simulate_noisy_max(utilities, total, K, runs, rng)
    ours, theirs = fidelity(utilities, loops.choice), fidelity(utilities, rival)

    figure = make_subplots(1, 2, subplot_titles=("step against u", "fidelity of the choice"))
    for run in range(min(runs, 200)):
        last = loops.iterations[run] + 1
        figure.add_scatter(
            x=loops.steps[:last, run],
            y=PLAN.granularity * loops.positions[:last, run],
            mode="lines",
            line={"width": 0.7, "color": COLOURS[run % len(COLOURS)]},
            opacity=0.3,
            showlegend=False,
            row=1,
            col=1,
        )
    figure.update_xaxes(title="step (granules)", row=1, col=1)
    figure.update_yaxes(title="u", row=1, col=1)
    share = np.arange(1, runs + 1) / runs
    for name, values in (("doubling loop", ours), ("report-noisy-max", theirs)):
        figure.add_trace(go.Scatter(x=np.sort(values), y=share, name=name), row=1, col=2)
    figure.update_xaxes(title="utility of the choice / best utility", row=1, col=2)
    figure.update_yaxes(title="share of runs", row=1, col=2)

    reached = loops.positions[-1] * PLAN.granularity
    return figure, {
        "iterations_mean": float(loops.iterations.mean()),
        "iterations_max": int(loops.iterations.max()),
        "iterations_guaranteed": PLAN.iteration_bound,
        "share_ended_at_u_of_1": float((reached >= 1).mean()),
        "share_with_u_above_the_best_utility": float((reached > utilities.max(axis=1)).mean()),
        "total_epsilon_guaranteed": total,
        "total_epsilon_pure": PLAN.epsilon * PLAN.iteration_bound,
        "delta": DELTA,
        "fidelity_of_a_random_candidate": float((utilities[:, 0] / utilities.max(axis=1)).mean()),
        "fidelity_doubling": float(ours.mean()),
        "fidelity_noisy_max_same_budget": float(theirs.mean()),
        "series": {"fidelity_doubling": rounded(ours), "fidelity_noisy_max": rounded(theirs)},
    }


if __name__ == "__main__":
    main("revisiting_figure_1", __doc__, reproduce)
