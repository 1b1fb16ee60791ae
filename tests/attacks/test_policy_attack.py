from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from refusals import refuses
from selection.bounds.history_reference import Instance, exhaustive

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, pure_dp
from optuna_dp.accounting import events
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks import history_attack
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.data_attack import data_attack, trade_off_vertices
from optuna_dp.attacks.history_attack import (
    HistoryAttack,
    policy_vertices,
    shares_of,
)
from optuna_dp.attacks.policy_attack import strongest_policy_attack
from optuna_dp.attacks.selection_attack import strongest_attack
from optuna_dp.selection.bounds.pointwise_bound import PointwiseProfile
from optuna_dp.selection.bounds.profile_bound import DataProfile

DELTA = 1e-5
BOUNDS = (0.75, 2.0)


def sgd(noise):
    return events.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344)


def bound_of(event, trials, bounds, kind):
    pair = pair_of(event)
    return max(kind(side, trials, bounds).epsilon(DELTA) for side in (pair, pair.reversed()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "reference"), [(1.0, 1.82), pytest.param(0.6, 7.0, marks=pytest.mark.slow)]
)
def test_history_attack_reaches_the_reference(noise, reference) -> None:
    event = sgd(noise)
    attack = strongest_policy_attack(
        attainable_pairs(event)[0], Geometric(10), BOUNDS, DELTA, "history"
    )
    assert attack.epsilon > reference
    assert attack.epsilon < bound_of(event, Geometric(10), BOUNDS, PointwiseProfile)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trials", "bounds"),
    [
        pytest.param(Geometric(10), (0.9, 1.25), marks=pytest.mark.slow),
        pytest.param(Logarithmic(4), (0.5, 4.0), marks=pytest.mark.slow),
        pytest.param(NegativeBinomial(shape=2.0, mean=6), (0.75, 1.5), marks=pytest.mark.slow),
        pytest.param(Poisson(5), (0.5, 4.0), marks=pytest.mark.slow),
        pytest.param(Binomial(8, 4.0), (0.9, 1.25), marks=pytest.mark.slow),
        (Geometric(6).capped(8), (0.5, 4.0)),
    ],
)
def test_attacks_stay_below_their_bounds(trials, bounds) -> None:
    event = events.gaussian(4.0)
    pair = attainable_pairs(event)[0]
    plain = strongest_attack(pair, trials, DELTA).epsilon
    history = strongest_policy_attack(pair, trials, bounds, DELTA, "history").epsilon
    data = strongest_policy_attack(pair, trials, bounds, DELTA, "data").epsilon
    assert plain <= history <= bound_of(event, trials, bounds, PointwiseProfile)
    assert plain <= data <= bound_of(event, trials, bounds, DataProfile)
    # Seeing the data is worth more than seeing private outputs, and the search shows it.
    assert data > history


@pytest.mark.slow
def test_data_attack_breaks_the_history_bound() -> None:
    """The two adversaries differ: what the history bound promises fails if policies see data."""
    event = sgd(1.0)
    attack = strongest_policy_attack(
        attainable_pairs(event)[0], Geometric(10), BOUNDS, DELTA, "data"
    )
    assert attack.epsilon > bound_of(event, Geometric(10), BOUNDS, PointwiseProfile) + 1.0
    assert attack.epsilon < bound_of(event, Geometric(10), BOUNDS, DataProfile)


def _response_instance(pmf, prior, bounds):
    """Two lambdas with randomised response: lambda 0 has the event, lambda 1 the block."""
    high = math.e / (1.0 + math.e)
    low = 1.0 - high
    return Instance(
        losses=np.array([-1.0, 1.0]),
        mass=np.array([low, high]),
        infinite=0.0,
        null=0.0,
        # Outputs: (lambda 0, low), (lambda 0, high), (lambda 1, low), (lambda 1, high).
        on=np.array([low, high, low, high]),
        off=np.array([high, low, high, low]),
        owner=np.array([0, 0, 1, 1]),
        score=np.array([0, 1, 2, 0]),
        prior=np.asarray(prior),
        bounds=bounds,
        law=None,
        pmf=pmf,
    )


def _ranked(prior, bounds, pmf, scores):
    """Lambdas with randomised response; ``scores`` are the ranks of each one's (low, high)."""
    inst = _response_instance(pmf, prior, bounds)
    high, count = math.e / (1.0 + math.e), len(prior)
    on = np.tile([1.0 - high, high], count)
    return replace(
        inst,
        on=on,
        off=1.0 - on,
        owner=np.repeat(np.arange(count), 2),
        score=np.asarray(scores).ravel(),
    )


def _attacked(prior, bounds, scores):
    attack = HistoryAttack(randomized_response(1.0), bounds, prior, reach=12.0)
    shares = np.zeros((len(prior), attack.on.size, 5))
    low, high = np.flatnonzero(attack.on)
    for i, (lower, higher) in enumerate(scores):
        shares[i, low, lower] = shares[i, high, higher] = 1.0
    return attack, shares


