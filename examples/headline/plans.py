"""What every arm does and costs: fixed before any record is looked at.

Arms with a private score have one event per run, ``compose(training, score)``; the score is on the
records that the run was trained on, but for the arms named "held out". The noise of a score
follows that of the training, so that the score takes about a fifth of a run's budget whatever the
data set: its multiplier is 2 s / (q sqrt(steps)), with s that of the training and q the sampling
rate. The budget arms are what ``plan_budget`` makes of epsilon and the size alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from tasks import EPSILONS, Size, size_of

import optuna_dp as odp
from optuna_dp.planning.calibration import NOISE
from optuna_dp.planning.target_search import Found, largest_within
from optuna_dp.utilities import DoublingPlan, epsilon_per_iteration
from optuna_dp.utilities.accounting import iteration_event

FILE = Path(__file__).with_name("plans.json")
DELTA = 1e-5

# The defaults of Opacus's MNIST example, as are the batch of 64 and the ten epochs.
DEFAULT = {"learning_rate": 0.1, "clipping_norm": 1.0}
# Adam's usual learning rate, in PyTorch and elsewhere.
DEFAULT_ADAM = {"learning_rate": 0.001, "clipping_norm": 1.0}
# The space of this package's demo.
SPACE = {"learning_rate": (0.01, 10.0), "clipping_norm": (0.05, 5.0)}
MEAN, MEAN_MANY = 10, 30
DENSITY_BOUNDS = (0.75, 2.0)
CHOICE_SHARE = 0.25
# Below this total epsilon the last run leaves the pilots more, and they are drawn at random.
TIGHT = 2.0
# Twenty pilots of this length make fewer steps than two trainings.
SHORT = 0.095
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


def ceiling_grid(size: Size) -> list[dict[str, float]]:
    """The settings that a free choice compares: as many as the time allows."""
    return cells(4 if size.model.hidden else 6)


@dataclass(frozen=True)
class Plan:
    """One arm on one data set at one total epsilon.

    Attributes:
        noise: Noise multiplier of a training; 0 without privacy.
        score_noise: Of a score; None without a private score.
        runs: Mean number of private trainings.
        work: Gradients of examples on average, in units of one training.
        guarantee: Of everything the arm releases; None if it has none.
        epsilon: Its epsilon at DELTA.
        choice_epsilon: What the choice among utilities costs by itself, else None.
        budget: The budget study's plan as JSON, else None.
    """

    noise: float
    score_noise: float | None
    runs: float
    work: float
    guarantee: odp.Guarantee | None
    epsilon: float | None
    choice_epsilon: float | None = None
    budget: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        kept = None if self.guarantee is None else self.guarantee.to_json()
        return {**asdict(replace(self, guarantee=None)), "guarantee": kept}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        kept = data["guarantee"]
        guarantee = None if kept is None else odp.Guarantee.from_json(kept)
        return cls(**{**data, "guarantee": guarantee})


def training(size: Size, noise: float, held_out: bool = False) -> Any:
    """The event of one training."""
    rate, steps = size.sampling(held_out)
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)


def score_noise(size: Size, noise: float, held_out: bool = False) -> float:
    rate, steps = size.sampling(held_out)
    return 2.0 * noise / (rate * math.sqrt(steps))


def run(size: Size, noise: float, held_out: bool = False) -> Any:
    """The event of one run: a training and its score."""
    score = odp.scoring.score_event(score_noise(size, noise, held_out))
    return odp.compose(training(size, noise, held_out), score)


def disjoint_run(size: Size, noise: float) -> Any:
    """The event of a run whose score is on other records: each record meets one of the two."""
    score = odp.scoring.score_event(score_noise(size, noise, held_out=True) / 2.0)
    return odp.worst_case(training(size, noise, held_out=True), score)


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


def single(size: Size, target: float) -> Plan:
    """One training."""

    def made(noise: float) -> odp.Guarantee:
        return odp.Guarantee(training(size, noise))

    noise = within(size, target, lambda s: made(s).epsilon(DELTA))
    return Plan(noise, None, 1, 1, made(noise), made(noise).epsilon(DELTA))


def composed(size: Size, target: float) -> Plan:
    """Every run of the grid, composed tightly (privacy loss distributions)."""

    def made(noise: float) -> odp.Guarantee:
        return odp.Guarantee(dp_event.SelfComposedDpEvent(run(size, noise), len(GRID)))

    noise = within(size, target, lambda s: made(s).epsilon(DELTA), 2.7)
    return Plan(
        noise,
        score_noise(size, noise),
        len(GRID),
        len(GRID),
        made(noise),
        made(noise).epsilon(DELTA),
    )


def selected_by_rdp(size: Size, target: float, held_out: bool = False) -> Plan:
    """RandTune with the noise that dp-accounting's Rényi accountant asks for.

    ``epsilon`` is what this package says of the same procedure, which is less.
    """

    def rdp_epsilon(noise: float) -> float:
        accountant = RdpAccountant()
        event = dp_event.RepeatAndSelectDpEvent(run(size, noise, held_out), mean=MEAN, shape=1)
        return float(accountant.compose(event).get_epsilon(DELTA))

    noise = within(size, target, rdp_epsilon, 1.9)
    made = odp.selection_guarantee(run(size, noise, held_out), odp.Geometric(MEAN))
    work = MEAN * size.sampling(held_out)[1] / size.sampling()[1]
    score = score_noise(size, noise, held_out)
    return Plan(noise, score, MEAN, work, made, made.epsilon(DELTA))


def selected(
    size: Size,
    target: float,
    mean: int = MEAN,
    bounds: tuple[float, float] = (1.0, 1.0),
    held_out: bool = False,
) -> Plan:
    """RandTune, or DP-HyPO under the history bound, with this package's accounting."""
    found = odp.calibrate(
        target_epsilon=target,
        delta=DELTA,
        run=lambda noise: disjoint_run(size, noise) if held_out else run(size, noise),
        trials=odp.Geometric(mean),
        density_bounds=bounds,
    )
    noise = found.value
    score = score_noise(size, noise, held_out) / (2.0 if held_out else 1.0)
    work = mean * size.sampling(held_out)[1] / size.sampling()[1]
    return Plan(noise, score, mean, work, found.guarantee, found.epsilon)


