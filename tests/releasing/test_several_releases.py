"""What several releases of the same records cost together, and how the page says it."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from refusals import refuses
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app


def _release(noise: float, relation: str = "add_or_remove_one") -> odp.Release:
    event = odp.gaussian(noise_multiplier=noise)
    sampler = odp.RandTuneSampler(
        trials=odp.Geometric(mean=2), run=event, neighboring_relation=relation
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    odp.describe(study, earlier_releases=1)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, vouched="an example")


def test_epsilon_of_two_files_is_that_of_the_composition(tmp_path: Path) -> None:
    files = []
    for noise in (4.0, 6.0):
        files.append(tmp_path / f"{noise}.json")
        files[-1].write_text(json.dumps(_release(noise).to_json()))
    guarantees = [
        odp.Guarantee.from_json(json.loads(file.read_text())["statement"]["guarantee"])
        for file in files
    ]
    both = guarantees[0].compose(guarantees[1]).epsilon(1e-5)
    result = CliRunner().invoke(app, ["verify", str(files[0]), "--with", str(files[1])])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("Together")]
    stated = float(line.split("epsilon = ")[1].split()[0])
    assert both <= stated <= both * 1.001


def test_another_release_that_was_altered_is_seen(tmp_path: Path) -> None:
    release, other = _release(4.0).to_json(), _release(4.0).to_json()
    other["statement"]["epsilon"] /= 2
    assert not odp.verify(release, others=[other]).ok


def test_releases_under_other_relations_do_not_add() -> None:
    with refuses("others"):
        odp.verify(_release(4.0).to_json(), others=[_release(4.0, "replace_one").to_json()])


@pytest.mark.parametrize("said", [0, 1])
def test_the_first_lines_say_that_earlier_releases_are_not_counted(said: int) -> None:
    sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=odp.gaussian(4.0))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    odp.describe(study, earlier_releases=said)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    claim = odp.release(study, vouched="an example").statement().split("## 1.")[0]
    assert ("earlier release of these records" in claim.split("| | |")[0]) == bool(said)


def test_the_statement_says_that_the_storage_held_an_older_study(tmp_path: Path) -> None:
    """A later study changes nothing: the same study gives the same release again."""
    storage = f"sqlite:///{tmp_path}/studies.db"
    event = odp.gaussian(noise_multiplier=4.0)

    def made(name: str) -> optuna.Study:
        sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=event)
        study = optuna.create_study(
            direction="maximize", sampler=sampler, storage=storage, study_name=name
        )
        odp.describe(study, earlier_releases=0)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        return study

    first, second = made("first"), made("second")
    alone, released = (odp.release(study, vouched="a test") for study in (first, second))
    assert "Older studies" not in alone.statement()
    statement = released.statement()
    assert "| Older studies in the storage | found at the release: 1 private study" in statement
    assert "**The storage held other private studies**" in statement
    assert odp.verify(released.to_json()).ok
    assert odp.release(first, vouched="a test").to_json() == alone.to_json()
