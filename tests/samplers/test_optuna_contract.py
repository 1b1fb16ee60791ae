"""Optuna's own sampler test cases (pinned: they ship with Optuna but are not documented)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from support import exactly

import optuna_dp as odp

# Optuna's cases run up to twenty trials, so T must not be in the way.
MANY = exactly(1000)


class TestRandTuneSampler(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.RandTuneSampler(trials=MANY)


class TestDPHyPOSamplerBatch(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.DPHyPOSampler(trials=MANY, candidates=32)


# Optuna's relative cases leave trials running for ever, so a schedule that waits for them would
# wait for ever.
class TestDPHyPOSamplerAny(
    BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: odp.DPHyPOSampler(trials=MANY, schedule="any", candidates=32)
