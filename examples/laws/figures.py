"""Distributions of T compared, as Papernot & Steinke and as Koskela, Redberg & Wang do.

::

    python examples/laws/figures.py papernot_steinke --output FOLDER
    python examples/laws/figures.py koskela --output FOLDER --quick

``papernot_steinke`` (arXiv 2110.03620, Figure 7, which tensorflow/privacy's pull request 230 is
about): the accuracy of the best of T learning rates by epsilon, for four distributions, here with
the DP-SGD runs on digits of ``examples/dp_hypo`` in place of theirs on MNIST. Left, epsilon by the
mean of T. Dashed is their Renyi bound, solid is ours. ``koskela`` (arXiv 2402.06701): a DP-SGD
training by Renyi divergences, by their bound, by ours, and the attack. Every number is computed,
none is drawn.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from plotly.subplots import make_subplots

import optuna_dp as odp

sys.path.insert(0, str(Path(__file__).parents[1] / "dp_hypo"))
from landscapes import load
from simulate import measured

DELTA, NOISE = 1e-5, 2.0
COLOURS = ["#4C72B0", "#DD8452", "#55A868", "#C44E52", "#8172B3"]
LAWS = {
    "logarithmic": odp.Logarithmic,
    "shape 0.5": lambda mean: odp.NegativeBinomial(shape=0.5, mean=mean),
    "geometric": odp.Geometric,
    "Poisson": odp.Poisson,
}


def expected_best(law: odp.TrialCount, accuracies: Any) -> float:
    """Of the best of T settings drawn from the prior; 0 if T = 0."""
    values = np.sort(np.ravel(accuracies))
    below = np.asarray(law.pgf(np.arange(values.size + 1) / values.size))
    return float(np.diff(below) @ values)


def papernot_steinke(quick: bool) -> tuple[Any, dict[str, Any]]:
    task, accuracies, delta = load("digits"), measured("digits", NOISE).mean, DELTA
    run = odp.dp_sgd(noise_multiplier=NOISE, sample_rate=task.sample_rate, steps=task.steps())
    means = [2.0, 10.0, 100.0] if quick else np.geomspace(1.5, 300.0, 14).tolist()
    titles = ("epsilon by the mean of T", "accuracy of the best by epsilon")
    figure = make_subplots(1, 2, subplot_titles=titles)
    results: dict[str, Any] = {"delta": delta, "mean": [round(m, 3) for m in means]}
    for colour, (name, law) in zip(COLOURS, LAWS.items(), strict=False):
        guarantees = [odp.selection_guarantee(run, law(mean)) for mean in means]
        ours = [g.epsilon(delta) for g in guarantees]
        theirs = [g.by_method(delta)["rdp"] for g in guarantees]
        best = [expected_best(law(mean), accuracies) for mean in means]
        for label, epsilons, dash in ((name, ours, None), (f"{name}, Renyi", theirs, "dash")):
            line = {"color": colour, "dash": dash}
            figure.add_scatter(x=means, y=epsilons, name=label, line=line, row=1, col=1)
            shown = {"name": label, "line": line, "showlegend": False}
            figure.add_scatter(x=epsilons, y=best, **shown, row=1, col=2)
        results[name] = {"epsilon": ours, "renyi": theirs, "accuracy": best}
    fixed = [1, 2, 4, 8, 16]
    naive = [odp.Guarantee(odp.compose(*[run] * m)).epsilon(delta) for m in fixed]
    line = {"color": "black"}
    figure.add_scatter(x=fixed, y=naive, name="composition", line=line, row=1, col=1)
    best = [expected_best(odp.Binomial(m, m), accuracies) for m in fixed]
    figure.add_scatter(x=naive, y=best, line=line, showlegend=False, row=1, col=2)
    results["composition"] = {"mean": fixed, "epsilon": naive, "accuracy": best}
    figure.update_xaxes(type="log", title="mean of T", row=1, col=1)
    figure.update_xaxes(title="epsilon", row=1, col=2)
    return figure, results


def koskela(quick: bool) -> tuple[Any, dict[str, Any]]:
    delta = DELTA
    run = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)
    means = [10.0, 100.0] if quick else np.geomspace(2.0, 300.0, 12).tolist()
    laws = {
        "geometric": odp.Geometric,
        "Poisson": odp.Poisson,
        "binomial": lambda mean: odp.Binomial(math.ceil(2.0 * mean), mean),
    }
    ways = {"rdp": "dot", "koskela": "dash", "ours": None, "attack": "dashdot"}
    figure = make_subplots(1, 3, subplot_titles=tuple(laws))
    results: dict[str, Any] = {"delta": delta, "mean": [round(m, 3) for m in means]}
    for column, (name, law) in enumerate(laws.items(), 1):
        rows: dict[str, list[float]] = {way: [] for way in ways}
        for mean in means:
            guarantee = odp.selection_guarantee(run, law(mean))
            attack, ours = guarantee.bounds(delta)
            found = {**guarantee.by_method(delta), "ours": ours, "attack": attack}
            for way in ways:
                rows[way].append(found[way])
        for colour, (way, dash) in zip(COLOURS, ways.items(), strict=False):
            line, shown = {"color": colour, "dash": dash}, column == 1
            finite = [e if math.isfinite(e) else None for e in rows[way]]
            options = {"name": way, "line": line, "showlegend": shown, "row": 1, "col": column}
            figure.add_scatter(x=means, y=finite, **options)
        results[name] = {way: [e for e in row if math.isfinite(e)] for way, row in rows.items()}
    figure.update_xaxes(type="log", title="mean of T")
    figure.update_yaxes(rangemode="tozero", title="epsilon", col=1)
    return figure, results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figure", choices=("papernot_steinke", "koskela"))
    parser.add_argument("--quick", action="store_true", help="a few means of T")
    parser.add_argument("--output", type=Path, default=Path("figures"), help="folder to write to")
    options = parser.parse_args()
    figure, results = globals()[options.figure](options.quick)
    options.output.mkdir(parents=True, exist_ok=True)
    figure.update_layout(template="simple_white", width=1100, height=480, title=options.figure)
    figure.write_html(options.output / f"{options.figure}.html", include_plotlyjs="cdn")
    text = json.dumps(results, default=lambda value: round(float(value), 4), indent=1)
    (options.output / f"{options.figure}.json").write_text(text + "\n")
    for name, row in results.items():
        rounded = (
            {k: np.round(v, 3).tolist() for k, v in row.items()} if isinstance(row, dict) else row
        )
        print(name, rounded)


if __name__ == "__main__":
    main()
