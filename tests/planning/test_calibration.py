"""Calibration never exceeds its target, uses it up, and says so when it cannot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from slow_cases import slow_if

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError
from optuna_dp.planning import calibration
from optuna_dp.planning.calibration import bounds_of_ratio, calibrate
from optuna_dp.planning.target_search import Scale, guided, largest_within

DELTA = 1e-5
SCALE = Scale(1.0, -5.0, 5.0, 0.0, 1.0)


def sgd(noise: float) -> Any:
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344)


# -- the search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [1e-3, 0.1, 1.0, 7.0, 100.0])
@pytest.mark.parametrize(
    "cost",
    [
        lambda u: math.exp(u),
        lambda u: math.exp(3.0 * u) + 1e-9,
        lambda u: 1e-4 + math.exp(4.0 * (u + 1.0)) / (1.0 + math.exp(-u)),
        lambda u: math.inf if u > 2.0 else math.exp(u),
        lambda u: 0.0 if u < -4.5 else math.exp(u) / 10.0,
    ],
)
def test_search_stays_within_the_target_and_uses_it(
    cost: Callable[[float], float], target: float
) -> None:
    found = largest_within(cost, target, SCALE)
    assert found.cost == cost(found.at)
    if found.cost > target:
        assert found.at == SCALE.low
        return
    further = min(found.at + 1e-6, SCALE.high)
    assert found.cost >= (1.0 - calibration.TOLERANCE) * target or (
        found.at == SCALE.high or cost(further) > target
    )


@pytest.mark.parametrize("seed", range(20))
def test_search_stays_within_the_target_of_a_rough_cost(seed: int) -> None:
    """Grids follow their arguments, so a computed epsilon is not quite smooth or monotone."""
    rng = np.random.default_rng(seed)
    steps = np.exp(np.cumsum(rng.exponential(0.05, 400)) - 9.0) * rng.uniform(0.99, 1.01, 400)

    def cost(u: float) -> float:
        return float(steps[int((u + 5.0) / 10.0 * 399)])

    target = float(np.exp(rng.uniform(-8.0, 9.0)))
    found = largest_within(cost, target, SCALE)
    assert found.cost == cost(found.at)
    assert found.cost <= target or found.at == SCALE.low


def test_search_takes_few_evaluations() -> None:
    """Each is an accountant's work."""
    calls: list[float] = []

    def cost(u: float) -> float:
        calls.append(u)
        return math.exp(1.2 * u) + math.exp(2.0 * u)

    largest_within(cost, 12.0, SCALE)
    assert len(calls) <= 7


def dear(u: float) -> float:
    return math.exp(1.2 * u) + math.exp(2.0 * u)


@pytest.mark.parametrize(("guess", "most"), [(0.93, 1), (0.97, 2), (0.7, 3)])
def test_a_rough_cost_spares_nearly_all_evaluations_of_the_dear_one(
    guess: float, most: int
) -> None:
    calls: list[float] = []

    def cost(u: float) -> float:
        calls.append(u)
        return dear(u)

    def rough(u: float) -> float:
        return dear(u) / (0.93 + 0.005 * math.sin(u))

    found = guided(cost, rough, 12.0, SCALE, ratio=guess, tolerance=0.02)
    assert len(calls) <= most
    assert 0.98 * 12.0 <= found.cost == dear(found.at) <= 12.0


@pytest.mark.parametrize(
    "rough", [lambda _: math.inf, lambda _: 0.0, lambda _: math.nan, lambda u: math.exp(-u)]
)
def test_a_rough_cost_that_misleads_takes_time_and_nothing_else(
    rough: Callable[[float], float],
) -> None:
    found = guided(dear, rough, 12.0, SCALE, ratio=0.9, tolerance=0.02)
    assert 0.98 * 12.0 <= found.cost == dear(found.at) <= 12.0


# -- calibrate -----------------------------------------------------------------------------------


def check(found: calibration.Calibration, target: float, high: float) -> None:
    assert found.guarantee.epsilon(found.delta) == found.epsilon <= target
    again = odp.Guarantee.from_json(found.guarantee.to_json())
    assert again.epsilon(found.delta) <= target
    at_the_end = math.isclose(found.value, high, rel_tol=1e-6)
    assert found.epsilon >= 0.99 * target or at_the_end


