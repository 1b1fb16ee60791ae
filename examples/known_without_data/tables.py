"""The page's numbers from curves.csv: ``python tables.py``; with ``--figure`` its figure too.

A rule's loss on a curve is the best accuracy of the curve's grid less the accuracy at the rule's
rate, both means over the same repetitions; between two rates of the grid it is interpolated. The
best of a grid is a little lucky, so losses are a little too large.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rehearsed import LARGEST_STEP, LINEAR_SIZE, SIZE

FOLDER = Path(__file__).parent
FIGURE = FOLDER.parents[1] / "docs" / "_static" / "known-without-data.svg"
BOUNDS = (0.08, 0.6)
# Within so many points of its best a curve counts as flat; its middle is "the best rate".
FLAT = 0.5
CONSTANTS = np.geomspace(0.02, 6.0, 100)
USUAL = {"sgd": 0.1, "momentum": 0.01, "adam": 0.001, "adamw": 0.001}


@dataclass
class Curve:
    """Accuracy over the noise of a weight, at fixed everything else."""

    task: str
    model: str
    optimiser: str
    epsilon: float
    batch: int
    steps: int
    noise: npt.NDArray[np.float64] = field(repr=False)
    rate: npt.NDArray[np.float64] = field(repr=False)
    size: npt.NDArray[np.float64] = field(repr=False)
    size_on_data: npt.NDArray[np.float64] = field(repr=False)
    accuracy: npt.NDArray[np.float64] = field(repr=False)

    def loss_at(self, noise: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Points below the best of the grid at a noise of a weight."""
        found = np.interp(np.log(noise), np.log(self.noise), self.accuracy)
        return np.asarray(self.accuracy.max() - found)

    def noise_of_size(self, size: npt.ArrayLike, on_data: bool = False) -> npt.NDArray[np.float64]:
        """Noise of a weight at which the logits' change has a size, within BOUNDS."""
        known = np.maximum.accumulate(self.size_on_data if on_data else self.size)
        found = np.exp(np.interp(np.log(size), np.log(known), np.log(self.noise)))
        return np.clip(found, *BOUNDS)

    def best(self) -> float:
        """Middle of the noises that are as good as the best, on a logarithmic scale."""
        flat = np.log(self.noise[self.accuracy >= self.accuracy.max() - FLAT])
        return math.exp(float(flat.mean()))


def read(name: str = "curves.csv") -> list[Curve]:
    """Returns all curves of a file."""
    with (FOLDER / name).open() as file:
        rows = list(csv.DictReader(file))
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["curve"]].append(row)
    found = []
    for group in groups.values():
        first = group[0]
        columns = ("noise_per_weight", "learning_rate", "size", "size_on_data", "accuracy")
        found.append(
            Curve(
                first["task"],
                first["model"],
                first["optimiser"],
                float(first["epsilon"]),
                int(first["batch"]),
                int(first["steps"]),
                *(np.array([float(row[name]) for row in group]) for name in columns),
            )
        )
    return found


Losses = npt.NDArray[np.float64]


def losses_by_constant(curves: list[Curve], rule: str) -> Losses:
    """(curves, constants): what each constant of a rule loses."""
    if rule == "noise of a weight":
        return np.array([curve.loss_at(CONSTANTS) for curve in curves])
    on_data = rule.endswith("records")
    return np.array([curve.loss_at(curve.noise_of_size(CONSTANTS, on_data)) for curve in curves])


def left_out(curves: list[Curve], rule: str) -> tuple[Losses, dict[str, float]]:
    """What a rule loses, its constant chosen on the other tasks, and the constants."""
    table = losses_by_constant(curves, rule)
    tasks = np.array([curve.task for curve in curves])
    found, constants = np.zeros(len(curves)), {}
    for task in sorted(set(tasks)):
        others = [name for name in set(tasks) if name != task]
        # Every task counts as much as any other.
        means = np.mean([table[tasks == name].mean(axis=0) for name in others], axis=0)
        at = int(np.argmin(means))
        constants[task] = float(CONSTANTS[at])
        found[tasks == task] = table[tasks == task, at]
    return found, constants


def shipped(curve: Curve) -> float:
    """Loss of what ``rehearse`` does: the target by model, and no larger rate of SGD than 5."""
    noise = float(curve.noise_of_size(LINEAR_SIZE if curve.model == "softmax" else SIZE))
    largest = {"sgd": LARGEST_STEP, "momentum": 0.1 * LARGEST_STEP}.get(curve.optimiser)
    if largest is not None:
        at = np.interp(math.log(largest), np.log(curve.rate), np.log(curve.noise))
        noise = min(noise, math.exp(at))
    return float(curve.loss_at(noise))


def summary(losses: Losses) -> str:
    return (
        f"{losses.mean():.1f} | {np.median(losses):.1f} | {np.quantile(losses, 0.9):.1f} | "
        f"{losses.max():.1f}"
    )


def usual(curve: Curve) -> float:
    """Loss at the rates that packages and tutorials start from."""
    at = np.interp(np.log(USUAL[curve.optimiser]), np.log(curve.rate), np.log(curve.noise))
    return float(curve.loss_at(math.exp(at)))


def by(curves: list[Curve], losses: dict[str, Losses], key: str) -> None:
    values = [getattr(curve, key) for curve in curves]
    print(f"\n| {key} | curves | {' | '.join(losses)} | best noise of a weight | best size |")
    print("|---" * (len(losses) + 4) + "|")
    for value in sorted(set(values)):
        own = np.array([v == value for v in values])
        noises = [math.log(c.best()) for c, mine in zip(curves, own, strict=True) if mine]
        sizes = [
            np.interp(math.log(c.best()), np.log(c.noise), np.log(c.size))
            for c, mine in zip(curves, own, strict=True)
            if mine
        ]
        shown = " | ".join(f"{found[own].mean():.1f}" for found in losses.values())
        print(
            f"| {value} | {own.sum()} | {shown} | {math.exp(np.mean(noises)):.2f} | "
            f"{math.exp(np.mean(sizes)):.2f} |"
        )


