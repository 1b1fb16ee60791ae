"""Thousands of malformed replies at every stage: VoteFailedError at most, no garbage released.

Each is planted in a vote of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from federated.in_process import STAGES, vote
from federated.malformed import ALLOWED, CLIENTS, held_with_damaged, possible
from optuna_dp.federated import PlainSum, SecureSum
from optuna_dp.federated.transport import impossible

# At every stage; before a release, MALFORMED_REPLIES=10000.
MANY = int(os.environ.get("MALFORMED_REPLIES", "4000"))

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL"):
        yield


def test_in_votes_by_a_plain_sum() -> None:
    outcomes = held_with_damaged(PlainSum(), "plain", MANY, seed=2)
    assert outcomes["failed"] > MANY / 10
    assert outcomes["without that client"] > MANY / 10


@pytest.mark.parametrize("stage", STAGES)
def test_at_every_stage_of_the_secure_sum(stage: str) -> None:
    outcomes = held_with_damaged(SecureSum(), stage, MANY, seed=3)
    assert outcomes["failed"] > MANY / 10
    assert outcomes["as without it"] + outcomes["without that client"] > MANY / 10


def test_whatever_sum_is_opened() -> None:
    rng = np.random.default_rng(4)
    plan = vote(max_dropout=ALLOWED).plan(CLIENTS)
    votes = np.zeros(plan.candidates, dtype=np.int64)
    votes[: plan.votes] = CLIENTS
    outcomes = {"released": 0, "failed": 0}
    for _ in range(MANY):
        sums, kind = votes.copy(), rng.integers(3)
        if kind == 0:
            sums = rng.integers(-1 << 31, 1 << 31, size=len(votes))
        elif kind == 1:
            sums += rng.integers(-2000, 2000)
        else:
            sums[rng.integers(len(votes))] += rng.integers(-10_000, 10_000)
        released = not impossible(plan, sums, CLIENTS)
        outcomes["released" if released else "failed"] += 1
        assert possible(sums.tolist(), plan) or not released
    assert min(outcomes.values()) > MANY / 10
