"""Profiles of one run: reference values, soundness against exact profiles, all kinds of trees."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from accounting.plain_runs import both, gaussian_delta, sgd
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant, pld_pmf, privacy_loss_distribution
from refusals import refuses

from optuna_dp import Geometric, Guarantee
from optuna_dp.accounting import (
    discretisation,
    plds,
    run_profile,
    supported_events,
)
from optuna_dp.accounting.discretisation import interval_for
from optuna_dp.accounting.events import compose, dp_sgd, gaussian, laplace, zcdp
from optuna_dp.accounting.kinds.approximate import approximate_dp, pure_dp
from optuna_dp.accounting.kinds.curve import rdp
from optuna_dp.accounting.kinds.worst_case import worst_case
from optuna_dp.accounting.run_profile import composed, pair_of, parts_of
from optuna_dp.errors import UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent


def pld_of(event):
    return composed(parts_of(event, "add_or_remove_one"), "add_or_remove_one")


class TestReferenceValues:
    @pytest.mark.parametrize(
        ("event", "epsilon"), [(sgd(0.71), 2.774), (sgd(1.0), 1.100), (gaussian(4.0), 0.926)]
    )
    def test_theory_page_base_cases(self, event: Any, epsilon: float) -> None:
        assert both(pair_of(event), 1e-5) == pytest.approx(epsilon, abs=6e-4)

    @pytest.mark.parametrize(
        "event", [pytest.param(sgd(0.71), marks=pytest.mark.slow), gaussian(4.0)]
    )
    def test_close_to_a_fine_pld_with_a_moderate_number_of_atoms(self, event: Any) -> None:
        pair = pair_of(event)
        accountant = PLDAccountant(value_discretization_interval=1e-4).compose(event)
        assert pair.losses.size <= 20_000
        for delta in (1e-5, 1e-8):
            assert both(pair, delta) == pytest.approx(accountant.get_epsilon(delta), rel=5e-4)

    @pytest.mark.parametrize("noise", [0.3, 1.0, 50.0, 1000.0])
    def test_scale_of_the_grid_follows_the_event(self, noise: float) -> None:
        pair = pair_of(gaussian(noise))
        eps = pair.epsilon(1e-8)
        assert gaussian_delta(eps, 1.0 / noise) <= 1e-8
        assert gaussian_delta(eps * (1.0 - 1e-5), 1.0 / noise) >= 1e-8

    def test_a_fixed_grid_would_drown_small_losses(self) -> None:
        naive = PLDAccountant(value_discretization_interval=1e-2).compose(gaussian(1000.0))
        assert naive.get_epsilon(1e-8) > 1.2 * pair_of(gaussian(1000.0)).epsilon(1e-8)


class TestSoundness:
    @pytest.mark.parametrize("noise", [0.3, 4.0, 1000.0])
    def test_gaussian_never_below_the_exact_profile(self, noise: float) -> None:
        pair = pair_of(gaussian(noise))
        with mpmath.workdps(40):
            mu = 1 / mpmath.mpf(noise)
            for epsilon in np.linspace(-pair.losses[-1] / 2, pair.losses[-1], 40):
                e = mpmath.mpf(float(epsilon))
                exact = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(
                    -mu / 2 - e / mu
                )
                for one in (pair, pair.reversed()):
                    assert mpmath.mpf(float(one.delta(float(epsilon)))) >= exact - 1e-16

    @pytest.mark.promise("dp-accounting")
    @pytest.mark.parametrize(("steps", "mu"), [(2, 1.0), (1000, 0.5), (10_000, 0.2),
                                               (10_000, 1.5), (50_000, 0.3)])  # fmt: skip
    def test_fft_noise_is_given_back(self, steps: int, mu: float) -> None:
        """Steps sampled at rate one are one Gaussian, but dp-accounting composes them by FFT."""
        pair = pair_of(
            dp_sgd(noise_multiplier=math.sqrt(steps) / mu, sample_rate=1.0, steps=steps)
        )
        eps = np.linspace(0.0, 9.0 * mu + mu**2 / 2, 1000)
        for one in (pair, pair.reversed()):
            margin = one.delta(eps) - gaussian_delta(eps, mu)
            assert margin.min() >= plds.fft_slack(steps) / 2
        assert pair.epsilon(1e-8) == pytest.approx(
            pair_of(gaussian(1.0 / mu)).epsilon(1e-8), rel=1e-3
        )

    @pytest.mark.slow
    def test_without_the_slack_it_would_be_below(self) -> None:
        """Somewhere: which way the transform rounds differs by length, and by processor."""

        def lowest(steps: int, mu: float) -> float:
            event = dp_sgd(noise_multiplier=math.sqrt(steps) / mu, sample_rate=1.0, steps=steps)
            eps = np.linspace(0.0, 9.0 * mu + mu**2 / 2, 1000)
            raw = np.asarray(pld_of(event).get_delta_for_epsilon(eps))
            return float(np.min(raw - gaussian_delta(eps, mu)))

        # Two in five are below; none of thirty is once in a million processors.
        cases = itertools.product((500, 1000, 2000, 3000, 5000, 20_000), (0.2, 0.5, 0.7, 1.0, 1.5))
        assert any(lowest(steps, mu) < -1e-15 for steps, mu in cases)

    def test_a_pld_is_never_read_below_zero(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There dp-accounting's FFT noise has made deltas above one."""
        read: list[float] = []
        original = plds.deltas_at

        def spy(side: Any, epsilons: Any) -> Any:
            read.extend(np.asarray(epsilons).tolist())
            return original(side, epsilons)

        monkeypatch.setattr(plds, "deltas_at", spy)
        plds.pair_of_pld(pld_of(sgd(1.3, steps=50)), 0.0)
        assert min(read) == 0.0

    @pytest.mark.slow
    def test_directions_are_kept_apart(self) -> None:
        """Sampling treats adding and removing differently; the public profile is their maximum."""
        pair = pair_of(sgd(0.71))
        public = PLDAccountant().compose(sgd(0.71))
        assert pair.epsilon(1e-5) == pytest.approx(public.get_epsilon(1e-5), rel=1e-3)
        assert pair.reversed().epsilon(1e-5) < 0.95 * pair.epsilon(1e-5)


