"""RDP of one run: dp-accounting's values, closed forms, and bounds that never overclaim."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.rdp import RdpAccountant, rdp_privacy_accountant
from refusals import refuses

from optuna_dp import Geometric
from optuna_dp.accounting import events, run_rdp
from optuna_dp.accounting.events import compose, dp_sgd, gaussian, laplace, zcdp
from optuna_dp.accounting.kinds.approximate import approximate_dp, pure_dp
from optuna_dp.accounting.kinds.curve import rdp
from optuna_dp.accounting.kinds.foreign import pure_of
from optuna_dp.accounting.kinds.worst_case import worst_case
from optuna_dp.accounting.rdp_curves import (
    DEFAULT_ORDERS,
    interpolated_rdp,
    pure_rdp,
    rdp_to_delta,
    rdp_to_epsilon,
)
from optuna_dp.accounting.run_rdp import rdp_of
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError
from optuna_dp.selection.event import PrivateSelectionDpEvent

ORDERS = np.array([1.05, 1.5, 2.0, 3.0, 8.0, 32.0, 200.0])
SGD = dp_sgd(noise_multiplier=1.0, sample_rate=256 / 60000, steps=2344)


def native(event: Any, relation: str = "ADD_OR_REMOVE_ONE") -> Any:
    return RdpAccountant(ORDERS, NeighboringRelation[relation]).compose(event).rdp


class TestRdpOf:
    @pytest.mark.parametrize("event", [
        SGD,
        gaussian(4.0),
        laplace(2.0),
        zcdp(0.1),
        compose(SGD, gaussian(4.0), zcdp(0.1)),
        dp_event.SelfComposedDpEvent(laplace(3.0), 7),
        dp_event.RepeatAndSelectDpEvent(gaussian(4.0), 10.0, 1.0),
    ])  # fmt: skip
    def test_agrees_with_dp_accounting(self, event: Any) -> None:
        assert rdp_of(event, orders=ORDERS) == pytest.approx(native(event), rel=1e-12)

    @pytest.mark.parametrize(
        ("rate", "noise"), [(0.0043, 1.0), (1e-5, 20.0), (0.01, 1e5), (0.9, 0.1)]
    )
    def test_long_series_lose_nothing(self, rate: float, noise: float) -> None:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
        orders = [64.0, 65.0, 90.5, 301.0]
        found = rdp_of(step, orders=orders)
        with mpmath.workdps(60):
            for order, value in zip((65, 301), found[[1, 3]], strict=True):
                terms = (
                    mpmath.binomial(order, k)
                    * mpmath.mpf(rate) ** k
                    * (1 - mpmath.mpf(rate)) ** (order - k)
                    * mpmath.exp((k * k - k) / (2 * mpmath.mpf(noise) ** 2))
                    for k in range(order + 1)
                )
                exact = float(mpmath.log(mpmath.fsum(terms)) / (order - 1))
                assert value == pytest.approx(exact, rel=1e-11)
        other = RdpAccountant(orders).compose(step).rdp
        assert found == pytest.approx(other, rel=1e-11, abs=1e-14)

    def test_nothing_costs_nothing_and_no_privacy_costs_everything(self) -> None:
        assert np.all(rdp_of(dp_event.NoOpDpEvent()) == 0.0)
        assert np.all(rdp_of(dp_event.ComposedDpEvent([])) == 0.0)
        for event in (
            dp_event.NonPrivateDpEvent(),
            compose(SGD, dp_event.NonPrivateDpEvent()),
            dp_event.GaussianDpEvent(0.0),
            approximate_dp(1.0, 1e-9),
        ):
            assert np.all(rdp_of(event, orders=ORDERS) == math.inf)

    def test_never_nan(self) -> None:
        """dp-accounting alone gives NaN for an infinite value under selection at order near 1."""
        event = dp_event.SelfComposedDpEvent(dp_event.NonPrivateDpEvent(), 0)
        assert np.all(rdp_of(event, orders=ORDERS) == 0.0)
        nested = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(0.0), 10.0, 1.0)
        assert not np.any(np.isnan(rdp_of(nested, orders=ORDERS)))

    def test_worst_case_is_the_pointwise_maximum(self) -> None:
        event = worst_case(pure_dp(0.5), gaussian(4.0))
        expected = np.maximum(rdp_of(pure_dp(0.5), orders=ORDERS), native(gaussian(4.0)))
        assert rdp_of(event, orders=ORDERS) == pytest.approx(expected)
        assert expected[0] != native(gaussian(4.0))[0]
        assert expected[-1] == native(gaussian(4.0))[-1]

    def test_replacing_a_record_moves_a_gaussian_by_two(self) -> None:
        """dp-accounting's RDP counts it as one; its own PLD accountant counts two."""
        assert rdp_of(gaussian(4.0), "replace_one", ORDERS) == pytest.approx(native(gaussian(2.0)))
        event = dp_event.SampledWithoutReplacementDpEvent(1000, 10, gaussian(4.0))
        halved = dp_event.SampledWithoutReplacementDpEvent(1000, 10, gaussian(2.0))
        assert rdp_of(event, "replace_one", ORDERS) == pytest.approx(native(halved, "REPLACE_ONE"))

    def test_without_the_halving_the_rdp_would_be_below_the_profile(self) -> None:
        from dp_accounting.pld import PLDAccountant

        pld = PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(gaussian(4.0))
        naive = RdpAccountant(None, NeighboringRelation.REPLACE_ONE).compose(gaussian(4.0))
        ours = rdp_of(gaussian(4.0), "replace_one")
        assert naive.get_epsilon(1e-5) < pld.get_epsilon(1e-5)
        assert rdp_to_epsilon(DEFAULT_ORDERS, ours, 1e-5) > pld.get_epsilon(1e-5)

    def test_a_null_contribution_moves_it_by_one(self) -> None:
        assert rdp_of(gaussian(4.0), "null_client", ORDERS) == pytest.approx(native(gaussian(4.0)))

    def test_what_only_a_profile_judges_has_no_finite_rdp(self) -> None:
        event = dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.9, 0.1])
        assert np.all(rdp_of(event, orders=ORDERS) == math.inf)

    def test_what_nobody_judges_is_refused_by_name(self) -> None:
        bad = dp_event.SampledWithoutReplacementDpEvent(1000, 10, gaussian(1.0))
        with pytest.raises(UnsupportedEventError) as caught:
            rdp_of(compose(SGD, bad))
        assert caught.value.event == bad
        with pytest.raises(UnsupportedEventError, match="pure_dp"):
            rdp_of(laplace(1.0), "replace_one")

    @pytest.mark.parametrize("orders", [[], [1.0], [0.5], [2.0, 2.0], [3.0, 2.0], [math.inf],
                                        [math.nan]])  # fmt: skip
    def test_bad_orders_are_refused(self, orders: list[float]) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            rdp_of(SGD, orders=orders)
        assert caught.value.argument == "orders"

    def test_callers_cannot_spoil_the_cache(self) -> None:
        first = rdp_of(gaussian(5.0), orders=ORDERS)
        first[:] = 0.0
        assert np.all(rdp_of(gaussian(5.0), orders=ORDERS) > 0.0)

    def test_selection_agrees_with_dp_accounting(self) -> None:
        ours = rdp_of(PrivateSelectionDpEvent(SGD, Geometric(mean=10)), orders=ORDERS)
        theirs = native(dp_event.RepeatAndSelectDpEvent(SGD, 10.0, 1.0))
        assert ours == pytest.approx(theirs, rel=1e-6)


