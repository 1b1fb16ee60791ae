"""How many runs of DP-HyPO should be drawn from the prior? Equal total epsilon, by simulation.

Run it with ``python examples/dp_hypo/startup.py``; half an hour of one core. It writes
``results/startup.json``. Start-up runs cost less, so that all runs may have less noise; they learn
nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
from experiments import DELTA, OURS, RESULTS, run_of, score_of, searches
from simulate import interval, over_t

import optuna_dp as odp
from optuna_dp.planning.calibration import NOISE
from optuna_dp.planning.target_search import largest_within

MEAN, BOUNDS, REPETITIONS = 10, (0.75, 2.0), 150


def noise_for(name: str, epsilon: float, startup: int) -> float:
    """Noise multiplier at which the whole search costs ``epsilon``."""

    def cost(u: float) -> float:
        run = run_of(name)(NOISE.value(u))
        search = odp.selection_guarantee(
            run, odp.Geometric(MEAN), density_bounds=BOUNDS, startup_runs=startup
        )
        return search.epsilon(DELTA)

    start = replace(NOISE, start=-np.log(3.0 / epsilon + 0.5))
    return NOISE.value(largest_within(cost, epsilon, start, tolerance=0.02).at)


def main() -> None:
    found = []
    for name, epsilon in (("digits", 3.0), ("digits", 1.0), ("breast_cancer", 1.0)):
        for startup in (1, 2, 4, 8, 16):
            noise = noise_for(name, epsilon, startup)
            curves = searches(
                score_of(name, noise),
                replace(OURS, bounds=BOUNDS),
                40,
                5 * MEAN,
                REPETITIONS,
                np.random.default_rng(startup),
                startup=startup,
            )
            mean, half = interval(over_t(curves, odp.Geometric(MEAN)))
            print(
                f"{name}, epsilon {epsilon:g}, {startup} from the prior: noise {noise:.3f}, "
                f"accuracy {mean:.4f} ± {half:.4f}",
                flush=True,
            )
            found.append(
                {
                    "data": name,
                    "epsilon": epsilon,
                    "startup_runs": startup,
                    "noise": round(noise, 3),
                    "accuracy": [round(mean, 4), round(half, 4)],
                }
            )
    with open(RESULTS / "startup.json", "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
