"""Dead workers, dead leaders, and leaders that were only asleep."""

from __future__ import annotations

import json

import optuna
import pytest
import sqlalchemy
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState
from refusals import refuses
from samplers.budget.budget_support import budget
from support import RUN, exactly, logged, objective, study_of
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.core import polling
from optuna_dp.errors import PlanError, ReleaseRefusedError, UnfinishedStudyError
from optuna_dp.study.entries import PLAN, TrialEntry
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import read_plan
from optuna_dp.study.under_way import UnderWay

from .clocks import FakeClock
from .storages import opened

KINDS = ("sqlite", "journal", "postgresql", "grpc")


@pytest.fixture(params=["memory", "sqlite", "journal"])
def storage(request, url_of):
    if request.param == "memory":
        yield optuna.storages.InMemoryStorage()
        return
    with opened(url_of(request.param)) as found:
        yield found


def another_worker(study, count=6):
    return optuna.load_study(
        study_name=study.study_name,
        storage=study._storage,
        sampler=odp.RandTuneSampler(trials=exactly(count), run=RUN),
    )


def plan_of(study):
    return read_plan(study)


def design_of(sampler):
    """The design that a study of this sampler would have."""
    study = study_of(sampler)
    study.ask()
    return plan_of(study).design


def dead_leader(storage, count=6):
    """A study whose first worker died right after it had made trial 0."""
    study = study_of(odp.RandTuneSampler(trials=exactly(count), run=RUN), storage=storage)
    storage.create_new_trial(study._study_id)
    return study


@pytest.mark.parametrize("kind", ["selection", "budget"])
def test_after_a_leader_that_died_without_a_plan_no_run_begins(storage, kind, monkeypatch) -> None:
    study = dead_leader(storage)
    if kind == "budget":
        study.sampler = odp.BudgetSampler(budget(4))
    (open_trial,) = odp.recover(study)
    assert open_trial.leads
    assert open_trial.did_nothing
    # The worker of trial 1 waits; an operator tells trial 0 to have failed.
    monkeypatch.setattr(polling, "clock", FakeClock([(45, lambda: odp.recover(study, fail=[0]))]))
    with logged() as lines, pytest.raises(PlanError):
        study.optimize(objective)
    assert [
        line for line in lines if "WARNING" in line and "recover" in line and "trial 0" in line
    ]
    assert [(t.state, t.params) for t in study.trials] == [(TrialState.FAIL, {})] * 2
    with pytest.raises(ReleaseRefusedError, match="no plan"):
        odp.release(study)


@pytest.mark.slow
def test_nobody_takes_over_while_the_leader_may_live(storage, monkeypatch) -> None:
    study = dead_leader(storage)

    class StillThere(Exception):
        pass

    def give_up():
        raise StillThere

    monkeypatch.setattr(polling, "clock", FakeClock([(600, give_up)]))
    with pytest.raises(StillThere):
        study.optimize(objective)
    assert plan_of(study) is None
    assert not [t for t in study.trials if t.params]


@pytest.mark.slow
def test_a_worker_never_gives_up_waiting_for_a_run_of_another(storage, monkeypatch) -> None:
    """Whether its own run fails would depend on how long the other takes."""
    study = study_of(odp.BudgetSampler(budget(4)), storage=storage)
    study.optimize(objective, n_trials=1)
    slow = study.ask()
    ten_minutes = [(600, lambda: study.tell(slow, objective(slow)))]
    monkeypatch.setattr(polling, "clock", FakeClock(ten_minutes))
    other = optuna.load_study(
        study_name=study.study_name, storage=storage, sampler=odp.BudgetSampler(budget(4))
    )
    other.optimize(objective)
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 5
    assert polling.clock.now() > 600


def test_a_leader_that_wakes_up_after_it_was_given_up(storage, monkeypatch) -> None:
    """It was paused right before writing its plan; meanwhile another worker ended without one."""
    study = study_of(odp.RandTuneSampler(trials=exactly(6), run=RUN), storage=storage)
    genuine = TrialEntry.write

    def asleep(entry, *arguments):
        if entry == PLAN:
            monkeypatch.setattr(TrialEntry, "write", genuine)
            odp.recover(study, fail=[0])
            with pytest.raises(PlanError):
                another_worker(study).optimize(objective)
        genuine(entry, *arguments)

    monkeypatch.setattr(TrialEntry, "write", asleep)
    with pytest.raises(PlanError):
        study.optimize(objective)
    assert plan_of(study) is None
    assert [(t.state, t.params) for t in study.trials] == [(TrialState.FAIL, {})] * 2


