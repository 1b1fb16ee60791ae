"""A statement says whether it is about records or about clients."""

from __future__ import annotations

import optuna
import pytest

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError


def released(run: object) -> odp.Release:
    study = optuna.create_study(
        direction="maximize", sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2))
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, run, vouched="a test")  # type: ignore[arg-type]


def test_a_search_over_runs_that_hide_clients_says_so() -> None:
    for_clients = released(odp.per_client(odp.gaussian(4.0)))
    assert "each client as a whole" in for_clients.statement()
    assert "adding or removing one client with all its records" in for_clients.statement()
    assert for_clients.to_json()["statement"]["unit"] == "client"
    for_records = released(odp.gaussian(4.0))
    assert "each record: the output" in for_records.statement()
    assert for_records.to_json()["statement"]["unit"] == "record"
    assert for_clients.guarantee.epsilon(1e-5) == for_records.guarantee.epsilon(1e-5)


@pytest.mark.slow
def test_a_final_training_is_about_the_same_unit() -> None:
    of_clients = odp.per_client(odp.gaussian(8.0))
    with pytest.raises(InvalidArgumentError, match="per_client"):
        released(odp.gaussian(4.0)).with_training(of_clients)
    whole = released(odp.per_client(odp.gaussian(4.0))).with_training(of_clients)
    assert "for each client as a whole" in whole.statement()


def test_it_is_said_that_a_record_may_not_be_a_person_unless_the_curator_says_so() -> None:
    warning = "One record may not be one person"
    assert warning not in released(odp.per_client(odp.gaussian(4.0))).statement()
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))

    def statement() -> str:
        return odp.release(study, odp.gaussian(4.0), vouched="a test").statement()

    odp.describe(study, unit="patient")
    assert warning in statement()
    again = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2)))
    again.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    odp.describe(again, unit="patient", cap=1)
    described = odp.release(again, odp.gaussian(4.0), vouched="a test")
    assert warning not in described.statement()
