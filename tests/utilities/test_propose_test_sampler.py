"""The doubling loop as an Optuna sampler, and proposers that see private answers only."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
    UnfinishedStudyError,
    WaitError,
)
from optuna_dp.protocol.records import GATE_KEY, read_plan
from optuna_dp.utilities import DoublingPlan
from optuna_dp.utilities import choice as utility_choice
from optuna_dp.utilities.choice import CHOICE_KEY, choices, end_of, read_trace
from optuna_dp.utilities.settings import UtilitySettings
from utilities.utility_support import GRID, LOOP, MAKERS, SPACE, evaluated, mean_utility, run

PLANE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}


def height(trial: optuna.Trial) -> float:
    return (trial.suggest_float("x", 0.0, 1.0) + trial.suggest_float("y", 0.0, 1.0)) / 2


def batches(proposer: BaseSampler | None = None, **kwargs: Any) -> odp.ProposeTestSampler:
    return odp.ProposeTestSampler(
        PLANE, **{**LOOP, "batch_size": 4, "proposer": proposer or RandomSampler(), **kwargs}
    )


def candidates(study: optuna.Study) -> list[Any]:
    """The trials that were tested: those that have ended with a value."""
    return [t for t in study.trials if t.state == TrialState.COMPLETE]


def check_batches(study: optuna.Study) -> None:
    """The trials are what the answers say, and each stage but the last was tested."""
    plan = read_plan(study._storage, study._study_id)
    assert plan is not None
    trace, recorded = read_trace(study), choices(study.trials, plan)
    final = recorded[max(recorded)]
    assert final.finished
    assert sorted(recorded) == list(range(len(recorded)))
    assert len(final.answers) == len(trace) <= len(recorded)
    assert len(trace) <= UtilitySettings.from_json(plan.design.settings).stages
    end = end_of(study.trials, plan)
    for trial in study.trials:
        assert trial.state.is_finished()
        if trial.number >= end:
            assert CHOICE_KEY in trial.system_attrs or GATE_KEY in trial.system_attrs
            assert not trial.params


# One batch of candidates fixed beforehand. What both samplers share is in test_noisy_max.py and
# test_noisy_max_refusals.py.


def test_the_guarantee_is_the_composition_of_the_iteration_bound() -> None:
    study = run(MAKERS["propose_test"](SPACE))
    guarantee = odp.release(study).guarantee
    plan = DoublingPlan(0.2, 0.1)
    assert plan.iteration_bound == 19
    assert guarantee.event == plan.event()
    assert guarantee.epsilon(1e-5) == pytest.approx(3.3666, abs=1e-4)
    assert len(read_trace(study)) < 19  # What was used is not what is charged.


def test_the_statement_says_that_epsilon_is_per_iteration() -> None:
    text = odp.release(run(MAKERS["propose_test"](SPACE))).statement()
    assert "PER ITERATION" in text
    assert "at most 19 iterations" in text
    assert "ONE ITERATION" in (odp.ProposeTestSampler.__doc__ or "")


def test_the_capped_variant() -> None:
    study = run(MAKERS["propose_test"](SPACE, variant="capped", max_iterations=7))
    assert (
        odp.release(study).guarantee.event
        == DoublingPlan(0.2, 0.1, variant="capped", max_iterations=7).event()
    )
    assert len(read_trace(study)) <= 7


def test_nothing_may_be_chosen() -> None:
    """No utility reaches the lower bound: that is an outcome like any other."""
    sampler = MAKERS["propose_test"](SPACE, lower_bound=0.8)
    study = run(sampler, lambda trial: mean_utility(trial) / 2)
    release = odp.release(study)
    assert release.params is None
    assert release.value is None
    assert odp.publish(release, optuna.storages.InMemoryStorage(), "nothing").trials == []


def test_the_trace_of_another_study() -> None:
    for study in (optuna.create_study(), run(MAKERS["noisy_max"](SPACE))):
        with pytest.raises(PlanError, match="no doubling loop"):
            read_trace(study)


# Batches from a proposer.


@pytest.mark.parametrize("n_jobs", [1, 4])
def test_batches_are_proposed_and_tested_until_the_loop_ends(n_jobs: int) -> None:
    study = run(batches(), height, n_jobs=n_jobs)
    check_batches(study)
    release = odp.release(study)
    assert release == odp.release(study)
    assert release.params in [t.params for t in candidates(study)]
    assert release.guarantee.event == DoublingPlan(0.2, 0.1).event()
    if n_jobs == 1:
        assert len(candidates(study)) == 4 * len(read_trace(study))
    trials = len(study.trials)
    study.optimize(height)
    assert len(study.trials) <= trials + 1
    assert odp.release(study) == release


@pytest.mark.parametrize("size", [1, 3])
def test_the_number_of_trials_is_a_function_of_the_answers(size: int) -> None:
    study = run(batches(batch_size=size), height)
    check_batches(study)
    iterations = len(read_trace(study))
    # Every iteration has its candidates and an answer; one more trial finds the loop ended.
    assert len(study.trials) == iterations * (size + 1) + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tpe", "cmaes", "qmc"])
def test_optunas_samplers_propose(name: str) -> None:
    proposer = {
        "tpe": lambda: optuna.samplers.TPESampler(n_startup_trials=4),
        "cmaes": lambda: optuna.samplers.CmaEsSampler(popsize=4),
        "qmc": lambda: optuna.samplers.QMCSampler(qmc_type="halton"),
    }[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = run(batches(proposer()), height, n_jobs=2)
    check_batches(study)
    assert odp.release(study).params is not None
    assert len({t.params["x"] for t in candidates(study)}) == len(candidates(study))


class Recording(RandomSampler):
    """A proposer that writes down all it can find."""

    seen: list[Any] = []  # noqa: RUF012 - shared by the copies that are made of it

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        Recording.seen.append(
            (
                [
                    (t.state, t.value, t.params, t.user_attrs, t.intermediate_values,
                     t.system_attrs, t.datetime_complete)
                    for t in study.get_trials(deepcopy=True) if t.number < trial.number
                ],
                dict(study.user_attrs),
                study._storage.get_study_system_attrs(study._study_id),
                [s.study_name for s in study._storage.get_all_studies()],
                study.study_name,
            )
        )  # fmt: skip
        return super().sample_relative(study, trial, search_space)


def _leaky(scale: float) -> Callable[[optuna.Trial], float]:
    """An objective that leaves its utility wherever a trial has a place for it."""

    def objective(trial: optuna.Trial) -> float:
        value = scale * height(trial) + 1e-3
        trial.set_user_attr("utility", value)
        trial.report(value, step=0)
        trial.study.set_user_attr(f"utility {trial.number}", value)
        trial.suggest_float(f"extra {value}", 0.0, value)
        return value

    return objective


@pytest.mark.slow
def test_no_utility_reaches_the_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Same answers, other utilities: the proposer finds exactly the same."""
    answers = [0, 2, None, 1, None, None, None, None, None]

    def observed(scale: float) -> tuple[list[Any], optuna.Study]:
        Recording.seen = []
        given = iter(answers)
        monkeypatch.setattr(utility_choice, "above_threshold", lambda *_: next(given, None))
        seeded = lambda self: self._rng.rng.seed(len(Recording.seen))  # noqa: E731
        monkeypatch.setattr(Recording, "reseed_rng", seeded)
        study = run(batches(Recording()), _leaky(scale))
        check_batches(study)
        return Recording.seen, study

    first, study = observed(0.9)
    second, _ = observed(0.3)
    assert len(first) > 20
    assert first == second
    allowed = {None, 0.0, *(float(step.utility) for step in read_trace(study))}
    for trials, user_attrs, system_attrs, studies, name in first:
        assert not user_attrs
        assert not system_attrs
        assert studies == [name]
        for state, value, params, attrs, reported, hidden, _time in trials:
            assert state in (TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING)
            assert value in allowed
            assert params.keys() <= {"x", "y"}
            assert not attrs
            assert not reported
            assert not hidden
    # The check can fail: the same records of the study itself hold utilities.
    assert any(t.value not in allowed for t in candidates(study))


