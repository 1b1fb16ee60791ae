"""Runs that fail for certain are charged for, or somebody vouches that they failed by chance."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import optuna
import pytest
from optuna.trial import Trial, TrialState
from refusals import refuses
from support import exactly, logged, study_of

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.samplers.selection.failures import UNLIKELY, is_unlikely_block, longest_block

RUN = odp.pure_dp(0.1)  # Quickly accounted for.
X = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}


def fails_from(first: int, until: int = 10**9) -> Any:
    def objective(trial: Trial) -> float:
        value = trial.suggest_float("x", 0, 1)
        if first <= trial.number < until:
            raise RuntimeError("the objective is broken")
        return value

    return objective


def stopped(sampler: Any, first: int, until: int = 10**9) -> optuna.Study:
    study = study_of(sampler)
    study.optimize(fails_from(first, until), catch=(Exception,), callbacks=[odp.PrivacyCallback()])
    return study


@pytest.mark.promise("failures")
@pytest.mark.slow
def test_an_objective_that_raises_from_its_fourth_call_on() -> None:
    study = stopped(odp.RandTuneSampler(trials=exactly(109), run=RUN), 3)
    with pytest.raises(ReleaseRefusedError, match="failures="):
        odp.release(study)
    found = odp.release(study, failures="lost", vouched="a test")
    assert found.value == study.best_value
    three = odp.selection_guarantee(RUN, odp.Binomial(3, mean=3))
    assert found.guarantee.epsilon(1e-5) == three.epsilon(1e-5)
    assert found.disclosed_runs == 3
    assert "3 runs could be chosen" in found.statement()
    assert "3 runs could be chosen" in odp.verify(found.to_json()).statement


@pytest.mark.slow
def test_where_the_first_runs_were_lost_none_is_charged_as_a_run_from_the_prior() -> None:
    sampler = odp.DPHyPOSampler(
        X, trials=exactly(16), startup_runs=10, density_bounds=(0.5, 2.0), candidates=4, run=RUN
    )
    found = odp.release(stopped(sampler, 0, 10), failures="lost", vouched="a test")
    adaptive = odp.selection_guarantee(RUN, odp.Binomial(6, mean=6), density_bounds=(0.5, 2.0))
    assert found.guarantee.epsilon(1e-5) == adaptive.epsilon(1e-5)
    assert "drawn from the prior itself" not in found.statement()


@pytest.mark.slow
def test_runs_that_failed_by_chance_are_released_by_the_law_of_their_number() -> None:
    law = odp.Binomial(110, mean=109.0)  # Not exactly so many: their number is secret.
    sampler = odp.RandTuneSampler(trials=law, run=RUN)
    vouched = odp.release(stopped(sampler, 3), failures="chance", vouched="a test")
    assert vouched.disclosed_runs is None
    assert "could be chosen from" not in vouched.statement()
    expected = odp.selection_guarantee(RUN, law)
    assert vouched.guarantee.epsilon(1e-5) == expected.epsilon(1e-5)


@pytest.mark.slow
def test_asking_and_failing_until_release_accepts() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(60), run=RUN))
    for i in range(60):
        trial = study.ask()
        value = trial.suggest_float("x", 0, 1)
        if i < 10:
            study.tell(trial, value)
        else:
            study.tell(trial, state=TrialState.FAIL)
    with pytest.raises(ReleaseRefusedError, match="failures="):
        odp.release(study)
    charged = odp.release(study, failures="lost", vouched="a test").guarantee.epsilon(1e-5)
    law = odp.selection_guarantee(RUN, odp.Geometric(mean=1000))
    cut = odp.selection_guarantee(RUN, odp.Geometric(mean=1000).capped(10))
    # The attack on min(T, 10) that the plain statement does not cover, and the charge does.
    assert law.epsilon(1e-5) < cut.bounds(1e-5)[0] < charged


@pytest.mark.slow
def test_a_block_in_the_middle() -> None:
    sampler = odp.DPHyPOSampler(
        X, trials=exactly(14), density_bounds=(1, 1), candidates=4, run=RUN
    )
    study = stopped(sampler, 3, 10)
    with pytest.raises(ReleaseRefusedError, match="failures="):
        odp.release(study)
    found = odp.release(study, failures="lost", vouched="a test")
    assert found.disclosed_runs == 7
    assert found.guarantee.epsilon(1e-5) > odp.Guarantee(RUN).epsilon(1e-5)


@pytest.mark.promise("the study goes on after the release")
@pytest.mark.slow
def test_a_second_answer_about_failures_is_a_second_release() -> None:
    """Each answer tells something else, so only the first one is given, however often."""
    study = stopped(odp.RandTuneSampler(trials=exactly(60), run=RUN), 10)
    first = odp.release(study, failures="chance", vouched="a test")
    with pytest.raises(ReleaseRefusedError, match="compose"):
        odp.release(study, failures="lost", vouched="a test")
    assert odp.release(study, failures="chance", vouched="a test") == first
    study = stopped(odp.RandTuneSampler(trials=exactly(60), run=RUN), 10)
    first = odp.release(study, failures="lost", vouched="a test")
    with pytest.raises(ReleaseRefusedError, match="compose"):
        odp.release(study, failures="chance", vouched="a test")
    assert odp.release(study, failures="lost", vouched="a test") == first


def test_nothing_that_failed_for_certain_is_asked_about_where_there_is_none() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    with refuses("failures"):
        odp.release(study, failures="lost", vouched="a test")
    with refuses("failures"):
        odp.release(study, failures="luck", vouched="a test")  # type: ignore[arg-type]
    assert odp.release(study, failures="chance", vouched="a test").value == study.best_value


@pytest.mark.slow
def test_all_failed_is_an_outcome_like_others() -> None:
    study = stopped(odp.RandTuneSampler(trials=exactly(40), run=RUN), 0)
    assert odp.release(study, vouched="a test").params is None


@pytest.mark.slow
def test_the_curator_is_told_when_it_happens() -> None:
    with logged() as lines:
        stopped(odp.RandTuneSampler(trials=exactly(60), run=RUN), 10)
    assert len([line for line in lines if "So many runs fail in a row" in line]) == 1


@pytest.mark.promise("failures")
@pytest.mark.parametrize("n", range(1, 13))
def test_chance_is_taken_for_something_else_as_rarely_as_stated(n: int) -> None:
    """Every order of f failures among n runs, equally likely."""
    for f in range(n + 1):
        orders = itertools.combinations(range(n), f)
        asked = sum(is_unlikely_block([i in set(order) for i in range(n)]) for order in orders)
        # At the end and elsewhere are judged apart.
        assert asked <= 2 * UNLIKELY * math.comb(n, f)


def test_longest_block() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        failed = [rng.random() < 0.6 for _ in range(rng.randint(0, 15))]
        start, length = longest_block(failed)
        assert all(failed[start : start + length])
        text = "".join("x" if one else "." for one in failed)
        assert length == max(map(len, text.split(".")))
