"""Runs every reproduction of the papers in its quick form, and prints what came out.

    python examples/reproduce.py --output FOLDER          # some minutes on two cores
    python examples/reproduce.py --output FOLDER --full   # as the pages report them; hours

Which figure or table of which paper each one is: docs/explanation/reproductions.md. Needs the
extras visualization, federated and docs; what misses one is said and left out, with exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Script, arguments of the quick form, arguments that name the folder, packages it needs.
SCRIPTS = (
    ("laws/figures.py papernot_steinke", "--quick", "--output", ("plotly",)),
    ("laws/figures.py koskela", "--quick", "--output", ("plotly",)),
    ("dp_hypo/experiments.py figure1", "--quick", "--results", ()),
    ("dp_hypo/experiments.py budgets", "--quick", "--results", ()),
    ("dp_hypo/figures.py", "", "--folder", ("matplotlib",)),
    ("laws/renyi.py", "", "", ()),
    ("laws/misses.py", "", "", ()),
    ("propose_test/table_1.py", "", "", ()),
    ("propose_test/theorem_2.py", "", "", ()),
    ("propose_test/revisiting_figure_1.py", "--quick", "--output", ("plotly",)),
    ("propose_test/revisiting_figure_2.py", "--quick", "--output", ("plotly",)),
    ("propose_test/constant_overhead_figure_3.py", "--quick", "--output", ("plotly",)),
    ("propose_test/constant_overhead_figure_4.py", "--quick", "--output", ("plotly",)),
    ("dp_hype/tables.py", "", "", ("torch",)),
    ("dp_hype/figure_2.py", "--quick", "--output", ("plotly",)),
    ("dp_hype/figure_3.py", "--quick", "--output", ("plotly", "flwr")),
    ("dp_hype/distributions.py", "--quick", "--output", ("plotly",)),
    ("dp_hype/digits.py", "--quick", "--output", ("plotly", "flwr")),
    ("dp_hype/fashion_votes.py", "--quick", "--output", ("matplotlib",)),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("figures"), help="folder to write to")
    parser.add_argument("--full", action="store_true", help="not the quick forms")
    parser.add_argument("--only", default="", help="scripts whose names contain this")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    folder = str(options.output.resolve())
    left_out = []
    for script, quick, named, needs in SCRIPTS:
        if options.only not in script:
            continue
        missing = [package for package in needs if importlib.util.find_spec(package) is None]
        if missing:
            left_out.append(f"{script}: {', '.join(missing)} is not installed")
            continue
        file, *words = script.split()
        words += [quick] if quick and not options.full else []
        words += [named, folder] if named else []
        print(f"\n=== {script}", flush=True)
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        subprocess.run([sys.executable, str(HERE / file), *words], check=True, env=environment)
    for text in left_out:
        print(f"left out: {text}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
