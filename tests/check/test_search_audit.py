"""The audit that looks for itself finds every mutant of ``test_audits.py``, and spares the honest.

It is told what one run costs and nothing else: neither which worlds, nor which outputs to look at.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.mechanisms import DoublingPlan
from optuna_dp.voting import VotePlan

from .audits import claim, propose_test_outputs
from .neighbours import NeighbouringRuns, NeighbouringUtilities
from .search_audit import audit_search
from .simulation import NOTHING, Faults, Runs, columns, simulate

RUN, DELTA = odp.pure_dp(1.0), 1e-3
HONEST = Faults()


def searches(law, faults=HONEST, densities=None, seed=0):
    """Whole searches: what is released of each, as somebody would read it."""
    rng = np.random.default_rng(seed)

    def procedure(world, count):
        policy = None if densities is None else densities(world)
        found = simulate(world.runs, law, count, rng, faults=faults, densities=policy)
        return columns(found, world.runs, faults)

    return procedure


def solver(low, high):
    """The density of a policy that gives its favourite as much as the bounds allow."""

    def densities(world):
        prior = world.runs.prior
        share = prior[world.prefers]
        top = min(high, (1 - low * (1 - share)) / share)
        ratio = np.full(prior.size, (1 - top * share) / (1 - share) if share < 1 else 1.0)
        ratio[world.prefers] = top
        return lambda state: np.broadcast_to(ratio, (state.size, ratio.size))

    return densities


def best_noisy_utility(noise, seed=0):
    """The best of T runs; a run is a candidate and its utility with noise, in whole units."""
    rng, law, reach = np.random.default_rng(seed), odp.Geometric(mean=10), 25
    steps = np.arange(-reach, reach + 1)
    p = np.exp(-np.abs(steps) / noise)
    p /= p.sum()

    def procedure(utilities, count):
        size = 2 * reach + 20
        outputs = np.zeros((len(utilities), size))
        for row, utility in zip(outputs, utilities, strict=True):
            row[10 + utility + steps + reach] += p
        prior = np.full(len(utilities), 1 / len(utilities))
        runs = Runs(prior, outputs, np.arange(size, dtype=float))
        return columns(simulate(runs, law, count, rng), runs)

    return procedure


def propose_test(factor):
    rng, plan = np.random.default_rng(9), DoublingPlan(1.0, granularity=0.5, lower_bound=0.5)
    return lambda world, count: propose_test_outputs(plan, world, count, rng, factor)


class Votes:
    """One client's vote for another: k of the candidates each."""

    def __init__(self, plan):
        self.plan = plan

    def draw(self, rng):
        votes = []
        for _ in range(2):
            vote = np.zeros(self.plan.candidates, dtype=int)
            vote[rng.choice(vote.size, self.plan.votes, replace=False)] = 1
            votes.append(vote)
        return votes[0], votes[1]

    def vary(self, pair, rng):
        return pair[0], self.draw(rng)[1]


VOTE = VotePlan.calibrated(clients=50, candidates=100, votes=5, epsilon=1.0, delta=DELTA)


def vote(factor):
    rng = np.random.default_rng(10)
    rate = VOTE.variance * factor**2 / 2

    def procedure(world, count):
        noise = rng.poisson(rate, (2, count, world.size))
        return world + noise[0] - noise[1]

    return procedure