RANKED = [
    ((0.5, 0.5), (0.5, 2.0), ((0, 1), (2, 0))),
    ((0.3, 0.7), (0.75, 1.5), ((0, 1), (2, 0))),
    ((0.2, 0.6, 0.2), (0.75, 2.0), ((2, 3), (0, 1), (4, 0))),
    ((0.3, 0.4, 0.3), (0.5, 2.0), ((4, 3), (2, 1), (2, 0))),
]
EPSILONS = (-0.5, 0.0, 0.4, 1.0, 1.7)


def _off_by(prior, bounds, scores):
    """The largest distance between the attack and an exhaustive search over all policies."""
    pmf = np.array([0.1, 0.2, 0.3, 0.4])
    inst = _ranked(prior, bounds, pmf, scores)
    attack, shares = _attacked(prior, bounds, scores)
    event = (inst.score % 2 == 1).astype(float)
    worst = 0.0
    for eps in EPSILONS:
        found = attack.finite(shares, pmf, eps)
        best = exhaustive(inst, event, math.exp(eps))
        worst = max(worst, abs(found.on - math.exp(eps) * found.off - best))
    return worst


@pytest.mark.parametrize(("prior", "bounds", "scores"), RANKED)
def test_history_attack_is_exact_and_optimal_on_a_small_tree(prior, bounds, scores) -> None:
    assert _off_by(prior, bounds, scores) < 1e-12


@pytest.mark.parametrize("wrong", ["density", "block", "forgets"])
def test_wrong_attacks_are_caught_on_a_small_tree(wrong, monkeypatch) -> None:
    if wrong == "density":  # wider than [c, C]
        real = history_attack.policy_vertices
        monkeypatch.setattr(
            history_attack, "policy_vertices", lambda w, c, big_c: real(w, 0.95 * c, 1.05 * big_c)
        )
    elif wrong == "block":  # the highest rank is one that can be left again
        real_run = history_attack.one_run

        def run(weights, visits, moves, stays):
            after = real_run(weights, visits, moves, stays)
            after[0] += visits.sum(axis=0) - after.sum(axis=0)
            return after

        monkeypatch.setattr(history_attack, "one_run", run)
    else:  # the last run's rank instead of the best so far
        monkeypatch.setattr(
            history_attack, "one_run",
            lambda weights, visits, moves, stays: np.einsum(
                "rzi,rz,qizy->qy", weights, visits, moves
            ),
        )  # fmt: skip
    assert max(_off_by(*case) for case in RANKED) > 1e-4


def test_geometric_attack_is_the_limit_of_finite_ones() -> None:
    pair = attainable_pairs(events.gaussian(4.0))[0]
    attack = HistoryAttack(pair, BOUNDS, (0.2, 0.6, 0.2), reach=4.0)
    tops, parts = [[0.01, 0.02], [0.2, 0.0], [0.1, 0.1]], [[1e-3, 0.0], [1e-4, 2e-3], [0.0, 1e-5]]
    shares = shares_of(attack.on, tops, parts)
    pmf = np.array([Geometric(4).pmf(k) for k in range(1, 160)])
    forever, long = attack.geometric(shares, 0.25, 1.0), attack.finite(shares, pmf, 1.0)
    assert (forever.on, forever.off) == pytest.approx((long.on, long.off), rel=1e-6)
    assert forever.gradient == pytest.approx(long.gradient, rel=1e-4, abs=1e-7)


@pytest.mark.slow
def test_an_attack_of_ranks_in_one_part_is_not_given_up_too_early() -> None:
    """On the coarse lattice two parts are ahead, and end at 3.10; on the fine one they are not."""
    pair = attainable_pairs(pure_dp(1.0))[0]
    attack = strongest_policy_attack(pair, Geometric(100), (0.9, 1.25), DELTA, "history")
    assert attack.epsilon > 3.4


def test_an_outcome_does_not_depend_on_the_mechanisms_tried_before() -> None:
    """Though each search for the best policy begins with the last one's."""
    pair = attainable_pairs(events.gaussian(4.0))[0]
    first = HistoryAttack(pair, BOUNDS, (0.2, 0.6, 0.2), reach=4.0)
    other = HistoryAttack(pair, BOUNDS, (0.2, 0.6, 0.2), reach=4.0)
    shares = shares_of(first.on, [[0.01], [0.2], [0.1]], [[1e-3], [1e-4], [0.0]])
    other.geometric(shares_of(first.on, [[0.5], [0.0], [0.3]], [[0.0], [0.2], [1e-5]]), 0.25, 3.0)
    fresh, again = (attack.geometric(shares, 0.25, 1.0) for attack in (first, other))
    assert (again.on, again.off) == pytest.approx((fresh.on, fresh.off), rel=1e-12)


