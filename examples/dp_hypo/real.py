"""Do the simulations tell the truth? The same arms with real training, end to end::

    python examples/dp_hypo/real.py real
    python examples/dp_hypo/real.py real --quick --results FOLDER

Every run trains a softmax regression by DP-SGD (``landscapes.train``), scores it with
:func:`optuna_dp.scoring.private_accuracy`, and goes through :class:`optuna_dp.PilotSampler` or
:class:`optuna_dp.RandTuneSampler` in an Optuna study in memory and through
:func:`optuna_dp.release`, with the operating system's entropy: another execution gives other
numbers within the intervals. The result of a study is the mean held-out accuracy of sixteen
trainings with the released setting. A record is trained on or scored on, never both, so a run
costs the worse of the two (:func:`optuna_dp.worst_case`), and scores have about as much noise as
that makes free. ``simulated`` is the same arm, same noise, same score noise, on the landscape.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import optuna
from experiments import DELTA, Results, noise_for, run_of, run_parts
from landscapes import EPOCHS, Task, correct, load, train
from optuna.distributions import FloatDistribution
from optuna_dp.accounting.pilots import pilots_guarantee
from optuna_dp.private_selection.densities.frozen_prior import FrozenPrior, FrozenPriorSettings
from pilots import Arm, expected_noise, noise_within, pilot_runs, select, title
from simulate import Landscape, best_so_far, interval, measured, over_t, uniform

import optuna_dp as odp
from optuna_dp.accounting.guarantee import Guarantee

SPACE: dict[str, Any] = {
    "learning_rate": FloatDistribution(1e-4, 10.0, log=True),
    "clipping_norm": FloatDistribution(0.3, 6.0),
}
PLACES = (("digits", 3.0), ("breast_cancer", 1.0))
RAND_TUNE = (Arm(0, 1.0, mean=10), Arm(0, 1.0, mean=30))
PILOTS = (Arm(10, 4.0), Arm(10, 2.0, epochs=2.5), Arm(10, 4.0, epochs=5.0))
AGAIN = 16
REPS = 40


@cache
def task_of(name: str) -> Task:
    return load(name)


def score_noise(name: str, noise: float, epochs: float) -> float:
    """A noise multiplier of the score that costs about as much as the training, or less."""
    task = task_of(name)
    return float(1.2 * noise / (task.sample_rate * np.sqrt(task.steps(epochs))))


def event(name: str, noise: float, epochs: float) -> Any:
    return odp.worst_case(
        run_of(name, epochs)(noise), odp.scoring.score_event(score_noise(name, noise, epochs))
    )


def guarantee(name: str, arm: Arm, noise: float) -> Guarantee:
    run, law = event(name, noise, EPOCHS), odp.Geometric(arm.mean)
    if arm.pilots == 0:
        return odp.selection_guarantee(run, law)
    return pilots_guarantee(event(name, arm.ratio * noise, arm.epochs), arm.pilots, run, law)


def models(
    name: str, params: dict[str, Any], count: int, noise: float, epochs: float
) -> tuple[Any, Any]:
    """The task and the weights of ``count`` trainings with a setting."""
    task, rng = task_of(name), np.random.default_rng(secrets.randbits(256))
    ones = np.ones(count, dtype=np.float32)
    rates, norms = ones * params["learning_rate"], ones * params["clipping_norm"]
    return task, train(task, rates, norms, noise, rng, epochs)


def study(name: str, arm: Arm, noise: float) -> float:
    """One study, released; the accuracy of the released setting."""
    run, law = event(name, noise, EPOCHS), odp.Geometric(arm.mean)
    sampler: optuna.samplers.BaseSampler = odp.RandTuneSampler(SPACE, trials=law)
    if arm.pilots:
        pilot = event(name, arm.ratio * noise, arm.epochs)
        sampler = odp.PilotSampler(SPACE, pilots=arm.pilots, pilot_run=pilot, trials=law)

    def objective(trial: optuna.Trial) -> float:
        params = {key: trial._suggest(key, space) for key, space in SPACE.items()}
        pilot = odp.is_pilot(trial)
        m, epochs = (arm.ratio * noise, arm.epochs) if pilot else (noise, EPOCHS)
        task, weights = models(name, params, 1, m, epochs)
        hits = np.argmax(task.valid_x @ weights[0], axis=1) == task.valid_y
        return odp.scoring.private_accuracy(
            hits, size=len(task.valid_y), noise_multiplier=score_noise(name, m, epochs)
        )

    held = optuna.create_study(direction="maximize", sampler=sampler)
    held.optimize(objective)
    params = odp.release(held, run).params
    assert params is not None
    task, weights = models(name, params, AGAIN, noise, EPOCHS)
    return float(np.mean(correct(task, weights) / len(task.valid_y)))


def simulated(name: str, arm: Arm, noise: float, reps: int, rng: np.random.Generator) -> Any:
    def landscape(noise: float, epochs: float) -> Landscape:
        spread = score_noise(name, noise, epochs) / (2 * len(task_of(name).valid_y))
        return measured(name, noise, epochs).noisier(spread)

    law, length = odp.Geometric(arm.mean), 4 * arm.mean
    if arm.pilots == 0:
        curves = uniform(landscape(noise, EPOCHS), 2 * length, 10 * reps, rng, True)
        return interval(over_t(curves, law))
    teacher = landscape(arm.ratio * noise, arm.epochs)
    scores, truths = np.empty((reps, length)), np.empty((reps, length))
    square = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
    for i in range(reps):
        known = pilot_runs(teacher, arm.pilots, "TPE", rng)
        prior = FrozenPrior(FrozenPriorSettings(), known, square)
        scores[i], truths[i] = select(landscape(noise, EPOCHS), arm, prior, length, rng)
    return interval(over_t(best_so_far(scores, truths), law))


def real(results: Results) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name, epsilon in PLACES[:1] if results.quick else PLACES:
        for arm in (*RAND_TUNE, *PILOTS):
            label = title(arm) if arm.pilots else f"RandTune, mean {arm.mean}"

            def found(rng: Any, name: str = name, e: float = epsilon, arm: Arm = arm) -> Any:
                alone = noise_for(name, e, arm.mean, (1.0, 1.0), "history")
                start = expected_noise(alone, e, arm)
                noise = noise_within(e, lambda m: guarantee(name, arm, m), start)
                assert guarantee(name, arm, noise).epsilon(DELTA) <= e
                reps = results.reps(REPS)
                values = np.array([study(name, arm, noise) for _ in range(reps)])
                return {
                    "reps": reps,
                    "noise": round(noise, 3),
                    "score noise": round(score_noise(name, noise, EPOCHS), 2),
                    "runs": arm.mean + arm.pilots,
                    "accuracy": interval(values),
                    "simulated": simulated(name, arm, noise, 3 * reps, rng),
                }

            results.add(f"{name}, epsilon {epsilon:g} | {label}", found)


PARTS: dict[str, Callable[[Results], None]] = {"real": real}

if __name__ == "__main__":
    run_parts(PARTS, __doc__)
