from __future__ import annotations

import inspect
import sys
from pathlib import Path

import mpmath
import pytest

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.mechanisms import DoublingPlan, NoisyMaxPlan

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "propose_test"))

import claims


def brute_delta(epsilon, e0, m):
    """The hockey-stick of m randomised responses, over the binomial law, in 60 digits."""
    with mpmath.workdps(60):
        p = mpmath.exp(e0) / (1 + mpmath.exp(e0))
        total = mpmath.mpf(0)
        for wins in range(m + 1):
            first = mpmath.binomial(m, wins) * p**wins * (1 - p) ** (m - wins)
            second = mpmath.binomial(m, wins) * (1 - p) ** wins * p ** (m - wins)
            total += max(mpmath.mpf(0), first - mpmath.exp(epsilon) * second)
        return total


def loop(e0, m):
    return Guarantee(DoublingPlan(e0, 1e-3, max_iterations=m).event())


@pytest.mark.parametrize("m", [1, 2, 199])
@pytest.mark.parametrize("e0", [0.01, 0.1, 2.0])
def test_composition_is_optimal(m, e0):
    for share in (0.0, 0.1, 0.3, 0.7, 0.95):
        epsilon = share * m * e0
        exact = brute_delta(epsilon, e0, m)
        ours = loop(e0, m).delta(epsilon)
        assert exact * (1 - 1e-12) <= ours <= exact * (1 + 1e-4) + mpmath.mpf("1e-15")


@pytest.mark.parametrize("m", [1, 34, 499])
def test_epsilon_is_on_the_safe_side_and_below_pure(m):
    for delta in (1e-3, 1e-10):
        epsilon = loop(0.1, m).epsilon(delta)
        assert epsilon <= m * 0.1
        assert brute_delta(epsilon, 0.1, m) <= delta
        if epsilon > 0:
            assert brute_delta(epsilon * (1 - 1e-4), 0.1, m) > delta * (1 - 1e-6)


def test_the_event_says_how_many_iterations_of_what():
    import dp_accounting

    event = DoublingPlan(0.1).event()
    assert isinstance(event, dp_accounting.SelfComposedDpEvent)
    assert event.count == 199
    assert (event.event.epsilon, event.event.delta) == (0.1, 0.0)
    single = NoisyMaxPlan(0.5).event()
    assert (single.epsilon, single.delta) == (0.5, 0.0)


def test_optimal_composition_agrees_with_a_pld():
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_privacy_parameters(
        pld.common.DifferentialPrivacyParameters(0.1, 0.0), value_discretization_interval=1e-4
    )
    theirs = one.self_compose(199).get_epsilon_for_delta(1e-5)
    assert loop(0.1, 199).epsilon(1e-5) == pytest.approx(theirs, rel=2e-3)
    assert loop(0.1, 199).epsilon(1e-5) == pytest.approx(6.4796, abs=1e-3)


@pytest.mark.parametrize(("k", "expected"), [(10, 4.55), (1000, 1.46)])
def test_the_second_papers_delta_is_vacuous_in_its_own_settings(k, expected):
    delta = claims.asymptotic_claim_delta_constant_overhead(
        0.1, n=100, n_partitions=k, granularity=0.01
    )
    assert delta == pytest.approx(expected, abs=0.005)
    assert claims.claim_is_vacuous(delta)


def test_where_the_second_papers_delta_would_say_something():
    k = claims.partitions_for_claimed_delta(1e-5, 0.1, n=100, granularity=0.01)
    assert k > 10_000

    def claimed(k):
        return claims.asymptotic_claim_delta_constant_overhead(
            0.1, n=100, n_partitions=k, granularity=0.01
        )

    assert claimed(k) <= 1e-5 < claimed(k - 1)
    assert not claims.claim_is_vacuous(claimed(k))


def test_claims_are_named_so_and_far_below_the_cost():
    names = [n for n, f in vars(claims).items() if inspect.isfunction(f)]
    assert all("claim" in name for name in names)
    assert claims.asymptotic_claim_epsilon_revisiting(
        0.1, utility_gain=1.0, granularity=0.01
    ) == pytest.approx(1.0)
    assert claims.asymptotic_claim_epsilon_constant_overhead(0.1, n=100) == pytest.approx(
        0.4605, abs=1e-4
    )
    # Both are far below what m iterations can cost.
    assert Guarantee(DoublingPlan(0.1).event()).epsilon(1e-5) > 6
