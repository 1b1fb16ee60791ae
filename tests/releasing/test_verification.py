"""A reviewer with nothing but the JSON of a release, or of its statement."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from budget.budget_support import budget
from support import asking
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli import app
from optuna_dp.errors import InvalidArgumentError

RUN = odp.gaussian(noise_multiplier=4.0)
LAW = odp.Geometric(mean=3)
PRIVATE_RUNS = ("rand_tune", "dp_hypo", "dp_hypo, any schedule")
LOOP: dict[str, Any] = {"epsilon": 0.2, "granularity": 0.2, "resolve": 0.3}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(trials=LAW),
    "dp_hypo": lambda: odp.DPHyPOSampler(trials=LAW, candidates=4, startup_runs=1),
    "dp_hypo, any schedule": lambda: odp.DPHyPOSampler(trials=LAW, candidates=4, schedule="any"),
    "budget": lambda: odp.BudgetSampler(budget(3, 1)),
    "noisy_max": lambda: odp.NoisyMaxSampler(candidates=2, n_partitions=900, epsilon=1.0),
    "propose_test": lambda: odp.ProposeTestSampler(candidates=2, n_partitions=30_000, **LOOP),
}


def released(**kwargs: Any) -> odp.Release:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3)))
    odp.describe(study, dataset="made up", records=900, unit="patient", cap=2)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, RUN, **kwargs)


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in names}


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("trained", [False, True])
def test_a_release_of_every_kind_can_be_checked(kind: str, trained: bool) -> None:
    study = optuna.create_study(direction="maximize", sampler=SAMPLERS[kind]())
    study.optimize(asking(lambda trial: trial.suggest_float("x", 0, 1)))
    run = odp.pure_dp(0.1)  # Quickly accounted for.
    release = odp.release(study, run if kind in PRIVATE_RUNS else None)
    release = release.with_training(run) if trained else release
    found = odp.verify(json.loads(json.dumps(release.to_json())))
    assert found.ok, str(found)
    assert any(check.what == "SHA-256" for check in found.checks)


def test_the_statement_alone_is_enough() -> None:
    statement = json.loads(json.dumps(released().to_json()["statement"]))
    found = odp.verify(statement)
    assert found.ok
    assert {"SHA-256", "epsilon of 2 records", "attack"} <= {check.what for check in found.checks}
    assert found.believed == tuple(statement["assumptions"])
    assert "storage" in " ".join(found.unchecked)


def test_what_protects_clients_can_be_checked() -> None:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    data = odp.release(study, odp.per_client(RUN)).to_json()
    found = odp.verify(data)
    assert found.ok, str(found)
    assert "client" in data["statement"]["protected"]


def lies() -> dict[str, Any]:
    def epsilon(data: dict[str, Any]) -> None:
        data["statement"]["epsilon"] *= 0.999

    def infinite(data: dict[str, Any]) -> None:
        data["statement"]["rdp"]["epsilons"][3] = 0.001

    def group(data: dict[str, Any]) -> None:
        data["statement"]["unit_with_several_records"]["epsilon"] /= 2

    def attack(data: dict[str, Any]) -> None:
        data["statement"]["attack"] *= 1.01

    def gaussian(data: dict[str, Any]) -> None:
        data["statement"]["gaussian_dp"]["mu"] /= 1.001

    def value(data: dict[str, Any]) -> None:
        data["params"]["x"] += 0.001

    def both_values(data: dict[str, Any]) -> None:
        value(data)
        data["statement"]["content"]["params"]["x"] = data["params"]["x"]

    def description(data: dict[str, Any]) -> None:
        data["description"]["records"] = 9

    def relation(data: dict[str, Any]) -> None:
        data["statement"]["neighboring_relation"] = "replace_one"

    def protected(data: dict[str, Any]) -> None:
        data["statement"]["protected"] = "adding or removing all records of one patient"

    def cheaper_run(data: dict[str, Any]) -> None:
        cheaper = odp.Guarantee(odp.gaussian(noise_multiplier=40.0))
        data["statement"]["guarantee"] = cheaper.to_json()
        data["statement"]["epsilon"] = cheaper.epsilon(1e-5)

    def fewer_runs(data: dict[str, Any]) -> None:
        data["statement"]["design"]["settings"]["trials"] = odp.Binomial(1, mean=1).to_json()

    return dict(locals())


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return dict(json.loads(json.dumps(released().to_json())))


@pytest.mark.parametrize("lie", lies())
def test_every_lie_is_found(honest: dict[str, Any], lie: str) -> None:
    data = copy.deepcopy(honest)
    assert odp.verify(data).ok
    lies()[lie](data)
    found = odp.verify(data)
    assert not found.ok
    assert "DIFFERS" in str(found)
    assert str(found).endswith("It does NOT hold.")


def test_a_larger_epsilon_than_needed_is_no_lie(honest: dict[str, Any]) -> None:
    data = copy.deepcopy(honest)
    data["statement"]["epsilon"] *= 2
    assert odp.verify(data).ok


def test_a_training_on_top_and_its_model(tmp_path: Path) -> None:
    release = released().with_training(odp.gaussian(noise_multiplier=9.0), artifact=b"model")
    (tmp_path / "model").write_bytes(b"model")
    (tmp_path / "other").write_bytes(b"other")
    data = release.to_json()
    assert odp.verify(data, artifact=tmp_path / "model").ok
    assert not odp.verify(data, artifact=tmp_path / "other").ok
    assert any("artifact" in text for text in odp.verify(data).unchecked)


def test_the_command(tmp_path: Path, honest: dict[str, Any]) -> None:
    file = tmp_path / "release.json"
    file.write_text(json.dumps(honest))
    runner = CliRunner()
    good = runner.invoke(app, ["verify", str(file)])
    assert good.exit_code == 0
    assert "Remains to be believed" in good.stdout
    as_json = runner.invoke(app, ["verify", str(file), "--json"])
    assert json.loads(as_json.stdout)["ok"] is True
    lies()["value"](data := copy.deepcopy(honest))
    file.write_text(json.dumps(data))
    assert runner.invoke(app, ["verify", str(file)]).exit_code == 1
    file.write_text("{")
    bad = runner.invoke(app, ["verify", str(file)])
    assert bad.exit_code == 2
    assert bad.output.count("\n") == 1


@pytest.mark.parametrize("junk", [{}, {"format": "optuna-dp release"}, "no such file", 3, []])
def test_junk_is_refused(junk: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        odp.verify(junk)


@pytest.mark.parametrize("name", ["guarantee", "design", "rdp", "delta", "assumptions"])
def test_a_statement_without_a_part_is_refused(honest: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a release or a statement"):
        odp.verify(without(honest["statement"], name))


def test_a_statement_of_another_version_is_refused(honest: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="version 99"):
        odp.verify({**honest["statement"], "version": 99})
