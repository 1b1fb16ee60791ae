"""Search spaces of one, two and ten thousand choices, and names as long as storages take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import Trial
from support import RUN, exactly, study_of

import optuna_dp as odp

MYSQL_TEXT = 65_535
LONG = "n" * 500  # Optuna's own columns for names hold 512 characters.

SPACES: dict[str, dict[str, BaseDistribution]] = {
    "one choice": {"c": CategoricalDistribution(["only"])},
    "one number": {"c": FloatDistribution(0.5, 0.5)},
    "two choices": {"c": CategoricalDistribution([None, True])},
    "ten thousand choices": {"c": CategoricalDistribution(list(range(10_000)))},
    "a long name": {LONG: FloatDistribution(0.0, 1.0)},
    "an odd name": {"\u2603 'x'; DROP TABLE trials; -- \n": FloatDistribution(0.0, 1.0)},
    "fifty parameters": {f"p{i}": FloatDistribution(0.0, 1.0) for i in range(50)},
}
SAMPLERS = {
    "rand_tune": lambda space: odp.RandTuneSampler(space, trials=exactly(3), run=RUN),
    "dp_hypo": lambda space: odp.DPHyPOSampler(space, trials=exactly(3), candidates=4, run=RUN),
}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["rand_tune", pytest.param("dp_hypo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SPACES)
def test_spaces_of_all_sizes_are_searched_stored_and_released(
    name: str, sampler: str, tmp_path: Path
) -> None:
    space = SPACES[name]

    def objective(trial: Trial) -> float:
        for parameter, distribution in space.items():
            trial._suggest(parameter, distribution)
        return float(trial.number)

    storage = f"sqlite:///{tmp_path}/s.db"
    study = study_of(SAMPLERS[sampler](space), storage=storage)
    study.optimize(objective)
    found = odp.release(study, vouched="a test")
    assert found.params is not None
    assert found.params.keys() == space.keys()
    assert all(
        space[key]._contains(space[key].to_internal_repr(v)) for key, v in found.params.items()
    )
    json.dumps(found.to_json())
    records: list[dict[str, Any]] = [t.system_attrs for t in study.trials]
    longest = max(len(json.dumps(value)) for record in records for value in record.values())
    assert all(len(key) <= 512 for record in records for key in record)
    if name == "ten thousand choices":
        # PostgreSQL and SQLite have no limit; MySQL's columns are too small for Optuna's own
        # record of such a parameter too.
        assert longest < 3 * MYSQL_TEXT
    else:
        assert longest < MYSQL_TEXT


@pytest.mark.slow
def test_utilities_of_many_partitions_fit_into_every_storage(tmp_path: Path) -> None:
    study = optuna.create_study(
        direction="maximize",
        storage=f"sqlite:///{tmp_path}/s.db",
        sampler=odp.NoisyMaxSampler(candidates=2, n_partitions=20_000, epsilon=1.0),
    )
    scores = [i / 19_999 for i in range(20_000)]

    def objective(trial: Trial) -> float:
        trial.suggest_float("x", 0, 1)
        return odp.report_utilities(trial, scores)

    study.optimize(objective)
    assert odp.release(study).params is not None
    longest = max(len(json.dumps(v)) for t in study.trials for v in t.system_attrs.values())
    assert longest < MYSQL_TEXT
