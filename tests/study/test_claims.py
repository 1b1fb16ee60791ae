"""Two workers are given the same trial: one begins it, the other goes on with the next."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial
from support import RUN, add_behind, ask, budget_sampler, exactly, refused, rewrite, study_of, tell

import optuna_dp as odp
from optuna_dp.core import polling
from optuna_dp.errors import PlanError, ReleaseRefusedError
from optuna_dp.study.claims import HERE, OUT, STANDS, WON, claims_on
from optuna_dp.study.entries import CLAIMS, SLOT

PLAN = odp.plan_budget(
    epsilon=8.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=2, score=None
)
SPACE = {"x": optuna.distributions.FloatDistribution(0.0, 1.0, step=0.125)}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(trials=exactly(3), run=RUN),
    "dp_hypo": lambda: odp.DPHyPOSampler(
        SPACE, trials=exactly(3), candidates=4, schedule="any", run=RUN
    ),
    "budget": lambda: budget_sampler(PLAN),
    "noisy_max": lambda: odp.NoisyMaxSampler(
        SPACE, candidates=3, n_partitions=1000, epsilon=8.0, resolve=0.5
    ),
    "propose_test": lambda: odp.ProposeTestSampler(
        SPACE, candidates=3, n_partitions=20_000, epsilon=0.5, granularity=0.5, resolve=0.6
    ),
}
ALL = pytest.mark.parametrize("name", SAMPLERS)


def released(study: optuna.Study, name: str) -> odp.Release:
    return (
        odp.release(study, vouched="a test")
        if name in ("rand_tune", "dp_hypo")
        else odp.release(study)
    )


def run_of(trial: Trial) -> float:
    """An objective for all procedures, whose utilities lie in [0, 1]."""
    ask(trial)
    score: float = tell(trial, trial.suggest_float("x", 0.0, 1.0, step=0.125))
    return score


class GivesTwice(InMemoryStorage):
    """Does what SQLite may do: two workers that ask together are given the same waiting trial."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2, timeout=60)

    def set_trial_state_values(self, trial_id: int, state: Any, values: Any = None) -> bool:
        if state != TrialState.RUNNING:
            return super().set_trial_state_values(trial_id, state, values)
        self._both.wait()
        super().set_trial_state_values(trial_id, state)
        self._both.wait()
        return True


def together(work: Callable[[], None]) -> None:
    """Does the same in two threads; raises what one of them raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@pytest.mark.promise("two workers get one trial")
@ALL
def test_a_trial_that_two_workers_were_given_runs_once_and_the_loser_takes_the_next(name) -> None:
    for _ in range(5):
        study = study_of(SAMPLERS[name](), storage=GivesTwice())
        study.optimize(run_of, n_trials=1)
        study.add_trial(create_trial(state=TrialState.WAITING))
        called: list[int] = []

        def counted(trial: Trial, called: list[int] = called) -> float:
            value = run_of(trial)
            called.append(trial.number)
            return value

        together(lambda study=study, counted=counted: study.optimize(counted, n_trials=1))
        assert sorted(called) == [1, 2]
        study.optimize(run_of)
        released(study, name)


def test_ask_gives_the_loser_the_next_trial() -> None:
    study = study_of(SAMPLERS["rand_tune"](), storage=GivesTwice())
    study.tell(study.ask(), state=TrialState.FAIL)
    study.add_trial(create_trial(state=TrialState.WAITING))
    numbers: list[int] = []
    together(lambda: numbers.append(study.ask().number))
    assert sorted(numbers) == [1, 2]
    assert [t.state for t in study.trials[1:]] == [TrialState.RUNNING] * 2


ENDS = {"well": "COMPLETE", "fails": "FAIL", "is pruned": "PRUNED", "reports": "COMPLETE"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how", "second"),
    [
        ("rand_tune", "well", "process"),
        ("budget", "fails", "process"),
        ("budget", "is pruned", "process"),
        ("rand_tune", "reports", "process that dies"),
        ("budget", "is pruned", "process that dies"),
        ("rand_tune", "well", "thread"),
        ("budget", "is pruned", "thread"),
    ],
)
def test_a_trial_that_sqlite_gives_away_after_its_end_keeps_its_result(
    name: str, how: str, second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its update of the state comes between the other worker's last one and this one's claim.

    If the second worker is a thread, Optuna's cache shows it the trial as ended. If it dies before
    it claims the trial, ``recover`` gives the trial its end back.
    """
    url = f"sqlite:///{tmp_path / 'studies.db'}"
    shared = optuna.storages.get_storage(url)
    studies = [
        study_of(SAMPLERS[name](), storage=storage, study_name="study", load_if_exists=True)
        for storage in (shared, shared if second == "thread" else url, url)
    ]
    called: list[int] = []

    def objective(trial: Trial) -> float:
        called.append(trial.number)
        score = run_of(trial)
        if trial.number == 1 and how in ("is pruned", "reports"):
            trial.report(score, step=1)
            if how == "is pruned":
                raise optuna.TrialPruned
        return float("nan") if trial.number == 1 and how == "fails" else score

    studies[0].optimize(objective, n_trials=1)
    studies[0].add_trial(create_trial(state=TrialState.WAITING))
    backend = studies[1]._storage._backend  # type: ignore[attr-defined]
    check, others = backend.check_trial_is_updatable, [studies[0]]

    def meanwhile(trial_id: int, state: TrialState) -> None:
        check(trial_id, state)
        if state == TrialState.WAITING and others:
            study = others.pop()
            with ThreadPoolExecutor() as threads:
                threads.submit(study.optimize, objective, n_trials=1).result()
                threads.submit(study.get_trials).result()  # Fills the cache.

    monkeypatch.setattr(backend, "check_trial_is_updatable", meanwhile)
    if second == "process that dies":
        studies[1]._pop_waiting_trial_id()
        assert studies[1].trials[1].state == TrialState.RUNNING
        assert odp.recover(studies[1]) == []
    studies[1].optimize(objective, n_trials=1)
    assert called == [0, 1, 2]
    for study in studies[1:]:
        assert [t.state.name for t in study.trials] == ["COMPLETE", ENDS[how], "COMPLETE"]
    studies[1].optimize(objective)
    released(studies[1], name)
    for study in studies:
        study._storage._backend.engine.dispose()  # type: ignore[attr-defined]


