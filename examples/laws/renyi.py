"""Rényi divergences of a selection: by Theorem 1 of docs/explanation/rdp-of-selection.md, the
smallest that are known, and how many published runs have as much.

python renyi.py
"""

from __future__ import annotations

import numpy as np

import optuna_dp as odp

SHOWN = (2.0, 8.0, 32.0)
ORDERS = np.union1d(np.geomspace(1.02, 1000.0, 300), SHOWN)  # Theorem 1 takes the best of them.
RUN, RUNS = odp.gaussian(noise_multiplier=4.0), odp.Geometric(mean=20)


def main() -> None:
    one_run = odp.Guarantee(RUN).rdp(SHOWN)
    for name, bounds in (("RandTune", (1.0, 1.0)), ("DP-HyPO", (0.75, 2.0))):
        search = odp.selection_guarantee(RUN, RUNS, density_bounds=bounds)
        old = RUNS.rdp(ORDERS, odp.Guarantee(RUN).rdp(ORDERS), bounds)
        for order, new, run in zip(SHOWN, search.rdp(SHOWN), one_run, strict=True):
            theorem_1 = old[np.searchsorted(ORDERS, order)]
            print(
                f"{name:8} order {order:2g}: Theorem 1 {theorem_1:.3f}, smallest {new:.3f}, "
                f"as much as {new / run:.1f} published runs"
            )


if __name__ == "__main__":
    main()
