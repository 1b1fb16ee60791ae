"""Pilots before a selection, at equal total epsilon: where they help, how many, how noisy.

Each part resumes where it stopped and writes ``results/<part>.json``::

    python examples/dp_hypo/pilots.py pilots      # how many, how noisy, how sharp; two data sets
    python examples/dp_hypo/pilots.py splits      # other ways to split the same epsilon
    python examples/dp_hypo/pilots.py cheaper     # pilots of fewer epochs
    python examples/dp_hypo/pilots.py proposers   # who proposes them; GP needs torch
    python examples/dp_hypo/pilots.py around      # density bounds around the frozen prior
    python examples/dp_hypo/pilots.py PART --quick --results FOLDER

Simulations on the landscapes of ``landscapes.py``, like ``experiments.py``: seeded, private in no
way. ``real.py`` checks some of it with real training. The noise of a whole arm is calibrated so
that pilots and selection cost the stated epsilon together, at delta 1e-5. Off the grid throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import optuna
from dp_accounting import dp_event
from experiments import (
    DELTA,
    LARGEST_NOISE,
    OURS,
    Results,
    noise_for,
    outcome,
    run_of,
    run_parts,
    score_of,
    searches,
)
from landscapes import EPOCHS
from optuna.distributions import FloatDistribution
from optuna_dp.accounting.pilots import pilots_guarantee
from optuna_dp.private_selection.densities.frozen_prior import FrozenPrior, FrozenPriorSettings
from simulate import Floats, Landscape, adaptive, best_so_far, interval, over_t, uniform

import optuna_dp as odp
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.models.scores import RunOutcome
from optuna_dp.planning.calibration import NOISE
from optuna_dp.planning.target_search import Found, largest_within

PLACES = (("breast_cancer", 1.0), ("digits", 3.0), ("digits", 1.0), ("breast_cancer", 0.5))
TWO_PLACES = (("digits", 3.0), ("breast_cancer", 1.0))
SHARPNESSES = (0.0, 1.0, 4.0, 16.0, 100.0)
SPACE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
REPS = 100
CANDIDATES = 256  # half of PilotSampler's default, to save time


@dataclass(frozen=True)
class Arm:
    """One way to spend the budget on pilots and a selection.

    Attributes:
        pilots: How many.
        ratio: Noise multiplier of a pilot over that of a selection run.
        epochs: Of a pilot; a selection run has ``EPOCHS``.
        mean: Of T, which is geometric.
        bounds: (c, C) of the selection runs' density relative to the frozen prior.
    """

    pilots: int
    ratio: float
    epochs: float = EPOCHS
    mean: int = 10
    bounds: tuple[float, float] = (1.0, 1.0)


@cache
def noise_with_pilots(name: str, epsilon: float, arm: Arm) -> float:
    """Noise of a selection run such that pilots and selection cost epsilon together."""
    run, pilot = run_of(name), run_of(name, arm.epochs)
    law = odp.Geometric(arm.mean)
    return noise_within(
        epsilon,
        lambda noise: pilots_guarantee(
            pilot(arm.ratio * noise), arm.pilots, run(noise), law, density_bounds=arm.bounds
        ),
        expected_noise(noise_for(name, epsilon, arm.mean, arm.bounds, "history"), epsilon, arm),
    )


def expected_noise(alone: float, epsilon: float, arm: Arm) -> float:
    """Where to start looking, as if runs were Gaussian, from the noise of a selection alone."""
    work = arm.pilots * (arm.epochs / EPOCHS) / arm.ratio**2
    return float(alone * np.sqrt(1.0 + (0.6 if epsilon <= 1.0 else 0.43) * work))


def noise_within(epsilon: float, guarantee: Callable[[float], Guarantee], start: float) -> float:
    """The least noise, to a hundredth of epsilon, at which something costs at most epsilon."""
    near = NOISE.starting_at(Found(-float(np.log(1.003 * start)), epsilon, 1.2))
    found = largest_within(
        lambda u: guarantee(NOISE.value(u)).epsilon(DELTA), epsilon, near, tolerance=0.01
    )
    assert found.cost <= epsilon
    return float(NOISE.value(found.at))


def proposer(name: str, count: int, seed: int) -> optuna.samplers.BaseSampler:
    """Random for the first half where that is an option, as PilotSampler does by default."""
    half = max(1, count // 2)
    if name == "TPE":
        return optuna.samplers.TPESampler(n_startup_trials=half, seed=seed)
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "Sobol":
        return optuna.samplers.QMCSampler(scramble=True, seed=seed)
    if name == "CMA-ES":
        return optuna.samplers.CmaEsSampler(seed=seed)
    assert name == "GP"
    return optuna.samplers.GPSampler(n_startup_trials=half, seed=seed)


def pilot_runs(landscape: Landscape, count: int, who: str, rng: Any) -> list[RunOutcome]:
    """Pilots and their scores."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    sampler = proposer(who, count, int(rng.integers(2**31)))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for _ in range(count):
        trial = study.ask(dict(SPACE))
        mean, spread = landscape.at(np.array([[trial.params["x"], trial.params["y"]]]))
        study.tell(trial, float(mean[0] + spread[0] * rng.standard_normal()))
    return [RunOutcome(t.params, t.value) for t in study.trials]


