"""The digits by ``odp.train`` without another word: one run at the plan's batch, no score.

::

    python examples/known_without_data/digits_by_train.py        # a minute of one core
"""

from __future__ import annotations

import warnings

import numpy as np
import optuna
from sklearn.datasets import load_digits

import optuna_dp as odp

RECORDS, REPETITIONS = 1348, 24
INPUTS = np.hstack([odp.made_up_inputs(*[(0, 1)] * 64), np.ones((256, 1))])
LINEAR = odp.Schedule("linear")
ARMS = {
    "as it is (SGD), `inputs=` of the pixels": {"inputs": INPUTS},
    "as it is, without `inputs`": {},
    "Adam": {"inputs": INPUTS, "optimizer": "adam"},
    "a linear decay": {"inputs": INPUTS, "schedule": LINEAR},
}


def accuracy(epsilon: float, repetition: int, arm: str) -> float:
    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 16.0, np.ones((len(x), 1))])
    private = np.random.default_rng([repetition, 0]).random(len(x)) >= 0.25
    plan = odp.plan_budget(
        epsilon=epsilon, records=RECORDS, epochs=10, work=4, pilots=0, score=None
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    model = odp.SoftmaxRegression(65, 10)
    odp.train(odp.start_run(study.ask()), model, (x[private], y[private]), **ARMS[arm])
    return 100.0 * float(np.mean(model.predict(x[~private]) == y[~private]))


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # few studies of one run each: known
    print("| | epsilon 1 | 3 | 8 |\n|---|---|---|---|")
    for arm in ARMS:
        texts = []
        for epsilon in (1.0, 3.0, 8.0):
            found = [accuracy(epsilon, repetition, arm) for repetition in range(REPETITIONS)]
            half = 1.96 * np.std(found, ddof=1) / REPETITIONS**0.5
            texts.append(f"{np.mean(found):.1f} ± {half:.1f}")
        print(f"| {arm} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