def claimed_by(study: optuna.Study, number: int, **claims: str) -> None:
    """Other workers' claims on a trial, by token."""
    for token, state in claims.items():
        study._storage.set_trial_system_attr(
            study.trials[number]._trial_id,
            f"{CLAIMS.prefix}{number}:{token}",
            state,
        )


def waiting_study(name: str = "rand_tune") -> optuna.Study:
    """A study whose next trial is number 1, and there already."""
    study = study_of(SAMPLERS[name]())
    study.optimize(run_of, n_trials=1)
    study.add_trial(create_trial(state=TrialState.WAITING))
    return study


@pytest.mark.parametrize("state", [STANDS, WON])
def test_a_trial_for_which_another_stands_is_left_as_it_is(state: str) -> None:
    study = waiting_study()
    claimed_by(study, 1, other=state)
    study.optimize(run_of, n_trials=1)
    assert [t.state.name for t in study.trials] == ["COMPLETE", "RUNNING", "COMPLETE"]
    assert set(study.trials[1].system_attrs.values()) == {state, OUT}


def test_a_trial_that_ended_before_it_was_claimed_is_left_as_it_is() -> None:
    class Quick(InMemoryStorage):
        """The other worker is done with the trial when this one is told that it is its own."""

        def set_trial_state_values(self, trial_id: int, state: Any, values: Any = None) -> bool:
            if state == TrialState.RUNNING:
                super().set_trial_state_values(trial_id, state)
                return super().set_trial_state_values(trial_id, TrialState.COMPLETE, [7.0])
            return super().set_trial_state_values(trial_id, state, values)

    study = study_of(SAMPLERS["rand_tune"](), storage=Quick())
    study.optimize(run_of, n_trials=1)
    study.add_trial(create_trial(state=TrialState.WAITING))
    study.optimize(run_of, n_trials=1)
    assert [t.value for t in study.trials][1:2] == [7.0]
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 3


def test_a_worker_that_died_while_it_claimed_is_waited_for_until_it_is_recovered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = waiting_study()
    claimed_by(study, 1, dead=HERE)
    pauses: list[float] = []

    class Operator(polling.Clock):
        def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                assert [t.number for t in odp.recover(study)] == [1]
                odp.recover(study, fail=[1])

    monkeypatch.setattr(polling, "clock", Operator())
    study.optimize(run_of)
    assert len(pauses) == 5
    assert [t.state.name for t in study.trials[:3]] == ["COMPLETE", "FAIL", "COMPLETE"]
    odp.release(study, vouched="a test")