class TestPrivateAccess:
    @pytest.mark.slow
    @pytest.mark.parametrize("steps", [1, 10])
    def test_a_profile_is_read_as_dp_accounting_reads_it(self, steps: int) -> None:
        """The same sums in the same order: equal to the last bit."""
        epsilons, pld = np.linspace(0.0, 9.0, 70), pld_of(sgd(0.8, steps=steps))
        remove, add = (plds.deltas_at(side, epsilons) for side in plds.sides(pld))
        theirs = np.clip(pld.get_delta_for_epsilon(epsilons), 0.0, 1.0)
        assert np.array_equal(np.maximum(remove, add), theirs)
        assert not np.array_equal(remove, add)

    def test_a_sparse_distribution_is_read_as_well(self) -> None:
        pld = privacy_loss_distribution.from_laplace_mechanism(
            2.0, value_discretization_interval=0.01
        )
        sparse = privacy_loss_distribution.PrivacyLossDistribution(
            pld_pmf.create_pmf({-50: 0.3, 0: 0.1, 50: 0.55}, 0.01, 0.05, True)
        )
        for one in (pld, sparse):
            epsilons = np.linspace(0.0, 0.6, 61)
            for side in plds.sides(one):
                assert plds.deltas_at(side, epsilons) == pytest.approx(
                    one.get_delta_for_epsilon(epsilons), abs=1e-15
                )


