"""A published study holds the release and nothing else: everything in its storage is listed."""

from __future__ import annotations

import datetime
import re
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.artifacts import get_all_artifact_meta
from optuna.trial import TrialState
from support import RUN, study_of
from support import release as released_by

import optuna_dp as odp

from .kinds import KINDS

pytest.importorskip("optuna_dashboard")
pytest.importorskip("plotly")

PLOTS = {
    "dp_hypo": {"privacy-profile", "epsilon-by-trials"},  # T is fixed: no finite divergence.
    "propose_test": {"privacy-profile", "renyi-divergence", "epsilon-by-trials"},
    "noisy_max": {"privacy-profile", "renyi-divergence"},
}
# Tables of Optuna's own that a release fills; the first two hold versions of the storage.
TABLES = {
    "alembic_version",
    "version_info",
    "studies",
    "study_directions",
    "study_user_attributes",
    "study_system_attributes",
    "trials",
    "trial_params",
    "trial_values",
    "trial_user_attributes",
}


class Told(odp.DPHyPOSampler):
    """Its number of runs is told, so that a test can vary it."""

    def __init__(self, runs: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.strategy.number_of_slots = lambda bits: runs  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", PLOTS)
def test_everything_in_the_storage_is_the_release(kind: str, tmp_path: Path) -> None:
    release = released_by(KINDS[kind]())
    file = tmp_path / "public.db"
    before = datetime.datetime.now()
    public = odp.publish(release, f"sqlite:///{file}", "result")
    after = datetime.datetime.now()

    # The study.
    assert public.study_name == "result"
    assert public.direction.name.lower() == release.design.direction
    assert public.user_attrs == {
        "privacy statement": release.statement(),
        "privacy": release.to_json()["statement"],
    }
    system = public._storage.get_study_system_attrs(public._study_id)
    found = {re.sub(r":?\d+$", "", key) for key in system}
    plots = {f"dashboard:plot_data:optuna-dp-{name}" for name in PLOTS[kind]}
    # The mark says that a release was published here, and nothing else.
    assert found == {"dashboard:note_ver", "dashboard:note_str", "optuna_dp:published"} | plots
    assert get_all_artifact_meta(public) == []

    # Its one trial, field by field.
    (trial,) = public.get_trials()
    fields = {name.lstrip("_"): value for name, value in vars(trial).items()}
    start, complete = fields.pop("datetime_start"), fields.pop("datetime_complete")
    assert before <= start <= complete <= after  # when it was published, not when it ran
    assert fields == {
        "number": 0,
        "trial_id": 1,
        "state": TrialState.PRUNED if release.value is None else TrialState.COMPLETE,
        "values": None if release.value is None else [release.value],
        "params": release.params,
        "distributions": release.distributions,
        "user_attrs": release.attributes,
        "system_attrs": {},
        "intermediate_values": {},
    }
    assert get_all_artifact_meta(trial, storage=public._storage) == []
    assert release.attributes == {}

    # And no table of the database holds anything besides.
    with sqlite3.connect(file) as database:
        tables = {row[0] for row in database.execute("select name from sqlite_master")}
        filled = {
            table
            for table in tables
            if not table.startswith(("sqlite_", "ix_"))
            and database.execute(f"select count(*) from {table}").fetchone()[0]
        }
    database.close()
    assert filled <= TABLES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["public.db"]


def same_release(kind: str, secret: int) -> Any:
    """A release that is the same whatever the secret: T, or the utilities."""
    law = odp.Geometric(mean=4)
    samplers: dict[str, Any] = {
        "dp_hypo": lambda: odp.DPHyPOSampler(trials=law, run=RUN),
        "propose_test": lambda: odp.ProposeTestSampler(
            candidates=[{"x": 0.5}], n_partitions=3000, epsilon=1.0, granularity=0.1, resolve=0.2
        ),
        "noisy_max": lambda: odp.NoisyMaxSampler(
            candidates=[{"x": 0.5}], n_partitions=1000, epsilon=2.0
        ),
    }
    sampler = samplers[kind]()
    private = kind == "dp_hypo"
    if private:
        sampler = Told(1 + secret, trials=law, run=RUN)

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_categorical("x", [0.5])
        return 0.7 if private else 0.4 + 0.1 * secret

    study = study_of(sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()] if private else [])
    release = released_by(study)
    assert release.params == {"x": 0.5}
    return release


@pytest.mark.parametrize("kind", PLOTS)
def test_another_secret_gives_the_same_page(kind: str) -> None:
    pages = []
    for secret in (0, 4):
        public = odp.publish(
            same_release(kind, secret), optuna.storages.InMemoryStorage(), "result"
        )
        system = public._storage.get_study_system_attrs(public._study_id)
        assert "For the curator only" not in str(system)
        pages.append((public.user_attrs, system, public.trials[0].params, public.trials[0].value))
    assert pages[0] == pages[1]
