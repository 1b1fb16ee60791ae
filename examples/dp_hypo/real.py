"""Do the simulations tell the truth? The same arms with real training, end to end::

    python examples/dp_hypo/real.py real
    python examples/dp_hypo/real.py real --quick --results FOLDER

Every run trains a softmax regression by DP-SGD (``landscapes.train``), scores it with
:func:`optuna_dp.scoring.private_accuracy`, and goes through :class:`optuna_dp.RandTuneSampler` in
an Optuna study in memory and through :func:`optuna_dp.release`, with the operating system's
entropy: another execution gives other numbers within the intervals. The result of a study is the
mean held-out accuracy of sixteen trainings with the released setting. A record is trained on or
scored on, never both, so a run costs the worse of the two (:func:`optuna_dp.worst_case`), and
scores have about as much noise as that makes free. ``simulated`` is the same arm, same noise, same
score noise, on the landscape.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import optuna
from experiments import DELTA, Results, run_of, run_parts
from landscapes import EPOCHS, Task, correct, load, train
from optuna.distributions import FloatDistribution
from simulate import interval, measured, over_t, uniform

import optuna_dp as odp

SPACE: dict[str, Any] = {
    "learning_rate": FloatDistribution(1e-4, 10.0, log=True),
    "clipping_norm": FloatDistribution(0.3, 6.0),
}
PLACES = (("digits", 3.0), ("breast_cancer", 1.0))
MEANS = (10, 30)
AGAIN = 16
REPS = 40


@cache
def task_of(name: str) -> Task:
    return load(name)


def score_noise(name: str, noise: float) -> float:
    """A noise multiplier of the score that costs about as much as the training, or less."""
    task = task_of(name)
    return float(1.2 * noise / (task.sample_rate * np.sqrt(task.steps(EPOCHS))))


def event(name: str, noise: float) -> Any:
    return odp.worst_case(run_of(name)(noise), odp.scoring.score_event(score_noise(name, noise)))


def models(name: str, params: dict[str, Any], count: int, noise: float) -> tuple[Any, Any]:
    """The task and the weights of ``count`` trainings with a setting."""
    task, rng = task_of(name), np.random.default_rng(secrets.randbits(256))
    ones = np.ones(count, dtype=np.float32)
    rates, norms = ones * params["learning_rate"], ones * params["clipping_norm"]
    return task, train(task, rates, norms, noise, rng, EPOCHS)


def study(name: str, mean: int, noise: float) -> float:
    """One study, released; the accuracy of the released setting."""

    def objective(trial: optuna.Trial) -> float:
        params = {key: trial._suggest(key, space) for key, space in SPACE.items()}
        task, weights = models(name, params, 1, noise)
        hits = np.argmax(task.valid_x @ weights[0], axis=1) == task.valid_y
        return odp.scoring.private_accuracy(
            hits, size=len(task.valid_y), noise_multiplier=score_noise(name, noise)
        )

    sampler = odp.RandTuneSampler(SPACE, trials=odp.Geometric(mean), run=event(name, noise))
    held = optuna.create_study(direction="maximize", sampler=sampler)
    held.optimize(objective)
    params = odp.release(held, vouched="DP-SGD of our own").params
    assert params is not None
    task, weights = models(name, params, AGAIN, noise)
    return float(np.mean(correct(task, weights) / len(task.valid_y)))


def simulated(name: str, mean: int, noise: float, reps: int, rng: np.random.Generator) -> Any:
    spread = score_noise(name, noise) / (2 * len(task_of(name).valid_y))
    landscape = measured(name, noise).noisier(spread)
    return interval(over_t(uniform(landscape, 8 * mean, reps, rng, True), odp.Geometric(mean)))


def real(results: Results) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name, epsilon in PLACES[:1] if results.quick else PLACES:
        for mean in MEANS:

            def found(rng: Any, name: str = name, e: float = epsilon, mean: int = mean) -> Any:
                noise = odp.calibrate(
                    target_epsilon=e,
                    delta=DELTA,
                    run=lambda noise: event(name, noise),
                    trials=odp.Geometric(mean),
                ).value
                reps = results.reps(REPS)
                values = np.array([study(name, mean, noise) for _ in range(reps)])
                return {
                    "reps": reps,
                    "noise": round(noise, 3),
                    "score noise": round(score_noise(name, noise), 2),
                    "runs": mean,
                    "accuracy": interval(values),
                    "simulated": simulated(name, mean, noise, 30 * reps, rng),
                }

            results.add(f"{name}, epsilon {epsilon:g} | RandTune, mean {mean}", found)


PARTS: dict[str, Callable[[Results], None]] = {"real": real}

if __name__ == "__main__":
    run_parts(PARTS, __doc__)
