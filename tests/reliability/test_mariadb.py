"""MariaDB: exactly T slots, no run twice, dead workers, and records of its largest size."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import Trial, TrialState
from support import RUN, exactly, objective, study_of

import optuna_dp as odp

from .storages import opened
from .test_no_run_twice import live
from .test_storages import run_studies
from .workers import SAMPLERS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_four_processes_make_exactly_t_runs(crew, url_of, sampler) -> None:
    run_studies(crew, url_of("mariadb"), 1, sampler, 4, 1)


@pytest.mark.parametrize("seed", range(3))
def test_no_run_takes_place_twice(crew, url_of, seed) -> None:
    live(seed, "mariadb", url_of("mariadb"), crew)


def test_a_run_whose_worker_died_counts_and_the_study_is_released(url_of) -> None:
    with opened(url_of("mariadb")) as storage:
        study = study_of(odp.RandTuneSampler(trials=exactly(4), run=RUN), storage=storage)
        study.optimize(objective, n_trials=1)
        study.ask()
        odp.recover(study, fail=[trial.number for trial in odp.recover(study)])
        study.optimize(objective)
        assert [t.state for t in study.trials].count(TrialState.COMPLETE) == 3
        odp.release(study, failures="chance", vouched="a test")


def test_utilities_of_many_partitions_fit_into_an_attribute(url_of) -> None:
    """An attribute holds 65,535 bytes, and 20,000 numbers take more."""

    def utilities(trial: Trial) -> float:
        trial.suggest_float("x", 0, 1)
        return odp.report_utilities(trial, [i / 19_999 for i in range(20_000)])

    with opened(url_of("mariadb")) as storage:
        study = optuna.create_study(
            direction="maximize",
            storage=storage,
            sampler=odp.NoisyMaxSampler(candidates=2, n_partitions=20_000, epsilon=1.0),
        )
        study.optimize(utilities)
        assert odp.release(study).params is not None
