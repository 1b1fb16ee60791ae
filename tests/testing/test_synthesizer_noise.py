"""A synthesizer of SmartNoise draws OpenDP's noise, which no check can repeat."""

from __future__ import annotations

import secrets
import sys
import types
from typing import Any

import pytest

import optuna_dp as odp


class Synthesizer:
    """Stands in for snsynth.base.Synthesizer: an epsilon, and noise of the operating system."""

    epsilon, delta = 1.0, 1e-7

    def fit(self, values: list[float]) -> None:
        self.total = sum(values) + secrets.randbelow(1000)


@pytest.fixture
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("snsynth.base")
    module.Synthesizer = Synthesizer
    monkeypatch.setitem(sys.modules, "snsynth.base", module)


@pytest.mark.slow
@pytest.mark.usefixtures("_library")
def test_the_noise_of_a_synthesizer_is_said_not_to_be_repeated() -> None:
    event = odp.compose(odp.approximate_dp(1.0, 1e-7), odp.scoring.score_event(20.0))

    def objective(trial: Any) -> float:
        synthesizer = Synthesizer()
        synthesizer.fit([1.0])
        correct = [index < synthesizer.total for index in range(1000)]
        return odp.scoring.private_accuracy(correct, size=1000, noise_multiplier=20.0)

    report = odp.check_objective(objective, event)
    assert report.ok
    assert any(
        "SmartNoise draws noise that cannot be repeated" in gap for gap in report.not_checked
    )
