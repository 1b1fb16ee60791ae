"""Objectives that do what they should not: the study ends, and is released or refused."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import Trial
from samplers.budget.budget_support import budget
from support import RUN, asking, exactly, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError

COUNT = 4
X = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(trials=exactly(COUNT), run=RUN),
    "dp_hypo": lambda: odp.DPHyPOSampler(X, trials=exactly(COUNT), candidates=4, run=RUN),
}


def raises(trial: Trial) -> float:
    raise RuntimeError("the objective's own")


def first_raises(trial: Trial) -> float:
    value = trial.suggest_float("x", 0, 1)
    if trial.number == 0:
        raise MemoryError
    return value


def returns(what: Any) -> Callable[[Trial], Any]:
    def objective(trial: Trial) -> Any:
        trial.suggest_float("x", 0, 1)
        return what

    return objective


def sleeps(trial: Trial) -> float:
    time.sleep(0)
    return trial.suggest_float("x", 0, 1)


def asks_for_nothing(trial: Trial) -> float:
    return 1.0


def reports_nonsense(trial: Trial) -> float:
    trial.report(math.nan, step=2**31 - 1)
    trial.report(math.inf, step=0)
    trial.should_prune()
    return trial.suggest_float("x", 0, 1)


# What each study ends as: a value, None (nothing succeeded, which is an outcome), or a refusal.
RELEASED: dict[str, tuple[Callable[[Trial], Any], Any]] = {
    "raises": (raises, None),
    "raises once": (first_raises, float),
    "NaN": (returns(math.nan), None),
    "inf": (returns(math.inf), math.inf),
    "-inf": (returns(-math.inf), -math.inf),
    "None": (returns(None), None),
    "text": (returns("good"), None),
    "a tuple": (returns((1.0, 2.0)), None),
    "a tuple of one": (returns((1.0,)), 1.0),
    "an empty tuple": (returns(()), None),
    "an object": (returns(object()), None),
    "a complex number": (returns(1j), None),
    "True": (returns(True), 1.0),
    "sleeps": (sleeps, float),
    "asks for nothing": (asks_for_nothing, 1.0),
    "reports nonsense": (reports_nonsense, float),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", RELEASED)
def test_what_objectives_do_to_themselves_is_an_outcome_of_a_run(name: str, sampler: str) -> None:
    objective, expected = RELEASED[name]
    study = study_of(SAMPLERS[sampler]())
    study.optimize(objective, catch=(Exception,))
    assert len(study.trials) == COUNT
    assert all(t.state.is_finished() for t in study.trials)
    found = odp.release(study, vouched="a test")
    if expected is float:
        assert 0.0 <= found.value <= 1.0
    else:
        assert found.value == expected
    assert found.attributes == {}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", RELEASED)
def test_what_objectives_do_to_themselves_is_an_outcome_of_a_run_of_a_budget(name: str) -> None:
    objective, expected = RELEASED[name]
    study = study_of(odp.BudgetSampler(budget(COUNT - 1), search_space=X))
    if expected is None:
        with pytest.raises(PlanError, match="enqueue_trial"):
            study.optimize(asking(objective), catch=(Exception,))
        study.enqueue_trial({"x": 0.5})
    study.optimize(asking(objective), catch=(Exception,))
    found = odp.release(study, vouched="These attributes are made of no data.")
    assert len(found.pilots) == COUNT - 1
    assert set(found.attributes) <= {"pilots", "last run"}
    if expected is float:
        assert 0.0 <= found.value <= 1.0
    else:
        assert found.value == expected


def test_errors_that_are_not_caught_end_the_loop_and_cost_one_run() -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    with pytest.raises(RuntimeError, match="own"):
        study.optimize(raises)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(lambda trial: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)


def test_stopping_the_study_leaves_it_unfinished_until_it_is_continued() -> None:
    def stops(trial: Trial) -> float:
        trial.study.stop()
        return trial.suggest_float("x", 0, 1)

    study = study_of(SAMPLERS["rand_tune"]())
    for done in range(1, COUNT + 1):
        study.optimize(stops)
        assert len(study.trials) == done
        if done < COUNT:
            with pytest.raises(UnfinishedStudyError):
                odp.release(study)
    assert odp.release(study, vouched="a test").value is not None


@pytest.mark.parametrize("value", ["0.5", 10**400], ids=["text", "too large"])
def test_values_that_optuna_itself_stumbles_over(value: Any) -> None:
    """Optuna ends the loop with an error of its own and may leave the run open."""
    study = study_of(SAMPLERS["rand_tune"]())
    for _ in range(COUNT):
        with contextlib.suppress(AssertionError, TypeError, OverflowError):
            study.optimize(returns(value))
    is_open = odp.recover(study)
    if is_open:
        with pytest.raises(UnfinishedStudyError):
            odp.release(study)
        odp.recover(study, fail=[trial.number for trial in is_open])
    assert len(study.trials) == COUNT
    assert odp.release(study, vouched="a test").value in (None, 0.5)


def test_another_kind_of_parameter_under_the_same_name_fails_the_run() -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    study.optimize(changes_kind, catch=(ValueError,))
    assert [t.state.name for t in study.trials] == ["COMPLETE", "FAIL"] * 2
    assert odp.release(study, vouched="a test").value is not None


def widens(trial: Trial) -> float:
    return trial.suggest_float("x", 0, 1 + trial.number)


def changes_kind(trial: Trial) -> float:
    if trial.number % 2:
        return float(trial.suggest_int("x", 0, 9))
    return trial.suggest_float("x", 0, 1)


def enqueues(trial: Trial) -> float:
    if trial.number == 1:
        trial.study.enqueue_trial({"x": 0.5})
    return trial.suggest_float("x", 0, 1)


def adds(trial: Trial) -> float:
    made = optuna.trial.create_trial(params={"x": 0.5}, distributions=X, value=9.0)
    trial.study.add_trial(made)
    return trial.suggest_float("x", 0, 1)


def asks(trial: Trial) -> float:
    if trial.number == 0:
        trial.study.ask()
    return trial.suggest_float("x", 0, 1)


@pytest.mark.parametrize(
    "objective",
    [widens, enqueues, adds, asks],
    ids=lambda f: f.__name__,
)
def test_what_objectives_do_to_the_study_is_refused(objective: Callable[[Trial], float]) -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    try:
        study.optimize(objective, catch=(Exception,))
    except PlanError:  # Said at once; whoever goes on all the same is refused in the end.
        study.optimize(objective, catch=(Exception,))
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)


def test_candidates_of_a_conditional_space_may_differ() -> None:
    """They share what is asked for first."""
    candidates = [{"kind": "a", "depth": 3}, {"kind": "b", "rate": 0.5}]
    study = study_of(odp.NoisyMaxSampler(candidates=candidates, n_partitions=900, epsilon=5.0))

    def objective(trial: Trial) -> float:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return 0.1 * trial.suggest_int("depth", 1, 9)
        return trial.suggest_float("rate", 0, 1)

    study.optimize(objective)
    assert odp.release(study).params in candidates
