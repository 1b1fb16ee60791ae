"""The audit of everything that selects: no violation, close to the claim, and faults are caught.

Each audit compares outputs of whole searches on D and on D' with what the accountant claims. The
factors say how close to the claim the measurement comes (at 99 % confidence), so that an audit
that has lost its teeth fails too.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from whole_search import audit

import optuna_dp as odp
from optuna_dp.mechanisms import DoublingPlan
from optuna_dp.voting import VotePlan

from .audits import (
    DELTA,
    audit_selection,
    claim,
    propose_test_outputs,
    simple_worlds,
    vote_outputs,
)
from .simulation import Faults

MANY, FEW = 200_000, 40_000
RUN = odp.pure_dp(1.0)
LAW = odp.Geometric(mean=10)
SELECTIONS = {
    "RandTune": ((1.0, 1.0), "history", 0.8),
    "DP-HyPO, policies that see outputs": ((0.75, 2.0), "history", 0.7),
    "DP-HyPO, policies that see the data": ((0.75, 2.0), "data", 0.7),
}


def within(measured: float, claimed: float, factor: float) -> None:
    print(f"measured {measured:.3f}, claimed {claimed:.3f}: {measured / claimed:.2f}")
    assert factor * claimed <= measured <= claimed


def check_selection(name: str, searches: int, looser: float = 0.0) -> None:
    bounds, policy, factor = SELECTIONS[name]
    found, attack = audit_selection(
        epsilon=1.0, bounds=bounds, policy=policy, searches=searches, seed=1
    )
    claimed = claim(RUN, LAW, bounds, policy)
    assert attack <= claimed
    within(found.epsilon, claimed, factor - looser)


def test_rand_tune() -> None:
    check_selection("RandTune", FEW, looser=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", SELECTIONS)
def test_two_hundred_thousand_searches(name: str) -> None:
    check_selection(name, MANY)


def audit_propose_test(plan, searches, seed, noise_factor=1.0):
    rng = np.random.default_rng(seed)
    return audit(
        *(propose_test_outputs(plan, world, searches, rng, noise_factor) for world in ("D", "D'"))
    ).epsilon


ONE = DoublingPlan(1.0, granularity=0.5, lower_bound=0.5)
LOOP = DoublingPlan(1.0, granularity=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "iterations", "factor"), [(ONE, 1, 0.5), (LOOP, 3, 0.3)])
def test_propose_test_over_two_hundred_thousand_searches(plan, iterations, factor) -> None:
    assert plan.iteration_bound == iterations
    within(audit_propose_test(plan, MANY, 2), iterations * plan.epsilon, factor)


def vote_plan() -> VotePlan:
    return VotePlan.calibrated(clients=50, candidates=100, votes=5, epsilon=1.0, delta=DELTA)


def audit_vote(plan, searches, seed, noise_factor=1.0):
    rng = np.random.default_rng(seed)
    worlds = [
        vote_outputs(plan, searches, rng, neighbour=side, noise_factor=noise_factor)
        for side in (False, True)
    ]
    return audit(*worlds, delta=DELTA).epsilon


def test_the_vote() -> None:
    plan = vote_plan()
    within(audit_vote(plan, 2 * MANY, 3), plan.guarantee().epsilon(DELTA), 0.7)


# Faults that the audit must catch.


def caught(worlds, claimed: float, delta: float = DELTA) -> None:
    found = audit(*worlds, delta=delta)
    print(f"measured {found.epsilon:.3f}, claimed {claimed:.3f}")
    assert found.refutes(claimed)


def spared(worlds, claimed: float, delta: float = DELTA) -> None:
    assert not audit(*worlds, delta=delta).refutes(claimed)


@pytest.mark.slow
def test_fault_t_is_told() -> None:
    """Good outputs of probability 0.05 against 0.136; no good one in many runs tells on D'."""
    law, scores = odp.Geometric(mean=60), (0.0, 1.0)
    worlds = ((0.95, 0.05), (1 - 0.05 * math.e, 0.05 * math.e))
    claimed = claim(RUN, law)
    told = simple_worlds(*worlds, law, MANY, 4, scores=scores, faults=Faults(count_told=True))
    # The winner and the number of runs, in steps of 60 runs.
    caught([(t % 3) + 3 * (t // 3 // 60) for t in told], claimed)
    spared([t % 3 for t in told], claimed)


@pytest.mark.slow
def test_fault_failed_runs_are_repeated_for_free() -> None:
    """Given that a run succeeds, it is good with probability 0.070 against 0.013."""
    law, scores = odp.Geometric(mean=1.2), (math.nan, 0.0, 1.0)
    worlds = ((0.6128, 0.36, 0.0272), (0.2264, 0.7634, 0.0102))
    assert max(abs(np.log(np.divide(*worlds)))) < 1.0  # One run is 1-DP.
    claimed = claim(RUN, law)
    caught(
        simple_worlds(*worlds, law, MANY, 5, scores=scores, faults=Faults(failures_repeated=True)),
        claimed,
    )
    spared(simple_worlds(*worlds, law, MANY, 5, scores=scores), claimed)


def test_fault_the_density_exceeds_its_bounds() -> None:
    """A solver that promises [0.9, 1.25] and gives [0.5, 2]; runs that cost nothing themselves."""
    claimed = claim(odp.pure_dp(0.0), LAW, (0.9, 1.25), "data")
    worlds = []
    rng = np.random.default_rng(6)
    from .simulation import Runs, simulate

    runs = Runs(np.full(4, 0.25), np.ones((4, 1)), np.zeros(1))
    for first in (2.0, 0.5):
        ratio = np.array([[first, *[(4 - first) / 3] * 3]])
        worlds.append(
            simulate(
                runs, LAW, FEW, rng,
                densities=lambda state, ratio=ratio: np.broadcast_to(ratio, (state.size, 4)),
            )
        )  # fmt: skip
    caught(worlds, claimed)


def test_fault_noise_is_halved() -> None:
    """Runs whose scores got half their noise cost 2 instead of 1."""
    found, _ = audit_selection(
        epsilon=2.0, bounds=(1.0, 1.0), policy="history", searches=FEW, seed=7
    )
    assert found.refutes(claim(RUN, LAW))


def test_fault_ties_are_broken_by_the_data() -> None:
    """Two equal scores, runs that cost nothing, durations that differ: 0.909 against 0.091."""
    law, free = odp.Geometric(mean=10), claim(odp.pure_dp(0.0), odp.Geometric(mean=10))
    settings = {"scores": (0.0,), "prior": (0.5, 0.5), "durations": ((1, 2), (2, 1))}
    worlds = ([[1.0], [1.0]], [[1.0], [1.0]])
    told = simple_worlds(*worlds, law, FEW, 8, faults=Faults(first_wins=True), **settings)
    assert abs((told[0] == 0).mean() - 0.909) < 0.01
    caught(told, free)
    spared(simple_worlds(*worlds, law, FEW, 8, **settings), free)


@pytest.mark.slow
def test_fault_half_the_noise_in_propose_test() -> None:
    assert audit_propose_test(ONE, MANY, 9, noise_factor=0.5) > 1.0
    assert audit_propose_test(ONE, MANY, 9) < 1.0


def test_fault_half_the_noise_in_the_vote() -> None:
    plan = vote_plan()
    assert audit_vote(plan, MANY, 10, noise_factor=0.5) > plan.guarantee().epsilon(DELTA)
