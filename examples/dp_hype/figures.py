"""What these examples share: command line, colours, files."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLOURS = ["#4C72B0", "#DD8452", "#55A868", "#C44E52", "#8172B3", "#333333"]
DELTA = 1e-5


def main(
    name: str, doc: str | None, run: Callable[[bool, int], tuple[Any, dict[str, Any]]]
) -> None:
    """Runs an example; writes ``name.html`` (the figure) and ``name.json`` (its numbers)."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small part, for checking")
    parser.add_argument("--output", type=Path, default=Path("figures"), help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated clients")
    options = parser.parse_args()
    start = time.perf_counter()
    figure, results = run(options.quick, options.seed)
    options.output.mkdir(parents=True, exist_ok=True)
    height = figure.layout.height or 480
    figure.update_layout(template="simple_white", width=1100, height=height, title=name)
    figure.write_html(options.output / f"{name}.html", include_plotlyjs="cdn")
    (options.output / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"{options.output / name}.html and .json in {time.perf_counter() - start:.1f} s")