def noise_increase(target: float) -> float:
    """What the last run of a budget study leaves the pilots."""
    return 1.15 if target < TIGHT else 1.08


def budget(size: Size, target: float, length: float = 1.0) -> Plan:
    """Pilots in the open, then one run: all of it as the package plans it by default."""
    plan = odp.plan_budget(
        epsilon=target,
        delta=DELTA,
        records=size.records,
        batch_size=size.batch,
        epochs=size.epochs,
        pilot_epochs=length * size.epochs,
        noise_increase=noise_increase(target),
    )
    steps = sum(n * rung.steps for n, rung in zip(plan.rung_sizes, plan.rungs, strict=True))
    return Plan(
        plan.final.noise_multiplier,
        plan.final.score_noise_multiplier,
        plan.runs,
        1.0 + steps / plan.final.steps,
        plan.guarantee,
        plan.guarantee.epsilon(DELTA),
        budget=plan.to_json(),
    )


def loop(size: Size, target: float) -> DoublingPlan:
    """The propose-test loop, which starts at the accuracy of guessing."""
    start = 1.0 / size.model.classes
    iterations = DoublingPlan(1.0, GRANULARITY, start).iteration_bound
    each = epsilon_per_iteration(CHOICE_SHARE * target, DELTA, iterations)
    return DoublingPlan(each, GRANULARITY, start)


def chosen(size: Size, target: float, choice: Any) -> Plan:
    """A private choice among utilities for a quarter of epsilon, then one training."""

    def made(noise: float) -> odp.Guarantee:
        return odp.Guarantee(odp.compose(choice, training(size, noise)))

    noise = within(size, target, lambda s: made(s).epsilon(DELTA))
    alone = odp.Guarantee(choice).epsilon(DELTA)
    # Every candidate is trained on every partition, each step on all of its records or on a batch.
    a_step = size.train
    if size.partition_batch is not None:
        a_step = size.partitions * size.partition_batch
    work = 1.0 + len(GRID) * size.partition_length * a_step / size.batch
    return Plan(noise, None, 1, work, made(noise), made(noise).epsilon(DELTA), alone)


def propose_test(size: Size, target: float) -> Plan:
    plan = loop(size, target)
    return chosen(size, target, iteration_event(plan.epsilon, plan.iteration_bound))


def noisy_max(size: Size, target: float) -> Plan:
    return chosen(size, target, odp.bounded_range(CHOICE_SHARE * target))


def free_choice(size: Size, target: float) -> Plan:
    """The noise of one training at the whole epsilon; the comparison is charged to nobody.

    ``guarantee`` is that of publishing all of them with an exact score on public records.
    """
    noise, runs = single(size, target).noise, len(ceiling_grid(size))
    made = odp.Guarantee(dp_event.SelfComposedDpEvent(training(size, noise), runs))
    return Plan(noise, None, runs, runs, made, made.epsilon(DELTA))


def no_privacy(size: Size, target: float) -> Plan:
    runs = len(ceiling_grid(size))
    return Plan(0.0, None, runs, runs, None, None)


ARMS: dict[str, Callable[[Size, float], Plan]] = {
    "no tuning, SGD": single,
    "no tuning, Adam": single,
    "grid, composed": composed,
    "RandTune, RDP, held out": partial(selected_by_rdp, held_out=True),
    "RandTune, RDP": selected_by_rdp,
    "RandTune, held out": partial(selected, held_out=True),
    "RandTune": selected,
    "RandTune, 30 runs": partial(selected, mean=MEAN_MANY),
    "DP-HyPO": partial(selected, bounds=DENSITY_BOUNDS),
    "propose-test": propose_test,
    "noisy max": noisy_max,
    "budget": budget,
    "budget, short pilots": partial(budget, length=SHORT),
    "free choice": free_choice,
    "no privacy": no_privacy,
}
# These exceed the budget; they are ceilings, not results.
CEILINGS = ("free choice", "no privacy")


def key(name: str, epsilon: float, arm: str) -> str:
    return f"{name}, epsilon {epsilon:g}, {arm}"


def as_lines(known: dict[str, Any]) -> str:
    """JSON with a line per plan."""
    lines = (f"{json.dumps(name)}: {json.dumps(plan)}" for name, plan in known.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def plan_all(cells: list[tuple[str, float]], arms: list[str], path: Path) -> dict[str, Plan]:
    """Calibrates what is not in the file yet, saving after each."""
    known = json.loads(path.read_text()) if path.exists() else {}
    for name, epsilon in cells:
        for arm, make in ARMS.items():
            if arm not in arms or key(name, epsilon, arm) in known:
                continue
            plan = make(size_of(name), epsilon)
            known[key(name, epsilon, arm)] = plan.to_json()
            path.write_text(as_lines(known))
            print(f"{key(name, epsilon, arm)}: noise {plan.noise:.3f}", flush=True)
    return {name: Plan.from_json(plan) for name, plan in known.items()}


CELLS = [(name, epsilon) for name, epsilons in EPSILONS.items() for epsilon in epsilons]