@pytest.mark.slow
def test_a_run_refused_before_a_plan_slipped_in_is_no_failed_run(url_of) -> None:
    """A database may let it through if the write was under way when trial 0 was failed."""
    with opened(url_of("sqlite")) as storage:
        study = dead_leader(storage)
        late = StudyPlan.drawn(design_of(study.sampler), 6)
        odp.recover(study, fail=[0])
        with pytest.raises(PlanError):
            study.optimize(objective)
        with storage._backend.engine.begin() as connection:
            connection.execute(
                sqlalchemy.text(
                    "INSERT INTO trial_system_attributes (trial_id, key, value_json)"
                    " VALUES (1, :key, :value)"
                ),
                {"key": PLAN.key, "value": json.dumps(late.to_json())},
            )
    with opened(str(storage._backend.engine.url)) as storage:
        again = another_worker(optuna.load_study(study_name=study.study_name, storage=storage))
        again.optimize(objective)
        assert [t.state for t in again.trials[:6]].count(TrialState.COMPLETE) == 4
        # Trial 1 failed for certain: the best of fewer than T runs may cost more than that of T.
        with pytest.raises(ReleaseRefusedError, match="--fail 1") as refused:
            odp.release(again, vouched="a test")
        assert refused.value.trial_number == 1


@pytest.mark.promise("a worker is killed")
@pytest.mark.parametrize("dies_before", ["slot entry", "parameters", "result"])
def test_a_worker_that_dies_costs_its_slot(storage, dies_before) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(5), run=RUN), storage=storage)
    study.optimize(objective, n_trials=2)
    if dies_before == "slot entry":
        storage.create_new_trial(study._study_id)
    else:
        trial = study.ask()
        if dies_before == "result":
            trial.suggest_float("x", -1.0, 1.0)
    study.optimize(objective)
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)
    assert [t.number for t in odp.recover(study) if t.number < 5] == [2]
    odp.recover(study, fail=[2])
    assert plan_of(study).slots == 5
    assert [t.state for t in study.trials[:5]].count(TrialState.COMPLETE) == 4
    odp.release(study, vouched="a test")


def test_a_worker_beyond_the_last_slot_that_dies_is_no_matter(storage) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=storage)
    study.optimize(objective)
    storage.create_new_trial(study._study_id)
    odp.release(study, vouched="a test")


def test_a_zombies_result_is_refused(storage) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=storage)
    trial = study.ask()
    value = objective(trial)
    odp.recover(study, fail=[0])
    with pytest.raises(ValueError, match="FAIL"):
        study.tell(trial, value)
    study.optimize(objective)
    assert study.trials[0].state == TrialState.FAIL
    odp.release(study, vouched="a test")


def test_wrong_numbers_change_nothing(storage) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=storage)
    study.optimize(objective, n_trials=1)
    study.ask()
    for wrong in ([0, 1], [7], [-1]):
        with refuses("fail"):
            odp.recover(study, fail=wrong)
    assert [t.number for t in odp.recover(study)] == [1]


@pytest.mark.slow
def test_heartbeats_end_a_wait_for_a_dead_worker(url_of, monkeypatch) -> None:
    """Everybody waits for a batch whose worker died: nobody starts a trial, so nobody looks."""
    space = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
    with opened(url_of("sqlite"), heartbeat=60) as storage:
        sampler = odp.DPHyPOSampler(space, trials=exactly(3), candidates=8, run=RUN)
        study = study_of(sampler, storage=storage)
        with pytest.warns(UserWarning, match="Heartbeat"):
            dead = study.ask()
        dead.suggest_float("x", -1.0, 1.0)
        storage.record_heartbeat(dead._trial_id)
        sampler.under_way = UnderWay()  # It was another process's trial.

        def stops_beating() -> None:
            with storage._backend.engine.begin() as connection:
                text = "UPDATE trial_heartbeats SET heartbeat = :long_ago WHERE trial_id = :id"
                values = {"long_ago": "2020-01-01 00:00:00", "id": dead._trial_id}
                connection.execute(sqlalchemy.text(text), values)

        monkeypatch.setattr(polling, "clock", FakeClock([(5, stops_beating)]))
        study.optimize(objective)
        assert [t.state for t in study.trials[:3]] == [
            TrialState.FAIL,
            TrialState.COMPLETE,
            TrialState.COMPLETE,
        ]
        odp.release(study, vouched="a test")


@pytest.mark.slow
def test_the_command_lists_and_fails(tmp_path) -> None:
    from optuna_dp.cli.studies import recover

    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = study_of(
        odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=url, study_name="digits"
    )
    study.ask()
    import typer

    app = typer.Typer()
    app.command()(recover)
    run = CliRunner().invoke
    listed = run(app, [url, "digits"])
    assert "trial 0: open" in listed.output
    assert study.trials[0].state == TrialState.RUNNING
    failed = json.loads(run(app, [url, "digits", "--fail", "0", "--json"]).output)
    assert failed == {"marked_as_failed": [0], "open": []}
    assert study.trials[0].state == TrialState.FAIL
    wrong = run(app, [url, "digits", "--fail", "0"])
    assert wrong.exit_code == 2
    assert "fail=0" in wrong.output
    study._storage._backend.engine.dispose()


@pytest.mark.slow
def test_the_lock_of_a_journal_whose_holder_died_is_taken_over(tmp_path) -> None:
    """Optuna's own lock, after three quiet seconds instead of thirty."""
    path = str(tmp_path / "study.log")
    lock = JournalFileOpenLock(path, grace_period=3)
    storage = JournalStorage(JournalFileBackend(path, lock))
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN), storage=storage)
    study.optimize(objective, n_trials=1)
    lock.acquire()  # ... and its holder is killed.
    study.optimize(objective)
    assert len(study.trials) == 3
    odp.release(study, vouched="a test")
