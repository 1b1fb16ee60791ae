"""The selections against exact laws, dp-accounting and optuna-dp."""

import itertools
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

dp = pytest.importorskip("opendp.prelude", reason="these are tests of a request for OpenDP")
mpmath = pytest.importorskip("mpmath", reason="it rounds what the maps are compared with")

import select_best_candidate as selections  # noqa: E402
from select_best_candidate import (  # noqa: E402
    make_select_best_candidate,
    make_select_best_candidate_fixed_delta,
)

SPACE = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
COUNTS = ((0.5, 1), (0.1, 1), (0.02, 1), (0.3, 2), (0.2, 5))
ALPHAS = (1.01, 1.5, 2.0, 4.0, 16.0, 100.0)
EPSILONS = (0.0, 0.1, 0.4, 1.0, 2.0, 4.0)


@pytest.fixture(autouse=True)
def _features() -> Any:
    dp.enable_features("contrib", "honest-but-curious")
    yield
    dp.disable_features("contrib", "honest-but-curious")


def measurement(measure: dp.Measure, privacy_map: Any, function: Any = None) -> dp.Measurement:
    return dp.m.make_user_measurement(
        *SPACE,
        measure,
        function or (lambda x: (x, "candidate")),
        privacy_map,
        TO="(f64, ExtrinsicObject)",
    )


def renyi(curve: Any) -> dp.Measurement:
    return measurement(dp.renyi_divergence(), lambda d_in: curve)


def gaussian(scale: float) -> dp.Measurement:
    """A score with noise, and the candidate that it is the score of."""

    def function(x: float) -> tuple[float, str]:
        return random.gauss(x, scale), "candidate"

    return measurement(
        dp.zero_concentrated_divergence(), lambda d_in: (d_in / scale) ** 2 / 2, function
    )


# --- exact selections among few outputs ----------------------------------------------------------


def probabilities(stop: float, shape: int) -> np.ndarray:
    """Pr[T = 0], Pr[T = 1], ... by their ratios."""
    k = np.arange(1, 4000)
    ratios = np.log1p(-stop) + np.log((k + shape) / (k + 1))
    law = np.exp(np.concatenate([[0.0], np.cumsum(ratios)]))
    return np.append(0.0, law / law.sum())


def best_of(law: np.ndarray, count: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    power, result, above = np.arange(count.size), np.zeros_like(law), 0.0
    for output in order:
        below = max(1 - above - law[output], 0.0)
        result[output] = count @ ((1 - above) ** power - below**power)
        above += law[output]
    return result


def pairs(number: int) -> Any:
    rng = np.random.default_rng(3)
    for i in range(number):
        size = int(rng.integers(2, 5))
        law = rng.dirichlet(np.ones(size))
        other = law * np.exp(rng.normal(0, rng.choice([0.3, 1.0]), size))
        yield law, other / other.sum(), COUNTS[i % len(COUNTS)]


def renyi_divergence(law: np.ndarray, other: np.ndarray, alpha: float) -> float:
    terms = alpha * np.log(law) + (1 - alpha) * np.log(other)
    return float(np.logaddexp.reduce(terms)) / (alpha - 1)


def renyi_excess() -> float:
    """The largest amount by which an exact selection exceeds the map."""
    largest = -math.inf
    for law, other, (stop, shape) in pairs(40):

        def curve(alpha: float, law: Any = law, other: Any = other) -> float:
            return max(renyi_divergence(law, other, alpha), renyi_divergence(other, law, alpha))

        bound = make_select_best_candidate(renyi(curve), stop, shape).map(1.0)
        bounds = [bound(alpha) for alpha in ALPHAS]
        count = probabilities(stop, shape)
        for order in itertools.permutations(range(law.size)):
            best = best_of(law, count, order), best_of(other, count, order)
            for (one, two), (alpha, allowed) in itertools.product(
                (best, best[::-1]), zip(ALPHAS, bounds, strict=True)
            ):
                largest = max(largest, renyi_divergence(one, two, alpha) - allowed)
    return largest


def profile_excess() -> float:
    largest = -math.inf
    for law, other, (stop, shape) in pairs(40):

        def profile(epsilon: float, law: Any = law, other: Any = other) -> float:
            grown = math.exp(epsilon)
            return float(
                max(
                    np.maximum(law - grown * other, 0).sum(),
                    np.maximum(other - grown * law, 0).sum(),
                )
            )

        bound = selections._SelectionProfile(
            profile, selections._RunCount(stop, shape), step=0.01, points=1000
        )
        allowed = np.array([bound.delta(epsilon) for epsilon in EPSILONS])
        count, grown = probabilities(stop, shape), np.exp(EPSILONS)
        for order in itertools.permutations(range(law.size)):
            best = best_of(law, count, order), best_of(other, count, order)
            for one, two in (best, best[::-1]):
                delta = np.maximum(one[:, None] - grown * two[:, None], 0).sum(axis=0)
                largest = max(largest, float(np.max(delta - allowed)))
    return largest


def test_no_order_of_outputs_exceeds_the_renyi_map() -> None:
    assert renyi_excess() <= 1e-9


def test_a_renyi_map_without_the_selection_term_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        selections._RunCount, "renyi_term", lambda self, run: selections.Decimal(0)
    )
    assert renyi_excess() > 0.01