def test_what_a_proposer_is_told() -> None:
    from optuna_dp.utilities.proposed_candidates import outcome_of

    assert [outcome_of(i, 2, 0.3) for i in range(4)] == [0.0, 0.0, 0.3, None]
    assert [outcome_of(i, None, 0.3) for i in range(3)] == [0.0] * 3


def test_an_interrupted_study_of_batches_goes_on() -> None:
    study = run(batches(), height, n_trials=7)
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)
    answered = read_trace(study)
    assert len(answered) == 1
    study.sampler = batches()
    study.optimize(height)
    check_batches(study)
    assert read_trace(study)[:1] == answered
    odp.release(study)


@pytest.mark.slow
def test_a_worker_that_dies_while_it_makes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = utility_choice.above_threshold, []

    def dies(*arguments: Any) -> int | None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(utility_choice, "above_threshold", dies)
    study = optuna.create_study(direction="maximize", sampler=batches())
    with pytest.raises(KeyboardInterrupt):
        study.optimize(height)
    assert len(read_trace(study)) == 1
    dead = [t.number for t in study.trials if t.state == TrialState.RUNNING]
    odp.recover(study, fail=dead)
    study.optimize(height)
    check_batches(study)
    assert odp.release(study).params is not None


def test_a_failed_candidate_of_a_batch_ends_the_study() -> None:
    def fails(trial: optuna.Trial) -> float:
        value = height(trial)
        if trial.number == 2:
            raise RuntimeError("bad record")
        return value

    study = optuna.create_study(direction="maximize", sampler=batches())
    with pytest.raises(ReleaseRefusedError, match="Trial 2"):
        study.optimize(fails, catch=(RuntimeError,))
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    assert read_trace(study) == ()


