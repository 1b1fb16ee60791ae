"""A release reads its study once; a run's grant reads the plan once."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage
from support import RUN, ask, exactly, tell

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.evidence.procedure import ReleaseRequest
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.evidence.reading import open_study, read_evidence
from optuna_dp.study.entries import RELEASED
from optuna_dp.study.plan import StudyPlan

SPACE = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
PILOTS = 3
READS = {
    "get_all_trials": 1,
    # The second one looks for the mark of another release, just before this one's is written.
    "get_study_system_attrs": 2,
    "get_all_studies": 1,
}


def budget() -> odp.BudgetSampler:
    plan = odp.plan_budget(
        epsilon=3.0, delta=1e-5, records=2000, batch_size=2000, epochs=1, pilots=PILOTS
    )
    return odp.BudgetSampler(plan)


SAMPLERS: dict[str, Callable[[], Any]] = {
    "budget": budget,
    "rand tune": lambda: odp.RandTuneSampler(trials=exactly(3), run=RUN),
    "dp-hypo": lambda: odp.DPHyPOSampler(SPACE, trials=exactly(3), run=RUN),
}


class CountingStorage(InMemoryStorage):
    """Counts what is asked of it from outside, and calls a function before each of these."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str], None] = lambda name: None
        self._inside = False

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        if not name.startswith(("get_", "set_")):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:  # What a storage calls on itself.
                return member(*args, **kwargs)
            self._inside = True
            try:
                self.before(name)
                self.calls[name] += 1
                return member(*args, **kwargs)
            finally:
                self._inside = False

        return call


def ended_study(kind: str) -> tuple[optuna.Study, CountingStorage]:
    storage, sampler = CountingStorage(), SAMPLERS[kind]()
    study = optuna.create_study(storage=storage, direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        ask(trial)
        score: float = tell(trial, -((trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2))
        return score

    study.optimize(objective)
    storage.calls.clear()
    return study, storage


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_release_reads_its_study_once(kind: str) -> None:
    study, storage = ended_study(kind)
    odp.release(study, vouched="a test")
    reads = {name: times for name, times in storage.calls.items() if name.startswith("get_")}
    assert reads == READS


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_release_does_not_read_other_studies_once_more(kind: str) -> None:
    study, storage = ended_study(kind)
    for _ in range(3):
        optuna.create_study(storage=storage)
    storage.calls.clear()
    odp.release(study, vouched="a test")
    assert storage.calls["get_study_system_attrs"] == READS["get_study_system_attrs"]
    assert storage.calls["get_all_studies"] == 1


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_release_made_meanwhile_is_seen(kind: str) -> None:
    """Another worker releases after the study was read, and before the mark is written."""
    study, storage = ended_study(kind)
    mark = {"nonce": "0" * 32, "digest": "another release"}
    attributes = "get_study_system_attrs"

    def released_meanwhile(name: str) -> None:
        if name == attributes and storage.calls[attributes] == 1:
            storage.set_study_system_attr(study._study_id, RELEASED.key, mark)

    storage.before = released_meanwhile
    with pytest.raises(ReleaseRefusedError, match="compose"):
        odp.release(study, vouched="a test")
    assert storage.get_study_system_attrs(study._study_id)[RELEASED.key] == mark


@pytest.mark.parametrize("kind", SAMPLERS)
def test_what_is_released_is_a_function_of_what_was_read(kind: str) -> None:
    study, storage = ended_study(kind)
    evidence = read_evidence(study)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name}, after the study was read")

    storage.before = refuse
    kept = pickle.loads(pickle.dumps(evidence))
    outcome = procedure_of(kept.plan.design).outcome(kept, ReleaseRequest(vouched="a test"))
    storage.before = lambda name: None
    assert outcome.trial is not None
    assert outcome.trial.params == odp.release(study, vouched="a test").params


def test_a_snapshot_does_not_change_with_its_storage() -> None:
    study, storage = ended_study("budget")
    opened = open_study(study)
    assert opened is not None
    before = len(opened.snapshot.trials), dict(opened.snapshot.attributes)
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.FAIL))
    storage.set_study_system_attr(study._study_id, RELEASED.key, {})
    assert before == (len(opened.snapshot.trials), opened.snapshot.attributes)


def test_a_grant_reads_the_plan_and_its_trial_once(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = CountingStorage()
    study = optuna.create_study(storage=storage, direction="maximize", sampler=budget())
    parsed: list[Any] = []
    from_json = StudyPlan.from_json.__func__  # type: ignore[attr-defined]
    for _ in range(PILOTS):
        trial = study.ask()
        storage.calls.clear()
        parsed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(
                StudyPlan,
                "from_json",
                classmethod(lambda cls, data: parsed.append(data) or from_json(cls, data)),
            )
            run = odp.start_run(trial)
        assert len(parsed) == 1
        # The trial that holds the plan, and this one.
        assert storage.calls["get_trial"] == 2
        assert storage.calls["get_all_trials"] == 0
        assert storage.calls["get_study_system_attrs"] == 0
        assert run.is_pilot
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