def test_no_order_of_outputs_exceeds_the_profile() -> None:
    assert profile_excess() <= 1e-11


def test_a_wrong_trade_off_curve_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections._SelectionProfile, "_trade_off", lambda self, p: p)
    assert profile_excess() > 1e-3


def test_a_wrong_exponent_of_the_law_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    derivative = selections._RunCount.derivative

    def wrong(self: Any, s: np.ndarray) -> np.ndarray:
        # n in place of n + 1
        exact = derivative(self, s)
        return exact * (self.mean / exact) ** (1 / (self._shape + 1))

    monkeypatch.setattr(selections._RunCount, "derivative", wrong)
    assert profile_excess() > 1e-3


# --- other accountants ---------------------------------------------------------------------------


@pytest.mark.parametrize(("stop", "shape"), COUNTS)
def test_the_renyi_map_is_that_of_dp_accounting(stop: float, shape: int) -> None:
    rdp = pytest.importorskip("dp_accounting.rdp", reason="it is compared with")
    from dp_accounting import dp_event

    mean = shape * (1 - stop) / (stop * (1 - stop**shape))
    accountant = rdp.RdpAccountant([*selections._ORDERS])
    accountant.compose(
        dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(2.0), mean, float(shape))
    )
    curve = make_select_best_candidate(gaussian(2.0), stop, shape).map(1.0)
    # They find g from the mean by bisection.
    ours = [curve(order) for order in selections._ORDERS]
    assert ours == pytest.approx(list(accountant._rdp), rel=1e-6)


@pytest.mark.parametrize(("stop", "shape"), COUNTS)
def test_agrees_with_optuna_dp(stop: float, shape: int) -> None:
    odp = pytest.importorskip("optuna_dp", reason="it is compared with")

    law = odp.NegativeBinomial(gamma=stop, shape=float(shape))
    orders = np.array([1.0, *selections._ORDERS])
    theirs = law.rdp(orders, orders / 8)[1:]
    curve = make_select_best_candidate(gaussian(2.0), stop, shape).map(1.0)
    ours = [curve(order) for order in selections._ORDERS]
    assert ours == pytest.approx(list(theirs), rel=1e-9)


@pytest.mark.parametrize(("stop", "shape"), COUNTS)
def test_the_epsilon_is_that_of_optuna_dp(stop: float, shape: int) -> None:
    odp = pytest.importorskip("optuna_dp", reason="it is compared with")
    run = dp.c.make_zCDP_to_approxDP(gaussian(2.0))
    epsilon, delta = make_select_best_candidate_fixed_delta(run, 1e-5, stop, shape).map(1.0)
    assert delta == 1e-5
    # OpenDP's own profile of a zCDP measurement, to both.
    profile = run.map(1.0)
    epsilons = np.linspace(0.0, 12.0, 400)
    event = odp.from_profile(epsilons, [profile.delta(float(at)) for at in epsilons])
    law = odp.NegativeBinomial(gamma=stop, shape=float(shape))
    assert epsilon == pytest.approx(odp.selection_guarantee(event, law).epsilon(1e-5), rel=5e-3)


@pytest.mark.parametrize(("stop", "shape"), COUNTS)
def test_a_fixed_delta_costs_less_than_the_curve(stop: float, shape: int) -> None:
    run = gaussian(2.0)
    curve = make_select_best_candidate(run, stop, shape).map(1.0)
    # arXiv 2004.00010, Proposition 12, the best conversion for single orders.
    from_curve = min(
        curve(a) + math.log1p(-1 / a) - (math.log(1e-5) + math.log(a)) / (a - 1)
        for a in selections._ORDERS
    )
    epsilon, _ = make_select_best_candidate_fixed_delta(
        dp.c.make_zCDP_to_approxDP(run), 1e-5, stop, shape
    ).map(1.0)
    assert epsilon < 0.95 * from_curve


