"""The promises of ``Guarantee``: sound, round trips, clear about what it cannot do."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from refusals import refuses

import optuna_dp as odp
from optuna_dp.accounting.epsilon_methods import epsilons_of
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError

DELTA = 1e-5
RUNS: dict[str, Any] = {
    "gaussian": odp.gaussian(4.0),
    "laplace": odp.laplace(3.0),
    "pure": odp.pure_dp(0.5),
    "approximate": odp.approximate_dp(0.5, 1e-8),
    "zcdp": odp.zcdp(0.02),
    "rdp": odp.rdp([2.0, 4.0, 16.0, 64.0], [0.03, 0.06, 0.3, 1.2]),
    "composed": odp.compose(odp.gaussian(5.0), odp.laplace(10.0)),
    "worst": odp.worst_case(odp.gaussian(6.0), odp.pure_dp(0.3)),
}
LAWS: dict[str, odp.TrialCount] = {
    "geometric": odp.Geometric(10),
    "logarithmic": odp.Logarithmic(10),
    "shape": odp.NegativeBinomial(shape=2.5, mean=8),
    "poisson": odp.Poisson(6),
    "binomial": odp.Binomial(12, 4),
    "capped": odp.Geometric(10).capped(20),
}
CASES = [
    pytest.param(odp.selection_guarantee(run, trials), id=f"{name}-{law}")
    for i, (name, run) in enumerate(RUNS.items())
    for j, (law, trials) in enumerate(LAWS.items())
    if (i + j) % 3 == 0  # every run and every law meet others, in a third of the time
]
ADAPTIVE = [
    odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(5), density_bounds=(0.8, 1.5)),
    odp.selection_guarantee(
        odp.gaussian(4.0), odp.Geometric(5), density_bounds=(0.8, 1.5), policy="data"
    ),
    odp.selection_guarantee(odp.pure_dp(0.5), odp.Poisson(3), density_bounds=(0.5, 2.0)),
]


def check_that_epsilon_is_the_smallest_of_the_methods(guarantee: odp.Guarantee) -> None:
    found = guarantee.by_method(DELTA)
    assert guarantee.epsilon(DELTA) == min(found.values())
    assert found[guarantee.method(DELTA)] == guarantee.epsilon(DELTA)
    assert not any(math.isnan(value) for value in found.values())
    assert all(value >= 0.0 for value in found.values())
    for name in found:
        if found[name] == math.inf:
            assert len(guarantee.reasons(DELTA)[name]) > 20


def check_round_trips_between_epsilon_and_delta(guarantee: odp.Guarantee) -> None:
    for delta in (1e-3, 1e-5):
        epsilon = guarantee.epsilon(delta)
        assert guarantee.delta(epsilon) <= delta
    for epsilon in (0.3, 1.0, 2.0):
        delta = guarantee.delta(epsilon)
        assert 0.0 <= delta <= 1.0
        if 1e-12 < delta < 1.0:
            # The bisection returns its upper end, 1e-9 above at most.
            assert guarantee.epsilon(delta) <= epsilon * (1.0 + 2e-9)


def check_monotone(guarantee: odp.Guarantee) -> None:
    deltas = [guarantee.delta(epsilon) for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert all(a >= b for a, b in itertools.pairwise(deltas))
    epsilons = [guarantee.epsilon(delta) for delta in (1e-7, 1e-5, 1e-3, 0.1)]
    assert all(a >= b for a, b in itertools.pairwise(epsilons))


def check_survives_json(guarantee: odp.Guarantee) -> None:
    again = odp.Guarantee.from_json(json.loads(json.dumps(guarantee.to_json())))
    assert again == guarantee
    assert again.epsilon(DELTA) == guarantee.epsilon(DELTA)


@pytest.mark.parametrize(
    "guarantee",
    [*CASES, *(pytest.param(guarantee, marks=pytest.mark.slow) for guarantee in ADAPTIVE)],
)
def test_a_guarantee_answers_consistently(guarantee: odp.Guarantee) -> None:
    """Together, since a process keeps what it has computed of a guarantee."""
    check_that_epsilon_is_the_smallest_of_the_methods(guarantee)
    check_round_trips_between_epsilon_and_delta(guarantee)
    check_monotone(guarantee)
    check_survives_json(guarantee)


def test_the_relation_survives_json() -> None:
    guarantee = odp.Guarantee(odp.gaussian(2.0), "replace_one")
    assert odp.Guarantee.from_json(guarantee.to_json()) == guarantee
    assert guarantee.epsilon(DELTA) > odp.Guarantee(odp.gaussian(2.0)).epsilon(DELTA)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guarantee", "names"),
    [
        (odp.Guarantee(odp.gaussian(1.0)), {"profile", "rdp"}),
        (odp.Guarantee(odp.pure_dp(1.0)), {"profile", "rdp", "pure"}),
        (
            odp.selection_guarantee(odp.gaussian(1.0), odp.Geometric(5)),
            {"data_profile", "rank_profile", "koskela", "rdp"},
        ),
        (
            odp.selection_guarantee(odp.pure_dp(1.0), odp.Geometric(5)),
            {"data_profile", "rank_profile", "koskela", "rdp", "pure"},
        ),
        (
            odp.selection_guarantee(odp.gaussian(1.0), odp.Geometric(5).capped(9)),
            {"data_profile", "rank_profile", "rdp"},
        ),
        (
            odp.selection_guarantee(odp.gaussian(1.0), odp.Binomial(2, 2.0)),
            {"data_profile", "rank_profile", "all_runs", "koskela", "rdp"},
        ),
        (
            odp.selection_guarantee(
                odp.gaussian(1.0), odp.Geometric(5), density_bounds=(0.5, 2.0), policy="data"
            ),
            {"data_profile", "rank_profile", "rdp", "theorem_1"},
        ),
        (
            odp.selection_guarantee(
                odp.gaussian(1.0), odp.Geometric(5), density_bounds=(0.5, 2.0)
            ),
            {"data_profile", "history_profile", "rdp", "theorem_1"},
        ),
    ],
)
def test_names_of_methods(guarantee: odp.Guarantee, names: set[str]) -> None:
    assert set(guarantee.by_method(DELTA)) == names


NAMES_OF_OTHERS = {"koskela", "theorem_1"}


def test_at_exactly_the_mean_times_the_delta_of_a_run() -> None:
    """Some run of T tells all with chance 1 - phi(1 - d) < E[T] d: the bound by ranks knows it."""
    guarantee = odp.selection_guarantee(odp.approximate_dp(0.5, 1e-6), odp.Geometric(10))
    by_method = guarantee.by_method(1e-5)
    assert by_method["koskela"] < math.inf
    assert by_method["data_profile"] == math.inf
    assert guarantee.epsilon(1e-5) == by_method["rank_profile"] < math.inf
    assert guarantee.epsilon(0.9e-5) == math.inf


def test_known_values() -> None:
    run = odp.gaussian(4.0)
    assert odp.Guarantee(run).epsilon(DELTA) == pytest.approx(0.926, rel=2e-3)
    found = odp.selection_guarantee(run, odp.Geometric(10))
    assert found.epsilon(DELTA) == pytest.approx(1.429, rel=3e-3)
    assert found.by_method(DELTA)["rdp"] == pytest.approx(2.154, rel=3e-3)


@pytest.mark.slow
def test_the_policy_decides_which_bound_holds() -> None:
    history, data = ADAPTIVE[:2]
    assert history.epsilon(DELTA) < data.epsilon(DELTA)
    assert history.method(DELTA) == "history_profile"
    assert history.by_method(DELTA)["data_profile"] == data.epsilon(DELTA)


# -- attacks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_attacks_stay_below_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run = [
        odp.gaussian(float(rng.uniform(0.8, 6.0))),
        odp.laplace(float(rng.uniform(0.8, 6.0))),
        odp.pure_dp(float(rng.uniform(0.05, 2.0))),
        odp.approximate_dp(float(rng.uniform(0.05, 2.0)), 1e-7),
    ][seed % 4]
    trials = list(LAWS.values())[seed % len(LAWS)]
    delta = 10.0 ** -float(rng.uniform(2.0, 7.0))
    attack, bound = odp.selection_guarantee(run, trials).bounds(delta)
    assert 0.0 < attack <= bound
    alone = odp.Guarantee(run).bounds(delta)
    assert alone[0] <= alone[1] <= bound * (1.0 + 1e-9) or trials.pmf(0) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["history", "data"])
def test_policy_attacks_stay_below_the_bound(policy: str) -> None:
    guarantee = odp.selection_guarantee(
        odp.gaussian(4.0), odp.Geometric(5), density_bounds=(0.6, 1.8), policy=policy
    )
    attack, bound = guarantee.bounds(DELTA)
    plain = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(5))
    assert plain.bounds(DELTA)[0] <= attack <= bound


@pytest.mark.slow
def test_an_attack_on_a_part_is_an_attack_on_the_whole() -> None:
    selection = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(5))
    whole = selection.compose(odp.gaussian(2.0))
    attack, bound = whole.bounds(DELTA)
    assert attack >= max(
        selection.bounds(DELTA)[0], odp.Guarantee(odp.gaussian(2.0)).bounds(DELTA)[0]
    )
    assert attack <= bound


def test_no_attack_is_claimed_where_none_is_known() -> None:
    attack, bound = odp.Guarantee(RUNS["rdp"]).bounds(DELTA)
    assert attack == 0.0 < bound


# -- the ends ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("run", [odp.pure_dp(0.0), dp_event.NoOpDpEvent(), odp.zcdp(0.0)])
def test_a_run_that_costs_nothing_makes_a_selection_that_costs_nothing(run: Any) -> None:
    assert odp.Guarantee(run).epsilon(DELTA) == 0.0
    for trials in LAWS.values():
        guarantee = odp.selection_guarantee(run, trials)
        assert guarantee.epsilon(DELTA) == 0.0
        assert guarantee.delta(0.0) <= 1e-9
        history = odp.selection_guarantee(run, trials, density_bounds=(0.5, 2.0))
        assert history.epsilon(DELTA) == 0.0


def test_a_policy_that_sees_the_data_is_never_free() -> None:
    guarantee = odp.selection_guarantee(
        odp.pure_dp(0.0), odp.Geometric(10), density_bounds=(0.5, 2.0), policy="data"
    )
    assert guarantee.epsilon(DELTA) > 1.0


def test_one_run_for_certain_costs_one_run() -> None:
    run = odp.gaussian(2.0)
    once = odp.selection_guarantee(run, odp.Geometric(1))
    assert once.epsilon(DELTA) == pytest.approx(odp.Guarantee(run).epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize("run", [dp_event.NonPrivateDpEvent(), dp_event.GaussianDpEvent(0.0)])
def test_what_protects_nothing_is_infinite_with_a_reason(run: Any) -> None:
    for guarantee in (
        odp.Guarantee(run),
        odp.selection_guarantee(run, odp.Geometric(5)),
        odp.selection_guarantee(run, odp.Geometric(5), density_bounds=(0.5, 2.0)),
        odp.Guarantee(odp.compose(odp.gaussian(1.0), run)),
    ):
        assert guarantee.epsilon(DELTA) == math.inf
        reasons = guarantee.reasons(DELTA)
        assert set(reasons) == set(guarantee.by_method(DELTA))
        assert any(type(run).__name__ in reason for reason in reasons.values())
        assert guarantee.delta(1.0) == 1.0


def test_a_delta_below_the_runs_own_is_infinite_with_a_reason() -> None:
    guarantee = odp.selection_guarantee(odp.approximate_dp(0.5, 1e-4), odp.Geometric(10))
    assert guarantee.epsilon(DELTA) == math.inf
    assert "0.001" in guarantee.reasons(DELTA)["data_profile"]
    assert guarantee.epsilon(0.01) < math.inf


def test_capped_laws_have_no_closed_rdp_and_say_why() -> None:
    law = odp.Geometric(5).capped(9)
    guarantee = odp.selection_guarantee(odp.gaussian(2.0), law)
    assert "capped" in guarantee.reasons(DELTA)["rdp"]
    assert np.all(np.isinf(law.rdp([2.0, 8.0], [0.25, 1.0])))


def test_rdp_is_that_of_dp_accounting() -> None:
    from dp_accounting.rdp import RdpAccountant

    orders = [1.5, 2.0, 8.0, 32.0]
    event = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(2.0), mean=10, shape=1)
    law, run = odp.Geometric(10), odp.Guarantee(odp.gaussian(2.0))
    # Their term over b is minimised over the orders they are given.
    accountant = RdpAccountant(sorted({*orders, *(1.0 + 0.02 * 1.09**k for k in range(73))}))
    theirs = accountant.compose(event).rdp
    asked = sorted(accountant._orders)
    at = [asked.index(order) for order in orders]
    ours = law.rdp(asked, run.rdp(asked))
    assert ours[at] == pytest.approx(np.array(theirs)[at], rel=1e-6)
    assert np.all(odp.selection_guarantee(run.event, law).rdp(asked)[at] < ours[at])


# -- worst cases ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worst_case_is_at_least_as_bad_as_each_of_its_events() -> None:
    one, other = odp.gaussian(3.0), odp.pure_dp(1.2)
    worst = odp.worst_case(one, other)
    for wrap, grid in (
        (odp.Guarantee, 1e-6),
        (lambda run: odp.selection_guarantee(run, odp.Geometric(5)), 1e-6),
        # Searched on grids of their own, each of which costs up to a hundredth.
        (
            lambda run: odp.selection_guarantee(run, odp.Geometric(5), density_bounds=(0.8, 1.25)),
            1e-2,
        ),
    ):
        parts = [wrap(one), wrap(other)]
        for delta in (1e-2, 1e-5, 1e-8):
            assert wrap(worst).epsilon(delta) >= max(p.epsilon(delta) for p in parts) * (1 - grid)
        for epsilon in (0.0, 0.5, 1.0):
            # A Renyi curve votes on the worst case only, and may say less at larger deltas.
            parts_at = min(0.01, max(p.delta(epsilon) for p in parts))
            assert wrap(worst).delta(epsilon) >= parts_at * (1 - grid)


def test_a_worst_case_costs_less_than_doing_both() -> None:
    one, other = odp.gaussian(3.0), odp.pure_dp(1.2)
    assert odp.Guarantee(odp.worst_case(one, other)).epsilon(DELTA) < odp.Guarantee(
        odp.compose(one, other)
    ).epsilon(DELTA)


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        lambda event: event,
        lambda event: odp.compose(odp.gaussian(1.0), event),
        lambda event: odp.worst_case(odp.gaussian(1.0), event),
        lambda event: dp_event.SelfComposedDpEvent(odp.compose(odp.gaussian(1.0), event), 10**9),
    ],
)
def test_unsupported_events_are_refused_before_any_work(wrap: Any) -> None:
    event = wrap(dp_event.UnsupportedDpEvent())
    for make in (
        odp.Guarantee,
        lambda run: odp.selection_guarantee(run, odp.Geometric(10)),
        lambda run: epsilons_of(run, "add_or_remove_one", DELTA),
    ):
        with pytest.raises(UnsupportedEventError) as caught:
            make(event)
        assert isinstance(caught.value.event, dp_event.UnsupportedDpEvent)


def test_at_delta_zero_there_is_the_pure_epsilon_or_none() -> None:
    laplace = dp_event.LaplaceDpEvent(2.0)
    best = odp.selection_guarantee(laplace, odp.Geometric(5))
    assert odp.Guarantee(laplace).epsilon(0) == 0.5
    assert best.epsilon(0.0) == pytest.approx(1.5)
    assert best.compose(odp.pure_dp(0.25)).epsilon(0.0) == pytest.approx(1.75)
    assert odp.Guarantee(odp.gaussian(1.0)).epsilon(0.0) == math.inf
    assert best.delta(best.epsilon(0.0)) == 0.0


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 0.1, 0.999, 1.001, 30.0])
def test_a_pure_epsilon_on_a_sample_is_not_lost_to_rounding(epsilon: float) -> None:
    event = dp_event.PoissonSampledDpEvent(0.3, odp.pure_dp(epsilon))
    with mpmath.workdps(40):
        exact = mpmath.log1p(mpmath.mpf(0.3) * mpmath.expm1(epsilon))
        assert odp.Guarantee(event).epsilon(0.0) >= exact * (1 - mpmath.mpf(10) ** -15)


def test_few_points_of_a_curve_are_converted_at_their_own_orders() -> None:
    """Canonne, Kamath & Steinke's conversion at order 8, as in Theorem II.1 of DP-HYPE."""
    exact = 1.0 + math.log(7 / 8) - math.log(8e-5) / 7
    for event in (odp.rdp([8], [1]), odp.compose(odp.rdp([8.0], [0.4]), odp.rdp([8.0], [0.6]))):
        found = odp.Guarantee(event).by_method(1e-5)
        assert found["rdp"] == pytest.approx(exact, rel=1e-9)
        assert exact <= found["profile"] <= 1.0001 * exact
    assert odp.Guarantee(odp.rdp([1e12], [1.0])).epsilon(1e-5) < 1.1  # no sum of so many terms


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, math.inf, "small", None])
def test_bad_delta(delta: Any) -> None:
    guarantee = odp.Guarantee(odp.gaussian(1.0))
    asks = [guarantee.by_method, guarantee.bounds, guarantee.method]
    for ask in asks + [guarantee.epsilon] * (delta != 0.0):
        with pytest.raises(InvalidArgumentError) as caught:
            ask(delta)
        assert caught.value.argument == "delta"


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, "large"])
def test_bad_epsilon(epsilon: Any) -> None:
    with refuses("epsilon"):
        odp.Guarantee(odp.gaussian(1.0)).delta(epsilon)


def test_bad_relation() -> None:
    with refuses("neighboring_relation"):
        odp.Guarantee(odp.gaussian(1.0), "neighbours")


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        {"format": "optuna-dp guarantee", "version": 2},
        {"format": "optuna-dp guarantee", "version": 1},
        {**odp.Guarantee(odp.gaussian(1.0)).to_json(), "event": {"type": "os.system"}},
        {**odp.Guarantee(odp.gaussian(1.0)).to_json(), "neighboring_relation": "twins"},
    ],
)
def test_damaged_json_is_refused(data: Any) -> None:
    with pytest.raises((InvalidArgumentError, UnsupportedEventError)):
        odp.Guarantee.from_json(data)
