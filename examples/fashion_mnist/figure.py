"""Draws docs/_static/fashion-mnist.svg from results.json, and prints the table of the page.

python examples/fashion_mnist/figure.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "docs" / "_static"
NAMES = {
    "list": "a short list, everything charged",
    "whitened": "one run, whitened features",
    "default": "the same, a constant rate and averaged weights",
    "plain": "one run, plain features",
}
# Published numbers, whose tuning is not charged: accuracy, epsilon.
PUBLISHED = {"ScatterNet, linear": (89.7, 3.0), "tempered sigmoids": (86.1, 2.7)}


def read() -> dict[str, dict[float, list[float]]]:
    """Accuracies in per cent by arm and epsilon."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in json.loads((HERE / "results.json").read_text()):
        found[row["arm"]][row["epsilon"]].append(row["accuracy"])
    return found


def table() -> str:
    found = read()
    epsilons = sorted({epsilon for arm in found.values() for epsilon in arm})
    lines = ["| arm | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |"]
    lines.append("|---" * (len(epsilons) + 1) + "|")
    for arm, name in NAMES.items():
        cells = []
        for epsilon in epsilons:
            values = found[arm][epsilon]
            each = ", ".join(f"{value:.1f}" for value in values)
            cells.append(f"{np.mean(values):.1f} ({each})" if values else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw() -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.style.use(STATIC.parent / "figures.mplstyle")
    figure, axis = pyplot.subplots(figsize=(5.0, 4.8))
    for arm, name in NAMES.items():
        by_epsilon = sorted(read()[arm].items())
        places = [epsilon for epsilon, _ in by_epsilon]
        means = [np.mean(values) for _, values in by_epsilon]
        axis.plot(places, means, marker="o", label=name)
        for epsilon, values in by_epsilon:
            axis.plot([epsilon] * len(values), values, ".", color="0.5", markersize=3)
    for (name, (accuracy, epsilon)), marker in zip(PUBLISHED.items(), "xs", strict=True):
        label = f"{name}, published (tuning not charged)"
        axis.plot([epsilon], [accuracy], marker, color="0.5", label=label)
    axis.set_xscale("log")
    axis.set_xticks([1, 2.7, 8], ["1", "2.7", "8"])
    axis.minorticks_off()
    axis.set_xlabel("epsilon (delta 1e-5)")
    axis.set_ylabel("test accuracy in per cent")
    axis.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.45, -0.16))
    figure.tight_layout()
    figure.savefig(STATIC / "fashion-mnist.svg", metadata={"Date": None})


if __name__ == "__main__":
    print(table())
    draw()
