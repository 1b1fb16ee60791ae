"""The public surface, given what it should not be given: a result that keeps its promise, or an
error of this package. Never another exception, never NaN."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from samplers.budget.budget_support import budget
from support import RUN, exactly, finished_study

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError
from optuna_dp.mechanisms.partitions_needed import NoiseWarning

from .junk import few, many, odd, outcome

numbers = st.floats() | st.integers(-3, 3) | odd
LAWS: dict[str, Callable[..., Any]] = {
    "shape and gamma": lambda a, b: odp.NegativeBinomial(shape=a, gamma=b),
    "shape and mean": lambda a, b: odp.NegativeBinomial(shape=a, mean=b),
    "geometric": lambda a, b: odp.Geometric(a),
    "logarithmic": lambda a, b: odp.Logarithmic(a),
    "poisson": lambda a, b: odp.Poisson(a),
    "binomial": lambda a, b: odp.Binomial(a, b),
    "capped": lambda a, b: odp.Geometric(mean=5).capped(a),
}
EVENTS: dict[str, Callable[..., Any]] = {
    "gaussian": lambda a, b: odp.gaussian(a),
    "laplace": lambda a, b: odp.laplace(a),
    "pure_dp": lambda a, b: odp.pure_dp(a),
    "bounded_range": lambda a, b: odp.bounded_range(a),
    "approximate_dp": odp.approximate_dp,
    "zcdp": lambda a, b: odp.zcdp(a),
    "rdp": odp.rdp,
    "rdp of one": lambda a, b: odp.rdp([a], [b]),
    "from_profile": odp.from_profile,
    "from_profile of one": lambda a, b: odp.from_profile([a], [b]),
    "from_pld": lambda a, b: odp.from_pld(a),
    "dp_sgd": lambda a, b: odp.dp_sgd(noise_multiplier=a, sample_rate=b, steps=10),
    "dp_sgd steps": lambda a, b: odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.1, steps=a),
    "compose": odp.compose,
    "worst_case": odp.worst_case,
    "from_opacus": lambda a, b: odp.from_opacus(a),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_are_laws_or_refused(name: str) -> None:
    @many
    @given(numbers, numbers)
    def check(a: Any, b: Any) -> None:
        law = outcome(lambda: LAWS[name](a, b))
        if isinstance(law, OptunaDPError):
            return
        assert 0.0 < law.mean < math.inf
        assert odp.TrialCount.from_json(law.to_json()) == law
        for s in (0.0, 0.3, 1.0):
            assert 0.0 <= law.pgf(s) <= 1.0 + 1e-9
            assert law.pgf_derivative(s) >= 0.0
        for k in (0, 1, 2, 30):
            assert 0.0 <= law.pmf(k) <= 1.0 + 1e-9
            assert 0.0 <= law.tail(k) <= 1.0 + 1e-9

    check()


@pytest.mark.parametrize("name", EVENTS)
def test_events_are_events_or_refused(name: str) -> None:
    from optuna_dp.accounting.event_json import event_from_json, event_to_json

    @many
    @given(numbers, numbers)
    def check(a: Any, b: Any) -> None:
        event = outcome(lambda: EVENTS[name](a, b))
        if not isinstance(event, OptunaDPError):
            assert event_from_json(event_to_json(event)) == event

    check()


BASES = [
    odp.pure_dp(0.5),
    odp.bounded_range(0.5),
    odp.zcdp(0.01),
    odp.rdp([2.0, 8.0], [0.1, 0.4]),
    odp.gaussian(4.0),
]


@few
@given(
    st.sampled_from(BASES) | odd,
    st.sampled_from([odp.Geometric(mean=3), odp.Poisson(2.0)]) | odd,
    st.tuples(numbers, numbers) | odd | st.just((1.0, 1.0)),
    st.sampled_from(["history", "data"]) | odd,
    st.sampled_from(["add_or_remove_one", "replace_one"]) | odd,
)
def test_selections_are_guaranteed_or_refused(
    run: Any, trials: Any, bounds: Any, policy: Any, relation: Any
) -> None:
    outcome(
        lambda: odp.selection_guarantee(
            run, trials, density_bounds=bounds, policy=policy, neighboring_relation=relation
        )
    )


@functools.cache
def guarantee(i: int) -> odp.Guarantee:
    return odp.selection_guarantee(BASES[i], odp.Geometric(mean=3))


@pytest.mark.slow
@few
@given(st.integers(0, 2), numbers, numbers)
@example(2, 1e-5, 1e155)  # Orders whose square is beyond the largest number.
@example(2, 1e-5, 1e300)
def test_guarantees_answer_or_refuse(i: int, delta: Any, epsilon: Any) -> None:
    found = outcome(lambda: guarantee(i).epsilon(delta))
    assert isinstance(found, OptunaDPError) or found >= 0.0
    found = outcome(lambda: guarantee(i).delta(epsilon))
    assert isinstance(found, OptunaDPError) or 0.0 <= found <= 1.0
    outcome(lambda: guarantee(i).rdp([epsilon]))


X = {"x": FloatDistribution(-1.0, 1.0)}
spaces = st.sampled_from(
    [None, X, {"k": IntDistribution(1, 9)}, {"c": CategoricalDistribution("ab")}]
)
MAKERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "rand_tune": (
        odp.RandTuneSampler,
        {
            "search_space": X,
            "trials": exactly(2),
            "prior": None,
            "run": RUN,
            "neighboring_relation": None,
            "output_attributes": (),
            "seed": None,
        },
    ),
    "dp_hypo": (
        odp.DPHyPOSampler,
        {
            "search_space": X,
            "trials": exactly(2),
            "density_bounds": (0.5, 2.0),
            "schedule": "batch",
            "batch_size": 1,
            "projection": "kl",
            "tau": 0.1,
            "beta": 1.0,
            "surrogate": None,
            "candidates": 4,
            "prior": None,
            "run": RUN,
            "neighboring_relation": None,
            "output_attributes": (),
            "seed": None,
        },
    ),
    "budget": (
        odp.BudgetSampler,
        {
            "plan": budget(3, 1),
            "search_space": X,
            "proposer": None,
            "choose": "best",
            "pilot_batch_size": 1,
            "output_attributes": (),
            "seed": None,
        },
    ),
    "noisy_max": (
        odp.NoisyMaxSampler,
        {
            "search_space": X,
            "candidates": 2,
            "n_partitions": 900,
            "epsilon": 1.0,
            "resolve": 0.05,
            "neighboring_relation": "add_or_remove_one",
            "seed": None,
        },
    ),
    "propose_test": (
        odp.ProposeTestSampler,
        {
            "search_space": X,
            "candidates": 2,
            "n_partitions": 30_000,
            "epsilon": 0.2,
            "granularity": 0.2,
            "lower_bound": 0.0,
            "variant": "bounded",
            "max_iterations": None,
            "resolve": 0.3,
            "neighboring_relation": "add_or_remove_one",
            "seed": None,
        },
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_samplers_refuse_what_they_do_not_understand_when_they_are_made(name: str) -> None:
    make, sound = MAKERS[name]

    @many
    @given(st.sampled_from(sorted(sound)), numbers | spaces)
    def check(argument: str, value: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)
            sampler = outcome(lambda: make(**{**sound, argument: value}))
        if isinstance(sampler, OptunaDPError):
            return
        # Accepted, so it can be written down and a study can begin.
        study = optuna.create_study(sampler=sampler)
        study.ask()
        assert len(study.get_trials()) == 1

    check()


@pytest.mark.slow
@many
@given(st.sampled_from(["delta", "artifact_store", "failures"]), numbers)
def test_releases_are_releases_or_refused(argument: str, value: Any) -> None:
    study = finished_study(odp.RandTuneSampler(trials=exactly(2), run=RUN))
    found = outcome(lambda: odp.release(study, vouched="a test", **{argument: value}))
    if not isinstance(found, OptunaDPError):
        assert found.params is not None
        assert odp.release(study, vouched="a test").params == found.params
        return
    # A refusal leaves no trace.
    assert not study._storage.get_study_system_attrs(study._study_id)