class Stops(InMemoryStorage):
    """Stops its user once, as Ctrl-C does, when a claim is read."""

    armed = False

    def get_trial(self, trial_id: int) -> Any:
        found = super().get_trial(trial_id)
        if self.armed and any(key.startswith(CLAIMS.prefix) for key in found.system_attrs):
            self.armed = False
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("other", [None, HERE, STANDS, WON])
def test_a_worker_that_is_interrupted_while_it_claims_leaves_what_may_be_anothers(other) -> None:
    storage = Stops()
    study = study_of(SAMPLERS["rand_tune"](), storage=storage)
    study.optimize(run_of, n_trials=1)
    study.add_trial(create_trial(state=TrialState.WAITING))
    if other is not None:
        claimed_by(study, 1, other=other)
    storage.armed = True
    with pytest.raises(KeyboardInterrupt):
        study.optimize(run_of, n_trials=1)
    assert study.trials[1].state == (TrialState.FAIL if other is None else TrialState.RUNNING)
    odp.recover(study, fail=[t.number for t in odp.recover(study)])
    study.optimize(run_of)
    odp.release(study, vouched="a test")


def waiting_after_one_run(study: optuna.Study) -> None:
    study.optimize(run_of, n_trials=1)
    study.add_trial(create_trial(state=TrialState.WAITING))


@pytest.mark.parametrize("how", ["optimize", "enqueued", "another ask", "a Trial by hand"])
def test_every_trial_is_claimed_whoever_created_it(how: str) -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    if how == "optimize":
        study.optimize(run_of)
    elif how == "enqueued":
        waiting_after_one_run(study)
        study.optimize(run_of)
    elif how == "another ask":
        study._pop_waiting_trial_id = lambda: None  # type: ignore[method-assign]
        study.ask(fixed_distributions=SPACE)
    else:
        Trial(study, study._storage.create_new_trial(study._study_id))
    assert study.trials
    for trial in study.trials:
        assert list(claims_on(trial).values()) == [WON]


