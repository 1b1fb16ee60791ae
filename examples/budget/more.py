"""Pilots, then one run, beside RandTune, for other models and spaces on the digits.

::

    python examples/budget/more.py              # resumes where it stopped; "Opacus" needs Opacus
    python examples/budget/more.py --tables

Everything goes through studies and releases, as a user's would. ``more.csv`` has a line per
search. Splits are those of ``examples/headline``. Settings and repetitions were fixed before the
first run.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from scipy import stats

import optuna_dp as odp

sys.path.insert(0, str(Path(__file__).parents[1] / "headline"))

from problems import BATCH, PROBLEMS, Problem, Run
from tasks import Split, size_of, split

RESULTS = Path(__file__).with_name("more.csv")
FIELDS = ("problem", "epsilon", "repetition", "arm", "accuracy")
DELTA, MEAN = 1e-5, 10
ARMS = ("no tuning", "RandTune", "budget")
REPETITIONS = {"network": 22, "six hyperparameters": 22, "Adam": 22, "Opacus": 4}
EPSILONS = {"network": (1.0, 3.0), "six hyperparameters": (3.0,), "Adam": (3.0,), "Opacus": (3.0,)}
SIZE = size_of("digits")
RATE, STEPS = SIZE.sample_rate, SIZE.steps
# Below this epsilon pilots were drawn at random.
TIGHT = 2.0


def one_run(noise: float) -> Any:
    """A training and its score, in the shares that the headline's arms use."""
    training = odp.dp_sgd(noise_multiplier=noise, sample_rate=RATE, steps=STEPS)
    return odp.compose(training, odp.scoring.score_event(score_noise(noise)))


def score_noise(noise: float) -> float:
    return 2.0 * noise / (RATE * math.sqrt(STEPS))


@cache
def noise_of_selection(epsilon: float) -> float:
    found = odp.calibrate(
        target_epsilon=epsilon, delta=DELTA, run=one_run, trials=odp.Geometric(MEAN)
    )
    return float(found.value)


@cache
def plan_of(epsilon: float) -> Any:
    return odp.plan_budget(
        epsilon=epsilon,
        delta=DELTA,
        records=SIZE.records,
        batch_size=BATCH,
        epochs=SIZE.epochs,
        noise_increase=1.08 if epsilon >= 2.0 else 1.15,  # The default, of pilots in any case.
    )


@cache
def noise_of_one(epsilon: float) -> float:
    """Of a single training for the whole budget."""
    found = odp.calibrate(
        target_epsilon=epsilon,
        delta=DELTA,
        run=lambda noise: odp.dp_sgd(noise_multiplier=noise, sample_rate=RATE, steps=STEPS),
        trials=odp.Binomial(1, mean=1),  # one run for certain
    )
    return float(found.value)


def single(problem: Problem, data: Split, epsilon: float) -> float:
    _, test = problem.fit(data, problem.default, Run(noise_of_one(epsilon), RATE, STEPS))
    return float(np.mean(test == data.test[1]))


def searched(problem: Problem, data: Split, epsilon: float, arm: str) -> float:
    """A study; the test accuracy of the run whose score is released."""
    if arm == "budget":
        # None is TPE.
        proposer = optuna.samplers.RandomSampler() if epsilon < TIGHT else None
        sampler: Any = odp.BudgetSampler(plan=plan_of(epsilon), proposer=proposer)
    else:
        cost = one_run(noise_of_selection(epsilon))
        sampler = odp.RandTuneSampler(trials=odp.Geometric(MEAN), run=cost)
    callback = odp.PrivacyCallback(delta=DELTA)
    tests: dict[float, float] = {}

    def objective(trial: optuna.Trial) -> float:
        paid = None
        if arm == "budget":
            paid = odp.start_run(trial)
            last = plan_of(epsilon).final
            factor = paid.learning_rate() / last.learning_rate() if problem.scaled else 1.0
            run = Run(paid.noise_multiplier, RATE, paid.steps, factor)
        else:
            run = Run(noise_of_selection(epsilon), RATE, STEPS)
        private, test = problem.fit(data, problem.suggest(trial), run)
        correct = private == data.private[1]
        if paid is None:
            noise = score_noise(run.noise_multiplier)
            score = odp.scoring.private_accuracy(
                correct, size=SIZE.records, noise_multiplier=noise
            )
        else:
            about = {"sample_rate": run.sample_rate, "steps": run.steps}
            paid.spent(odp.dp_sgd(noise_multiplier=run.noise_multiplier, **about))
            score = paid.score(correct)
        tests[score] = float(np.mean(test == data.test[1]))
        return score

    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[callback])
    release = odp.release(study, vouched="DP-SGD of our own, with this noise in every step")
    assert release.value is not None
    assert release.guarantee.epsilon(DELTA) <= epsilon
    return tests[release.value]


def run(path: Path, names: list[str]) -> None:
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    done = {tuple(row.values())[:4] for row in rows(path)}
    for repetition in range(max(REPETITIONS.values())):
        data = split("digits", repetition)
        for name in names:
            for epsilon in EPSILONS[name]:
                for arm in ARMS:
                    place = (name, f"{epsilon:g}", str(repetition), arm)
                    if place in done or repetition >= REPETITIONS[name]:
                        continue
                    problem = PROBLEMS[name]
                    found = (
                        single(problem, data, epsilon)
                        if arm == "no tuning"
                        else searched(problem, data, epsilon, arm)
                    )
                    with path.open("a") as file:
                        file.write(",".join(place) + f",{found:.4f}\n")
        print(f"repetition {repetition}", flush=True)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def interval(values: Any, sign: str = "") -> str:
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):{sign}.1f} ± {half:.1f}"


def tables(path: Path) -> None:
    print(f"| model or space | epsilon | {' | '.join(ARMS)} | budget less RandTune |")
    print("| --- " * (len(ARMS) + 3) + "|")
    found = rows(path)
    for name, epsilons in EPSILONS.items():
        for epsilon in epsilons:
            by_arm = {
                arm: np.array(
                    [
                        100 * float(row["accuracy"])
                        for row in found
                        if (row["problem"], float(row["epsilon"]), row["arm"])
                        == (name, epsilon, arm)
                    ]
                )
                for arm in ARMS
            }
            if min(map(len, by_arm.values())) < 2:
                continue
            cells = [interval(values) for values in by_arm.values()]
            apart = interval(by_arm["budget"] - by_arm["RandTune"], sign="+")
            print(f"| {name} | {epsilon:g} | {' | '.join(cells)} | {apart} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", choices=list(PROBLEMS), action="append")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if options.tables:
        tables(options.results)
    else:
        run(options.results, options.problem or list(PROBLEMS))