# --- the function --------------------------------------------------------------------------------


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Randomness with a seed, in place of the operating system's."""
    monkeypatch.setattr(selections.secrets, "randbelow", random.Random(5).randrange)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(("stop", "shape"), COUNTS)
def test_draws_follow_the_law(stop: float, shape: int) -> None:
    law, count = probabilities(stop, shape), selections._RunCount(stop, shape)
    draws = Counter(count.draw() for _ in range(20_000))
    assert count.mean == pytest.approx(float(np.arange(law.size) @ law), rel=1e-9)
    for k in range(1, 12):
        deviation = math.sqrt(law[k] * (1 - law[k]) / 20_000)
        assert abs(draws[k] / 20_000 - law[k]) < 5.5 * deviation
    tail = law[12:].sum()
    drawn = sum(number for k, number in draws.items() if k >= 12) / 20_000
    assert abs(drawn - tail) < 5.5 * math.sqrt(tail * (1 - tail) / 20_000) + 1e-9


def test_the_best_of_all_invocations_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections._RunCount, "draw", lambda self: 5)
    scores = [math.nan, 2.0, 7.0, math.nan, 3.0]
    invoked = []

    def function(x: float) -> tuple[float, str]:
        invoked.append(x)
        return scores[len(invoked) - 1], f"candidate {len(invoked)}"

    run = measurement(dp.renyi_divergence(), lambda d_in: lambda alpha: alpha, function)
    selection = make_select_best_candidate(run, 0.1)
    assert selection(0.5) == (7.0, "candidate 3")
    assert invoked == [0.5] * 5


def test_the_first_of_equal_scores_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections._RunCount, "draw", lambda self: 4)
    names = iter("abcd")
    run = measurement(
        dp.renyi_divergence(), lambda d_in: lambda alpha: alpha, lambda x: (1.0, next(names))
    )
    assert make_select_best_candidate(run, 0.1)(0.0) == (1.0, "a")


def test_a_selection_of_noisy_scores_runs() -> None:
    score, candidate = make_select_best_candidate(gaussian(1.0), 0.2)(0.0)
    assert math.isfinite(score)
    assert candidate == "candidate"


# --- the maps ------------------------------------------------------------------------------------


def test_the_map_grows_with_the_distance() -> None:
    selection = make_select_best_candidate(gaussian(2.0), 0.1)
    assert selection.map(0.0)(8.0) < selection.map(1.0)(8.0) < selection.map(2.0)(8.0)


def test_a_run_without_privacy_gives_no_bound() -> None:
    selection = make_select_best_candidate(renyi(lambda alpha: math.inf), 0.1)
    assert selection.map(1.0)(2.0) == math.inf


def test_the_map_is_rounded_up() -> None:
    # A curve that is 0 leaves 2 ln(1/g) / b and ln E[T] / (a - 1), at the largest order.
    largest = selections._ORDERS[-1]
    curve = make_select_best_candidate(renyi(lambda alpha: 0.0), 0.25).map(1.0)
    for alpha in (*ALPHAS, largest, 2 * largest):
        with mpmath.workdps(50):
            exact = mpmath.log(4) * (2 / mpmath.mpf(largest) + 1 / (max(alpha, largest) - 1))
            assert 0 <= curve(alpha) - exact < 1e-15


@pytest.mark.parametrize("alpha", [1.0, 0.5, math.inf, math.nan])
def test_an_order_out_of_range_is_refused(alpha: float) -> None:
    curve = make_select_best_candidate(gaussian(2.0), 0.1).map(1.0)
    with pytest.raises(dp.OpenDPException, match="alpha is"):
        curve(alpha)


@pytest.mark.parametrize(
    ("stop", "shape"), [(0.0, 1), (1.0, 1), (math.nan, 1), (0.5, 0), (0.5, 1.5), (0.5, True)]
)
def test_a_law_out_of_range_is_refused(stop: float, shape: int) -> None:
    with pytest.raises(ValueError, match="it must be"):
        make_select_best_candidate(gaussian(2.0), stop, shape)


def test_other_measures_are_refused() -> None:
    with pytest.raises(ValueError, match="no Renyi curve"):
        make_select_best_candidate(measurement(dp.max_divergence(), lambda d_in: d_in), 0.1)
    with pytest.raises(ValueError, match="no privacy profile"):
        make_select_best_candidate_fixed_delta(gaussian(2.0), 1e-5, 0.1)
    with pytest.raises(ValueError, match="delta is"):
        make_select_best_candidate_fixed_delta(gaussian(2.0), 0.0, 0.1)