class TestClosedForms:
    def test_pure_and_approximate(self) -> None:
        assert pair_of(pure_dp(1.0)).losses == pytest.approx([-1.0, 1.0])
        assert pair_of(pure_dp(1.0)).infinite_mass == 0.0
        assert pair_of(approximate_dp(1.0, 1e-6)).infinite_mass == pytest.approx(1e-6)
        assert pair_of(pure_dp(0.0)).epsilon(1e-300) == 0.0

    def test_repeated_pure_is_the_optimal_composition(self) -> None:
        """Kairouz, Oh & Viswanath's formula, evaluated directly."""
        pair = pair_of(dp_event.SelfComposedDpEvent(pure_dp(0.1), 100))
        for i in (0, 10, 25):
            epsilon = (100 - 2 * i) * 0.1
            total = sum(
                math.comb(100, j) * (math.exp((100 - j) * 0.1) - math.exp((100 - 2 * i + j) * 0.1))
                for j in range(i)
            )
            expected = total / (1.0 + math.exp(0.1)) ** 100
            assert float(pair.delta(epsilon)) == pytest.approx(expected, rel=1e-9, abs=1e-14)

    def test_repeated_approximate_fails_independently(self) -> None:
        pair = pair_of(dp_event.SelfComposedDpEvent(approximate_dp(0.1, 1e-3), 10))
        assert pair.infinite_mass == pytest.approx(1.0 - (1.0 - 1e-3) ** 10)
        assert pair_of(compose(*[approximate_dp(0.0, 1e-3)] * 10)).infinite_mass == pytest.approx(
            1.0 - (1.0 - 1e-3) ** 10
        )

    def test_extreme_repetition_is_infinite_rather_than_wrong(self) -> None:
        pair = pair_of(dp_event.SelfComposedDpEvent(pure_dp(10.0), 200))
        assert pair.infinite_mass > 0.99
        assert pair.epsilon(1e-5) == math.inf

    def test_k_ary_randomised_response(self) -> None:
        pair = pair_of(dp_event.RandomizedResponseDpEvent(0.5, 5), "replace_one")
        theirs = PLDAccountant(NeighboringRelation.REPLACE_ONE, 1e-4).compose(
            dp_event.RandomizedResponseDpEvent(0.5, 5)
        )
        assert pair.epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), abs=2e-4)
        assert (
            pair_of(dp_event.RandomizedResponseDpEvent(1.0, 5), "replace_one").epsilon(1e-15)
            == 0.0
        )

    def test_laplace_against_its_formula(self) -> None:
        pair = pair_of(laplace(2.0))
        eps = np.linspace(0.0, 0.5, 40)
        exact = -np.expm1((eps - 0.5) / 2.0)
        assert np.all(pair.delta(eps) >= exact)
        assert pair.delta(eps) == pytest.approx(exact, abs=2e-6)


