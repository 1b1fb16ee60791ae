"""Makes the figures of the documentation: ``python docs/make_figures.py``. Needs Chromium."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import FloatDistribution

import optuna_dp as odp

STATIC = Path(__file__).parent / "_static"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-sync", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--hide-scrollbars", "--virtual-time-budget=5000"]
FLAGS += ["--default-background-color=00000000"]  # as the figures: none
# Pixels: small enough that a telephone, 330 wide, still shows words of 9. Drawn twice as sharp.
WIDTH, HEIGHT, WORDS, SHARPNESS = 560, 430, 16, 2
BODY_MARGIN = 8  # a browser's, on each side

TALL = {"density": 760}  # pixels: three rows, and a long legend
RUN = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)


def adaptive_study() -> optuna.Study:
    """Returns a study of DP-HyPO after twelve runs, the best of them near a rate of 0.02."""
    noise = np.random.default_rng(5)
    space = {"rate": FloatDistribution(1e-4, 1.0, log=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A seed is for pictures such as this.
        sampler = odp.DPHyPOSampler(space, trials=odp.Geometric(mean=1000), run=RUN, seed=7)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def accuracy(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
        return 0.5 + 0.4 * math.exp(-((math.log10(rate / 0.02)) ** 2)) + noise.normal(0.0, 0.02)

    study.optimize(accuracy, n_trials=12)
    return study


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is needed to draw the figures.")
    search = odp.selection_guarantee(RUN, odp.Geometric(mean=10))
    of_page = odp.selection_guarantee(odp.gaussian(noise_multiplier=4.0), odp.Geometric(mean=20))
    plan = odp.plan_budget(
        epsilon=3.0, records=1355, batch_size=64, epochs=10, pilots=(12, 3), pilot_epochs=1.6
    )
    first_study = odp.plan_budget(
        epsilon=3.0, delta=1e-5, records=4000, batch_size=64, epochs=10, pilots=4
    )
    figures = {
        "first-study": odp.visualization.plot_epsilon_by_trials(first_study),
        "profile": odp.visualization.plot_privacy_profile(search),
        "density": odp.visualization.plot_density(adaptive_study()),
        "by-trials": odp.visualization.plot_epsilon_by_trials(plan),
        "renyi-by-trials": odp.visualization.plot_renyi_by_trials(of_page, order=2.0),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in figures.items():
            height = TALL.get(name, HEIGHT)
            figure.update_layout(width=WIDTH, height=height, font_size=WORDS)
            margin = 250 if name in TALL else 150
            figure.update_layout(legend_font_size=WORDS, margin_b=margin)
            page = Path(folder) / f"{name}.html"
            figure.write_html(page, config={"displayModeBar": False})
            shot = f"--screenshot={STATIC / name}.png"
            size = f"--window-size={WIDTH + 2 * BODY_MARGIN},{height + 2 * BODY_MARGIN}"
            scale = f"--force-device-scale-factor={SHARPNESS}"
            command = [chromium, *FLAGS, size, scale, shot, page.as_uri()]
            subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