@pytest.mark.parametrize(("prior", "bounds", "scores"), RANKED)
def test_the_advantage_grows_at_least_as_its_gradient_says(prior, bounds, scores) -> None:
    """It is the most over policies, each of which grows that fast: a subgradient.

    Where losses lie on the lattice; exact where the policy stays the best, as most do.
    """
    attack, shares = _attacked(prior, bounds, scores)
    pmf, eps, small = np.array([0.1, 0.2, 0.3, 0.4]), 0.9, 1e-6
    found = attack.finite(shares, pmf, eps)
    exact = []
    for output in np.flatnonzero(attack.on):
        for i, rank in enumerate((1, 3, 2)[: len(shares)]):
            moved = (1.0 - small) * shares[i, output]
            moved[rank] += small
            other = shares.copy()
            other[i, output] = moved
            near = attack.finite(other, pmf, eps)
            change = near.on - found.on - math.exp(eps) * (near.off - found.off)
            wanted = attack.on[output] * found.gradient[i, output] @ (moved - shares[i, output])
            assert change > wanted - 1e-4 * abs(wanted) - 1e-12
            exact.append(change == pytest.approx(wanted, rel=1e-4, abs=1e-12))
    assert sum(exact) >= len(exact) / 3


def test_shares_are_all_of_each_output() -> None:
    mass = np.array([0.0, 0.2, 0.3, 0.0, 0.4, 0.1])
    shares = shares_of(mass, [[0.1, 0.2], [0.0, 0.0]], [[0.05, 0.3], [0.9, 0.5]])
    assert np.allclose(shares.sum(axis=2), 1.0)
    masses = np.einsum("ijr,j->ir", shares, mass)
    assert masses == pytest.approx(np.array([[0.35, 0.3, 0.2, 0.05, 0.1], [0.0, 0.1, 0, 0.9, 0]]))


def test_coarse_lattices_give_weaker_attacks_not_wrong_ones() -> None:
    """The policy's statistic is rounded, its outcome is not: O-mass and O'-mass are conserved."""
    pair = attainable_pairs(events.gaussian(4.0))[0]
    attack = HistoryAttack(pair, BOUNDS, (0.2, 0.8), reach=4.0, points_per_spread=1.0)
    shares = shares_of(attack.on, [[0.0], [0.0]], [[1.0], [1.0]])
    # All outputs are in the event, so a run happens with certainty on either side.
    found = attack.geometric(shares, 0.1, 1.0)
    assert (found.on, found.off) == pytest.approx((1.0, 1.0), abs=1e-9)


def test_data_attack_matches_its_closed_form_without_adaptivity() -> None:
    pair = randomized_response(1.0)
    pmf = np.array([Geometric(3).pmf(k) for k in range(1, 200)])
    on, off = data_attack(pair, pmf, np.array([[1.0]]), np.array([[0.2]]), np.array([[0.3]]))
    phi = Geometric(3).pgf
    block = float(np.interp(0.2, *trade_off_vertices(pair)))
    inside = 0.3 * math.exp(-1.0)
    assert on[0] == pytest.approx(phi(0.8) - phi(0.5), rel=1e-9)
    assert off[0] == pytest.approx(phi(1 - block) - phi(1 - block - inside), rel=1e-9)


def test_vertices_are_densities_at_the_bounds() -> None:
    for prior in ((0.2, 0.8), (0.3, 0.3, 0.4)):
        vertices = policy_vertices(prior, 0.75, 2.0)
        ratio = vertices / np.array(prior)
        assert np.allclose(vertices.sum(axis=1), 1.0)
        assert np.all((ratio >= 0.75 - 1e-9) & (ratio <= 2.0 + 1e-9))
        assert len(vertices) >= 2


@pytest.mark.parametrize("policy", ["history", "data"])
def test_without_freedom_for_a_policy_it_is_the_plain_attack(policy) -> None:
    pair = attainable_pairs(events.gaussian(4.0))[0]
    attack = strongest_policy_attack(pair, Geometric(10), (1.0, 1.0), DELTA, policy)
    plain = strongest_attack(pair, Geometric(10), DELTA)
    assert attack.epsilon == plain.epsilon
    assert attack.plain == plain


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["history", "data"])
def test_edges_give_no_nan(policy) -> None:
    for pair in (
        DominatingPair.identity(),
        DominatingPair.infinite(),
        randomized_response(1.0, 1e-3),
    ):
        found = strongest_policy_attack(pair, Geometric(3), BOUNDS, DELTA, policy)
        assert not math.isnan(found.epsilon)
        assert found.epsilon >= 0.0


def test_unknown_policy_is_refused() -> None:
    with refuses("policy"):
        strongest_policy_attack(
            DominatingPair.identity(),
            Geometric(3),
            BOUNDS,
            DELTA,
            "everything",  # type: ignore
        )


@pytest.mark.slow
def test_an_ascent_that_ends_without_an_event_begins_again() -> None:
    """The first looks are too weak for the epsilon of the plain attack there (8.36)."""
    event = events.dp_sgd(noise_multiplier=0.6, sample_rate=256 / 60000, steps=2344)
    pair = attainable_pairs(event)[0]
    found = strongest_policy_attack(pair, Geometric(100), (0.75, 2.0), 1e-5, "history")
    assert found.plain is None
    assert found.epsilon > 8.7
