"""Votes of clients with images of Fashion-MNIST: Figures 5, 6, 10 and 11 of arXiv 2510.04902.

Reads ``fashion.npz``, which ``fashion_clients.py`` measures, draws
``docs/_static/dp-hype-fashion.svg`` and prints the table of the page. The votes are a
**simulation**: ballots by the library, and seeded noise from numpy with the law of the sum that
``FederatedVote`` opens::

    python examples/dp_hype/fashion_votes.py                     # some seconds
    python examples/dp_hype/fashion_votes.py --quick --output F  # two of the ten runs, into F

One run draws its clients (50 or 100 of 250; else all), breaks the ties in their ballots anew and
takes 100 votes at each epsilon. The 95 % intervals are Student's, over runs. The trainings are
stored once, so all runs share them: the intervals say nothing about other trainings.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from optuna_dp.voting import VotePlan, ballot

FILE = Path(__file__).with_name("fashion.npz")
STATIC = Path(__file__).parents[2] / "docs" / "_static"
SPLITS = ("iid", "Dirichlet(0.5)")
SIZES = {50: 250, 100: 250, 250: 250, 1000: 1000}  # Clients of a vote: of which division.
EPSILONS = (0.1, 0.25, 0.5, 1.0, 3.0, math.inf)
CANDIDATES, K, DELTA = 100, 5, 1e-5
RUNS, VOTES, TEST_RECORDS = 10, 100, 10_000
COLOURS = ("#56B4E9", "#0072B2", "#009E73", "#E69F00")

Floats = npt.NDArray[np.float64]


def of_all_candidates(counts: npt.NDArray[Any]) -> Floats:
    """Counts of 100 candidates from those of the 50 that were trained and of the first weights."""
    trained, first = counts[..., :-1], counts[..., -1:]
    rest = np.repeat(first, CANDIDATES - trained.shape[-1], axis=-1)
    return np.concatenate([trained, rest], axis=-1).astype(float)


def noise(
    clients: int, epsilon: float, shape: tuple[int, ...], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Noise of the sum of a vote that costs epsilon: the difference of two Poisson numbers."""
    if math.isinf(epsilon):
        return np.zeros(shape, dtype=np.int64)
    plan = VotePlan.calibrated(
        clients=clients, candidates=CANDIDATES, votes=K, epsilon=epsilon, delta=DELTA
    )
    rate = plan.variance_of_sum / 2
    return rng.poisson(rate, shape) - rng.poisson(rate, shape)


def one_run(stored: Any, split: str, clients: int, run: int) -> dict[str, float]:
    """Mean test accuracy of what the votes choose, by epsilon, and of Opt and RandGuess."""
    rng = np.random.default_rng([*split.encode(), clients, run])
    local = stored[f"local {split} of {SIZES[clients]}"]
    scores = of_all_candidates(local[:, :-1])  # The last column is the number held out.
    voters = rng.permutation(len(scores))[:clients]
    votes = np.sum(
        [ballot(scores[i], K, maximize=True, random_bytes=rng.bytes) for i in voters], axis=0
    )
    reached = of_all_candidates(stored[f"global {split}, {clients} clients"]) / TEST_RECORDS
    found = {"RandGuess": float(reached.mean())}
    for epsilon in EPSILONS:
        sums = votes + noise(clients, epsilon, (VOTES, CANDIDATES), rng)
        winners = np.argmax(sums + 0.5 * rng.random(sums.shape), axis=1)  # ties at random
        found[f"{epsilon:g}"] = float(reached[winners].mean())
    return {**found, "Opt": float(reached.max())}


def cell(
    stored: Any, split: str, clients: int, runs: int = RUNS
) -> dict[str, tuple[float, float]]:
    """Mean and half of a 95 % interval over runs, of each column of the table."""
    found = [one_run(stored, split, clients, run) for run in range(runs)]
    quantile = float(stats.t.ppf(0.975, runs - 1)) / math.sqrt(runs)
    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
    return {
        name: (float(values.mean()), quantile * float(values.std(ddof=1)))
        for name, values in columns.items()
    }


def row(split: str, clients: int, found: dict[str, tuple[float, float]]) -> str:
    """A row of the table of the page; Opt and RandGuess have no intervals, of one training."""
    cells = [
        f"{mean:.3f}" if name in ("Opt", "RandGuess") else f"{mean:.3f} ± {half:.3f}"
        for name, (mean, half) in found.items()
    ]
    return f"| {split}, {clients} | {' | '.join(cells)} |"


def draw(cells: dict[tuple[str, int], dict[str, tuple[float, float]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    plt.style.use(STATIC.parent / "figures.mplstyle")
    figure, axes = plt.subplots(1, 2, figsize=(6.8, 3.6), sharey=True, layout="constrained")
    names = [f"{epsilon:g}" for epsilon in EPSILONS]
    for axis, split in zip(axes.flat, SPLITS, strict=True):
        for colour, clients in zip(COLOURS, SIZES, strict=True):
            found = cells[split, clients]
            means, halves = zip(*(found[name] for name in names), strict=True)
            axis.errorbar(names, means, halves, color=colour, marker="o", markersize=3,
                          label=f"{clients} clients")  # fmt: skip
            axis.axhline(found["Opt"][0], color=colour, linestyle=":", linewidth=1)
        axis.axhline(found["RandGuess"][0], color="#7a7a7a", linestyle="--", linewidth=1)
        axis.set_title(split)
        axis.grid(axis="y")
        axis.set_xlabel("epsilon of the vote")
    axes[0].set_ylabel("test accuracy")
    axes[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two of the ten runs")
    parser.add_argument("--output", type=Path, help="folder for the figure and its numbers")
    options = parser.parse_args()
    runs = 2 if options.quick else RUNS
    with np.load(FILE) as file:
        stored = dict(file)
    cells = {
        (split, clients): cell(stored, split, clients, runs)
        for split in SPLITS
        for clients in SIZES
    }
    names = list(next(iter(cells.values())))
    print(f"| split, clients | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for (split, clients), found in cells.items():
        print(row(split, clients, found))
    draw(cells, (options.output or STATIC) / "dp-hype-fashion.svg")
    if options.output:
        numbers = {f"{split}, {clients}": found for (split, clients), found in cells.items()}
        (options.output / "dp_hype_fashion.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
