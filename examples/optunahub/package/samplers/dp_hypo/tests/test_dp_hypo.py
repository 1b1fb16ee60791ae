"""The wrapper is the package's sampler, and Optuna's loader finds it."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import optuna
import pytest

import optuna_dp as odp

optunahub = pytest.importorskip("optunahub")

HERE = Path(__file__).parents[1]
REGISTRY = HERE.parents[1]


def load():  # type: ignore[no-untyped-def]
    return optunahub.load_local_module("samplers/dp_hypo", registry_root=str(REGISTRY))


def test_it_is_the_samplers_own_class() -> None:
    module = load()
    assert module.__all__ == ["DPHyPOSampler"]
    assert module.DPHyPOSampler is odp.DPHyPOSampler


def test_a_study_of_it_can_be_released() -> None:
    sampler = load().DPHyPOSampler(
        trials=odp.Geometric(mean=3), run=odp.gaussian(noise_multiplier=4.0)
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: -(trial.suggest_float("x", -1, 1) ** 2))
    assert odp.release(study, vouched="a test").params is not None


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optunahub, "load_module", lambda name: load())
    runpy.run_path(str(HERE / "example.py"), run_name="__main__")


def test_the_folder_is_what_the_registry_expects() -> None:
    text = (HERE / "README.md").read_text()
    front = dict(
        line.split(": ", 1) for line in text.split("---")[1].strip().splitlines() if ": " in line
    )
    assert {"author", "title", "description", "tags", "optuna_versions", "license"} <= set(front)
    assert "sampler" in front["tags"]
    for name in ("__init__.py", "example.py", "requirements.txt", "LICENSE"):
        assert (HERE / name).is_file()
    assert importlib.util.find_spec("optuna_dp") is not None