class AsksFirst(odp.RandTuneSampler):
    """Asks a study of its own whenever a trial of another begins, as nested tuning may."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        optuna.create_study(sampler=optuna.samplers.RandomSampler()).ask()
        super().before_trial(study, trial)


class TakesFromAList(optuna.Study):
    """Takes what Optuna has waiting, and else a running trial, as a queue of others may."""

    def _pop_waiting_trial_id(self) -> int | None:
        found = super()._pop_waiting_trial_id()
        open_ones = [t for t in self.get_trials(deepcopy=False) if not t.state.is_finished()]
        return found if found is not None or not open_ones else open_ones[-1]._trial_id


@pytest.mark.parametrize("way", ["a sampler that asks", "a queue of others", "a Trial by hand"])
def test_no_way_to_hold_a_trial_before_it_begins_makes_two_runs_of_it(way: str) -> None:
    """Each got past an earlier rule, that a trial which ask seems to have created needs no claim.

    In the two latter ways a second worker takes the trial in the moment after it was created.
    """
    if way == "a sampler that asks":
        study = study_of(AsksFirst(trials=exactly(3), run=RUN), storage=GivesTwice())
        waiting_after_one_run(study)
    else:
        study = study_of(SAMPLERS["rand_tune"]())
        study.optimize(run_of, n_trials=1)
    called: list[int] = []

    def objective(trial: Trial) -> float:
        called.append(trial.number)
        return run_of(trial)

    if way == "a sampler that asks":
        together(lambda: study.optimize(objective, n_trials=1))
        assert sorted(called) == [1, 2]
    else:
        _hold_what_is_created(study, way, objective)
        study.optimize(objective, n_trials=1)
        assert called.count(1) == 1
    study.optimize(objective)
    assert sorted(called) == sorted(set(called))
    odp.release(study, vouched="a test")


def _hold_what_is_created(
    study: optuna.Study, way: str, objective: Callable[[Trial], float]
) -> None:
    """Lets another worker take the next trial right after it was created, and end it."""
    storage, create = study._storage, study._storage.create_new_trial

    def created(study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id = create(study_id, template_trial)
        storage.create_new_trial = create  # type: ignore[method-assign]
        theirs = TakesFromAList(study.study_name, storage, sampler=SAMPLERS["rand_tune"]())
        trial = Trial(theirs, trial_id) if way == "a Trial by hand" else theirs.ask()
        assert trial.number == 1
        theirs.tell(trial, objective(trial))
        return trial_id

    storage.create_new_trial = created  # type: ignore[method-assign]


@pytest.mark.promise("two workers get one trial")
@ALL
def test_a_run_that_two_workers_have_won_is_refused_at_release(name: str) -> None:
    study = study_of(SAMPLERS[name]())
    study.optimize(run_of)
    released(study, name)
    study = study_of(SAMPLERS[name]())
    waiting_after_one_run(study)
    study.optimize(run_of, n_trials=1)
    ours = next(k for k in study.trials[1].system_attrs if k.startswith(f"{CLAIMS.prefix}1:"))
    rewrite(study, 1, f"{CLAIMS.prefix}1:other", WON)
    study.optimize(run_of)
    with pytest.raises(ReleaseRefusedError) as caught:
        released(study, name)
    assert caught.value.trial_number == 1
    assert "Guarantee.compose" in caught.value.fix
    rewrite(study, 1, ours, OUT)
    released(study, name)


def test_a_damaged_claim_counts_as_won() -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    waiting_after_one_run(study)
    study.optimize(run_of)
    rewrite(study, 1, f"{CLAIMS.prefix}1:other", {"what": "is this"})
    assert refused(study, "workers").trial_number == 1


def test_a_storage_that_answers_with_old_values_is_noticed_at_release() -> None:
    class Stale(GivesTwice):
        """Does not show a worker what others claim, nor that they have begun."""

        def get_trial(self, trial_id: int) -> Any:
            found = copy.deepcopy(super().get_trial(trial_id))
            hidden = (CLAIMS.prefix, SLOT.key)
            for key in [k for k in found.system_attrs if k.startswith(hidden)]:
                del found.system_attrs[key]
            return found

    study = study_of(SAMPLERS["rand_tune"](), storage=Stale())
    study.optimize(run_of, n_trials=1)
    study.add_trial(create_trial(state=TrialState.WAITING))
    began: list[int] = []
    both = threading.Barrier(2, timeout=60)

    def objective(trial: Trial) -> float:
        began.append(trial.number)
        both.wait()
        raise KeyboardInterrupt  # The second result would be refused by Optuna.

    with pytest.raises(
        (KeyboardInterrupt, optuna.exceptions.UpdateFinishedTrialError, ValueError)
    ):
        together(lambda: study.optimize(objective, n_trials=1))
    assert began == [1, 1]
    study.optimize(run_of)
    assert refused(study, "workers").trial_number == 1


def test_the_claims_of_a_trial_are_not_those_of_its_copy() -> None:
    study = study_of(SAMPLERS["budget"]())
    study.optimize(run_of, n_trials=1)
    first = study.trials[0]
    add_behind(
        study,
        create_trial(
            state=TrialState.WAITING,
            params=first.params,
            distributions=first.distributions,
            system_attrs={**first.system_attrs, "failed_trial": 0, "retry_history": [0]},
        ),
    )
    study.optimize(run_of)
    assert study.trials[1].params == first.params
    assert [t.state.name for t in study.trials] == ["COMPLETE"] * 3
    assert released(study, "budget").params is not None


def test_a_running_trial_may_be_continued_by_who_knows_it_and_not_by_who_asks() -> None:
    study = study_of(SAMPLERS["rand_tune"]())
    first = study.ask()
    elsewhere = optuna.load_study(
        study_name=study.study_name, storage=study._storage, sampler=SAMPLERS["rand_tune"]()
    )
    again = Trial(elsewhere, first._trial_id)
    assert run_of(again) == run_of(first)
    pops = [first._trial_id, None]
    elsewhere._pop_waiting_trial_id = lambda: pops.pop(0)  # type: ignore[method-assign]
    assert elsewhere.ask().number == 1


def test_a_trial_object_made_by_hand_of_a_trial_that_another_claims_is_refused() -> None:
    study = waiting_study()
    claimed_by(study, 1, other=WON)
    with pytest.raises(PlanError):
        Trial(study, study.trials[1]._trial_id)
    assert study.trials[1].state == TrialState.WAITING


def test_other_samplers_are_not_affected() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    study.enqueue_trial({"x": 0.5})
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert not any(CLAIMS.prefix in key for t in study.trials for key in t.system_attrs)


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_no_sampler_of_the_study_began_is_granted_nothing(when: str) -> None:
    study = study_of(SAMPLERS["budget"]())
    study.optimize(run_of, n_trials=1 if when == "before" else None)
    other = optuna.load_study(study_name=study.study_name, storage=study._storage)
    started: list[Any] = []

    def objective(trial: Trial) -> float:
        started.append(odp.start_run(trial))
        return 0.0

    with pytest.raises(PlanError):
        other.optimize(objective, n_trials=3)
    with pytest.raises(PlanError):
        odp.start_run(other.ask())
    assert started == []