def draws(prior: FrozenPrior, n: int, rng: np.random.Generator) -> Floats:
    """Points of the unit square, (n, 2)."""
    drawn = prior.sample(SPACE, n, rng)
    return np.stack([drawn.columns["x"], drawn.columns["y"]], axis=1)


def select(
    landscape: Landscape, arm: Arm, prior: FrozenPrior, length: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Scores and true values of selection runs, (length,) each."""
    if arm.bounds != (1.0, 1.0):
        law = replace(OURS, bounds=arm.bounds, candidates=128)  # as many as PilotSampler

        def start(n: int, rng: np.random.Generator) -> Floats:
            return draws(prior, n, rng)

        return adaptive(landscape, law, length, length, rng, fresh=True, start=start)
    truth, spread = landscape.at(draws(prior, length, rng))
    return truth + spread * rng.standard_normal(length), truth


def taught(
    name: str,
    epsilon: float,
    arm: Arm,
    reps: int,
    rng: np.random.Generator,
    who: str = "TPE",
    sharpnesses: tuple[float, ...] = SHARPNESSES,
) -> dict[str, Any]:
    """What an arm finds, by sharpness of the frozen prior."""
    noise = noise_with_pilots(name, epsilon, arm)
    answer: dict[str, Any] = {
        "reps": reps,
        "noise": round(noise, 3),
        "runs": arm.mean + arm.pilots,
    }
    if arm.ratio * noise > LARGEST_NOISE:
        return answer
    teacher, landscape = score_of(name, arm.ratio * noise, arm.epochs), score_of(name, noise)
    length = 4 * arm.mean
    scores = np.empty((len(sharpnesses), reps, length))
    truths = np.empty_like(scores)
    for i in range(reps):
        known = pilot_runs(teacher, arm.pilots, who, rng)
        for k, sharpness in enumerate(sharpnesses):
            settings = FrozenPriorSettings(sharpness=sharpness, candidates=CANDIDATES)
            prior = FrozenPrior(settings, known, SPACE)
            scores[k, i], truths[k, i] = select(landscape, arm, prior, length, rng)
    law = odp.Geometric(arm.mean)
    for k, sharpness in enumerate(sharpnesses):
        curves = best_so_far(scores[k], truths[k])
        answer[f"sharpness {sharpness:g}"] = interval(over_t(curves, law))
    return answer


def title(arm: Arm) -> str:
    """How an arm is called in the results."""
    fewer = "" if arm.epochs == EPOCHS else f", {arm.epochs:g} epochs"
    return f"{arm.pilots} pilots at {arm.ratio:g} times the noise{fewer}, mean {arm.mean}"


# -- how many, how noisy, how sharp ---------------------------------------------------------------


def pilots(results: Results) -> None:
    for name, epsilon in PLACES[:1] if results.quick else PLACES:
        head = f"{name}, epsilon {epsilon:g}"
        for m in (3, 10, 30):

            def plain(rng: Any, name: str = name, e: float = epsilon, m: int = m) -> Any:
                noise = noise_for(name, e, m, (1.0, 1.0), "history")
                curves = uniform(score_of(name, noise), 8 * m, results.reps(10_000), rng, True)
                return outcome(noise, m, over_t(curves, odp.Geometric(m)))

            results.add(f"{head} | RandTune, mean {m}", plain)

        def search(rng: Any, name: str = name, e: float = epsilon) -> Any:
            noise = noise_for(name, e, 10, (0.75, 2.0), "history")
            curves = searches(
                score_of(name, noise), OURS, 40, 40, results.reps(REPS), rng, fresh=True
            )
            return outcome(noise, 10, over_t(curves, odp.Geometric(10)))

        results.add(f"{head} | DP-HyPO C=2, c=0.75, mean 10", search)
        for ratio in (4.0,) if results.quick else (4.0, 2.0, 8.0, 1.0):
            for count in (5, 10, 20):
                arm = Arm(count, ratio)
                results.add(
                    f"{head} | {title(arm)}",
                    lambda rng, n=name, e=epsilon, a=arm: taught(n, e, a, results.reps(REPS), rng),
                )


# -- other ways to split --------------------------------------------------------------------------


def naive(name: str, epsilon: float, count: int, ratio: float, reps: int, rng: Any) -> Any:
    """Pilots by TPE, released; then one run with the best of them, or none if the ratio is 1."""
    run, final = run_of(name), ratio != 1.0

    def cost(noise: float) -> Guarantee:
        explored = Guarantee(dp_event.SelfComposedDpEvent(run(ratio * noise), count))
        return explored.compose(run(noise)) if final else explored

    noise = noise_within(epsilon, cost, noise_for(name, epsilon, 10, (1.0, 1.0), "history"))
    answer = {"reps": reps, "noise": round(noise, 3), "runs": count + final}
    if ratio * noise > LARGEST_NOISE:
        return answer
    teacher, landscape = score_of(name, ratio * noise), score_of(name, noise)
    chosen = []
    for _ in range(reps):
        known = pilot_runs(teacher, count, "TPE", rng)
        best = max(known, key=lambda pilot: pilot.score or 0.0).params
        chosen.append([best["x"], best["y"]])
    return {**answer, "accuracy": interval(landscape.at(np.array(chosen))[0])}


def twice(name: str, epsilon: float, ratio: float, width: float, reps: int, rng: Any) -> Any:
    """RandTune, then RandTune again in a box around the winner; means 10."""
    run, law = run_of(name), odp.Geometric(10)

    def cost(noise: float) -> Guarantee:
        first = odp.selection_guarantee(run(ratio * noise), law)
        return first.compose(odp.selection_guarantee(run(noise), law))

    start = 1.3 * noise_for(name, epsilon, 10, (1.0, 1.0), "history")
    noise = noise_within(epsilon, cost, start)
    answer = {"reps": reps, "noise": round(noise, 3), "runs": 20}
    if ratio * noise > LARGEST_NOISE:
        return answer

    def search(landscape: Landscape, points: Floats) -> tuple[Floats, Floats]:
        """Scores and true values, (reps, runs)."""
        truth, spread = landscape.at(points.reshape(-1, 2))
        scores = truth + spread * rng.standard_normal(len(truth))
        return scores.reshape(points.shape[:2]), truth.reshape(points.shape[:2])

    length = 80
    points = rng.random((reps, length, 2))
    scores, _ = search(score_of(name, ratio * noise), points)
    t = np.minimum(rng.geometric(0.1, size=reps), length)
    scores[np.arange(length) >= t[:, None]] = -np.inf
    winner = points[np.arange(reps), scores.argmax(axis=1)][:, None, :]
    low, high = np.maximum(winner - width, 0.0), np.minimum(winner + width, 1.0)
    around = low + (high - low) * rng.random((reps, length, 2))
    curves = best_so_far(*search(score_of(name, noise), around))
    return {**answer, "accuracy": interval(over_t(curves, law))}


def splits(results: Results) -> None:
    reps, many = results.reps(REPS), results.reps(2000)
    for name, epsilon in TWO_PLACES[:1] if results.quick else TWO_PLACES:
        head = f"{name}, epsilon {epsilon:g}"
        for mean in (3, 30):
            for count, ratio in ((5, 4.0), (10, 4.0)):
                arm = Arm(count, ratio, mean=mean)
                results.add(
                    f"{head} | {title(arm)}",
                    lambda rng, n=name, e=epsilon, a=arm: taught(
                        n, e, a, reps, rng, sharpnesses=(0.0, 1.0, 4.0, 16.0)
                    ),
                )
        for count, ratio in ((5, 1.0), (10, 1.0), (10, 2.0), (10, 4.0), (20, 4.0)):
            then = "the best of them" if ratio == 1.0 else f"at {ratio:g} times, then one run"
            results.add(
                f"{head} | composed one by one: {count} runs by TPE, {then}",
                lambda rng, n=name, e=epsilon, c=count, r=ratio: naive(n, e, c, r, reps, rng),
            )
        for ratio in (1.0, 2.0):
            for width in (0.1, 0.25):
                results.add(
                    f"{head} | RandTune at {ratio:g} times the noise, again within {width:g}",
                    lambda rng, n=name, e=epsilon, r=ratio, w=width: twice(n, e, r, w, many, rng),
                )


# -- pilots of fewer epochs -----------------------------------------------------------------------


def cheaper(results: Results) -> None:
    for name, epsilon in PLACES[:1] if results.quick else PLACES[:3]:
        for epochs in (5.0, 2.5):
            for ratio in (1.0, 2.0, 4.0):
                arm = Arm(10, ratio, epochs=epochs)
                results.add(
                    f"{name}, epsilon {epsilon:g} | {title(arm)}",
                    lambda rng, n=name, e=epsilon, a=arm: taught(
                        n, e, a, results.reps(REPS), rng, sharpnesses=(1.0, 4.0)
                    ),
                )


# -- who proposes ---------------------------------------------------------------------------------


def proposers(results: Results) -> None:
    for name, epsilon in TWO_PLACES[:1] if results.quick else TWO_PLACES:
        for who in ("random", "Sobol", "TPE", "CMA-ES", "GP"):
            arm = Arm(10, 4.0)
            results.add(
                f"{name}, epsilon {epsilon:g} | {who} proposes {title(arm)}",
                lambda rng, n=name, e=epsilon, a=arm, w=who: taught(
                    n, e, a, results.reps(REPS if w != "GP" else 40), rng, w, (1.0, 4.0, 16.0)
                ),
            )


# -- density bounds around the frozen prior -------------------------------------------------------


def around(results: Results) -> None:
    for name, epsilon in TWO_PLACES[:1] if results.quick else TWO_PLACES:
        for bounds in ((0.9, 1.25), (0.75, 2.0)):
            arm = Arm(10, 4.0, bounds=bounds)
            results.add(
                f"{name}, epsilon {epsilon:g} | {title(arm)}, within {list(bounds)}",
                lambda rng, n=name, e=epsilon, a=arm: taught(
                    n, e, a, results.reps(50), rng, sharpnesses=(4.0,)
                ),
            )


PARTS: dict[str, Callable[[Results], None]] = {
    "pilots": pilots,
    "splits": splits,
    "cheaper": cheaper,
    "proposers": proposers,
    "around": around,
}

if __name__ == "__main__":
    run_parts(PARTS, __doc__)
