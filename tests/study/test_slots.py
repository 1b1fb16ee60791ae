"""Exactly T runs: whatever the workers and the hooks. On storages: tests/reliability."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from slow_cases import slow_if
from support import RUN, ask, exactly, objective, study_of, tell

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
)
from optuna_dp.study import entropy
from optuna_dp.study.drawn_slots import draw_alone
from optuna_dp.study.entries import SLOT
from optuna_dp.study.trials import read_plan

SAMPLERS: dict[str, Any] = {
    "rand_tune": lambda **kw: odp.RandTuneSampler(**kw, run=RUN),
    "dp_hypo_batch": lambda **kw: odp.DPHyPOSampler(candidates=16, batch_size=2, **kw, run=RUN),
    "dp_hypo_any": lambda **kw: odp.DPHyPOSampler(candidates=16, schedule="any", **kw, run=RUN),
}


def slots_of(study: optuna.Study) -> int:
    plan = read_plan(study)
    assert plan is not None
    return plan.slots


def check_exactly_t(study: optuna.Study) -> None:
    """Every run that the plan has is there and has ended, and no other trial has run."""
    slots = slots_of(study)
    trials = study.trials
    assert [t.number for t in trials] == list(range(len(trials)))
    assert len(trials) >= slots
    for trial in trials:
        if trial.number < slots:
            assert trial.state in (TrialState.COMPLETE, TrialState.FAIL)
            assert trial.params
        else:
            assert trial.state == TrialState.PRUNED
            assert not trial.params


@pytest.mark.promise("a study is resumed")
@pytest.mark.parametrize(
    ("n_jobs", "name"),
    slow_if(
        lambda n_jobs, name: n_jobs > 1 and name != "rand_tune",
        [(n_jobs, name) for n_jobs in (1, 4) for name in SAMPLERS],
    ),
)
def test_exactly_t_runs_take_place(name: str, n_jobs: int) -> None:
    for _ in range(10 if n_jobs == 1 else 20):
        study = study_of(SAMPLERS[name](trials=odp.Geometric(mean=4)))
        study.optimize(objective, n_jobs=n_jobs)
        check_exactly_t(study)
        if n_jobs == 1:
            assert len(study.trials) == slots_of(study)


def test_no_arguments_are_needed() -> None:
    study = optuna.create_study(sampler=odp.DPHyPOSampler(run=RUN))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) ** 2)
    check_exactly_t(study)


@pytest.mark.slow
def test_the_callback_changes_nothing() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert len(study.trials) == 5


@pytest.mark.promise("a study is resumed")
def test_resuming_adds_no_run() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(6), run=RUN))
    study.optimize(objective, n_trials=2)
    study.optimize(objective, n_trials=2)
    study.optimize(objective)
    study.optimize(objective)
    study.optimize(objective, n_jobs=3)
    check_exactly_t(study)
    assert slots_of(study) == 6


def test_ask_and_tell_stops_at_t() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, objective(trial))
    beyond = study.ask()
    with pytest.raises(optuna.TrialPruned):
        objective(beyond)
    study.tell(beyond, state=TrialState.PRUNED)
    check_exactly_t(study)


def test_a_poisson_law_may_give_no_run_at_all() -> None:
    study = study_of(odp.RandTuneSampler(trials=odp.Poisson(mean=1e-9), run=RUN))
    study.optimize(objective)
    assert slots_of(study) == 0
    assert [t.state for t in study.trials] == [TrialState.PRUNED]
    assert odp.release(study, vouched="a test").params is None


@pytest.mark.promise("failures")
def test_a_failed_run_is_a_run_and_is_not_repeated() -> None:
    def fails(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        raise RuntimeError("out of memory")

    study = study_of(odp.RandTuneSampler(trials=exactly(4), run=RUN))
    study.optimize(fails, catch=(RuntimeError,))
    assert [t.state for t in study.trials] == [TrialState.FAIL] * 4


def test_hyperbands_wrapped_study_works() -> None:
    def reports(trial: optuna.Trial) -> float:
        value = objective(trial)
        trial.report(value, step=1)
        if trial.should_prune():
            raise optuna.TrialPruned
        return value

    for sampler in (
        odp.RandTuneSampler(trials=exactly(8), run=RUN),
        odp.DPHyPOSampler(trials=exactly(8), candidates=16, run=RUN),
    ):
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=4)
        study = study_of(sampler, pruner=pruner)
        study.optimize(reports)
        assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 8
        odp.release(study, vouched="a test")


def test_every_run_has_a_tie_break_of_its_own() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(50), run=RUN))
    study.optimize(objective)
    ties = {t.system_attrs[SLOT.key]["tie_break"] for t in study.trials}
    assert len(ties) == 50


@pytest.mark.promise("a trial was enqueued in a private selection")
def test_an_enqueued_trial_is_refused_at_once() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    study.enqueue_trial({"x": 0.5})
    with pytest.raises(PlanError):
        study.optimize(objective)
    assert [t.state for t in study.trials] == [TrialState.FAIL]


def test_a_study_begun_by_another_sampler_is_refused() -> None:
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=exactly(3), run=RUN)
    with pytest.raises(PlanError):
        study.optimize(objective)
    assert all(t.state.is_finished() for t in study.trials)


@pytest.mark.promise("a worker has another plan")
def test_a_worker_with_another_plan_does_not_run() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=2)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=7), run=RUN)
    calls: list[int] = []
    for _ in range(3):
        with pytest.raises(PlanError, match="trials"):
            study.optimize(lambda trial: calls.append(1) or objective(trial), catch=(PlanError,))
    with pytest.raises(PlanError):
        study.ask()
    assert calls == []
    assert len(study.trials) == 2
    study.sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    study.optimize(objective)
    assert len(study.trials) == 5
    odp.release(study, vouched="a test")


def test_a_worker_with_another_plan_takes_no_run_that_waits() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=3
    )
    study = study_of(odp.BudgetSampler(plan))

    def with_start_run(trial: optuna.Trial) -> float:
        ask(trial)
        score: float = tell(trial, objective(trial))
        return score

    study.optimize(with_start_run, n_trials=1)
    study.enqueue_trial({"x": 0.5})
    study.sampler = odp.BudgetSampler(plan, pilot_batch_size=2)
    with pytest.raises(PlanError):
        study.optimize(with_start_run)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE, TrialState.WAITING]
    study.sampler = odp.BudgetSampler(plan)
    study.optimize(with_start_run)
    assert study.trials[1].params == {"x": 0.5}
    assert len(odp.release(study).pilots) == 3


@pytest.mark.promise("a worker has another plan")
def test_a_worker_with_another_plan_that_began_before_the_plan_was_written_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    study.optimize(objective, n_trials=2)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=7), run=RUN)
    calls: list[int] = []
    with monkeypatch.context() as early:
        # As it finds a study that has no plan yet.
        early.setattr(odp.RandTuneSampler, "check_before_asking", lambda *_: None)
        with pytest.raises(PlanError):
            # Optuna's catch= would otherwise spend every run that remains.
            study.optimize(lambda trial: calls.append(1) or objective(trial), catch=(PlanError,))
    assert calls == []
    assert [t.state for t in study.trials[2:]] == [TrialState.FAIL]
    assert not study.trials[2].params
    study.sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study, vouched="a test")
    assert caught.value.trial_number == 2


def test_a_sampler_exchanged_within_a_run_does_not_draw_for_it() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN))
    trial = study.ask()
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=7), run=RUN)
    with pytest.raises(PlanError):
        objective(trial)


@pytest.mark.slow
def test_a_slot_lost_to_a_wrong_configuration_cannot_count_as_a_failed_run() -> None:
    """A worker in a loop of restarts would take every slot after the first ten.

    The best of min(T, 10) runs is attacked with more than the best of T is bounded by, so a
    release that passed over such slots would state too little.
    """
    run, law = odp.pure_dp(0.1), odp.Geometric(mean=1000)
    stated = odp.selection_guarantee(run, law).epsilon(1e-9)
    attack, _ = odp.selection_guarantee(run, law.capped(10)).bounds(1e-9)
    assert stated < 0.31
    assert attack > 0.85


@pytest.mark.slow
def test_a_study_id_that_is_used_again_does_not_bring_an_old_plan_back(tmp_path: Path) -> None:
    """SQLite gives the id of a deleted study to the next one."""
    storage = f"sqlite:///{tmp_path / 'tuning.db'}"
    sampler = odp.RandTuneSampler(trials=exactly(5), run=RUN)
    first = study_of(sampler, storage=storage, study_name="same")
    first.optimize(objective, n_trials=3)
    old_plan = read_plan(first)
    optuna.delete_study(study_name="same", storage=storage)
    second = study_of(sampler, storage=storage, study_name="same")
    assert second._study_id == first._study_id
    second.optimize(objective)
    new_plan = read_plan(second)
    assert old_plan is not None
    assert new_plan is not None
    assert new_plan.nonce != old_plan.nonce
    assert len(second.trials) == 5
    odp.release(second, vouched="a test")


def test_a_trial_object_made_anew_keeps_the_plan_and_its_slot() -> None:
    """Distributed training makes ``optuna.trial.Trial`` again from a running trial's id."""
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(mean=50), run=RUN))
    first = study.ask()
    before = dict(study.trials[0].system_attrs)
    again = optuna.trial.Trial(study, first._trial_id)
    assert study.trials[0].system_attrs == before
    assert objective(again) == objective(optuna.trial.Trial(study, first._trial_id))


