"""Makes the figures of the documentation: ``python docs/make_figures.py``. Needs Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import optuna_dp as odp

STATIC = Path(__file__).parent / "_static"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-sync", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--hide-scrollbars", "--virtual-time-budget=5000"]
FLAGS += ["--default-background-color=00000000"]  # as the figures: none
# Pixels: small enough that a telephone, 330 wide, still shows words of 9. Drawn twice as sharp.
WIDTH, HEIGHT, WORDS, SHARPNESS = 560, 430, 16, 2
BODY_MARGIN = 8  # a browser's, on each side

RUN = odp.dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium is needed to draw the figures.")
    search = odp.selection_guarantee(RUN, odp.Geometric(mean=10))
    plan = odp.plan_budget(epsilon=3.0, records=1355, batch_size=64, epochs=10)
    first_study = odp.plan_budget(
        epsilon=3.0, delta=1e-5, records=4000, batch_size=64, epochs=10, pilots=4
    )
    figures = {
        "first-study": odp.visualization.plot_epsilon_by_trials(first_study),
        "profile": odp.visualization.plot_privacy_profile(search),
        "by-trials": odp.visualization.plot_epsilon_by_trials(plan),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in figures.items():
            figure.update_layout(width=WIDTH, height=HEIGHT, font_size=WORDS)
            figure.update_layout(legend_font_size=WORDS, margin_b=150)
            page = Path(folder) / f"{name}.html"
            figure.write_html(page, config={"displayModeBar": False})
            shot = f"--screenshot={STATIC / name}.png"
            size = f"--window-size={WIDTH + 2 * BODY_MARGIN},{HEIGHT + 2 * BODY_MARGIN}"
            scale = f"--force-device-scale-factor={SHARPNESS}"
            command = [chromium, *FLAGS, size, scale, shot, page.as_uri()]
            subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
