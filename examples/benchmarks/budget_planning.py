"""How long plan_budget takes, in seconds of CPU, by size of the data, batch and epochs.

python examples/benchmarks/budget_planning.py
"""

from __future__ import annotations

import itertools
import time

import optuna_dp as odp

RECORDS = (1348, 20_000, 327_346, 1_000_000)
BATCHES = (64, 256, 1024)
EPOCHS = (1, 5, 20)
EPSILONS = (0.3, 1.0, 8.0)
SHAPES = ({}, {"pilots": (24, 6, 2)}, {"pilots": 8, "spare_runs": 1})


def seconds(**given: object) -> float:
    start = time.process_time()
    odp.plan_budget(**given)
    return time.process_time() - start


def main() -> None:
    odp.plan_budget(epsilon=1.0, records=100, batch_size=10, epochs=1)  # imports
    print("| records | batch | steps (1, 5, 20 epochs) | median | slowest |")
    print("| --- | --- | --- | --- | --- |")
    for records, batch in itertools.product(RECORDS, BATCHES):
        found = sorted(
            seconds(epsilon=epsilon, records=records, batch_size=batch, epochs=epochs, **shape)
            for epochs, epsilon, shape in itertools.product(EPOCHS, EPSILONS, SHAPES)
        )
        steps = ", ".join(f"{round(epochs * records / batch):,}" for epochs in EPOCHS)
        median = found[len(found) // 2]
        print(f"| {records:,} | {batch} | {steps} | {median:.2f} | {found[-1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
