"""What every arm does and costs: fixed before any record is looked at.

Arms with a private score have one event per run, ``compose(training, score)``; the score is on the
records that the run was trained on. The noise of a score follows that of the training, so that the
score takes about a fifth of a run's budget whatever the data set: its multiplier is
2 s / (q sqrt(steps)), with s that of the training and q the sampling rate. The arms with a plan
(one run, or pilots and one run) are what ``plan_budget`` makes of epsilon and the size alone.

One number is searched: the noise of a weight, from which each run's learning rate follows. Its
prior is that of the documentation, around what a rehearsal on made-up inputs finds. The clipping
norm is 1.
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
from engine import logits
from scipy.stats import norm as normal
from tasks import EPSILONS, Size, size_of

import optuna_dp as odp

FILE = Path(__file__).with_name("plans.json")
DELTA = 1e-5
NORM = 1.0

# The defaults of Opacus's MNIST example, as are the batch of 64 and the ten epochs.
DEFAULT = 0.1
# Adam's usual learning rate, in PyTorch and elsewhere.
DEFAULT_ADAM = 0.001
RULE = 0.3
# A search's range of the noise of a weight: so many times the first guess either way.
REACH = 10.0
MEAN, MEAN_MANY = 10, 30
DENSITY_BOUNDS = (0.75, 2.0)
CHOICE_SHARE = 0.25
CANDIDATES = 9
# The ceilings compare these: noises of a weight in units of the first guess, and, where there is
# no noise, learning rates.
CEILING_GRID = tuple(float(c) for c in np.exp(np.linspace(-1.6, 1.6, 13)))
RATES_WITHOUT_NOISE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FEW_PILOTS = 4
# Arms whose name ends so train with the batch that accounting favors for this much computing.
WORK, LARGER = 4.0, "4 x"


@dataclass(frozen=True)
class Plan:
    """One arm on one data set at one total epsilon.

    Attributes:
        noise: Noise multiplier of the released model's training; 0 without privacy.
        score_noise: Of a score; None without a private score.
        runs: Mean number of private trainings.
        work: Gradients of examples on average, in units of one training at the usual batch.
        guarantee: Of everything the arm releases; None if it has none.
        epsilon: Its epsilon at DELTA.
        batch: Expected size of a batch.
        steps: Of the released model's training.
        center: First guess of the noise of a weight; None for arms that do not use any.
        choice_epsilon: What the choice among utilities costs by itself, else None.
        budget: The budget study's plan as JSON, else None.
    """

    noise: float
    score_noise: float | None
    runs: float
    work: float
    guarantee: odp.Guarantee | None
    epsilon: float | None
    batch: float
    steps: int
    center: float | None = None
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


def size_for(name: str, epsilon: float, arm: str) -> Size:
    """What is public, with the batch and the epochs of the arm."""
    size = size_of(name)
    if not arm.endswith(LARGER):
        return size
    found = odp.batch_choices(
        epsilon=epsilon, delta=DELTA, records=size.records, epochs=size.epochs, work=WORK
    ).favored
    return replace(size, batch=found.batch_size, epochs=found.epochs)


def rehearsed(size: Size, noise: float) -> float:
    """The noise of a weight of the rate that a rehearsal finds: from public numbers alone."""
    public = {"noise_multiplier": noise, "steps": size.steps, "batch_size": size.batch}
    inputs = size.made_up()
    start = size.model.start(1, inputs.shape[1], np.random.default_rng(0))
    found = odp.rehearse_arrays(logits, [layer[0] for layer in start], inputs, **public)
    return found.learning_rate / rate_at(1.0, public)


def rate_at(noise_per_weight: float, public: dict[str, Any]) -> float:
    """The rate of SGD at which noise adds up to this, without the package's cap."""
    tiny = 1e-6
    return odp.learning_rate(**public, noise_per_weight=tiny) * noise_per_weight / tiny


def training(size: Size, noise: float) -> Any:
    """The event of one training."""
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=size.sample_rate, steps=size.steps)


def score_noise(size: Size, noise: float) -> float:
    return 2.0 * noise / (size.sample_rate * math.sqrt(size.steps))


def run(size: Size, noise: float) -> Any:
    """The event of one run: a training and its score."""
    return odp.compose(training(size, noise), odp.scoring.score_event(score_noise(size, noise)))


def relative(size: Size) -> float:
    """The computing of one training, in units of one with the usual batch."""
    return size.epochs / size.usual_epochs


def planned(size: Size, target: float, event: Callable[[float], Any], runs: float = 1) -> Plan:
    """Trainings of which an event costs the whole, the noise found for it."""
    found = odp.calibrate(target_epsilon=target, delta=DELTA, run=event, trials=odp.Geometric(1))
    made = odp.Guarantee(event(found.value))
    return Plan(
        noise=found.value,
        score_noise=None,
        runs=runs,
        work=runs * relative(size),
        guarantee=made,
        epsilon=made.epsilon(DELTA),
        batch=size.batch,
        steps=size.steps,
    )


def usual(size: Size, target: float) -> Plan:
    """One training, with the learning rate that everybody begins with."""
    return planned(size, target, partial(training, size))


