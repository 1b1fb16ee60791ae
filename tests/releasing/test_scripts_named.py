"""The statement names the source files that asked for the runs, by SHA-256."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

import optuna_dp as odp

_SEARCH = """\
import numpy as np
import optuna_dp as odp

RECORDS = np.linspace(-1, 1, 40)[:, None], np.arange(40) % 2


def objective(trial):
    run = odp.start_run(trial)
    trial.suggest_float("x", 0, 1)
    from script_for_a_test import late  # loaded after the first run has asked

    return odp.train(
        run, odp.SoftmaxRegression(1, 2), RECORDS, learning_rate=late.RATE, score="accuracy"
    ).score
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a script of two files."""
    package = tmp_path / "script_for_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "search.py").write_text(_SEARCH)
    (package / "late.py").write_text("RATE = 0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.startswith("script_for_a_test")]:
        del sys.modules[name]


def _release(sampler: optuna.samplers.BaseSampler) -> odp.Release:
    search = importlib.import_module("script_for_a_test.search")
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(search.objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study)


def _run() -> odp.RunPlan:
    return odp.RunPlan(
        records=40, batch_size=20, steps=1, noise_multiplier=4.0, score_noise_multiplier=4.0
    )


def test_the_sha_256_is_that_of_the_files(folder: Path) -> None:
    statement = _release(odp.RandTuneSampler(trials=odp.Geometric(mean=3), run=_run())).statement()
    lines = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("__init__.py", "search.py")
    ]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() in statement


def test_files_do_not_tell_how_many_runs_there_were(folder: Path) -> None:
    """What only later runs had loaded would tell that there was more than one."""
    sampler = odp.RandTuneSampler(trials=odp.Poisson(mean=15), run=_run())
    script = _release(sampler).to_json()["statement"]["content"]["spending"]["script"]
    assert "script_for_a_test.late" in sys.modules
    assert sorted(script) == ["__init__.py", "search.py"]


def test_a_file_that_changed_between_runs_is_not_named(folder: Path) -> None:
    plan = odp.plan_budget(epsilon=3, records=40, batch_size=20, epochs=2, pilots=1)
    search = importlib.import_module("script_for_a_test.search")
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(search.objective, n_trials=1)
    (folder / "search.py").write_text(_SEARCH + "\n# changed\n")
    study.optimize(search.objective, callbacks=[odp.PrivacyCallback()])
    spending = odp.release(study).to_json()["statement"]["content"]["spending"]
    assert "search.py" not in spending.get("script", {})