class TestPure:
    @pytest.mark.parametrize("epsilon", [1e-8, 0.01, 1.0, 5.0, 80.0, 900.0])
    def test_is_the_divergence_of_randomised_response(self, epsilon: float) -> None:
        orders = [1.0001, 1.5, 2.0, 17.0, 5000.0]
        values = pure_rdp(epsilon, orders)
        with mpmath.workdps(60):
            for order, value in zip(orders, values, strict=True):
                a, e = mpmath.mpf(order), mpmath.mpf(epsilon)
                p, q = mpmath.exp(e) / (1 + mpmath.exp(e)), 1 / (1 + mpmath.exp(e))
                exact = mpmath.log(p**a * q ** (1 - a) + q**a * p ** (1 - a)) / (a - 1)
                assert value == pytest.approx(float(exact), rel=1e-11)
                assert value <= epsilon

    def test_zero_and_infinity(self) -> None:
        assert np.all(pure_rdp(0.0, ORDERS) == 0.0)
        assert np.all(pure_rdp(math.inf, ORDERS) == math.inf)

    @pytest.mark.parametrize(
        ("event", "relation", "expected"),
        [
            (pure_dp(0.7), "add_or_remove_one", 0.7),
            (approximate_dp(0.7, 1e-9), "add_or_remove_one", math.inf),
            (compose(pure_dp(0.7), laplace(2.0)), "add_or_remove_one", 1.2),
            (dp_event.SelfComposedDpEvent(pure_dp(0.1), 5), "add_or_remove_one", 0.5),
            (worst_case(pure_dp(0.1), pure_dp(0.4)), "add_or_remove_one", 0.4),
            (rdp([2.0, math.inf], [0.1, 0.5]), "add_or_remove_one", 0.5),
            (rdp([2.0], [0.1]), "add_or_remove_one", math.inf),
            (laplace(2.0), "replace_one", math.inf),
            (laplace(2.0), "null_client", 0.5),
            (gaussian(1.0), "add_or_remove_one", math.inf),
            (dp_event.DiscreteLaplaceDpEvent(0.3, 2), "add_or_remove_one", 0.6),
            (dp_event.DiscreteLaplaceDpEvent(0.0, 2), "add_or_remove_one", math.inf),
            (
                dp_event.PoissonSampledDpEvent(0.1, laplace(1.0)),
                "add_or_remove_one",
                math.log(1 + 0.1 * (math.e - 1)),
            ),
            (dp_event.RandomizedResponseDpEvent(0.5, 2), "replace_one", math.log(3)),
            (dp_event.RandomizedResponseDpEvent(0.0, 2), "replace_one", math.inf),
            (dp_event.NoOpDpEvent(), "add_or_remove_one", 0.0),
            (
                PrivateSelectionDpEvent(pure_dp(1.0), Geometric(mean=5)),
                "add_or_remove_one",
                3.0,
            ),
        ],
    )
    def test_pure_of(self, event: Any, relation: str, expected: float) -> None:
        assert pure_of(event, relation) == pytest.approx(expected)

    def test_it_bounds_the_curve(self) -> None:
        for event in (laplace(0.5), dp_event.DiscreteLaplaceDpEvent(0.3, 2)):
            values = rdp_of(event, orders=ORDERS)
            assert np.all(values <= pure_of(event) + 1e-12)
            assert np.all(values > 0.0)


