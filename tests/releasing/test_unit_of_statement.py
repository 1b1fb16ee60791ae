"""A statement says whether it is about records or about clients."""

from __future__ import annotations

import optuna
import pytest
from dp_accounting import dp_event
from refusals import refuses

import optuna_dp as odp


def released(run: dp_event.DpEvent) -> odp.Release:
    study = optuna.create_study(
        direction="maximize",
        sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=run),
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, vouched="a test")


def test_a_search_over_runs_that_hide_clients_says_so() -> None:
    for_clients = released(odp.per_client(odp.gaussian(4.0)))
    assert for_clients.to_json()["statement"]["unit"] == "client"
    for_records = released(odp.gaussian(4.0))
    assert for_records.to_json()["statement"]["unit"] == "record"
    assert for_clients.guarantee.epsilon(1e-5) == for_records.guarantee.epsilon(1e-5)


@pytest.mark.slow
def test_a_final_training_is_about_the_same_unit() -> None:
    of_clients = odp.per_client(odp.gaussian(8.0))
    with refuses("event"):
        released(odp.gaussian(4.0)).with_training(of_clients)
    whole = released(odp.per_client(odp.gaussian(4.0))).with_training(of_clients)
    assert "for each client as a whole" in whole.statement()
