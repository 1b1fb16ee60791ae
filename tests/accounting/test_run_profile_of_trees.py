"""The profile of a tree of events: compositions, worst cases, selections within."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from accounting.plain_runs import both, gaussian_delta, sgd
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from optuna_dp import Geometric
from optuna_dp.accounting import (
    plds,
    run_profile,
)
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import compose, gaussian, laplace, zcdp
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.approximate import approximate_dp, pure_dp
from optuna_dp.accounting.kinds.curve import rdp
from optuna_dp.accounting.kinds.worst_case import worst_case
from optuna_dp.accounting.rdp_curves import DEFAULT_ORDERS, rdp_to_delta
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.accounting.run_rdp import rdp_of
from optuna_dp.selection.bounds import as_part
from optuna_dp.selection.event import PrivateSelectionDpEvent


class TestTrees:
    def test_equal_parts_in_any_nesting_are_one_event(self) -> None:
        nested = compose(compose(gaussian(4.0), dp_event.NoOpDpEvent()), gaussian(4.0))
        flat = dp_event.SelfComposedDpEvent(gaussian(4.0), 2)
        for event in (nested, flat):
            assert pair_of(event).epsilon(1e-5) == pytest.approx(
                pair_of(gaussian(4.0 / math.sqrt(2.0))).epsilon(1e-5), rel=1e-6
            )

    @pytest.mark.slow
    def test_native_mixtures_agree_with_dp_accounting(self) -> None:
        event = compose(sgd(1.0), laplace(5.0), gaussian(6.0))
        theirs = PLDAccountant().compose(event).get_epsilon(1e-5)
        assert both(pair_of(event), 1e-5) == pytest.approx(theirs, rel=1e-3)

    def test_own_events_compose_with_native_ones(self) -> None:
        event = compose(gaussian(4.0), pure_dp(0.1), approximate_dp(0.05, 1e-7))
        pair = pair_of(event)
        alone = pair_of(gaussian(4.0)).epsilon(1e-5)
        assert alone < both(pair, 1e-5) < alone + 0.15
        assert pair.infinite_mass >= 1e-7

    def test_nothing_costs_nothing(self) -> None:
        for event in (
            dp_event.NoOpDpEvent(),
            dp_event.ComposedDpEvent([]),
            dp_event.SelfComposedDpEvent(gaussian(1.0), 0),
            compose(dp_event.NoOpDpEvent(), pure_dp(0.0)),
        ):
            assert pair_of(event).epsilon(1e-300) == 0.0

    def test_worst_case_dominates_all_and_is_attained_by_one_of_them(self) -> None:
        children = [sgd(1.0), gaussian(3.0), approximate_dp(0.2, 1e-4)]
        made, pairs = pair_of(worst_case(*children)), [pair_of(child) for child in children]
        eps = np.linspace(-4.0, 4.0, 401)
        for of in (lambda p: p, lambda p: p.reversed()):
            maximum = np.max([of(p).delta(eps) for p in pairs], axis=0)
            value = of(made).delta(eps)
            assert np.all(value >= maximum - 1e-14)
            assert value == pytest.approx(maximum, rel=1e-4, abs=1e-6)

    def test_a_maximum_of_epsilons_at_one_delta_would_not_be_enough(self) -> None:
        first, second = approximate_dp(0.1, 9e-6), gaussian(4.0)
        at_small = pair_of(worst_case(first, second))
        assert at_small.epsilon(1e-6) == math.inf
        assert pair_of(second).epsilon(1e-6) < math.inf

    def test_repeated_worst_case(self) -> None:
        event = dp_event.SelfComposedDpEvent(worst_case(gaussian(8.0), pure_dp(0.01)), 4)
        made = both(pair_of(event), 1e-5)
        assert made >= both(pair_of(gaussian(4.0)), 1e-5)
        assert made <= 1.01 * both(pair_of(compose(gaussian(4.0), pure_dp(0.04))), 1e-5)

    def test_rdp_only_events_have_the_profile_their_curve_implies(self) -> None:
        event = compose(zcdp(0.01), rdp([2.0, 10.0, 100.0], [0.01, 0.05, 0.5]))
        pair = pair_of(event)
        curve = rdp_of(zcdp(0.01)) + rdp_of(rdp([2.0, 10.0, 100.0], [0.01, 0.05, 0.5]))
        eps = np.linspace(0.0, 3.0, 50)
        implied = rdp_to_delta(DEFAULT_ORDERS, curve, eps)
        assert pair.epsilon(1e-5) == pytest.approx(
            float(np.interp(math.log(1e-5), np.log(implied[::-1]), eps[::-1])), rel=2e-2
        )
        assert pair.epsilon(1e-5) == pair.reversed().epsilon(1e-5)

    def test_rdp_profile_is_above_the_exact_one(self) -> None:
        pair = pair_of(zcdp(1 / 32))  # the curve of gaussian(4)
        eps = np.linspace(0.0, 2.5, 200)
        assert np.all(pair.delta(eps) >= gaussian_delta(eps, 0.25))

    def test_rdp_only_events_compose_with_profiles(self) -> None:
        exact = both(pair_of(compose(gaussian(4.0), gaussian(8.0))), 1e-5)
        made = both(pair_of(compose(gaussian(4.0), zcdp(1 / 128))), 1e-5)
        assert exact <= made <= 1.2 * exact

    def test_rdp_only_children_are_added_before_they_are_converted(self) -> None:
        many = compose(*[zcdp(0.001 * (1 + i)) for i in range(10)])
        one = zcdp(0.055)
        assert pair_of(many).epsilon(1e-5) == pytest.approx(pair_of(one).epsilon(1e-5), rel=1e-6)

    def test_replacing_a_record(self) -> None:
        assert pair_of(gaussian(4.0), "replace_one").epsilon(1e-5) == pytest.approx(
            pair_of(gaussian(2.0)).epsilon(1e-5), rel=1e-5
        )

    def test_a_pair_on_a_grid_still_dominates(self) -> None:
        pair = pair_of(sgd(0.71))
        eps = np.linspace(0.0, 4.0, 200)
        for interval in (1e-3, 1e-2, 0.1):
            for one in (pair, pair.reversed()):
                found = plds.pmf_of_pair(one, interval).get_delta_for_epsilon(eps)
                assert np.all(np.asarray(found) >= one.delta(eps) - 1e-14)


class TestSelection:
    @pytest.fixture(autouse=True)
    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A selection that costs exactly one Gaussian of noise 3."""
        asked: list[Any] = []

        def selection_pair(bounds: Any) -> DominatingPair:
            asked.append(list(bounds))
            return pair_of(gaussian(3.0))

        self.forget()
        monkeypatch.setattr(as_part, "pair_of_selection", selection_pair)
        yield asked
        self.forget()

    @staticmethod
    def forget() -> None:
        run_profile.pair_of_key.cache_clear()
        run_profile.pair_of_part.cache_clear()

    def test_comes_from_the_selection_bound(self, stand_in: list[Any]) -> None:
        event = PrivateSelectionDpEvent(sgd(1.0), Geometric(mean=10))
        assert pair_of(event) is pair_of(gaussian(3.0))
        [bounds] = stand_in
        assert bounds[0].epsilon(1e-5) == Guarantee(event).epsilon(1e-5)

    @pytest.mark.slow
    def test_composes_and_takes_part_in_worst_cases(self) -> None:
        event = PrivateSelectionDpEvent(sgd(1.0), Geometric(mean=10))
        together = both(pair_of(compose(event, gaussian(4.0))), 1e-5)
        assert together == pytest.approx(both(pair_of(gaussian(2.4)), 1e-5), rel=1e-3)
        worst = both(pair_of(worst_case(event, gaussian(4.0))), 1e-5)
        assert worst == pytest.approx(both(pair_of(gaussian(3.0)), 1e-5), rel=1e-4)
        twice = both(pair_of(dp_event.SelfComposedDpEvent(event, 4)), 1e-5)
        assert twice == pytest.approx(both(pair_of(gaussian(1.5)), 1e-5), rel=1e-3)