class TestGivenPoints:
    def test_is_exact_for_curves_linear_in_the_moment(self) -> None:
        """s R is a quadratic for a Gaussian: chords lie above it and touch at the points."""
        given = [2.0, 4.0, 16.0]
        values = [a / 8.0 for a in given]
        fine = np.linspace(1.01, 16.0, 300)
        bound = interpolated_rdp(given, values, fine)
        assert np.all(bound >= fine / 8.0 - 1e-15)
        assert interpolated_rdp(given, values, given) == pytest.approx(values)

    @pytest.mark.parametrize("event", [SGD, laplace(0.7), gaussian(2.0)])
    def test_dominates_the_curve_the_points_were_taken_from(self, event: Any) -> None:
        points = [1.3, 2.0, 5.0, 30.0]
        fine = np.array([1.01, 1.2, 1.4, 1.9, 3.0, 4.5, 12.0, 29.0])
        event_of_points = rdp(points, rdp_of(event, orders=points).tolist())
        assert np.all(rdp_of(event_of_points, orders=fine) >= rdp_of(event, orders=fine) - 1e-12)

    def test_interpolating_the_divergence_itself_would_be_unsound(self) -> None:
        """The linear interpolation of R between orders lies below randomised response's R."""
        points, middle = np.array([1.5, 40.0]), np.array([6.0])
        truth = pure_rdp(2.0, middle)
        naive = np.interp(middle, points, pure_rdp(2.0, points))
        assert naive[0] < truth[0]
        assert interpolated_rdp(points, pure_rdp(2.0, points), middle)[0] >= truth[0]

    def test_nothing_is_known_beyond_the_last_order(self) -> None:
        values = interpolated_rdp([2.0, 8.0], [0.1, 0.3], [1.5, 8.0, 9.0])
        assert values == pytest.approx([0.1, 0.3, math.inf])

    def test_order_infinity_bounds_all_orders(self) -> None:
        orders = np.array([1.5, 2.0, 3.0, 50.0, 4000.0])
        values = interpolated_rdp([2.0, math.inf], [0.05, 1.0], orders)
        assert np.all(values <= 1.0)
        assert values[1] == pytest.approx(0.05)
        # K(s) <= K(1) + (s - 1) eps, attained by no smaller claim for this mixture:
        assert values[2] == pytest.approx((0.05 + 1.0) / 2.0)
        truth = pure_rdp(1.0, orders)
        assert np.all(interpolated_rdp([2.0, math.inf], [truth[1], 1.0], orders) >= truth - 1e-12)

    def test_unusable_points_are_left_out(self) -> None:
        values = interpolated_rdp([2.0, 4.0, 8.0], [0.1, math.inf, 0.3], [2.0, 4.0, 8.0])
        assert values[1] == pytest.approx((0.1 + (0.3 * 7 - 0.1) / 6 * 2) / 3)

    def test_a_decreasing_curve_is_read_with_monotonicity(self) -> None:
        assert interpolated_rdp([2.0, 4.0], [0.5, 0.1], [2.0])[0] <= 0.1 + 1e-15


