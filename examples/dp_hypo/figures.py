"""Draws the experiments from their result files; prints the tables as Markdown::

python examples/dp_hypo/figures.py             # writes SVG into docs/_static, prints tables
python examples/dp_hypo/figures.py --tables    # tables only; needs no matplotlib
python examples/dp_hypo/figures.py --folder F  # of the results in F, into F
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STATIC = HERE.parents[1] / "docs" / "_static"
PANELS = {
    "left": "digits, real runs (as MNIST)",
    "fashion": "Fashion-MNIST, the paper's network, real runs",
    "fashion E.2": "Fashion-MNIST, E.2, a process on real runs",
    "middle": "shaped like Figure 2 (as CIFAR-10)",
    "right": "shaped like Figure 3 (as federated)",
}
COLOURS = ["#4C72B0", "#DD8452", "#55A868", "#C44E52", "#8172B3", "#937860"]


def read(results: Path, part: str) -> dict[str, Any]:
    path = results / f"{part}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def grouped(entries: dict[str, Any]) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for name, entry in entries.items():
        group, _, arm = name.partition(" | ")
        groups.setdefault(group, {})[arm] = entry
    return groups


def number(pair: list[float], digits: int = 3, sign: float = 1.0) -> str:
    return f"{sign * pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def tables(results: Path) -> None:
    for panel, arms in grouped(read(results, "figure1")).items():
        sign, digits = (-1.0, 5) if panel == "right" else (1.0, 4)
        gammas = list(next(iter(arms.values()))["geometric"])
        print(f"{PANELS[panel]}, T geometric\n")
        rows = [
            [arm, *(number(e["geometric"][g], digits, sign) for g in gammas)]
            for arm, e in arms.items()
        ]
        print(table(["gamma", *gammas], rows))
    budgets = read(results, "budgets")
    if budgets:
        names = list(dict.fromkeys(name for entry in budgets.values() for name in entry))
        rows = [[k, *(f"{e[m]:.2f}" if m in e else "" for m in names)] for k, e in budgets.items()]
        print(table(["setting", *names], rows))
    for group, arms in grouped(read(results, "equal")).items():
        rows = [
            [
                arm,
                str(e.get("noise", "")),
                str(e["runs"]),
                number(e["accuracy"]) if "accuracy" in e else e.get("impossible", "beyond 32"),
                str(e.get("P[T <= 3]", "")),
            ]
            for arm, e in arms.items()
            if isinstance(e, dict)
        ]
        if rows:
            print(f"{group}\n")
            print(table(["arm", "noise", "mean runs", "accuracy", "P[T <= 3]"], rows))
    choices = grouped(read(results, "choices"))
    if choices:
        names = list(dict.fromkeys(arm for arms in choices.values() for arm in arms))
        rows = []
        for name in names:
            cells = []
            for ground, arms in choices.items():
                loss = "Figure 3" in ground
                cells.append(
                    number(arms[name], 4 if loss else 3, -1.0 if loss else 1.0)
                    if name in arms
                    else ""
                )
            rows.append([name, *cells])
        print(table(["change", *choices], rows))
    for group, arms in grouped(read(results, "real")).items():
        rows = [
            [arm, str(e["noise"]), str(e["runs"]), str(e["reps"])]
            + [number(e[column]) for column in ("accuracy", "simulated")]
            for arm, e in arms.items()
        ]
        print(f"real: {group}\n")
        print(table(["arm", "noise", "mean runs", "studies", "accuracy", "simulated"], rows))


def figure_1(results: Path, static: Path) -> None:
    import matplotlib.pyplot as plt

    groups = grouped(read(results, "figure1"))
    figure, axes = plt.subplots(len(groups), 1, figsize=(5.2, 3.6 * len(groups)))
    for axis, panel in zip(axes, (p for p in PANELS if p in groups), strict=True):
        sign = -1.0 if panel == "right" else 1.0
        for colour, (arm, entry) in zip(COLOURS, groups[panel].items(), strict=False):
            t = [int(k) for k in entry["fixed"]]
            mean = [sign * v[0] for v in entry["fixed"].values()]
            half = [v[1] for v in entry["fixed"].values()]
            axis.plot(t, mean, color=colour, label=arm)
            low = [m - h for m, h in zip(mean, half, strict=True)]
            high = [m + h for m, h in zip(mean, half, strict=True)]
            axis.fill_between(t, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(PANELS[panel], fontsize=10)
        axis.set_xscale("log")
        axis.set_xlabel("runs T")
        axis.set_ylabel("loss" if panel == "right" else "true accuracy of the chosen setting")
        if panel == "right":
            axis.set_yscale("log")
        axis.legend(fontsize=9)
    save(figure, static / "dp-hypo-figure-1.svg")


def landscape_figure(static: Path) -> None:
    import matplotlib.pyplot as plt
    from simulate import fashion, fashion_e2, like_figure_2, like_figure_3, measured

    shown = [
        measured("digits", 0.7),
        measured("digits", 4.0),
        measured("breast_cancer", 2.0),
        fashion(0.64),
        fashion_e2(0.65),
        like_figure_2(0.65),
        like_figure_3(),
    ]
    figure, axes = plt.subplots(-(-len(shown) // 2), 2, figsize=(6.8, 3.0 * -(-len(shown) // 2)))
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, landscape in zip(axes.flat, shown, strict=False):
        image = axis.imshow(landscape.mean.T, origin="lower", aspect="auto", extent=(0, 1, 0, 1))
        axis.set_title(landscape.name, fontsize=9)
        axis.set_xlabel("learning rate (log)")
        axis.set_ylabel("clipping norm" if "3" not in landscape.name else "learning rate 2")
        figure.colorbar(image, ax=axis)
    save(figure, static / "dp-hypo-landscapes.svg")


def save(figure: object, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()  # type: ignore[attr-defined]
    figure.savefig(path, metadata={"Date": None})  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="print the tables only")
    parser.add_argument("--folder", type=Path, help="results in it, figures into it")
    options = parser.parse_args()
    results = options.folder or HERE / "results"
    static = options.folder or STATIC
    tables(results)
    if not options.tables:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot

        pyplot.style.use(STATIC.parent / "figures.mplstyle")
        figure_1(results, static)
        landscape_figure(static)


if __name__ == "__main__":
    main()