def selected(
    size: Size,
    target: float,
    mean: int = MEAN,
    bounds: tuple[float, float] = (1.0, 1.0),
    startup: int = 0,
) -> Plan:
    """RandTune, or DP-HyPO."""
    found = odp.calibrate(
        target_epsilon=target,
        delta=DELTA,
        run=lambda noise: run(size, noise),
        trials=odp.Geometric(mean),
        density_bounds=bounds,
        startup_runs=startup,
    )
    return Plan(
        noise=found.value,
        score_noise=score_noise(size, found.value),
        runs=mean,
        work=mean * relative(size),
        guarantee=found.guarantee,
        epsilon=found.epsilon,
        batch=size.batch,
        steps=size.steps,
        center=rehearsed(size, found.value),
    )


def budget(size: Size, target: float, center: float | None = None, **pilots: Any) -> Plan:
    """One run, or pilots in the open and then one run, as the package plans it."""
    plan = odp.plan_budget(
        epsilon=target,
        delta=DELTA,
        records=size.records,
        batch_size=size.batch,
        epochs=size.epochs,
        **pilots,
    )
    noise = plan.final.noise_multiplier
    steps = sum(n * rung.steps for n, rung in zip(plan.rung_sizes, plan.rungs, strict=True))
    assert plan.final.steps == size.steps
    return Plan(
        noise=noise,
        score_noise=plan.final.score_noise_multiplier,
        runs=plan.runs,
        work=(1.0 + steps / plan.final.steps) * relative(size),
        guarantee=plan.guarantee,
        epsilon=plan.guarantee.epsilon(DELTA),
        batch=size.batch,
        steps=size.steps,
        center=rehearsed(size, noise) if center is None else center,
        budget=plan.to_json(),
    )


def noisy_max(size: Size, target: float) -> Plan:
    """A private choice among utilities for a quarter of epsilon, then one training."""
    choice = odp.bounded_range(CHOICE_SHARE * target)
    plan = planned(size, target, lambda noise: odp.compose(choice, training(size, noise)))
    # Every candidate is trained on every partition, each step on all of its records or on a batch.
    a_step = size.train
    if size.partition_batch is not None:
        a_step = size.partitions * size.partition_batch
    return replace(
        plan,
        work=1.0 + CANDIDATES * size.partition_length * a_step / size.batch,
        center=rehearsed(size, plan.noise),
        choice_epsilon=odp.Guarantee(choice).epsilon(DELTA),
    )


def candidates(center: float) -> list[float]:
    """Noises of a weight, at even quantiles of the prior."""
    at = normal.ppf((np.arange(CANDIDATES) + 0.5) / CANDIDATES)
    return [float(c) for c in center * np.exp(0.7 * at)]


def free_choice(size: Size, target: float) -> Plan:
    """The noise of one training at the whole epsilon; the comparison is charged to nobody.

    ``guarantee`` is that of publishing all of them with an exact score on public records.
    """
    plan, runs = usual(size, target), len(CEILING_GRID)
    made = odp.Guarantee(dp_event.SelfComposedDpEvent(training(size, plan.noise), runs))
    return replace(
        plan,
        runs=runs,
        work=runs * relative(size),
        guarantee=made,
        epsilon=made.epsilon(DELTA),
        center=rehearsed(size, plan.noise),
    )


def no_privacy(size: Size, target: float) -> Plan:
    runs = len(RATES_WITHOUT_NOISE)
    return Plan(0.0, None, runs, runs, None, None, size.batch, size.steps)


ARMS: dict[str, Callable[[Size, float], Plan]] = {
    "usual defaults, SGD": usual,
    "usual defaults, Adam": usual,
    "one run, rule": partial(budget, center=RULE, pilots=0),
    "one run, rehearsal": partial(budget, pilots=0),
    "one run, rule, 4 x": partial(budget, center=RULE, pilots=0),
    "one run, rehearsal, 4 x": partial(budget, pilots=0),
    "RandTune": selected,
    "RandTune, 30 runs": partial(selected, mean=MEAN_MANY),
    "RandTune, 4 x": selected,
    "DP-HyPO": partial(selected, bounds=DENSITY_BOUNDS, startup=1),
    "noisy max": noisy_max,
    "budget": budget,
    "budget, 4 pilots": partial(budget, pilots=FEW_PILOTS),
    "budget, 4 pilots, 4 x": partial(budget, pilots=FEW_PILOTS),
    "free choice": free_choice,
    "free choice, 4 x": free_choice,
    "no privacy": no_privacy,
}
# These exceed the budget; they are ceilings, not results.
CEILINGS = ("free choice", "free choice, 4 x", "no privacy")


# A hundred trainings' computing, for which there was no time.
LEFT_OUT = {"flights": ("noisy max",)}


def arms_of(name: str) -> list[str]:
    """The arms that a data set has."""
    return [arm for arm in ARMS if arm not in LEFT_OUT.get(name, ())]


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
            if arm not in arms or arm not in arms_of(name) or key(name, epsilon, arm) in known:
                continue
            plan = make(size_for(name, epsilon, arm), epsilon)
            known[key(name, epsilon, arm)] = plan.to_json()
            path.write_text(as_lines(known))
            print(f"{key(name, epsilon, arm)}: noise {plan.noise:.3f}", flush=True)
    return {name: Plan.from_json(plan) for name, plan in known.items()}


CELLS = [(name, epsilon) for name, epsilons in EPSILONS.items() for epsilon in epsilons]
