"""What the four reproductions share: command line, colours, files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import optuna_dp as odp
from optuna_dp.mechanisms import DoublingPlan

COLOURS = ["#4C72B0", "#DD8452", "#55A868", "#C44E52", "#8172B3"]
DELTA = 1e-5


def main(
    name: str, doc: str, reproduce: Callable[[bool, np.random.Generator], tuple[Any, dict]]
) -> None:
    """Runs a reproduction; writes ``name.html`` (the figure) and ``name.json`` (its numbers)."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs, for checking")
    parser.add_argument("--output", type=Path, default=Path("figures"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation")
    options = parser.parse_args()
    figure, results = reproduce(options.quick, np.random.default_rng(options.seed))
    options.output.mkdir(parents=True, exist_ok=True)
    figure.update_layout(template="simple_white", width=1000, height=480, title=name)
    figure.write_html(options.output / f"{name}.html", include_plotlyjs="cdn")
    results = {"simulation": "numpy noise, nothing here is private", **results}
    (options.output / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(without_series(results), indent=1))
    print(f"{options.output / name}.html and .json")


def total_epsilon(plan: DoublingPlan) -> float:
    """Returns what the loop costs in all, at ``DELTA``."""
    return odp.Guarantee(plan.event()).epsilon(DELTA)


def without_series(results: dict) -> dict:
    return {
        key: without_series(value) if isinstance(value, dict) else value
        for key, value in results.items()
        if key != "series"
    }


def rounded(values: Any) -> list[float]:
    return [round(float(v), 4) for v in np.ravel(values)]