class TestRefusals:
    @pytest.mark.parametrize(
        ("event", "relation", "culprit"),
        [
            (compose(sgd(1.0), dp_event.RandomizedResponseDpEvent(0.5, 4)), "add_or_remove_one",
             dp_event.RandomizedResponseDpEvent(0.5, 4)),
            (worst_case(gaussian(1.0), laplace(1.0)), "replace_one", laplace(1.0)),
            (dp_event.PoissonSampledDpEvent(0.1, pure_dp(1.0)), "replace_one",
             dp_event.PoissonSampledDpEvent(0.1, pure_dp(1.0))),
            (PrivateSelectionDpEvent(laplace(1.0), Geometric(mean=5)), "replace_one",
             laplace(1.0)),
        ],
    )  # fmt: skip
    def test_the_sub_event_is_named_before_any_work(
        self, event: Any, relation: str, culprit: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_work(*args: Any) -> Any:
            raise AssertionError("work began before the whole tree was checked")

        monkeypatch.setattr(plds, "native_pld", no_work)
        with pytest.raises(UnsupportedEventError) as caught:
            pair_of(event, relation)
        assert caught.value.event == culprit

    def test_unknown_classes_and_relations(self) -> None:
        with pytest.raises(UnsupportedEventError):
            pair_of(compose(sgd(1.0), dp_event.UnsupportedDpEvent()))
        with refuses("neighboring_relation"):
            pair_of(gaussian(1.0), "remove")

    @pytest.mark.parametrize(
        ("event", "word"),
        [
            (dp_event.NonPrivateDpEvent(), "NonPrivateDpEvent"),
            (compose(sgd(1.0), dp_event.NonPrivateDpEvent()), "NonPrivateDpEvent"),
            (worst_case(sgd(1.0), dp_event.GaussianDpEvent(0.0)), "noise_multiplier 0"),
            (dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(0.0)), "multiplier 0"),
            (rdp([2.0, 3.0], [math.inf, math.inf]), "no finite value"),
            (dp_event.MixtureOfGaussiansDpEvent(0.0, [1.0], [1.0]), "standard_deviation 0"),
        ],
    )
    def test_no_privacy_is_infinite_with_a_reason(self, event: Any, word: str) -> None:
        assert pair_of(event).is_infinite
        assert pair_of(event).epsilon(0.5) == math.inf
        assert word in str(supported_events.non_private_reason(event))

    def test_private_events_have_no_such_reason(self) -> None:
        assert (
            supported_events.non_private_reason(compose(sgd(1.0), zcdp(0.1), pure_dp(1.0))) is None
        )
        never = dp_event.PoissonSampledDpEvent(0.0, dp_event.GaussianDpEvent(0.0))
        assert supported_events.non_private_reason(never) is None
        assert pair_of(never).epsilon(1e-12) == 0.0


class TestResources:
    def test_results_are_cached_by_value(self) -> None:
        assert pair_of(sgd(1.0)) is pair_of(sgd(1.0))
        listed = dp_event.ComposedDpEvent([gaussian(5.0), gaussian(6.0)])  # unhashable
        assert pair_of(listed) is pair_of(dp_event.ComposedDpEvent([gaussian(5.0), gaussian(6.0)]))
        assert pair_of(gaussian(5.0)) is not pair_of(gaussian(5.0), "replace_one")

    @pytest.mark.parametrize("event", [
        sgd(5.0, steps=100_000, rate=1e-4),
        sgd(0.6, steps=20_000, rate=0.01),
    ])  # fmt: skip
    def test_large_compositions_stay_small_in_memory(self, event: Any) -> None:
        pair = pair_of(event)
        assert pair.losses.size <= 20_000
        parts = run_profile.parts_of(event, "add_or_remove_one")
        interval = discretisation.interval_for(parts, [None], "add_or_remove_one")
        reach = discretisation.loss_reach(parts[0].event, "add_or_remove_one")
        assert 2 * reach / interval <= 1.001 * discretisation.MAX_ATOMS


@pytest.mark.promise("more-noise")
@pytest.mark.slow
def test_more_noise_never_costs_more() -> None:
    """Grids are nested: an interval that changes on the way makes no step upward."""
    for rate, steps in ((0.02, 100), (0.3, 20)):
        noises = 0.9 * 1.004 ** np.arange(20)
        costs = [
            Guarantee(dp_sgd(noise_multiplier=n, sample_rate=rate, steps=steps)).epsilon(1e-5)
            for n in noises.tolist()
        ]
        assert all(later <= before for before, later in itertools.pairwise(costs))


@pytest.mark.promise("more-noise")
def test_of_two_grids_the_coarser_is_a_part_of_the_finer() -> None:
    """And more noise never has the coarser one."""
    for rate, steps in ((0.0043, 2344), (0.02, 100), (0.3, 20)):
        intervals = []
        for noise in (0.6 * 1.07 ** np.arange(40)).tolist():
            run = dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)
            parts = parts_of(run, "add_or_remove_one")
            intervals.append(interval_for(parts, [None], "add_or_remove_one"))
        assert len(set(intervals)) > 2
        for coarse, fine in itertools.pairwise(intervals):
            assert coarse >= fine
            assert coarse % fine == 0.0
