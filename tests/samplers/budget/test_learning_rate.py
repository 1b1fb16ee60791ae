"""odp.learning_rate: the noise of a weight comes to what was asked for, whatever the optimiser."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.learning_rate import LARGEST_STEP

WEIGHTS = 20_000


def walked(optimizer: str, rate: float, noise: float, steps: int, m: float = 0.9) -> float:
    """Standard deviation of weights after training on noise, written down from the papers."""
    rng = np.random.default_rng(5)
    weights, mean, square = (np.zeros(WEIGHTS) for _ in range(3))
    for t in range(1, steps + 1):
        gradient = rng.normal(0.0, noise, WEIGHTS)
        if optimizer == "sgd":
            weights -= rate * gradient
        elif optimizer == "momentum":
            mean = m * mean + gradient
            weights -= rate * mean
        else:
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            unbiased = square / (1 - 0.999**t)
            weights -= rate * mean / (1 - 0.9**t) / (np.sqrt(unbiased) + 1e-8)
    return float(weights.std())


@pytest.mark.parametrize("steps", [1, 3, 20, 150, 600])
@pytest.mark.parametrize(("optimizer", "m"), [("sgd", 0.9), ("momentum", 0.9), ("momentum", 0.5)])
def test_the_noise_of_a_weight_is_what_was_asked_for(optimizer: Any, m: float, steps: int) -> None:
    rate = odp.learning_rate(
        optimizer,
        noise_multiplier=3.0,
        steps=steps,
        batch_size=40,
        clipping_norm=0.5,
        momentum=m,
        noise_per_weight=0.2,
    )
    # Of 20,000 weights the standard deviation is known to half a per cent.
    assert walked(optimizer, rate, 3.0 * 0.5 / 40, steps, m) == pytest.approx(0.2, rel=0.025)


@pytest.mark.parametrize(("steps", "most"), [(20, 1.2), (50, 1.13), (150, 1.06), (1000, 1.03)])
def test_adam_walks_a_little_further_for_few_steps(steps: int, most: float) -> None:
    rate = odp.learning_rate("adam", noise_multiplier=3.0, steps=steps, batch_size=40)
    assert 0.97 < walked("adam", rate, 3.0 / 40, steps) / 0.3 < most


def test_adam_needs_nothing_but_the_steps() -> None:
    one = odp.learning_rate("adam", noise_multiplier=3.0, steps=100, batch_size=40)
    other = odp.learning_rate(
        "adamw", noise_multiplier=0.3, steps=100, batch_size=4, clipping_norm=9.0
    )
    assert one == other == pytest.approx(0.03)


def test_without_momentum_it_is_sgd() -> None:
    public: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 77, "batch_size": 8}
    sgd = odp.learning_rate("sgd", **public)
    assert odp.learning_rate("momentum", momentum=0.0, **public) == pytest.approx(sgd)


@pytest.mark.parametrize("noise", [0.05, 1e-3, 1e-9])
def test_nearly_without_noise_the_rate_is_capped(noise: float) -> None:
    public: dict[str, Any] = {"noise_multiplier": noise, "steps": 10_000, "batch_size": 10_000}
    assert odp.learning_rate("sgd", **public) == LARGEST_STEP
    assert odp.learning_rate("sgd", clipping_norm=0.1, **public) == 10 * LARGEST_STEP
    assert odp.learning_rate("momentum", **public) == pytest.approx(0.1 * LARGEST_STEP, rel=0.01)


def test_each_run_of_a_plan_has_the_rate_of_its_own_noise_and_length() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, records=1348, batch_size=64, epochs=10, pilots=(4, 2), pilot_epochs=2
    )
    for run in (*plan.rungs, plan.final):
        for optimizer in ("sgd", "momentum", "adam", "adamw"):
            assert run.learning_rate(
                optimizer, clipping_norm=0.5, momentum=0.8, noise_per_weight=0.1
            ) == odp.learning_rate(
                optimizer,
                noise_multiplier=run.noise_multiplier,
                steps=run.steps,
                batch_size=64,
                clipping_norm=0.5,
                momentum=0.8,
                noise_per_weight=0.1,
            )


def test_the_size_of_a_batch_survives_the_record_of_a_plan() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=1348, batch_size=64, epochs=10, pilots=2)
    again = odp.BudgetPlan.from_json(plan.to_json())
    assert again.final.batch_size == 64
    assert again.pilot.learning_rate() == plan.pilot.learning_rate()
    for broken in (None, -1.0, "64"):
        with pytest.raises(InvalidArgumentError):
            odp.BudgetPlan.from_json({**plan.to_json(), "batch_size": broken})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimizer", "rmsprop"),
        ("optimizer", None),
        ("noise_multiplier", 0.0),
        ("noise_multiplier", math.inf),
        ("steps", 0),
        ("steps", 1.5),
        ("batch_size", -1),
        ("clipping_norm", 0),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("noise_per_weight", 0.0),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(name: str, value: Any) -> None:
    given: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 10, "batch_size": 8, name: value}
    with pytest.raises(InvalidArgumentError) as refused:
        odp.learning_rate(**given)
    assert refused.value.argument == name
