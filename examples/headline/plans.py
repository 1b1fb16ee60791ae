"""What every arm does and costs: fixed before any record is looked at.

All arms with a private score have one event per run, ``compose(training, score)``. The noise of
a score follows that of the training, so that the score takes about a fifth of a run's budget
whatever the data set: its multiplier is 2 s / (q sqrt(steps)), with s that of the training and q
the sampling rate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from tasks import Size, size_of

import optuna_dp as odp
from optuna_dp.accounting.guarantee import pilots_guarantee
from optuna_dp.planning.calibration import NOISE
from optuna_dp.planning.target_search import Found, largest_within
from optuna_dp.propose_test import DoublingPlan, epsilon_per_iteration
from optuna_dp.propose_test.accounting import iteration_event

FILE = Path(__file__).with_name("plans.json")
EPSILONS = (1.0, 3.0, 8.0)
DELTA = 1e-5

# The defaults of Opacus's MNIST example, as are the batch of 64 and the ten epochs.
DEFAULT = {"learning_rate": 0.1, "clipping_norm": 1.0}
# The space of this package's demo.
SPACE = {"learning_rate": (0.01, 10.0), "clipping_norm": (0.05, 5.0)}
MEAN, MEAN_MANY = 10, 30
DENSITY_BOUNDS = (0.75, 2.0)
PILOTS, PILOT_RATIO = 10, 4.0
CHOICE_SHARE = 0.25
GRANULARITY = 0.1


def cells(per_axis: int) -> list[dict[str, float]]:
    """Centres of equal cells of the search space on its logarithmic scale."""
    at = (np.arange(per_axis) + 0.5) / per_axis
    axes = [np.exp(np.log(low) + at * np.log(high / low)) for low, high in SPACE.values()]
    return [
        {"learning_rate": float(rate), "clipping_norm": float(norm)}
        for rate in axes[0]
        for norm in axes[1]
    ]


GRID = cells(3)
CEILING_GRID = cells(4)


@dataclass(frozen=True)
class Plan:
    """One arm on one data set at one total epsilon.

    Attributes:
        noise: Noise multiplier of a training; 0 without privacy.
        score_noise: Of a score; None without a private score.
        runs: Mean number of private trainings.
        guarantee: Of everything the arm releases; None if it has none.
        epsilon: Its epsilon at DELTA.
        choice_epsilon: What the choice among utilities costs by itself, else None.
    """

    noise: float
    score_noise: float | None
    runs: float
    guarantee: odp.Guarantee | None
    epsilon: float | None
    choice_epsilon: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "noise": self.noise,
            "score_noise": self.score_noise,
            "runs": self.runs,
            "epsilon": self.epsilon,
            "choice_epsilon": self.choice_epsilon,
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        kept = data["guarantee"]
        guarantee = None if kept is None else odp.Guarantee.from_json(kept)
        return cls(**{**data, "guarantee": guarantee})


def training(size: Size, noise: float, everything: bool = False) -> Any:
    """The event of one training."""
    rate, steps = size.sampling(everything)
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)


def score_noise(size: Size, noise: float) -> float:
    rate, steps = size.sampling()
    return 2.0 * noise / (rate * math.sqrt(steps))


def run(size: Size, noise: float) -> Any:
    """The event of one run: a training and its score."""
    return odp.compose(training(size, noise), odp.scoring.score_event(score_noise(size, noise)))


def within(
    size: Size, target: float, epsilon_at: Callable[[float], float], times: float = 1.0
) -> float:
    """The least noise multiplier found at which the cost is within the target.

    Args:
        size: What is public.
        target: Epsilon in all.
        epsilon_at: Noise multiplier -> epsilon.
        times: A guess of the noise over that of one training; the search starts there.
    """
    rate, steps = size.sampling()
    root = math.sqrt(-2.0 * math.log(DELTA))
    guess = times * rate * math.sqrt(steps) / (math.sqrt(root**2 + 2.0 * target) - root)
    near = NOISE.starting_at(Found(-math.log(guess), target, 1.2))
    found = largest_within(lambda u: epsilon_at(NOISE.value(u)), target, near)
    if found.cost > target:
        raise ValueError(f"No noise reaches epsilon {target}.")
    return NOISE.value(found.at)


def single(size: Size, target: float, everything: bool = False) -> Plan:
    """One training."""

    def made(noise: float) -> odp.Guarantee:
        return odp.Guarantee(training(size, noise, everything))

    noise = within(size, target, lambda s: made(s).epsilon(DELTA))
    return Plan(noise, None, 1, made(noise), made(noise).epsilon(DELTA))


def composed(size: Size, target: float) -> Plan:
    """Every run of the grid, composed tightly (privacy loss distributions)."""

    def made(noise: float) -> odp.Guarantee:
        return odp.Guarantee(dp_event.SelfComposedDpEvent(run(size, noise), len(GRID)))

    noise = within(size, target, lambda s: made(s).epsilon(DELTA), 2.7)
    return Plan(
        noise, score_noise(size, noise), len(GRID), made(noise), made(noise).epsilon(DELTA)
    )


def selected_by_rdp(size: Size, target: float) -> Plan:
    """RandTune with the noise that dp-accounting's Rényi accountant asks for.

    ``epsilon`` is what this package says of the same procedure, which is less.
    """

    def rdp_epsilon(noise: float) -> float:
        accountant = RdpAccountant()
        event = dp_event.RepeatAndSelectDpEvent(run(size, noise), mean=MEAN, shape=1)
        return float(accountant.compose(event).get_epsilon(DELTA))

    noise = within(size, target, rdp_epsilon, 1.9)
    made = odp.selection_guarantee(run(size, noise), odp.Geometric(MEAN))
    return Plan(noise, score_noise(size, noise), MEAN, made, made.epsilon(DELTA))


def selected(
    size: Size, target: float, mean: int = MEAN, bounds: tuple[float, float] = (1.0, 1.0)
) -> Plan:
    """RandTune, or DP-HyPO under the history bound, with this package's accounting."""
    found = odp.calibrate(
        target_epsilon=target,
        delta=DELTA,
        run=lambda noise: run(size, noise),
        trials=odp.Geometric(mean),
        density_bounds=bounds,
    )
    noise = found.value
    return Plan(noise, score_noise(size, noise), mean, found.guarantee, found.epsilon)