FREE = odp.pure_dp(0.0)
# Family, honest procedure, mutant, claimed epsilon at delta, runs.
MUTANTS = {
    "T is told": (
        lambda: NeighbouringRuns(1.0),
        lambda: searches(odp.Geometric(mean=60)),
        lambda: searches(odp.Geometric(mean=60), Faults(count_told=True)),
        lambda: claim(RUN, odp.Geometric(mean=60)),
        120_000,
    ),
    "failed runs repeated": (
        lambda: NeighbouringRuns(1.0),
        lambda: searches(odp.Geometric(mean=1.2)),
        lambda: searches(odp.Geometric(mean=1.2), Faults(failures_repeated=True)),
        lambda: claim(RUN, odp.Geometric(mean=1.2)),
        200_000,
    ),
    "ties by duration": (
        lambda: NeighbouringRuns(0.0),
        lambda: searches(odp.Geometric(mean=10)),
        lambda: searches(odp.Geometric(mean=10), Faults(first_wins=True)),
        lambda: claim(FREE, odp.Geometric(mean=10)),
        10_000,
    ),
    "density out of bounds": (
        lambda: NeighbouringRuns(0.0),
        lambda: searches(odp.Geometric(mean=10), densities=solver(0.9, 1.25)),
        lambda: searches(odp.Geometric(mean=10), densities=solver(0.5, 2.0)),
        lambda: claim(FREE, odp.Geometric(mean=10), (0.9, 1.25), "data"),
        15_000,
    ),
    "half the noise of a run": (
        lambda: NeighbouringUtilities(2),
        lambda: best_noisy_utility(1.0),
        lambda: best_noisy_utility(0.5),
        lambda: claim(RUN, odp.Geometric(mean=10)),
        20_000,
    ),
    "half the noise in propose-test": (
        lambda: NeighbouringUtilities(5),
        lambda: propose_test(1.0),
        lambda: propose_test(0.5),
        lambda: 1.0,
        100_000,
    ),
    "half the noise in the vote": (
        lambda: Votes(VOTE),
        lambda: vote(1.0),
        lambda: vote(0.5),
        lambda: VOTE.guarantee().epsilon(DELTA),
        40_000,
    ),
}
PURE = {"half the noise in propose-test"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_found_without_being_told_where_to_look(name: str) -> None:
    family, honest, mutant, claimed, runs = MUTANTS[name]
    delta = 0.0 if name in PURE else DELTA
    found = audit_search(mutant(), family(), runs=runs, delta=delta, seed=1)
    print(f"{name}: {found.epsilon:.3f} by {found.statistic}, claimed {claimed():.3f}")
    assert found.refutes(claimed())
    spared = audit_search(honest(), family(), runs=runs // 4, delta=delta, seed=1)
    print(f"{name}, honest: {spared.epsilon:.3f}")
    assert not spared.refutes(claimed())


@pytest.mark.slow
def test_a_mutant_is_found_in_a_small_search() -> None:
    found = audit_search(
        searches(odp.Geometric(mean=10), Faults(first_wins=True)),
        NeighbouringRuns(0.0),
        runs=2000,
        delta=DELTA,
        seed=1,
    )
    assert found.refutes(0.5)
    spared = audit_search(
        searches(odp.Geometric(mean=10)), NeighbouringRuns(0.0), runs=2000, delta=DELTA, seed=1
    )
    assert spared.epsilon == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_neighbouring_runs_are_neighbours_and_attain_their_epsilon(epsilon: float) -> None:
    rng, family = np.random.default_rng(0), NeighbouringRuns(epsilon)
    largest = 0.0
    pair = family.draw(rng)
    for i in range(300):
        pair = family.vary(pair, rng) if i % 3 else family.draw(rng)
        one, other = (world.runs for world in pair)
        assert (one.prior == other.prior).all()
        for law in (one.outputs, other.outputs):
            assert np.allclose(law.sum(axis=1), 1.0)
            assert (law > 0).all()
        largest = max(largest, float(np.abs(np.log(one.outputs / other.outputs)).max()))
        assert largest <= epsilon + 1e-9
    assert largest > 0.95 * epsilon


def test_neighbouring_utilities_move_by_at_most_one() -> None:
    rng, family = np.random.default_rng(0), NeighbouringUtilities(4)
    pair = family.draw(rng)
    for i in range(200):
        pair = family.vary(pair, rng) if i % 3 else family.draw(rng)
        assert np.abs(pair[0] - pair[1]).max() <= 1


def test_columns_are_what_was_simulated() -> None:
    runs = Runs(np.array([0.5, 0.5]), np.array([[0.5, 0.5], [1.0, 0.0]]), np.arange(2.0))
    law, told = odp.Geometric(mean=3), Faults(count_told=True)
    plain = simulate(runs, law, 500, np.random.default_rng(0))
    coded = simulate(runs, law, 500, np.random.default_rng(0), faults=told)
    read, with_count = columns(plain, runs), columns(coded, runs, told)
    assert (read[:, :2] == with_count[:, :2]).all()
    assert (read[:, 2] == 0).all()
    assert (with_count[:, 2] >= 1).all()
    assert ((read[:, 0] < 0) == (plain == NOTHING)).all()
    assert (2 * read[:, 0] + read[:, 1] == plain)[plain != NOTHING].all()


@pytest.mark.slow
def test_looking_does_not_bias_what_is_found() -> None:
    """Pure noise in every world: nothing is found, however many pairs were tried."""
    rng = np.random.default_rng(3)
    for seed in range(3):
        found = audit_search(
            lambda world, n: rng.integers(0, 9, n),
            NeighbouringUtilities(2),
            runs=1000,
            confidence=1 - 1e-7,
            seed=seed,
        )
        assert found.epsilon == 0.0


def test_bad_arguments_of_a_search() -> None:
    family = NeighbouringUtilities(2)
    with refuses("runs"):
        audit_search(lambda world, n: np.zeros(n), family, runs=10)
    with refuses("procedure"):
        audit_search(lambda world, n: np.zeros(3), family, runs=1000)
    with refuses("epsilon"):
        NeighbouringRuns(math.nan)
    with refuses("spread"):
        NeighbouringUtilities(2, 0)
