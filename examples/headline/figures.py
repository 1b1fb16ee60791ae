"""Draws docs/_static/headline.svg from the result files::

python examples/headline/figures.py

The figure has no background and its words are grey, to be read on white and on black.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
from tables import HERE, WORDS, accuracies, cells, interval, read_runs

STATIC = HERE.parents[1] / "docs" / "_static"
GREY = "#7a7a7a"
# Arm -> (colour, marker, line, what the legend says).
DRAWN = {
    "free choice, 4 x": (GREY, "", ":", "free choice (not private)"),
    "one run, rehearsal, 4 x": ("#e8590c", "o", "-", "one run, 4 x the computing"),
    "one run, rehearsal": ("#f2a65a", "o", "-", "one run"),
    "budget, 4 pilots": ("#8f7fe8", "^", "-", "4 pilots, one run"),
    "RandTune": ("#3d85e0", "s", "-", "RandTune, 10 runs"),
    "usual defaults, SGD": (GREY, "x", "-", "one run, usual rate"),
}
BOLD = "one run, rehearsal, 4 x"
PANELS = ("digits", "flights")


def digest(results: Path) -> str:
    """What the figure says it was drawn from."""
    return "runs.csv " + hashlib.sha256((results / "runs.csv").read_bytes()).hexdigest()


def figure(results: Path, static: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.style.use(STATIC.parent / "figures.mplstyle")
    runs = read_runs(results)
    where = cells(runs)
    names = [name for name in PANELS if any(cell[0] == name for cell in where)]
    drawn, axes = plt.subplots(1, len(names), figsize=(5.2, 3.7), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        here = [cell for cell in where if cell[0] == name]
        for i, (arm, (colour, marker, line, words)) in enumerate(DRAWN.items()):
            found = [accuracies(runs, cell, arm) for cell in here]
            kept = [(place, interval(v)) for place, v in enumerate(found) if v is not None]
            shift = 0.03 * (i - 2.5)
            axis.errorbar(
                [place + shift for place, _ in kept],
                [mean for _, (mean, _) in kept],
                [half if np.isfinite(half) else 0.0 for _, (_, half) in kept],
                color=colour,
                marker=marker,
                linestyle=line,
                linewidth=2.2 if arm == BOLD else 1.4,
                markersize=5,
                label=words,
            )
        axis.set_title(WORDS[name], fontsize=10)
        axis.set_xticks(range(len(here)), [f"{cell[1]:g}" for cell in here])
        axis.set_xlim(-0.3, len(here) - 0.7)
        axis.set_xlabel("total epsilon")
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[0][0].set_ylabel("test accuracy, per cent")
    handles, labels = axes[0][0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="lower center", ncols=2, fontsize=9, frameon=False)
    drawn.tight_layout(rect=(0, 0.2, 1, 1))
    static.mkdir(parents=True, exist_ok=True)
    made_of = {"Date": None, "Description": digest(results)}
    drawn.savefig(static / "headline.svg", metadata=made_of, transparent=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE)
    parser.add_argument("--static", type=Path, default=STATIC, help="where the figure goes")
    options = parser.parse_args()
    figure(options.results, options.static)
