"""A worker dies after each of its storage calls in turn; what it leaves can be finished, released.

Or nothing has begun: a worker that dies before it has written the plan leaves a study to be thrown
away.

The random schedules of test_chaos.py seldom meet the moment between two writes. Here each is met.
"""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage
from support import ask, exactly, tell

import optuna_dp as odp
from optuna_dp.core import polling
from optuna_dp.errors import PlanError

from .checks import check_exactly_t, plan_of, release_of
from .clocks import FakeClock
from .workers import SAMPLERS

COUNT = 2


class Dead(BaseException):
    """Not an Exception: nothing of Optuna's or ours may take it for the failure of a run."""


class MortalStorage(InMemoryStorage):
    """Lets its worker make so many calls; after that no call of the worker's arrives."""

    calls_left = 10**9

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.calls_left <= 0:
                raise Dead
            self.calls_left -= 1
            kept, self.calls_left = self.calls_left, 10**9  # What a storage calls on itself.
            try:
                return found(*args, **kwargs)
            finally:
                self.calls_left = kept

        return call


def work(storage: InMemoryStorage, kind: str, runs: list[int]) -> None:
    def objective(trial: optuna.Trial) -> float:
        ask(trial)
        x = trial.suggest_float("x", -1.0, 1.0)
        runs.append(trial.number)
        score: float = tell(trial, -((x - 0.3) ** 2))
        return score

    sampler = SAMPLERS[kind](exactly(COUNT))
    optuna.load_study(study_name="study", storage=storage, sampler=sampler).optimize(objective)


@pytest.mark.promise("a worker is killed")
@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SAMPLERS))
def test_a_worker_that_dies_after_any_call_leaves_what_can_be_finished(kind, monkeypatch) -> None:
    calls, died, thrown_away = 1, True, 0
    while died:
        monkeypatch.setattr(polling, "clock", FakeClock())
        storage, runs = MortalStorage(), []
        study = optuna.create_study(storage=storage, study_name="study", direction="maximize")
        storage.calls_left = calls
        try:
            work(storage, kind, runs)
        except BaseException:  # Optuna's cleaning up makes other errors of it.
            if storage.calls_left > 0:
                raise
        died, storage.calls_left = storage.calls_left <= 0, 10**9
        lost = [trial.number for trial in odp.recover(study)]
        odp.recover(study, fail=lost)
        assert len(lost) <= died
        calls += 1
        if lost and plan_of(study) is None:
            thrown_away += 1
            with pytest.raises(PlanError):
                work(storage, kind, runs)
            assert not runs
            continue
        work(storage, kind, runs)
        slots = check_exactly_t(study, runs, crashes=True)
        assert len(runs) >= slots - 2
        release_of(study)
    assert calls > 20
    assert 0 < thrown_away < 12
