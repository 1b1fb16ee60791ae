"""SelectionAccountant: dp-accounting's own tests of an accountant, and our numbers through it."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, dp_event, privacy_accountant_test
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from selection_accountant import SelectionAccountant

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

DELTA = 1e-5
GAUSSIAN = dp_event.GaussianDpEvent(4.0)


class TestAsTheyTestTheirs(privacy_accountant_test.PrivacyAccountantTest):  # type: ignore[misc]
    """From the installed package."""

    def _make_test_accountants(self) -> list[SelectionAccountant]:
        return [SelectionAccountant(relation) for relation in NeighboringRelation]


@pytest.mark.parametrize(
    ("shape", "law"),
    [
        (1.0, odp.Geometric(10)),
        (0.0, odp.Logarithmic(10)),
        (2.5, odp.NegativeBinomial(shape=2.5, mean=10)),
        (-0.5, odp.NegativeBinomial(shape=-0.5, mean=10)),  # dp-accounting refuses it.
        (math.inf, odp.Poisson(10)),
    ],
)
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_selection_of_theirs_is_judged_as_ours(
    shape: float, law: odp.TrialCount, relation: NeighboringRelation
) -> None:
    theirs = dp_event.RepeatAndSelectDpEvent(GAUSSIAN, mean=10, shape=shape)
    accountant = SelectionAccountant(relation).compose(theirs)
    name = {
        NeighboringRelation.ADD_OR_REMOVE_ONE: "add_or_remove_one",
        NeighboringRelation.REPLACE_ONE: "replace_one",
        NeighboringRelation.REPLACE_SPECIAL: "null_client",
    }[relation]
    ours = odp.selection_guarantee(odp.gaussian(4.0), law, neighboring_relation=name)
    assert accountant.get_epsilon(DELTA) == ours.epsilon(DELTA)
    assert accountant.get_delta(2.0) == ours.delta(2.0)
    assert accountant.ledger == theirs
    if shape >= 0.0:
        renyi = RdpAccountant(neighboring_relation=relation).compose(theirs)
        # Their Rényi accountant takes a replaced record for one that is added.
        if relation is not NeighboringRelation.REPLACE_ONE:
            assert accountant.get_epsilon(DELTA) < 0.8 * renyi.get_epsilon(DELTA)


def test_a_selection_is_found_at_any_depth() -> None:
    best = dp_event.RepeatAndSelectDpEvent(GAUSSIAN, mean=10, shape=1)
    twice = dp_event.RepeatAndSelectDpEvent(best, mean=3, shape=1)
    event = odp.worst_case(odp.compose(dp_event.SelfComposedDpEvent(twice, 2), GAUSSIAN), best)
    ten, three = odp.Geometric(10), odp.Geometric(3)
    inner = odp.selection_guarantee(odp.gaussian(4.0), ten).event
    outer = odp.selection_guarantee(inner, three).event
    same = odp.worst_case(odp.compose(dp_event.SelfComposedDpEvent(outer, 2), GAUSSIAN), inner)
    assert SelectionAccountant().compose(event).guarantee == odp.Guarantee(same)
    theirs_in_ours = odp.selection_guarantee(best, three).event
    assert SelectionAccountant().compose(theirs_in_ours).guarantee.event == outer


@pytest.mark.slow
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_without_selections_it_is_as_the_pld_accountant(relation: NeighboringRelation) -> None:
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    ours, theirs = SelectionAccountant(relation), PLDAccountant(relation)
    for accountant in (ours, theirs):
        accountant.compose(step, 200).compose(GAUSSIAN)
    assert ours.get_epsilon(DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=3e-3)
    assert ours.get_delta(1.0) == pytest.approx(theirs.get_delta(1.0), rel=2e-2)


def test_the_ends_of_the_range_mean_what_they_mean_upstream() -> None:
    pure = SelectionAccountant().compose(dp_event.LaplaceDpEvent(2.0), 3)
    assert pure.get_epsilon(0.0) == pytest.approx(1.5)
    assert SelectionAccountant().compose(GAUSSIAN).get_epsilon(0.0) == math.inf
    assert SelectionAccountant().compose(GAUSSIAN).get_epsilon(1.0) == 0.0
    shown = SelectionAccountant().compose(odp.approximate_dp(1.0, 0.25))
    assert shown.get_delta(math.inf) == pytest.approx(0.25)
    for accountant, argument in ((pure.get_epsilon, 1.5), (pure.get_delta, -1.0)):
        with pytest.raises(ValueError, match=r"delta|epsilon"):
            accountant(argument)


def test_parameters_that_make_no_sense_are_refused_when_composed() -> None:
    for event in (
        dp_event.RepeatAndSelectDpEvent(GAUSSIAN, mean=0.5, shape=1),
        dp_event.RepeatAndSelectDpEvent(GAUSSIAN, mean=3, shape=-2),
        dp_event.GaussianDpEvent(-1.0),
    ):
        accountant = SelectionAccountant()
        with pytest.raises(InvalidArgumentError):
            accountant.compose(event)
        assert accountant.ledger == dp_event.NoOpDpEvent()
    with pytest.raises(InvalidArgumentError, match="neighboring_relation"):
        SelectionAccountant("replace_one")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_order_of_calls_is_not_taken_for_an_order_in_time() -> None:
    choice, training = odp.bounded_range(0.5), odp.gaussian(4.0)
    first = odp.Guarantee(odp.compose(choice, training)).epsilon(DELTA)
    as_one = SelectionAccountant().compose(odp.compose(choice, training))
    one_by_one = SelectionAccountant().compose(choice).compose(training)
    assert as_one.get_epsilon(DELTA) == first < one_by_one.get_epsilon(DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [pytest.param(0.0, marks=pytest.mark.slow), 1.0, math.inf])
def test_calibration_of_dp_accounting_meets_the_target(shape: float) -> None:
    def best_of_ten(noise: float) -> Any:
        run = dp_event.GaussianDpEvent(noise)
        return dp_event.RepeatAndSelectDpEvent(run, mean=10, shape=shape)

    noise = dp_accounting.calibrate_dp_mechanism(
        SelectionAccountant, best_of_ten, 2.0, DELTA, tol=1e-3
    )
    reached = SelectionAccountant().compose(best_of_ten(noise)).get_epsilon(DELTA)
    assert 1.99 < reached <= 2.0
    theirs = dp_accounting.calibrate_dp_mechanism(RdpAccountant, best_of_ten, 2.0, DELTA, tol=1e-3)
    assert noise < 0.85 * theirs


@pytest.mark.slow
def test_calibration_finds_a_number_of_runs() -> None:
    def selection(runs: int) -> Any:
        return dp_event.RepeatAndSelectDpEvent(GAUSSIAN, mean=runs, shape=1)

    runs = dp_accounting.calibrate_dp_mechanism(
        SelectionAccountant,
        selection,
        1.5,
        DELTA,
        dp_accounting.ExplicitBracketInterval(1, 1000),
        discrete=True,
    )
    epsilons = [
        SelectionAccountant().compose(selection(n)).get_epsilon(DELTA) for n in (runs, runs + 1)
    ]
    assert epsilons[0] <= 1.5 < epsilons[1]
