"""arXiv 2510.04902 (DP-HYPE), Figures 4, 7, 8 and 9: what there is to choose from, and for whom.

4: accuracies of all 100 candidates, each a model trained on all training records. 7 and 8: labels
and sizes of 10 clients' data in Dirichlet splits, of ten classes and of two. 9: accuracies of all
candidates after FedAvg in these splits. Digits and breast_cancer, which come with scikit-learn, in
place of MNIST, CIFAR-10 and Adult, and a softmax regression in place of networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from clients import LOCAL_EPOCHS, DataSet
from figures import COLOURS, main
from plotly.subplots import make_subplots

SETS = ("digits", "breast_cancer")
BINS = np.linspace(0.0, 1.0, 11)
CLIENTS = 10  # of Figures 7 and 8


def counts(accuracies: np.ndarray) -> list[int]:
    """How many candidates lie in each tenth of [0, 1]."""
    return [int(c) for c in np.histogram(accuracies, BINS)[0]]


def centralised(data: DataSet, seed: int) -> np.ndarray:
    weights = data.start()
    data.descend(weights, np.flatnonzero(~data.test), LOCAL_EPOCHS, np.random.default_rng(seed))
    return data.accuracy(weights, np.flatnonzero(data.test))


def labels(data: DataSet, concentration: float, seed: int) -> np.ndarray:
    """Records of each label (columns) of each client (rows), clients by size."""
    parts = data.split(CLIENTS, concentration, np.random.default_rng(seed))
    found = np.array([np.bincount(data.y[part], minlength=data.classes) for part in parts])
    return found[np.argsort(-found.sum(axis=1))]


def reproduce(quick: bool, seed: int) -> tuple[Any, dict[str, Any]]:
    concentrations = (30.0, 0.5) if quick else (30.0, 5.0, 0.5)
    sizes = (10, 25) if quick else (10, 50, 250)
    data = {name: DataSet(name) for name in SETS}
    wide = len(sizes) + 1
    titles = [f"4: {name}" for name in SETS] + [""] * (wide - 2)
    for c in concentrations:
        titles += [f"7, 8: Dirichlet({c:g})"] + [f"9: n = {n}, Dirichlet({c:g})" for n in sizes]
    figure = make_subplots(1 + len(concentrations), wide, subplot_titles=titles)
    results: dict[str, Any] = {"bins": "tenths of [0, 1]", "seed": seed}
    middles = (BINS[:-1] + BINS[1:]) / 2

    for column, name in enumerate(SETS, start=1):
        results[f"4 {name}"] = counts(centralised(data[name], seed))
        figure.add_bar(x=middles, y=results[f"4 {name}"], marker_color=COLOURS[0],
                       showlegend=False, row=1, col=column)  # fmt: skip
        print(f"Figure 4, {name:14s}: candidates by accuracy {results[f'4 {name}']}", flush=True)

    for row, concentration in enumerate(concentrations, start=2):
        for number, name in (("7", "digits"), ("8", "breast_cancer")):
            found = labels(data[name], concentration, seed)
            held = np.maximum(found.sum(axis=1), 1)
            results[f"{number} Dirichlet({concentration:g})"] = {
                "sizes": [int(n) for n in found.sum(axis=1)],
                "share of the most frequent label": round(
                    float(np.mean(found.max(axis=1) / held)), 3
                ),
            }
            text = results[f"{number} Dirichlet({concentration:g})"]
            print(f"Figure {number}, Dirichlet({concentration:g}): {text}", flush=True)
            if number == "7":
                for label in range(found.shape[1]):
                    figure.add_bar(x=list(range(1, CLIENTS + 1)), y=found[:, label],
                                   name=f"label {label}", legendgroup=f"{label}",
                                   marker_color=f"hsl({36 * label}, 50%, 55%)",
                                   showlegend=row == 2, row=row, col=1)  # fmt: skip
        for column, n in enumerate(sizes, start=2):
            rng = np.random.default_rng([seed, n, row])
            parts = data["digits"].split(n, concentration, rng)
            reached = data["digits"].federated_accuracy(parts, rng)
            name = f"9 n={n} Dirichlet({concentration:g})"
            results[name] = {"counts": counts(reached), "best": round(float(reached.max()), 3)}
            figure.add_bar(x=middles, y=results[name]["counts"], marker_color=COLOURS[0],
                           showlegend=False, row=row, col=column)  # fmt: skip
            print(f"Figure {name}: {results[name]}", flush=True)
    figure.update_layout(barmode="stack", height=240 * (1 + len(concentrations)))
    return figure, results


if __name__ == "__main__":
    main("dp_hype_distributions", __doc__, reproduce)
