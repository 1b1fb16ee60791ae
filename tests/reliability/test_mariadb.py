"""MariaDB: exactly T slots, no run twice, dead workers, and records of its largest size."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import Trial, TrialState
from support import exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError

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
        study = study_of(odp.RandTuneSampler(trials=exactly(4)), storage=storage)
        study.optimize(objective, n_trials=1)
        study.ask()
        odp.recover(study, fail=[trial.number for trial in odp.recover(study)])
        study.optimize(objective)
        assert [t.state for t in study.trials].count(TrialState.COMPLETE) == 3
        odp.release(study, odp.gaussian(4.0), failures="chance", vouched="a test")


@pytest.mark.parametrize(("partitions", "fits"), [(2700, True), (2800, False)])
def test_more_utilities_than_an_attribute_holds_are_refused_before_any_training(
    url_of, partitions, fits
) -> None:
    calls: list[int] = []

    def utilities(trial: Trial) -> float:
        trial.suggest_float("x", 0, 1)
        calls.append(trial.number)
        return odp.report_utilities(trial, [i / (partitions - 1) for i in range(partitions)])

    with opened(url_of("mariadb")) as storage:
        study = optuna.create_study(
            direction="maximize",
            storage=storage,
            sampler=odp.NoisyMaxSampler(candidates=2, n_partitions=partitions, epsilon=1.0),
        )
        if fits:
            study.optimize(utilities)
            assert odp.release(study).params is not None
        else:
            with pytest.raises(OptunaDPError, match="Use fewer partitions"):
                study.optimize(utilities)
        assert len(calls) == (2 if fits else 0)