def test_a_batch_waits_for_the_one_before_it() -> None:
    study = optuna.create_study(direction="maximize", sampler=batches(batch_size=2))
    asked = [study.ask() for _ in range(3)]
    study.tell(asked[0], height(asked[0]))
    with pytest.raises(WaitError, match="batch_size"):
        height(asked[2])
    study.tell(asked[1], height(asked[1]))
    study.tell(asked[2], height(asked[2]))
    assert len(read_trace(study)) == 1


SHARED: dict[str, tuple[Callable[[], Any], Callable[[optuna.Trial], float]]] = {
    "batches": (batches, height),
    "grid": (lambda: MAKERS["propose_test"](SPACE), mean_utility),
}


def _work(path: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = JournalStorage(JournalFileBackend(path))
    for name, (sampler, objective) in SHARED.items():
        study = optuna.load_study(study_name=name, storage=storage, sampler=sampler())
        study.optimize(objective)


@pytest.mark.slow
def test_three_processes_agree_on_every_answer(tmp_path: Path) -> None:
    path = str(tmp_path / "study.log")
    storage = JournalStorage(JournalFileBackend(path))
    for name in SHARED:
        optuna.create_study(study_name=name, storage=storage, direction="maximize")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        for job in [pool.submit(_work, path) for _ in range(3)]:
            job.result()
    for name in SHARED:
        study = optuna.load_study(study_name=name, storage=storage)
        release = odp.release(study)
        assert release == odp.release(study)
        assert release.params in [t.params for t in evaluated(study)]
        if name == "batches":
            check_batches(study)
        else:
            assert [t.params["x"] for t in evaluated(study)] == pytest.approx(GRID)


@pytest.mark.slow
def test_the_choice_has_the_law_of_the_mechanism() -> None:
    """The sampler chooses as the mechanism itself does on the same utilities.

    Fails falsely with probability below 2e-8: 5.9 standard errors of the difference, four times.
    """
    from optuna_dp.utilities import Utilities, propose_test

    plan, k, runs = DoublingPlan(0.5, 0.1), 20, 480
    utilities = Utilities.from_means(GRID, k)
    sampler = {"n_partitions": k, "epsilon": 0.5, "granularity": 0.1, "resolve": 1e9}
    chosen: list[float] = []
    for _ in range(runs):
        study = run(
            odp.ProposeTestSampler(SPACE, **sampler),
            lambda trial: trial.suggest_float("x", 0.0, 1.0, step=0.1),
        )
        params = odp.release(study).params
        chosen.append(-0.1 if params is None else params["x"])
    direct = [propose_test(utilities, plan).choice for _ in range(10 * runs)]
    for edge in (-0.05, 0.25, 0.55, 0.85):
        mine = sum(x > edge for x in chosen) / runs
        theirs = sum(c is not None and GRID[c] > edge for c in direct) / len(direct)
        assert abs(mine - theirs) < 6.2 * (0.25 / runs) ** 0.5, edge


@pytest.mark.slow
def test_the_example_prints_the_accountants_epsilon() -> None:
    """100 candidates on the digits, the choice, the final training, one statement."""
    root = Path(odp.__file__).parents[1]
    said = subprocess.run(
        [sys.executable, str(root / "examples" / "propose_test_digits.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    ).stdout
    training = odp.compose(
        odp.dp_sgd(noise_multiplier=2.0, sample_rate=64 / 1355, steps=424), odp.gaussian(8.0)
    )
    whole = odp.Guarantee(odp.compose(odp.pure_dp(1.0), training))
    assert f"epsilon of the pipeline: {whole.epsilon(1e-5):.4f}" in said
    assert "Final training" in said
    assert "100: a list fixed beforehand" in said
