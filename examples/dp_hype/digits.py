"""Handwritten digits split over clients: how good is the private choice? (arXiv 2510.04902, VI.)

Each client trains all 100 candidates of the paper (learning rate x decay x momentum) on its own
records, scores them on records it held out, and votes; the votes are those of FederatedVote, with
its own noise. The winner's accuracy is that of a model trained with it by FedAvg, against the best
candidate (Opt) and the average one (RandGuess).

One run is a new split, new local trainings and new global trainings of all candidates; the 95 %
intervals are Student's, over runs, each run averaging over several votes.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from clients import CANDIDATES, DataSet
from figures import COLOURS, DELTA, main
from flwr.app import Context
from flwr.clientapp import ClientApp
from optuna.distributions import CategoricalDistribution
from plotly.subplots import make_subplots
from scipy import stats

from optuna_dp.federated import FederatedVote, InProcessGrid, PlainSum, VotePolicy, voter
from optuna_dp.voting import argmax, ballot

SPACE = {"candidate": CategoricalDistribution(list(range(len(CANDIDATES))))}
EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0]
K = 5
DIGITS = DataSet("digits")

app = ClientApp()


@voter(app, policy=VotePolicy(max_epsilon=1e6, server="trusted", ledger="run"))
def objective(params: dict[str, Any], context: Context) -> float:
    """What the client has measured before; all candidates are trained at once, for speed."""
    return float(SCORES[int(context.node_config["client"])][params["candidate"]])


SCORES: list[np.ndarray] = []


def private_choices(n: int, epsilon: float, votes: int) -> list[int]:
    """Winners of independent votes, each at this epsilon: repetitions, not rounds of one."""
    grid = InProcessGrid(app, [{"client": i} for i in range(n)])
    chosen = []
    for _ in range(votes):
        vote = FederatedVote(
            SPACE,
            k=K,
            epsilon=epsilon,
            delta=DELTA,
            direction="maximize",
            secure_aggregation=PlainSum(),  # the sum is the same; a secure one costs time only
            progress=lambda text: None,
        )
        chosen.append(vote.start(grid, grid.server_context()).params["candidate"])
    return chosen


def one_run(n: int, concentration: float | None, votes: int, rng: np.random.Generator) -> Any:
    parts = DIGITS.split(n, concentration, rng)
    SCORES[:] = [DIGITS.local_scores(part, rng) for part in parts]
    reached = DIGITS.federated_accuracy(parts, rng)
    result = {"Opt": float(reached.max()), "RandGuess": float(reached.mean())}
    for epsilon in EPSILONS:
        chosen = private_choices(n, epsilon, votes)
        result[f"{epsilon:g}"] = float(np.mean(reached[chosen]))
    chosen = [
        argmax(np.sum([ballot(s, K, maximize=True) for s in SCORES], axis=0)) for _ in range(votes)
    ]
    result["inf"] = float(np.mean(reached[chosen]))
    return result


def interval(values: list[float]) -> float:
    """Half the width of a 95 % interval of the mean, over independent runs."""
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread


def study(quick: bool, seed: int) -> tuple[Any, dict[str, Any]]:
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    sizes = [10, 25] if quick else [10, 25, 50, 100, 250]
    splits = [None, 0.5] if quick else [None, 30.0, 5.0, 0.5]
    runs, votes = (2, 3) if quick else (5, 10)
    names = ["iid" if c is None else f"Dirichlet({c:g})" for c in splits]
    figure = make_subplots(1, len(splits), shared_yaxes=True, subplot_titles=names)
    results: dict[str, Any] = {"runs": runs, "votes_per_run": votes, "k": K, "delta": DELTA}
    for column, (name, concentration) in enumerate(zip(names, splits, strict=True), start=1):
        for i, n in enumerate(sizes):
            rng = np.random.default_rng([seed, n, column])
            found = [one_run(n, concentration, votes, rng) for _ in range(runs)]
            mean = {key: float(np.mean([f[key] for f in found])) for key in found[0]}
            half = {key: interval([f[key] for f in found]) for key in found[0]}
            results[f"{name} n={n}"] = {
                key: [round(mean[key], 3), round(half[key], 3)] for key in mean
            }
            print(
                f"{name:14s} n {n:3d}  "
                + "  ".join(f"{key}: {mean[key]:.3f}±{half[key]:.3f}" for key in mean),
                flush=True,
            )
            keys = [key for key in mean if key not in ("Opt", "RandGuess")]
            for label, at, line in (
                (f"n = {n}", keys, {"color": COLOURS[i]}),
                (f"Opt, n = {n}", ["Opt"] * len(keys), {"color": COLOURS[i], "dash": "dot"}),
            ):
                figure.add_scatter(
                    x=keys,
                    y=[mean[key] for key in at],
                    error_y={"array": [half[key] for key in at]},
                    name=label,
                    line=line,
                    showlegend=column == 1,
                    row=1,
                    col=column,
                )
        figure.update_xaxes(title_text="epsilon", type="category", col=column)
    return figure, results


if __name__ == "__main__":
    main("dp_hype_digits", __doc__, study)