class TestConversion:
    def test_delta_agrees_with_dp_accounting(self) -> None:
        curve = rdp_of(SGD)
        eps = np.array([0.0, 0.1, 1.0, 3.0, 30.0])
        expected = [rdp_privacy_accountant.compute_delta(DEFAULT_ORDERS, curve, e)[0] for e in eps]
        assert rdp_to_delta(DEFAULT_ORDERS, curve, eps) == pytest.approx(expected, rel=1e-12)

    def test_infinite_curves(self) -> None:
        curve = np.full(len(DEFAULT_ORDERS), math.inf)
        assert rdp_to_epsilon(DEFAULT_ORDERS, curve, 1e-5) == math.inf
        assert rdp_to_delta(DEFAULT_ORDERS, curve, [0.0, 10.0]) == pytest.approx([1.0, 1.0])

    def test_zero_curves(self) -> None:
        curve = np.zeros(len(DEFAULT_ORDERS))
        assert rdp_to_epsilon(DEFAULT_ORDERS, curve, 1e-5) == 0.0
        assert rdp_to_delta(DEFAULT_ORDERS, curve, [0.0, 10.0]) == pytest.approx([0.0, 0.0])

    def test_round_trip_never_overclaims(self) -> None:
        curve = rdp_of(gaussian(4.0))
        for delta in (1e-3, 1e-5, 1e-9):
            epsilon = rdp_to_epsilon(DEFAULT_ORDERS, curve, delta)
            assert float(rdp_to_delta(DEFAULT_ORDERS, curve, epsilon)) <= delta * (1.0 + 1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("noise", [0.1, 0.5, 1.0, 4.0, 30.0, 1000.0])
    def test_default_orders_are_fine_enough(self, noise: float) -> None:
        """Within 0.1 % of the conversion over a fifty times finer grid, to delta 1e-10."""
        fine = 1.0 + np.geomspace(0.011, 2e4, 8000)
        for delta in (1e-5, 1e-10):
            ours = rdp_to_epsilon(DEFAULT_ORDERS, rdp_of(gaussian(noise)), delta)
            best = rdp_to_epsilon(fine, fine / (2.0 * noise**2), delta)
            assert ours <= best * 1.001

    def test_orders_ascend_and_are_whole_where_sampling_needs_it(self) -> None:
        orders = np.array(DEFAULT_ORDERS)
        assert np.all(np.diff(orders) > 0.0)
        assert orders[-1] > 1e4 - 1
        assert np.all(orders[orders >= 12] == np.round(orders[orders >= 12]))


def test_relation_names_are_checked_first() -> None:
    with refuses("neighboring_relation"):
        run_rdp.rdp_of(SGD, "zero_out")
    assert events.neighboring_relation("replace_one") is NeighboringRelation.REPLACE_ONE


def test_curves_rise_with_the_order_where_the_series_of_dp_accounting_do_not_end() -> None:
    """Once 1.80 at order 1.75, above the 1.05 of order 2, and unknown below."""
    run = events.dp_sgd(noise_multiplier=3.0, sample_rate=0.3, steps=100)
    curve = rdp_of(run, orders=[1.1, 1.5, 1.75, 2.0, 2.5, 3.0])
    assert np.all(np.diff(curve) >= 0.0)
    assert curve[0] < 1.06
    # The next whole order counts, whether it was asked for or not.
    assert rdp_of(run, orders=[1.75]) == pytest.approx(curve[2:3])