def piloted(size: Size, target: float) -> Plan:
    """Pilots at PILOT_RATIO times all noise, then RandTune from the prior that they teach."""

    def made(noise: float) -> odp.Guarantee:
        return pilots_guarantee(
            run(size, PILOT_RATIO * noise), PILOTS, run(size, noise), odp.Geometric(MEAN)
        )

    noise = within(size, target, lambda s: made(s).epsilon(DELTA), 1.6)
    return Plan(
        noise, score_noise(size, noise), MEAN + PILOTS, made(noise), made(noise).epsilon(DELTA)
    )


def loop(size: Size, target: float) -> DoublingPlan:
    """The propose-test loop, which starts at the accuracy of guessing."""
    start = 1.0 / size.classes
    iterations = DoublingPlan(1.0, GRANULARITY, start).iteration_bound
    each = epsilon_per_iteration(CHOICE_SHARE * target, DELTA, iterations)
    return DoublingPlan(each, GRANULARITY, start)


def chosen(size: Size, target: float, choice: Any, everything: bool = True) -> Plan:
    """A private choice among utilities for a quarter of epsilon, then one training."""

    def made(noise: float) -> odp.Guarantee:
        return odp.Guarantee(odp.compose(choice, training(size, noise, everything)))

    noise = within(size, target, lambda s: made(s).epsilon(DELTA))
    alone = odp.Guarantee(choice).epsilon(DELTA)
    return Plan(noise, None, 1, made(noise), made(noise).epsilon(DELTA), alone)


def propose_test(size: Size, target: float) -> Plan:
    plan = loop(size, target)
    return chosen(size, target, iteration_event(plan.epsilon, plan.iteration_bound))


def noisy_max(size: Size, target: float, everything: bool = False) -> Plan:
    return chosen(size, target, odp.pure_dp(CHOICE_SHARE * target), everything)


def free_choice(size: Size, target: float) -> Plan:
    """The noise of one training at the whole epsilon; that 16 are compared is charged to nobody.

    ``guarantee`` is that of publishing all of them with an exact score on public records.
    """
    noise = single(size, target).noise
    made = odp.Guarantee(dp_event.SelfComposedDpEvent(training(size, noise), len(CEILING_GRID)))
    return Plan(noise, None, len(CEILING_GRID), made, made.epsilon(DELTA))


def no_privacy(size: Size, target: float) -> Plan:
    return Plan(0.0, None, len(CEILING_GRID), None, None)


ARMS: dict[str, Callable[[Size, float], Plan]] = {
    "no tuning": single,
    "no tuning, all records": partial(single, everything=True),
    "grid, composed": composed,
    "RandTune, RDP": selected_by_rdp,
    "RandTune": selected,
    "RandTune, 30 runs": partial(selected, mean=MEAN_MANY),
    "DP-HyPO": partial(selected, bounds=DENSITY_BOUNDS),
    "pilots": piloted,
    "propose-test, all records": propose_test,
    "noisy max, all records": partial(noisy_max, everything=True),
    "noisy max": noisy_max,
    "free choice": free_choice,
    "no privacy": no_privacy,
}
# These exceed the budget; they are ceilings, not results.
CEILINGS = ("free choice", "no privacy")
# "noisy max" trains with what this arm chose, so that the two differ in the training only.
SAME_CHOICE = {"noisy max": "noisy max, all records"}


def key(name: str, epsilon: float, arm: str) -> str:
    return f"{name}, epsilon {epsilon:g}, {arm}"


def read(path: Path = FILE) -> dict[str, Plan]:
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return {name: Plan.from_json(plan) for name, plan in stored.items()}


def as_lines(known: dict[str, Any]) -> str:
    """JSON with a line per plan."""
    lines = (f"{json.dumps(name)}: {json.dumps(plan)}" for name, plan in known.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plan_all(names: tuple[str, ...], epsilons: tuple[float, ...], path: Path) -> dict[str, Plan]:
    """Calibrates what is not in the file yet, saving after each."""
    known = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        for epsilon in epsilons:
            for arm, make in ARMS.items():
                if key(name, epsilon, arm) in known:
                    continue
                plan = make(size_of(name), epsilon)
                known[key(name, epsilon, arm)] = plan.to_json()
                path.write_text(as_lines(known))
                print(f"{key(name, epsilon, arm)}: noise {plan.noise:.3f}", flush=True)
    return {name: Plan.from_json(plan) for name, plan in known.items()}
