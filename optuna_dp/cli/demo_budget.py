"""The main way of ``optuna-dp demo``: pilots in the open, then one run, beside three other ways.

Everything of the table is about public data: a curator would see one search and its release.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from optuna.trial import FrozenTrial
from rich.console import Console

import optuna_dp as odp
from optuna_dp import digits
from optuna_dp.budget.fidelity import run_event, sgd_training
from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.planning.calibration import NOISE
from optuna_dp.planning.target_search import largest_within
from optuna_dp.releasing.release import Release

MEAN = 10
REPETITIONS = 10
# What SGD with clipping is usually started with.
_DEFAULTS = {"learning_rate": 0.1, "clipping_norm": 1.0}


def search(console: Console, epsilon: float) -> tuple[Release, BudgetPlan]:
    """Plans for the digits, runs the study before the reader's eyes, releases."""
    plan = digits.budget(epsilon)
    console.print(
        f"[bold]Digits[/bold]: {len(digits.load().train_x)} training records. Epsilon "
        f"{epsilon:g} in all buys {plan.pilots} noisy pilots, which may be shown, and one run."
    )

    def show(study: optuna.Study, trial: FrozenTrial) -> None:
        rung = plan.fidelity(trial.number)
        name = f"pilot, rung {rung.rung + 1}" if rung.is_pilot else "[bold]last run[/bold]"
        score = "no score" if trial.value is None else f"noisy accuracy {trial.value:.3f}"
        shown = ", ".join(f"{key} {value:.3g}" for key, value in trial.params.items())
        console.print(f"  {name}  noise {rung.noise_multiplier:5.2f}  {score}  [dim]{shown}[/dim]")

    return _release(plan, digits.BudgetObjective(), [show]), plan


def _release(plan: BudgetPlan, objective: digits.BudgetObjective, callbacks: list[Any]) -> Release:
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback(), *callbacks])
    return odp.release(study)


@dataclass(frozen=True)
class Way:
    """One way to come to a model at the same epsilon, and how good its released models were."""

    name: str
    noise_multiplier: float
    trainings: str
    accuracies: list[float]


def compare(plan: BudgetPlan, repetitions: int) -> list[Way]:
    """Returns four ways at the plan's epsilon, each tried so many times."""
    alone = _noise(plan, lambda noise: odp.Guarantee(_training(plan, noise)).epsilon(plan.delta))
    tight = odp.calibrate(
        target_epsilon=plan.epsilon,
        delta=plan.delta,
        run=lambda noise: _scored(plan, noise),
        trials=odp.Geometric(MEAN),
    ).value
    loose = _noise(plan, lambda noise: _by_renyi(plan, noise))

    def this() -> float:
        objective = digits.BudgetObjective()
        _release(plan, objective, [])
        return _held_out(objective.weights)

    rand_tune, several = f"RandTune, mean {MEAN}", f"{MEAN} on average"
    final = plan.final.noise_multiplier
    ways: list[tuple[str, float, str, Callable[[], float]]] = [
        ("usual defaults, no tuning", alone, "1", lambda: _held_out(_train(plan, alone))),
        (f"{rand_tune}, Rényi accounting", loose, several, lambda: _rand_tune(plan, loose)),
        (rand_tune, tight, several, lambda: _rand_tune(plan, tight)),
        ("pilots in the open, then one run", final, f"{plan.pilots} + 1", this),
    ]
    return [
        Way(name, noise, trainings, [once() for _ in range(repetitions)])
        for name, noise, trainings, once in ways
    ]


def _training(plan: BudgetPlan, noise: float) -> Any:
    assert plan.final.sample_rate is not None  # It is DP-SGD.
    return sgd_training(noise, plan.final.sample_rate, plan.final.steps)


def _scored(plan: BudgetPlan, noise: float) -> Any:
    return run_event(_training(plan, noise), plan.rungs[-1].score_noise_multiplier, "training")


def _by_renyi(plan: BudgetPlan, noise: float) -> float:
    accountant = RdpAccountant()
    accountant.compose(RepeatAndSelectDpEvent(_scored(plan, noise), mean=MEAN, shape=1))
    return float(accountant.get_epsilon(plan.delta))


def _noise(plan: BudgetPlan, epsilon: Callable[[float], float]) -> float:
    return NOISE.value(largest_within(lambda u: epsilon(NOISE.value(u)), plan.epsilon, NOISE).at)


def _train(plan: BudgetPlan, noise: float, params: dict[str, float] = _DEFAULTS) -> Any:
    data = digits.load()
    return digits.train(
        data.train_x, data.train_y, steps=plan.final.steps, noise_multiplier=noise, **params
    )


def _rand_tune(plan: BudgetPlan, noise: float) -> float:
    """What RandTuneSampler and release do, without the storage: the best of T random draws."""
    rng, data = np.random.default_rng(secrets.randbits(256)), digits.load()
    best: tuple[float, Any] = (-np.inf, None)
    score_noise = plan.rungs[-1].score_noise_multiplier
    assert score_noise is not None
    for _ in range(odp.Geometric(MEAN).sample()):
        params = {
            "learning_rate": float(np.exp(rng.uniform(np.log(0.01), np.log(10.0)))),
            "clipping_norm": float(np.exp(rng.uniform(np.log(0.05), np.log(5.0)))),
        }
        weights = _train(plan, noise, params)
        score = digits.private_accuracy(
            weights, data.train_x, data.train_y, size=len(data.train_x), score_noise=score_noise
        )
        best = max(best, (score, weights), key=lambda found: found[0])
    return _held_out(best[1])


def _held_out(weights: Any) -> float:
    data = digits.load()
    return digits.accuracy(weights, data.valid_x, data.valid_y)
