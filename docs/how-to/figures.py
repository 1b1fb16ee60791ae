"""Makes the figures of choose-the-law.md and the numbers they are drawn from.

    python docs/how-to/figures.py           # compute and draw, a minute or two
    python docs/how-to/figures.py --draw    # draw again from docs/_static/choosing.json

Needs matplotlib, which the docs extra brings.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import optuna_dp as odp
from optuna_dp.planning.calibration import bounds_of_ratio
from optuna_dp.planning.selection_plan import law_of

STATIC = Path(__file__).parent.parent / "_static"
DATA = STATIC / "choosing.json"

DELTA = 1e-5
TOP = 0.05
BASE = {"noise_multiplier": 1.0, "sample_rate": 256 / 60000, "steps": 2344}
LAWS = (
    "negative-binomial:-0.5",
    "logarithmic",
    "geometric",
    "negative-binomial:3",
    "poisson",
)
NAMES = {
    "negative-binomial:-0.5": "negative binomial, shape -0.5",
    "logarithmic": "logarithmic (shape 0)",
    "geometric": "geometric (shape 1)",
    "negative-binomial:3": "negative binomial, shape 3",
    "poisson": "Poisson",
}
MEANS = (1.5, 2, 3, 5, 7, 10, 15, 20, 30, 45, 67, 100, 150, 200, 300)
ADAPTIVE_MEANS = (1.5, 2, 3, 5, 10, 20, 30, 67, 100)
BOUNDS = ((0.9, 1.25), (0.75, 2.0))
RATIOS = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)


def compute() -> dict[str, Any]:
    run = odp.dp_sgd(**BASE)

    def point(law: str, mean: float, bounds: tuple[float, float] = (1.0, 1.0)) -> dict[str, Any]:
        trials = law_of(law, mean)
        found = odp.selection_guarantee(run, trials, density_bounds=bounds)
        methods = found.by_method(DELTA)
        return {
            "mean": mean,
            "epsilon": min(methods.values()),
            "rdp": methods["rdp"] if math.isfinite(methods["rdp"]) else None,
            "data_profile": methods["data_profile"],
            "theorem_1": methods.get("theorem_1"),
            "hit": trials.hit_probability(TOP),
            "hit_best": trials.hit_probability(min(1.0, bounds[1] * TOP)),
            "few": trials.cdf(3),
        }

    return {
        "base": BASE,
        "delta": DELTA,
        "top": TOP,
        "one_run": odp.Guarantee(run).epsilon(DELTA),
        "laws": {law: [point(law, mean) for mean in MEANS] for law in LAWS},
        "adaptive": [
            {
                "bounds": bounds,
                "points": [point("geometric", mean, bounds) for mean in ADAPTIVE_MEANS],
            }
            for bounds in BOUNDS
        ],
        "ratios": [
            {"ratio": ratio, **point("geometric", 10.0, bounds_of_ratio(ratio))}
            for ratio in RATIOS
        ],
    }


def draw(data: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.style.use(STATIC.parent / "figures.mplstyle")

    def save(figure: Any, name: str) -> None:
        figure.set_layout_engine(figure.get_layout_engine() or "tight")
        figure.savefig(STATIC / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)

    one = data["one_run"]
    # A palette that survives colour blindness and print (Okabe & Ito).
    colours = dict(zip(LAWS, ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"), strict=True))

    def series(points: list[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
        return [p[x] for p in points], [p[y] for p in points]

    figure, axes = plt.subplots(figsize=(5.0, 4.2))
    for law, points in data["laws"].items():
        axes.plot(*series(points, "epsilon", "hit"), label=NAMES[law], color=colours[law])
    axes.axvline(one, color="grey", lw=1)
    axes.annotate("one run", (one, 0.9), xytext=(4, 0), textcoords="offset points", color="grey")
    axes.set(xlabel="epsilon of the whole search", ylabel="chance that a run is in the top 5 %")
    axes.set(xlim=(1.0, 3.0), ylim=(0.0, 1.0))
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    save(figure, "hit-by-epsilon")

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(5.2, 4.6), sharey=True, layout="constrained"
    )
    plain_points = data["laws"]["geometric"]
    for axes, x in ((left, "epsilon"), (right, "mean")):
        axes.plot(*series(plain_points, x, "hit"), color="#7a7a7a", label="random search")
        for entry, colour in zip(data["adaptive"], ("#E69F00", "#0072B2"), strict=True):
            c, big_c = entry["bounds"]
            axes.plot(
                *series(entry["points"], x, "hit_best"),
                color=colour,
                label=f"best policy within c={c:g}, C={big_c:g}",
            )
    left.set(xlim=(1.0, 3.0), ylim=(0.0, 1.0), xlabel="epsilon of the whole search")
    left.set_ylabel("chance that a run is in the top 5 %")
    right.set(xscale="log", xlim=(1.5, 100), xlabel="mean number of runs")
    right.minorticks_off()
    right.set_xticks([2, 5, 10, 30, 100], ["2", "5", "10", "30", "100"])
    left.set_title("for the epsilon")
    right.set_title("for the compute")
    # Below both, where no curve runs.
    figure.legend(
        *right.get_legend_handles_labels(),
        loc="outside lower center",
        frameon=False,
        fontsize=9,
    )
    save(figure, "when-adaptivity-pays")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draw", action="store_true", help="draw from the numbers kept")
    if not parser.parse_args().draw:
        DATA.write_text(json.dumps(compute(), indent=1) + "\n")
    draw(json.loads(DATA.read_text()))


if __name__ == "__main__":
    main()
