"""Makes opening.svg and the figures of gallery.md: ``python docs/make_gallery_figures.py``.

They are calculated, not measured. Needs matplotlib, which the docs extra brings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq

import optuna_dp as odp
from optuna_dp.voting import VotePlan

STATIC = Path(__file__).parent / "_static"
BLUE, GREEN, ORANGE = "#0072B2", "#009E73", "#E69F00"


# Inches, and points of the words: a telephone shows the figure at 60 %, and words of 9 pixels.
SIZE, WORDS, SMALL = (5.6, 3.2), 12, 11


def figure(name: str, draw: Any) -> None:
    """Draws one figure, which can be read at page width and on a telephone."""
    drawn, axes = plt.subplots(figsize=SIZE, layout="constrained")
    draw(axes)
    drawn.savefig(STATIC / f"{name}.svg", metadata={"Date": None})
    plt.close(drawn)


def opening(axes: Any) -> None:
    """What the same training costs, alone and tuned: the picture of the README."""
    records, batch, epochs, noise, runs = 60_000, 256, 10, 1.0, 10
    training = odp.dp_sgd(
        noise_multiplier=noise, sample_rate=batch / records, steps=epochs * records // batch
    )

    def plan_noise(epsilon: float) -> float:
        plan = odp.plan_budget(
            epsilon=epsilon, delta=1e-5, records=records, batch_size=batch, epochs=epochs
        )
        return plan.final.noise_multiplier - noise

    search = odp.selection_guarantee(training, odp.Geometric(mean=runs))
    costs = {
        "one training, nothing tuned": odp.Guarantee(training).epsilon(1e-5),
        "15 noisy pilots, then this training": brentq(plan_noise, 1.0, 2.0, xtol=1e-3),
        "the best of a secret number, 10 on average": search.epsilon(1e-5),
        "10 trainings, the best one shown, all charged": odp.Guarantee(
            odp.compose(*[training] * runs)
        ).epsilon(1e-5),
    }
    places = np.arange(len(costs))[::-1]
    bars = axes.barh(
        places - 0.18, list(costs.values()), height=0.36, color=["#7a7a7a", GREEN, BLUE, ORANGE]
    )
    axes.bar_label(bars, fmt=" %.2f", fontsize=WORDS)
    for place, name in zip(places, costs, strict=True):
        axes.annotate(f" {name}", (0, place + 0.06), va="bottom", fontsize=SMALL)
    axes.set(yticks=[], xlim=(0, 1.12 * max(costs.values())), ylim=(-0.5, len(costs) - 0.45))
    axes.set_xlabel("epsilon, at delta 1e-5")


def last_run(axes: Any) -> None:
    """How little the pilots take from the last run."""
    targets = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    for pilots, colour, label in (
        (0, "#7a7a7a", "one run, nothing chosen"),
        ("auto", BLUE, "the last run after 15 pilots"),
    ):
        noise = [
            odp.plan_budget(
                epsilon=float(epsilon), records=20_000, batch_size=512, epochs=10,
                pilots=pilots, noise_increase=None,
            ).final.noise_multiplier
            for epsilon in targets
        ]  # fmt: skip
        axes.plot(targets, noise, "o-", color=colour, label=label)
    axes.set(xlabel="epsilon for everything", ylabel="noise multiplier", ylim=(0, None))
    axes.legend(frameon=False)


def memory(axes: Any) -> None:
    """Memory by the formula of fine-tuning.md."""
    models = {
        "GPT-2 small": (124e6, 0.3e6, 768, 12),
        "Qwen2.5 0.5B": (494e6, 0.54e6, 896, 24),
        "Llama 3.2 1B": (1.24e9, 0.85e6, 2048, 16),
        "Mistral 7B": (7.2e9, 3.4e6, 4096, 32),
    }

    def gigabytes(weights: float, trained: float, width: int, depth: int) -> float:
        batch, length = 16, 128
        per_record = 4 * trained + 64 * length * width * depth
        return (4 * weights + 16 * trained + batch * per_record) / 1e9

    for shift, colour, label, trains_all in (
        (0.2, GREEN, "LoRA", False),
        (-0.2, ORANGE, "all weights", True),
    ):
        sizes = [gigabytes(P, P if trains_all else p, h, d) for P, p, h, d in models.values()]
        places = np.arange(len(models))[::-1] + shift
        axes.barh(places, sizes, height=0.36, color=colour, label=label)
        for place, size in zip(places, sizes, strict=True):
            # Inside its bar where the line of one GPU would cross the words.
            inside = 30 < size < 80
            axes.annotate(
                f"{size:.0f} GB " if inside else f" {size:.0f} GB",
                (size, place),
                va="center",
                ha="right" if inside else "left",
                color="black" if inside else mpl.rcParams["text.color"],
                fontsize=SMALL,
            )
    axes.set_yticks(np.arange(len(models))[::-1], list(models))
    axes.axvline(80, color="#7a7a7a", lw=1, ls="--")
    axes.annotate("one GPU of 80 GB ", (80, 3.5), ha="right", fontsize=SMALL)
    axes.set(xscale="log", xlim=(1, 3000), xlabel="memory for 16 records of 128 tokens at a time")
    axes.legend(frameon=False, loc="upper right")


def rare_class(axes: Any) -> None:
    """The noise of a recall, by how many records the class has."""
    members = np.geomspace(20, 5000, 100)
    for noise, colour in ((10.0, ORANGE), (20.0, GREEN), (40.0, BLUE)):
        # A right answer counts 1 of a range of 1, so a contribution is one half.
        axes.plot(members, 100 * noise / 2 / members, color=colour, label=f"{noise:g}")
    axes.set(xscale="log", yscale="log", xlabel="records of the rare class")
    axes.set_ylabel("noise of its recall\n(points, one deviation)")
    axes.set_xticks([20, 50, 100, 500, 1000, 5000], ["20", "50", "100", "500", "1000", "5000"])
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.legend(frameon=False, title="noise multiplier of the score")


def any_trainer(axes: Any) -> None:
    """What the best of a secret number of runs costs."""
    of_one = np.array([0.25, 0.5, 1.0, 1.5, 2.0])
    axes.plot(of_one, of_one, color="#7a7a7a", label="one run")
    for mean, colour in ((3, GREEN), (5, BLUE), (10, ORANGE)):
        total = [
            odp.selection_guarantee(odp.pure_dp(e), odp.Geometric(mean=mean)).epsilon(1e-5)
            for e in of_one
        ]
        axes.plot(of_one, total, "o-", color=colour, label=f"the best of {mean} on average")
    axes.set(xlabel="epsilon of one training (pure DP)", ylabel="epsilon of the search")
    axes.set(ylim=(0, None))
    axes.legend(frameon=False)


def clients(axes: Any) -> None:
    """How small a lead a vote sees, by the number of clients."""
    shares = np.linspace(0.0, 1.0, 51)
    for number, colour in ((50, ORANGE), (100, GREEN), (200, BLUE)):
        planned = VotePlan.calibrated(
            clients=number, candidates=100, votes=5, epsilon=1.0, delta=1e-5
        )
        chances = [100 * planned.chance(round(share * number)) for share in shares]
        axes.plot(100 * shares, chances, color=colour, label=f"{number} clients")
    axes.set(ylabel="it wins in at least (%)", ylim=(0, 104))
    axes.set_xlabel("lead of the best candidate (% of the clients)")
    axes.legend(frameon=False)


def main() -> None:
    plt.style.use(STATIC.parent / "figures.mplstyle")
    plt.rcParams.update({"font.size": WORDS, "legend.fontsize": SMALL})
    figure("opening", opening)
    for draw in (last_run, memory, rare_class, clients, any_trainer):
        figure(f"gallery-{draw.__name__.replace('_', '-')}", draw)


if __name__ == "__main__":
    main()
