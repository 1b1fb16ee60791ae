"""One run at the rehearsed rate, with the same computing spent in few or many steps::

    python examples/headline/steps.py digits 12 1 3 8          # data, repetitions, epsilons
    python examples/headline/steps.py flights 2 0.1 0.3 1

Splits are none of the comparison's. Computing is four times the usual one.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import engine
import numpy as np
from rates import DELTA, NORM, WORK, rehearsed
from tasks import size_of, split

import optuna_dp as odp
from optuna_dp.planning.batch import noise_of_training

STEPS = (75, 150, 300, 600, 1200)
FIRST_REPETITION = 1000


def accuracy(name: str, repetition: int, epsilon: float, steps: int) -> float:
    """In per cent, on the test records."""
    size, records = size_of(name), split(name, repetition)
    batch = min(size.records, size.epochs * WORK * size.records / steps)
    rate = batch / size.records
    noise = noise_of_training(epsilon, DELTA, rate, steps)
    center = rehearsed(replace(size, batch=batch, epochs=rate * steps), noise)
    weights = engine.train(
        size.model,
        *records.private,
        [
            odp.learning_rate(
                noise_multiplier=noise, steps=steps, batch_size=batch, noise_per_weight=center
            )
        ],
        [NORM],
        noise_multiplier=noise,
        sample_rate=rate,
        steps=steps,
        batch=batch,
    )
    return 100.0 * float(engine.accuracies(weights, *records.test)[0])


def main(name: str, repetitions: str, *epsilons: str) -> None:
    print("epsilon, steps: accuracy, standard error")
    for epsilon in epsilons:
        for steps in STEPS:
            found = [
                accuracy(name, FIRST_REPETITION + r, float(epsilon), steps)
                for r in range(int(repetitions))
            ]
            error = np.std(found, ddof=1) / len(found) ** 0.5
            print(f"{epsilon}, {steps}: {np.mean(found):.1f}, {error:.1f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
