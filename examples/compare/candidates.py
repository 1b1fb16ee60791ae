"""Candidates tried without privacy on parts of the records, for a private choice among them.

    python candidates.py digits wine         # adds them to utilities.json, for replays

Each of k parts trains every candidate on four fifths of its records and scores it on the rest, so
that one record moves one of k scores. The noise of the release's training is added to the averaged
gradients, so that candidates are judged under the noise that they will meet; nothing is paid for.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
from landscape import DELTA, bare_run
from task import HERE, Array, Task, load

import optuna_dp as odp
from optuna_dp.planning.batch import noise_of_training
from optuna_dp.runs.run import Run

FILE = HERE / "utilities.json"
BATCH = 64


def parts(task: Task) -> int:
    """About 200 records in each; from ten parts, however small, to a hundred."""
    return int(np.clip(task.records // 200, 10, 100))


def utilities(task: Task, private: Array, run: Run) -> Array:
    """Scores over the task's reach, (candidates, parts)."""
    k, every = parts(task), task.configurations()
    part_of = np.asarray(odp.partition(len(private), k))
    found = np.zeros((len(every), k))
    for part in range(k):
        own = private[part_of == part]
        if len(own) < 5:
            continue  # the worst score
        cut = len(own) - len(own) // 5
        learned, held = own[:cut], own[cut:]
        batch = min(BATCH, cut)
        # Noise over batch as in the release's training, and so the same learning rate.
        alike = replace(
            run,
            noise_multiplier=run.noise_multiplier * batch / run.batch_size,
            sample_rate=batch / cut,
            batch_size=float(batch),
        )
        for i, params in enumerate(every):
            rng = np.random.default_rng()
            predict = task.train(task.x[learned], task.y[learned], params, alike, rng)
            logits = predict(task.x[held]).astype(np.float64)
            found[i, part] = task.values(logits, held).mean() / task.reach
    return np.clip(found, 0.0, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--repetitions", type=int, default=4)
    options = parser.parse_args()
    for name in options.tasks:
        task = load(name)
        # At the largest epsilon: at smaller ones the noise of the choice hides everything.
        rate = task.batch / task.records
        run = bare_run(
            task, noise_of_training(max(task.epsilons), DELTA, rate, task.steps), task.steps
        )
        means = [
            utilities(task, task.split(r)[0], run).mean(axis=1).round(4).tolist()
            for r in range(options.repetitions)
        ]
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        kept[name] = means
        FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n")
        print(name, means[0], flush=True)


if __name__ == "__main__":
    main()
