"""How often the checks accuse honest trainings, and how often they find planted faults.

Softmax regressions by DP-SGD in numpy, of random size, noise and hyperparameters; each is checked
as an objective and audited as a training, both with its records.

    OMP_NUM_THREADS=1 python examples/audits/honest_trainings.py --tries 200

``README.md`` beside it has what it found.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import optuna_dp as odp
from optuna_dp.testing import audit_training

NORM = 0.5


def records(rng, size, features, classes):
    y = rng.integers(0, classes, size)
    return 0.5 * rng.normal(size=(classes, features))[y] + rng.normal(size=(size, features)), y


def probabilities(weights, x):
    logits = np.exp(x @ weights - (x @ weights).max(axis=1, keepdims=True))
    return logits / logits.sum(axis=1, keepdims=True)


def train(canaries, data, *, noise, rate, steps, lr, classes, fault=False):
    x, y = data
    rng = np.random.default_rng()
    weights = np.zeros((x.shape[1], classes))
    for _ in range(steps):
        batch = rng.random(len(x)) < rate
        error = probabilities(weights, x[batch]) - np.eye(classes)[y[batch]]
        each = (x[batch][:, :, None] * error[:, None, :]).reshape(-1, weights.size)
        each = each if canaries is None else canaries.examples(each, NORM)
        norms = np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12)
        each = each if fault else each * np.minimum(1, NORM / norms)
        noisy = each.sum(axis=0) + rng.normal(0, noise * NORM, weights.size)
        noisy = noisy if canaries is None else canaries.observe(noisy)
        weights = weights - lr / (rate * len(x)) * noisy.reshape(weights.shape)
    return weights


def objective(trial, data, *, size, **settings):
    lr = trial.suggest_float("lr", 0.1, 4.0, log=True)
    weights = train(None, data, lr=lr, **settings)
    right = probabilities(weights, np.asarray(data[0])).argmax(axis=1) == data[1]
    return odp.scoring.private_accuracy(right, size=size, noise_multiplier=8.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--unclipped", action="store_true", help="forget to clip")
    arguments = parser.parse_args()
    rng, faults, hints, violates, seconds = np.random.default_rng(), 0, 0, 0, []
    for _ in range(arguments.tries):
        begun = time.process_time()
        size, classes = int(rng.integers(60, 400)), int(rng.integers(2, 5))
        data = records(rng, size, int(rng.integers(3, 20)), classes)
        noise, rate = float(rng.uniform(0.5, 3.0)), float(rng.uniform(0.05, 0.4))
        settings = {
            "noise": noise,
            "rate": rate,
            "steps": int(rng.integers(5, 40)),
            "classes": classes,
            "fault": arguments.unclipped,
        }
        event = odp.compose(
            odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=settings["steps"]),
            odp.scoring.score_event(8.0),
        )
        report = odp.check_objective(
            lambda trial, given, n=size, s=settings: objective(trial, given, size=n, **s),
            event,
            data=data,
        )
        found = audit_training(
            lambda canaries, given, s=settings: train(canaries, given, lr=1.0, **s),
            event,
            access="gradients",
            data=data,
        )
        faults += not report.ok
        hints += bool(report.ok and report.findings)
        violates += found.verdict == "violates"
        seconds.append(time.process_time() - begun)
        if report.findings or found.verdict == "violates":
            print(settings, size, report, found, sep="\n", flush=True)
    print(
        f"Of {arguments.tries} trainings {faults} were said to have faults by check_objective "
        f"({hints} hints), {violates} to violate by audit_training; "
        f"{np.mean(seconds):.2f} s of CPU time each."
    )


if __name__ == "__main__":
    main()