LAWS: list[Callable[[float], odp.TrialCount]] = [
    odp.Geometric,
    odp.Logarithmic,
    odp.Poisson,
    lambda mean: odp.NegativeBinomial(shape=-0.5, mean=mean),
    lambda mean: odp.NegativeBinomial(shape=3.0, mean=mean),
    lambda mean: odp.Binomial(40, mean),
    lambda mean: odp.Geometric(mean).capped(50),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(7), *(pytest.param(k, marks=pytest.mark.slow) for k in range(7, 14))]
)
def test_noise_never_overshoots(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = float(np.exp(rng.uniform(math.log(0.05), math.log(20.0))))
    trials = LAWS[seed % len(LAWS)](float(rng.uniform(2.0, 30.0)))
    run = odp.gaussian if seed % 2 else odp.laplace
    found = calibrate(target_epsilon=target, delta=DELTA, run=run, trials=trials)
    assert found.solved_for == "noise_multiplier"
    assert found.run == run(found.value)
    check(found, target, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", slow_if(lambda seed: seed not in (1, 3, 6), range(14)))
def test_mean_never_overshoots(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    law = LAWS[seed % len(LAWS)]
    run = odp.gaussian(float(rng.uniform(2.0, 10.0)))
    alone = odp.Guarantee(run).epsilon(DELTA)
    target = float(rng.uniform(1.05, 2.5)) * alone
    found = calibrate(target_epsilon=target, delta=DELTA, run=run, trials=law)
    assert found.trials == law(found.value)
    check(found, target, 40.0 if seed % len(LAWS) == 5 else calibration.LARGEST_MEAN)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["data", "history"])
def test_density_bounds_never_overshoot(policy: str) -> None:
    rng = np.random.default_rng(7)
    run, trials = odp.gaussian(4.0), odp.Geometric(3)
    plain = odp.selection_guarantee(run, trials).epsilon(DELTA)
    for target in plain * rng.uniform(1.1, 3.0, 1 if policy == "history" else 4):
        found = calibrate(
            target_epsilon=float(target),
            delta=DELTA,
            run=run,
            trials=trials,
            density_bounds=bounds_of_ratio,
            policy=policy,
        )
        assert found.density_bounds == bounds_of_ratio(found.value)
        check(found, float(target), calibration.LARGEST_RATIO)


@pytest.mark.slow
def test_a_history_policy_is_calibrated_by_the_history_bound() -> None:
    found = calibrate(
        target_epsilon=2.0,
        delta=DELTA,
        run=odp.gaussian,
        trials=odp.Geometric(3),
        density_bounds=(0.75, 2.0),
    )
    check(found, 2.0, 0.1)
    assert found.guarantee.method(DELTA) == "history_profile"
    plain = calibrate(target_epsilon=2.0, delta=DELTA, run=odp.gaussian, trials=odp.Geometric(3))
    assert plain.value < found.value


@pytest.mark.slow
def test_tolerance_is_kept() -> None:
    found = calibrate(
        target_epsilon=1.0,
        delta=DELTA,
        run=odp.gaussian,
        trials=odp.Geometric(10),
        tolerance=1e-5,
    )
    assert 1.0 - 1e-5 <= found.epsilon <= 1.0


@pytest.mark.slow
def test_result_is_plain_data() -> None:
    import json

    found = calibrate(target_epsilon=1.0, delta=DELTA, run=odp.gaussian, trials=odp.Geometric(10))
    record = json.loads(json.dumps(found.to_json()))
    assert record["value"] == found.value
    assert odp.Guarantee.from_json(record["guarantee"]) == found.guarantee
    assert type(found).from_json(record) == found


# -- what cannot be had --------------------------------------------------------------------------


def refused(**kwargs: Any) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        calibrate(**{"target_epsilon": 1.0, "delta": DELTA, **kwargs})
    assert caught.value.fix or caught.value.argument in ("delta", "tolerance")
    return caught.value


@pytest.mark.slow
def test_a_floor_that_noise_cannot_lower_is_named() -> None:
    error = refused(
        run=lambda s: odp.compose(odp.gaussian(s), odp.pure_dp(1.0)), trials=odp.Geometric(10)
    )
    assert error.argument == "target_epsilon"
    floor = odp.selection_guarantee(odp.pure_dp(1.0), odp.Geometric(10)).epsilon(DELTA)
    assert f"{floor:.3g}"[:-1] in error.allowed


@pytest.mark.slow
def test_a_policy_that_sees_the_data_costs_something_under_any_noise() -> None:
    error = refused(
        run=odp.gaussian, trials=odp.Geometric(10), density_bounds=(0.75, 2.0), policy="data"
    )
    assert error.argument == "target_epsilon"
    assert "2.3" in error.allowed


@pytest.mark.slow
def test_a_delta_below_the_runs_own_cannot_be_reached() -> None:
    error = refused(
        run=lambda s: odp.compose(odp.gaussian(s), odp.approximate_dp(0.1, 1e-3)),
        trials=odp.Geometric(10),
    )
    assert error.argument == "target_epsilon"
    assert "no value" in error.allowed


def test_one_run_alone_may_cost_too_much() -> None:
    error = refused(run=odp.gaussian(1.0), trials=odp.Geometric)
    alone = odp.Guarantee(odp.gaussian(1.0)).epsilon(DELTA)
    assert f"{alone:.3g}"[:-1] in error.allowed


@pytest.mark.slow
def test_adaptivity_may_have_nothing_left() -> None:
    error = refused(
        run=odp.gaussian(1.0), trials=odp.Geometric(10), density_bounds=bounds_of_ratio
    )
    assert error.argument == "target_epsilon"


@pytest.mark.parametrize(
    "kwargs",
    [
        {"run": odp.gaussian(1.0), "trials": odp.Geometric(10)},
        {"run": odp.gaussian, "trials": odp.Geometric},
        {
            "run": odp.gaussian(1.0),
            "trials": odp.Geometric,
            "density_bounds": bounds_of_ratio,
        },
    ],
)
def test_exactly_one_unknown(kwargs: dict[str, Any]) -> None:
    assert refused(**kwargs).argument == "run, trials, density_bounds"


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon"),
        ({"target_epsilon": math.nan}, "target_epsilon"),
        ({"target_epsilon": math.inf}, "target_epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"policy": "both"}, "policy"),
        ({"neighboring_relation": "twins"}, "neighboring_relation"),
        ({"density_bounds": (2.0, 1.0)}, "density_bounds"),
        ({"run": lambda s: s}, "run"),
    ],
)
def test_bad_arguments(change: dict[str, Any], argument: str) -> None:
    given = {
        "target_epsilon": 1.0,
        "delta": DELTA,
        "run": odp.gaussian,
        "trials": odp.Geometric(10),
        **change,
    }
    with pytest.raises(InvalidArgumentError) as caught:
        calibrate(**given)
    assert caught.value.argument == argument


def test_bad_results_of_the_functions() -> None:
    with refuses("trials"):
        calibrate(target_epsilon=9.0, delta=DELTA, run=odp.gaussian(1.0), trials=lambda m: m)  # type: ignore[arg-type,return-value]
    with refuses("density_bounds"):
        calibrate(
            target_epsilon=9.0,
            delta=DELTA,
            run=odp.gaussian(1.0),
            trials=odp.Geometric(10),
            density_bounds=lambda r: (r, r),
        )


def test_a_law_that_takes_no_mean_says_why() -> None:
    with refuses("shape"):
        calibrate(
            target_epsilon=9.0,
            delta=DELTA,
            run=odp.gaussian(1.0),
            trials=lambda mean: odp.NegativeBinomial(shape=-2.0, mean=mean),
        )


def test_unsupported_runs_are_refused_at_once() -> None:
    from dp_accounting import dp_event

    with pytest.raises(UnsupportedEventError):
        calibrate(
            target_epsilon=1.0,
            delta=DELTA,
            run=lambda noise: dp_event.UnsupportedDpEvent(),
            trials=odp.Geometric(10),
        )


@pytest.mark.parametrize("ratio", [0.5, 0.0, math.nan, math.inf])
def test_ratios_below_one_are_refused(ratio: float) -> None:
    with refuses("ratio"):
        bounds_of_ratio(ratio)


def test_bounds_of_ratio() -> None:
    assert bounds_of_ratio(1.0) == (1.0, 1.0)
    c, big_c = bounds_of_ratio(8.0)
    assert (c, big_c) == (pytest.approx(0.5), pytest.approx(4.0))


# -- the real thing ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "kwargs",
    [
        {"run": sgd, "trials": odp.Geometric(10)},
        {"run": sgd, "trials": odp.Geometric(30), "density_bounds": (0.75, 2.0)},
        {"run": sgd(1.0), "trials": odp.Geometric, "density_bounds": (0.75, 2.0)},
        {"run": sgd(1.0), "trials": odp.Poisson},
        {"run": sgd(1.0), "trials": odp.Geometric(10), "density_bounds": bounds_of_ratio},
    ],
)
def test_dp_sgd_is_calibrated(kwargs: dict[str, Any]) -> None:
    found = calibrate(target_epsilon=3.0, delta=DELTA, **kwargs)
    check(found, 3.0, math.inf)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_histories_never_overshoot(seed: int) -> None:
    rng = np.random.default_rng(500 + seed)
    c, big_c = float(rng.uniform(0.6, 0.95)), float(rng.uniform(1.1, 2.5))
    target = float(np.exp(rng.uniform(math.log(0.3), math.log(8.0))))
    trials = (odp.Geometric, odp.Poisson)[seed % 2](float(rng.uniform(2.0, 15.0)))
    found = calibrate(
        target_epsilon=target,
        delta=10.0 ** -float(rng.uniform(4.0, 8.0)),
        run=odp.gaussian,
        trials=trials,
        density_bounds=(c, big_c),
        neighboring_relation=("add_or_remove_one", "replace_one")[seed // 2 % 2],
    )
    check(found, target, 0.1)