def test_a_leader_that_cannot_draw_a_plan_leaves_nobody_waiting() -> None:
    class NoEntropyError(Exception):
        pass

    def broken(bits: Any) -> int:
        raise NoEntropyError

    sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=5), run=RUN)
    sampler.strategy.number_of_slots = broken  # type: ignore[method-assign]
    study = study_of(sampler)
    # Whichever of the threads ends first: those that waited for the plan say that there is none.
    with pytest.raises((NoEntropyError, PlanError)):
        study.optimize(objective, n_jobs=3)
    assert all(t.state == TrialState.FAIL for t in study.trials)


def test_parameters_drawn_alone_are_uniform_and_independent_of_each_other() -> None:
    """Fixed keys, so the test has one outcome; fresh ones would fail with probability 2e-7."""
    keys = [int.from_bytes(np.random.default_rng(i).bytes(32), "big") for i in range(4000)]
    a, b = (np.array([entropy.unit(key, name) for key in keys]) for name in ("a", "b"))
    for u in (a, b, (a + b) % 1.0, (a - b) % 1.0):
        assert 0.0 <= u.min() <= u.max() < 1.0
        distance = np.abs(np.sort(u) - (np.arange(4000) + 0.5) / 4000).max()
        assert distance < 2.9 / 4000**0.5  # Kolmogorov: 2 exp(-2 * 2.9^2) = 1e-7 each.
    assert entropy.unit(keys[0], "a") == a[0]
    law = optuna.distributions.CategoricalDistribution(["p", "q", "r"])
    drawn = [draw_alone(key, "c", law) for key in keys]
    assert all(abs(drawn.count(choice) / 4000 - 1 / 3) < 0.04 for choice in law.choices)
