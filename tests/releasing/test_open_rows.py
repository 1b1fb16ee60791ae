"""What a reviewer looks for first is asked of the curator before the release."""

import logging

import optuna
import pytest

import optuna_dp as odp

RUN = odp.gaussian(noise_multiplier=4.0)


def messages(caplog: pytest.LogCaptureFixture, **facts: str) -> list[str]:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2)))
    if facts:
        odp.describe(study, **facts)
    optuna.logging.enable_propagation()
    with caplog.at_level(logging.INFO, logger="optuna.optuna_dp"):
        study.optimize(
            lambda trial: trial.suggest_float("x", 0, 1), callbacks=[odp.PrivacyCallback(RUN)]
        )
    optuna.logging.disable_propagation()
    return [text for text in caplog.messages if text.startswith("Before the release")]


def test_a_study_that_is_not_described_is_asked_for_data_owner_and_purpose(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (text,) = set(messages(caplog))
    assert (
        "odp.describe(study, dataset=..., owner=..., purpose=..., unit=..., sampling=...)" in text
    )


def test_a_described_study_is_asked_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    facts = {"dataset": "d", "owner": "o", "purpose": "p", "unit": "person", "sampling": "s"}
    assert messages(caplog, **facts) == []
