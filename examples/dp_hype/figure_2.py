"""arXiv 2510.04902 (DP-HYPE), Figure 2: what k does. SIMULATION NOISE.

100 candidates, 250 clients, local losses of good ones N(0, sd^2), of bad ones N(1, sd^2); success
is a good winner, over 5000 searches per point. (a) 5 good candidates, sd from 0 to 1. (b) sd 0.5,
1 to 100 good candidates. (c), of version 3, as the artifact of its authors has it: sd 0.2, 5 good
candidates, 100 to 2700 in all, over 1000 searches. The noise is Gaussian, as large as exact
accounting needs.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from figures import COLOURS, DELTA, main
from plotly.subplots import make_subplots
from simulated_votes import simulated_sums, success_rate

from optuna_dp.voting import VotePlan

CANDIDATES, CLIENTS = 100, 250
VOTES = (1, 5, 25, 50, 100)
EPSILONS = (1.0, 0.25)
LOSS_SDS = tuple(round(0.1 * i, 1) for i in range(11))
GOOD = (1, 2, 4, 8, 16, 32, 64, 100)
TOTALS = (100, 300, 900, 2700)
SD_B, SD_C, GOOD_A = 0.5, 0.2, 5


def sigma(k: int, epsilon: float) -> float:
    """The standard deviation of the noise. A vote for everything is free in truth; like the
    paper, it pays for a sensitivity of sqrt(2k) here."""
    plan = VotePlan.calibrated(
        clients=CLIENTS, candidates=2 * CANDIDATES, votes=k, epsilon=epsilon, delta=DELTA
    )
    return plan.variance**0.5


def point(task: tuple[int, int, float, int, int, dict[tuple[int, float], float]]) -> list[Any]:
    candidates, good, sd, repetitions, seed, noise = task
    rng = np.random.default_rng([seed, good, round(10 * sd)])
    sums = simulated_sums(
        clients=CLIENTS,
        candidates=candidates,
        good=good,
        loss_sd=sd,
        votes=VOTES,
        repetitions=repetitions,
        rng=rng,
    )
    return [
        (k, epsilon, *success_rate(sums[k], good, noise[k, epsilon], rng))
        for k in VOTES
        for epsilon in EPSILONS
    ]


def reproduce(quick: bool, seed: int) -> tuple[Any, dict[str, Any]]:
    repetitions = 200 if quick else 5000
    noise = {(k, epsilon): sigma(k, epsilon) for k in VOTES for epsilon in EPSILONS}
    tasks = [(CANDIDATES, GOOD_A, sd, repetitions, seed, noise) for sd in LOSS_SDS]
    tasks += [(CANDIDATES, good, SD_B, repetitions, seed, noise) for good in GOOD]
    tasks += [(total, GOOD_A, SD_C, repetitions // 5, seed, noise) for total in TOTALS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(point, tasks))
    at = np.cumsum([0, len(LOSS_SDS), len(GOOD), len(TOTALS)])
    panels = {
        name: (xs, found[at[i] : at[i + 1]])
        for i, (name, xs) in enumerate({"a": LOSS_SDS, "b": GOOD, "c": TOTALS}.items())
    }
    figure = make_subplots(
        1,
        2 * len(panels),
        shared_yaxes=True,
        subplot_titles=[f"({name}) epsilon = {e:g}" for name in panels for e in EPSILONS],
    )
    results: dict[str, Any] = {
        "simulation": "numpy noise, nothing here is private",
        "repetitions": repetitions,
        "sigma": {f"k={k} epsilon={e:g}": round(s, 2) for (k, e), s in noise.items()},
    }
    for row, (name, (xs, points)) in enumerate(panels.items()):
        for column, epsilon in enumerate(EPSILONS, start=1 + 2 * row):
            for colour, k in zip(COLOURS, VOTES, strict=False):
                rows = [next(r for r in p if r[:2] == (k, epsilon)) for p in points]
                figure.add_scatter(
                    x=xs,
                    y=[r[2] for r in rows],
                    error_y={"array": [1.96 * r[3] for r in rows]},
                    name=f"k = {k}",
                    showlegend=column == 1,
                    line={"color": colour},
                    row=1,
                    col=column,
                )
                series = {str(x): round(r[2], 4) for x, r in zip(xs, rows, strict=True)}
                results[f"{name} epsilon={epsilon:g} k={k}"] = series
                print(
                    f"({name}) epsilon {epsilon:4g}  k {k:3d}  "
                    + "  ".join(f"{x}: {y:.3f}" for x, y in series.items())
                )
    figure.update_xaxes(title_text="sd of local losses", col=1)
    figure.update_xaxes(title_text="sd of local losses", col=2)
    figure.update_xaxes(title_text="good candidates", type="log", col=3)
    figure.update_xaxes(title_text="good candidates", type="log", col=4)
    figure.update_xaxes(title_text="candidates", type="log", col=5)
    figure.update_xaxes(title_text="candidates", type="log", col=6)
    return figure, results


if __name__ == "__main__":
    main("dp_hype_figure_2", __doc__, reproduce)