def tables() -> None:
    curves = read()
    print(f"{len(curves)} curves of {len({c.task for c in curves})} tasks\n")
    print("| rule | constant | mean | median | 90 % | worst | ln(best / rule): mean, sd |")
    print("|---|---|---|---|---|---|---|")
    shown: dict[str, Losses] = {}
    for rule in ("noise of a weight", "rehearsal", "rehearsal on records"):
        losses, constants = left_out(curves, rule)
        used = np.array([constants[c.task] for c in curves])
        if rule == "noise of a weight":
            noises = used
        else:
            noises = np.array(
                [
                    float(c.noise_of_size(size, rule.endswith("records")))
                    for c, size in zip(curves, used, strict=True)
                ]
            )
        ratio = np.log([c.best() for c in curves]) - np.log(noises)
        between = f"{min(constants.values()):.2f} to {max(constants.values()):.2f}"
        print(
            f"| {rule}, task left out | {between} | {summary(losses)} | "
            f"{ratio.mean():.2f}, {ratio.std():.2f} |"
        )
        shown[rule] = losses
    for constant in (0.15, 0.2, 0.3):
        losses = np.array([float(c.loss_at(constant)) for c in curves])
        print(f"| noise of a weight | {constant} | {summary(losses)} | |")
    for constant in (0.8, 1.0, 1.2, 1.7):
        losses = np.array([float(c.loss_at(c.noise_of_size(constant))) for c in curves])
        print(f"| rehearsal | {constant} | {summary(losses)} | |")
    shown["as shipped"] = np.array([shipped(c) for c in curves])
    targets = f"{SIZE}, linear {LINEAR_SIZE}"
    print(f"| rehearsal with bounds, as it was | {targets} | {summary(shown['as shipped'])} | |")
    shown["usual rates"] = np.array([usual(c) for c in curves])
    print(f"| SGD 0.1, momentum 0.01, Adam 0.001 | | {summary(shown['usual rates'])} | |")
    for key in ("task", "model", "optimiser", "epsilon", "steps"):
        by(curves, shown, key)
    # Normal inputs in place of one-hot blocks: 132 features of length 11.5, not 5 of length 2.3.
    flights = [c for c in curves if c.task == "flights carrier" and c.model == "softmax"]
    wrong = [float(c.loss_at(LINEAR_SIZE / math.sqrt(132.0 * 15.0 / 16.0))) for c in flights]
    right = [shipped(c) for c in flights]
    print(
        f"\nflights, softmax, {len(flights)} curves: {np.mean(right):.1f} points lost; "
        f"{np.mean(wrong):.1f} if one-hot blocks are made up as normal features"
    )
    worst = np.argsort(-shown["rehearsal"])[:8]
    print("\nThe rehearsal's worst:")
    for place in worst:
        print(f"  {shown['rehearsal'][place]:.1f}  {curves[place]}")


def figure() -> None:
    """Draws the page's figure; needs matplotlib."""
    import matplotlib.pyplot as plt

    plt.style.use(FOLDER.parents[1] / "docs" / "figures.mplstyle")
    colours = {"sgd": "#4477aa", "momentum": "#ee6677", "adam": "#228833", "adamw": "#aa9944"}
    lines = {1.0: ":", 3.0: "--", 8.0: "-"}
    plt.rcParams.update({"font.size": 12, "legend.fontsize": 11, "axes.titlesize": 12})
    chart, axes_by_name = plt.subplot_mosaic(
        [["rate", "noise"], ["losses", "losses"]], figsize=(6.6, 7.0), layout="constrained"
    )
    left, middle, right = (axes_by_name[name] for name in ("rate", "noise", "losses"))
    for curve in read("figure.csv"):
        for axes, at in ((left, curve.rate), (middle, curve.noise)):
            axes.plot(
                at,
                curve.accuracy,
                lines[curve.epsilon],
                color=colours[curve.optimiser],
                linewidth=1.5,
                label=curve.optimiser if curve.epsilon == 8.0 else None,
            )
    left.set(xscale="log", xlabel="learning rate", ylabel="accuracy, %", title="digits, softmax")
    middle.set(xscale="log", xlabel="noise of a weight", title="the same curves")
    optimisers, names = left.get_legend_handles_labels()
    for epsilon, look in lines.items():
        optimisers += plt.plot([], [], look, color="#7a7a7a")
        names.append(f"epsilon {epsilon:g}")
    # Above all panels, where no curve runs.
    chart.legend(optimisers, names, loc="outside upper center", ncols=4)
    curves = read()
    noises = np.geomspace(0.02, 2.6, 60)
    losses = np.array([curve.loss_at(noises) for curve in curves])
    for share, colour in ((0.5, "#4477aa"), (0.75, "#ee6677"), (0.9, "#228833")):
        right.plot(
            noises,
            np.quantile(losses, share, axis=0),
            color=colour,
            label=f"{share:.0%} of curves are below",
        )
    right.set(
        xscale="log",
        ylim=(0, 30),
        xlabel="noise of a weight",
        ylabel="points below the best",
        title=f"{len(curves)} curves of all tasks",
    )
    right.legend()
    chart.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", action="store_true")
    if parser.parse_args().figure:
        figure()
    else:
        tables()
