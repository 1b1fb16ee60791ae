"""The contract of a private sampler, as a pytest class to inherit from.

It checks the promises of :class:`optuna_dp.study.slots.SlotSampler` on a sampler of your own.
Copy this file beside your tests::

    from sampler_contract import RUN, SamplerContract

    class TestMySampler(SamplerContract):
        def make(self, trials, seed=None):
            return MySampler(trials=trials, run=RUN, seed=seed)

        def make_different(self, trials):
            return MySampler(trials=trials, run=RUN, width=2.0)

It runs in memory and in a temporary journal file. Optuna's own cases
(``optuna.testing.pytest_samplers``) are worth running besides.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import Trial, TrialState, create_trial

from optuna_dp.accounting.events import gaussian
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
    SeedWarning,
    UnfinishedStudyError,
)
from optuna_dp.releasing.make_release import release
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.selection.laws.negative_binomial import Geometric
from optuna_dp.selection.laws.poisson import Poisson
from optuna_dp.study.entries import BEYOND, SLOT
from optuna_dp.study.recovery import recover
from optuna_dp.study.trials import read_plan

RUN = gaussian(noise_multiplier=4.0)
_VOUCHED = "a test: nothing is trained"


def exactly(count: int) -> TrialCount:
    """A law under which T = ``count`` always (a Poisson law capped far below its mean)."""
    return Poisson(mean=count + 2000.0).capped(count)


class SamplerContract(ABC):
    """Inherit, supply :meth:`make` and :meth:`make_different`, and let pytest collect it."""

    @abstractmethod
    def make(self, trials: TrialCount, seed: int | None = None) -> BaseSampler:
        """Returns a new sampler with this law of T, which was told that a run costs ``RUN``."""

    @abstractmethod
    def make_different(self, trials: TrialCount) -> BaseSampler:
        """Returns a sampler with the same law of T and some other setting."""

    def objective(self, trial: Trial) -> float:
        """What the runs do; override it if the sampler needs another search space."""
        return -((trial.suggest_float("x", -1.0, 1.0) - 0.3) ** 2)

    def study(self, sampler: BaseSampler, **kwargs: Any) -> Study:
        """Returns a new study."""
        return optuna.create_study(direction="maximize", sampler=sampler, **kwargs)

    def check(self, study: Study, slots: int | None = None) -> None:
        """Every slot has run and nothing else has."""
        plan = read_plan(study)
        assert plan is not None
        assert slots is None or plan.slots == slots
        trials = study.get_trials(deepcopy=False)
        assert [t.number for t in trials] == list(range(len(trials)))
        assert len(trials) >= plan.slots
        for trial in trials:
            if trial.number < plan.slots:
                assert trial.state.is_finished()
                assert trial.system_attrs[SLOT.key]["nonce"] == plan.nonce
            else:
                assert not trial.params
                assert BEYOND.key in trial.system_attrs

    def test_exactly_t_runs_take_place(self) -> None:
        for n_jobs in (1, 4):
            for _ in range(10):
                study = self.study(self.make(Geometric(mean=4)))
                study.optimize(self.objective, n_jobs=n_jobs)
                self.check(study)
                release(study, vouched=_VOUCHED)

    def test_exactly_t_runs_in_a_file_that_two_samplers_share(self, tmp_path: Path) -> None:
        storage = JournalStorage(JournalFileBackend(str(tmp_path / "study.log")))
        study = self.study(self.make(exactly(7)), storage=storage, study_name="shared")
        second_study = optuna.load_study(
            study_name="shared", storage=storage, sampler=self.make(exactly(7))
        )
        for _ in range(3):
            study.optimize(self.objective, n_trials=1)
            second_study.optimize(self.objective, n_trials=1)
        study.optimize(self.objective)
        second_study.optimize(self.objective)
        self.check(study, 7)
        release(study, vouched=_VOUCHED)

    def test_resuming_adds_no_run(self) -> None:
        study = self.study(self.make(exactly(5)))
        study.optimize(self.objective, n_trials=2)
        with pytest.raises(UnfinishedStudyError):
            release(study, vouched=_VOUCHED)
        study.optimize(self.objective)
        study.optimize(self.objective)
        self.check(study, 5)

    def test_ask_and_tell_stops_at_t(self) -> None:
        study = self.study(self.make(exactly(2)))
        for _ in range(2):
            trial = study.ask()
            study.tell(trial, self.objective(trial))
        surplus_trial = study.ask()
        with pytest.raises(optuna.TrialPruned):
            self.objective(surplus_trial)
        study.tell(surplus_trial, state=TrialState.PRUNED)
        self.check(study, 2)

    def test_a_failed_run_is_a_run(self) -> None:
        def fails(trial: Trial) -> float:
            self.objective(trial)
            raise RuntimeError("out of memory")

        study = self.study(self.make(exactly(3)))
        study.optimize(fails, catch=(RuntimeError,))
        self.check(study, 3)
        assert release(study, vouched=_VOUCHED).params is None

    def test_a_killed_worker_costs_its_slot(self) -> None:
        study = self.study(self.make(exactly(4)))
        study.optimize(self.objective, n_trials=1)
        study.ask()
        recover(study, fail=[1])
        study.optimize(self.objective)
        self.check(study, 4)
        assert [t.state for t in study.trials].count(TrialState.COMPLETE) == 3

    def test_a_worker_configured_differently_does_not_run(self) -> None:
        study = self.study(self.make(exactly(5)))
        study.optimize(self.objective, n_trials=1)
        study.sampler = self.make_different(exactly(5))
        with pytest.raises(PlanError):
            study.optimize(self.objective)
        assert not [t for t in study.trials[1:] if t.params]
        with pytest.raises(ReleaseRefusedError):
            release(study, vouched=_VOUCHED)

    def test_an_enqueued_trial_is_refused(self) -> None:
        study = self.study(self.make(exactly(3)))
        study.enqueue_trial({"x": 0.5})
        with pytest.raises(PlanError):
            study.optimize(self.objective)
        assert all(t.state.is_finished() for t in study.trials)

    def test_an_added_trial_is_refused(self) -> None:
        study = self.study(self.make(exactly(3)))
        study.optimize(self.objective, n_trials=1)
        study.add_trial(create_trial(value=1e9))
        study.optimize(self.objective)
        with pytest.raises(ReleaseRefusedError):
            release(study, vouched=_VOUCHED)

    def test_an_added_trial_after_the_last_run_cannot_win(self) -> None:
        study = self.study(self.make(exactly(3)))
        study.optimize(self.objective)
        study.add_trial(create_trial(value=1e9))
        result = release(study, vouched=_VOUCHED)
        assert result.value is None or result.value < 1e9

    def test_a_seeded_study_repeats_and_cannot_be_released(self) -> None:
        params_by_study = []
        for _ in range(2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SeedWarning)
                sampler = self.make(Geometric(mean=6), seed=3)
            study = self.study(sampler)
            study.optimize(self.objective)
            params_by_study.append([t.params for t in study.trials if t.params])
            with pytest.raises(ReleaseRefusedError, match="seed"):
                release(study, vouched=_VOUCHED)
        assert params_by_study[0] == params_by_study[1]

    def test_without_a_seed_nothing_repeats(self) -> None:
        counts, ties = set(), set()
        for _ in range(12):
            study = self.study(self.make(Geometric(mean=20)))
            study.optimize(lambda trial: 0.0)
            plan = read_plan(study)
            assert plan is not None
            counts.add(plan.slots)
            ties |= {t.system_attrs[SLOT.key]["tie_break"] for t in study.trials[: plan.slots]}
        assert len(counts) > 1
        assert len(ties) >= sum(counts)

    def test_the_number_of_runs_is_in_no_user_attribute(self) -> None:
        study = self.study(self.make(exactly(4)))
        study.optimize(self.objective)
        assert study.user_attrs == {}
        assert all(t.user_attrs == {} for t in study.trials)
