"""The profile bound: published numbers of the project, convergence, limits, independent checks."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson, TrialCount
from optuna_dp.accounting import events
from optuna_dp.accounting.bounds import smallest_epsilon
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.attainable import attainable_pairs
from optuna_dp.attacks.comparisons import koskela_applies, koskela_delta
from optuna_dp.attacks.selection_attack import strongest_attack
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.bounds.profile_bound import DataProfile, extended

DELTA = 1e-5


def sgd(noise: float) -> dp_event.DpEvent:
    return events.dp_sgd(noise_multiplier=noise, sample_rate=256 / 60000, steps=2344)


def directions(pair: DominatingPair) -> tuple[DominatingPair, DominatingPair]:
    return pair, pair.reversed()


def bound(
    event: dp_event.DpEvent, trials: TrialCount, bounds: tuple[float, float] = (1.0, 1.0)
) -> float:
    return max(DataProfile(p, trials, bounds).epsilon(DELTA) for p in directions(pair_of(event)))


REFERENCE = [
    (events.gaussian(4.0), Geometric(100.0), 1.915, 1.904),
]
MORE = [
    (sgd(0.71), Geometric(10.0), 3.943, 3.888),
    (sgd(0.71), Poisson(10.0), 4.574, 4.453),
    (sgd(0.71), Logarithmic(10.0), 3.815, 3.777),
    (sgd(0.71), Geometric(100.0), 5.077, 4.994),
    (sgd(1.0), Geometric(10.0), 1.648, 1.636),
    (sgd(1.0), Geometric(100.0), 2.172, 2.141),
    (events.gaussian(4.0), Geometric(10.0), 1.429, 1.422),
]


@pytest.mark.parametrize(
    ("event", "trials", "above", "below"),
    [*REFERENCE, *(pytest.param(*row, marks=pytest.mark.slow) for row in MORE)],
)
def test_reference_table(
    event: dp_event.DpEvent, trials: TrialCount, above: float, below: float
) -> None:
    found = bound(event, trials)
    (pair,) = attainable_pairs(event)
    attack = strongest_attack(pair, trials, DELTA).epsilon
    assert found == pytest.approx(above, rel=0.01)
    # The reference attack has one block; ours grows it, and closes most of the gap.
    assert 0.99 * below <= attack <= found
    assert found / attack <= 1.01


@pytest.mark.parametrize(
    ("noise", "mean", "bounds", "expected"),
    [
        (1.0, 10.0, (0.9, 1.25), 2.422),
        (1.0, 10.0, (0.75, 2.0), 3.978),
        (1.0, 30.0, (0.9, 1.25), 2.741),
        (1.0, 30.0, (0.75, 2.0), 4.533),
        (0.71, 10.0, (0.9, 1.25), 4.727),
        (0.71, 10.0, (0.75, 2.0), 6.340),
        (0.71, 30.0, (0.9, 1.25), 5.342),
        (0.71, 30.0, (0.75, 2.0), 7.166),
    ],
)
def test_reference_table_with_density_bounds(
    noise: float, mean: float, bounds: tuple[float, float], expected: float
) -> None:
    assert bound(sgd(noise), Geometric(mean), bounds) == pytest.approx(expected, rel=0.01)


def test_caps_cost_little_far_out_and_much_below_the_mean() -> None:
    run = sgd(0.71)
    assert bound(run, Geometric(10.0).capped(60)) == pytest.approx(3.946, rel=0.001)
    assert bound(run, Geometric(10.0).capped(30)) == pytest.approx(3.951, rel=0.001)
    assert bound(run, Geometric(100.0).capped(30)) == pytest.approx(5.168, rel=0.001)


# --- numerics ------------------------------------------------------------------------------


def _uneven() -> DominatingPair:
    """Different in both directions, with outputs that only one data set has."""
    losses, mass = np.array([-2.0, 0.0, math.log(4.0)]), np.array([0.02, 0.4, 0.48])
    return DominatingPair(losses, mass, 0.1, 1.0 - float(mass @ np.exp(-losses)))


PAIRS = {
    "response": randomized_response(1.0),
    "approximate": randomized_response(0.5, 1e-3),
    "gaussian": pair_of(events.gaussian(1.5)),
    "uneven": _uneven(),
}
LAWS: list[TrialCount] = [
    Geometric(10.0),
    Geometric(1.0001),
    Logarithmic(30.0),
    NegativeBinomial(shape=-0.5, mean=5.0),
    NegativeBinomial(shape=4.0, mean=50.0),
    Poisson(0.2),
    Poisson(40.0),
    Binomial(20, 5.0),
    Binomial(5, 5.0),
    Geometric(20.0).capped(15),
]


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.75, 2.0)])
@pytest.mark.parametrize("name", PAIRS)
def test_the_grid_converges_from_above(name: str, bounds: tuple[float, float]) -> None:
    """On Phi itself, whose values are not cut at one; the error falls like the step squared."""
    t = np.array([0.05, 0.3, 0.6, 1.0, 1.5, 3.0])
    for trials in (Geometric(10.0), Poisson(3.0), Binomial(4, 4.0)):
        steps = [0.3, 0.03, 1e-3, 2e-4]
        values = [DataProfile(PAIRS[name], trials, bounds, step=s).phi(t) for s in steps]
        errors = [np.max(v - values[-1]) / (trials.mean * bounds[1]) for v in values]
        for v in values:
            assert np.all(v >= values[-1] - 1e-5 * trials.mean)
        # Where Phi sits on a vertex of G, or G has thousands, every grid is fine enough.
        assert errors[0] + 1e-5 >= errors[1] >= errors[2] - 1e-5
        if name == "response":
            assert errors[0] > 10.0 * errors[1] > 100.0 * errors[2]
        assert errors[1] < 2e-3
        assert errors[2] < 1e-5


def _phi_by_search(
    pair: DominatingPair, trials: TrialCount, c: float, big_c: float, t: float
) -> mpmath.mpf:
    """Phi(t) from its definition, in arbitrary precision, by search over p (from below)."""
    mass = [mpmath.mpf(float(m)) for m in pair.mass]
    losses = [mpmath.mpf(float(x)) for x in pair.losses]

    def trade_off(p: mpmath.mpf) -> mpmath.mpf:
        g, left = mpmath.mpf(pair.null_mass), p
        for m, x in zip(mass, losses, strict=True):
            taken = min(m, left)
            g += taken * mpmath.exp(-x)
            left -= taken
        return min(mpmath.mpf(1), g)

    def slope(s: mpmath.mpf) -> mpmath.mpf:
        if isinstance(trials, NegativeBinomial):
            z = mpmath.mpf(trials.gamma)
            return trials.mean * (z / (1 - (1 - z) * s)) ** (trials.shape + 1)
        assert isinstance(trials, Poisson)
        return trials.mean * mpmath.exp(trials.mean * (s - 1))

    def value(p: mpmath.mpf) -> mpmath.mpf:
        lo = max(c * p, 1 - big_c * (1 - p))
        g = trade_off(p)
        hi = min(big_c * g, 1 - c * (1 - g))
        return big_c * slope(1 - lo) - t * c * slope(1 - hi)

    grid = [mpmath.mpf(i) / 100 for i in range(101)]
    grid += [mpmath.mpf(10) ** (-mpmath.mpf(i) / 8) for i in range(8, 90)]
    cumulated = mpmath.mpf(0)
    for m in mass:
        cumulated += m
        grid.append(min(cumulated, mpmath.mpf(1)))
    grid.append(mpmath.mpf(big_c - 1) / (big_c - c) if big_c > c else mpmath.mpf(0))
    grid.sort()
    for _ in range(3):
        k = max(range(len(grid)), key=lambda i: value(grid[i]))
        low, high = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
        best = value(grid[k])
        grid = [low + (high - low) * i / 40 for i in range(41)] + [grid[k]]
        grid.sort()
    return max(best, mpmath.mpf(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["response", "approximate", "uneven"])
def test_phi_in_arbitrary_precision(name: str) -> None:
    with mpmath.workdps(40):
        for trials in (Geometric(10.0), Logarithmic(30.0), Poisson(3.0)):
            for bounds in ((1.0, 1.0), (0.75, 2.0)):
                profile = DataProfile(PAIRS[name], trials, bounds)
                for t in (0.0, 0.4, 1.7):
                    exact = float(_phi_by_search(PAIRS[name], trials, *bounds, t))
                    ours = float(profile.phi(t))
                    assert exact <= ours * (1.0 + 1e-15) + 1e-300
                    assert ours <= exact + 2e-5 * trials.mean * bounds[1]


def test_the_mixture_equals_the_expectation_of_phi() -> None:
    """The hinges are only another way to write E_{L ~ O}[Phi(e^(eps - L))]."""
    pair = PAIRS["uneven"]
    for trials in LAWS:
        profile = DataProfile(pair, trials, (0.75, 2.0))
        for eps in (0.0, 0.7, 3.0):
            direct = pair.mass @ profile.phi(np.exp(eps - pair.losses))
            direct += pair.infinite_mass * profile.phi(0.0)
            assert float(profile.delta(eps)) == pytest.approx(min(1.0, direct), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("trials", LAWS)
@pytest.mark.parametrize("name", PAIRS)
def test_values_are_probabilities_and_fall(name: str, trials: TrialCount) -> None:
    eps = np.concatenate([np.linspace(-700, 700, 57), np.linspace(-5, 5, 41)])
    eps.sort()
    for bounds in ((1.0, 1.0), (0.5, 3.0)):
        values = DataProfile(PAIRS[name], trials, bounds).delta(eps)
        assert not np.any(np.isnan(values))
        assert np.all((values >= 0.0) & (values <= 1.0))
        assert np.all(np.diff(values) <= 1e-12)
        # Any two laws are told apart at least this well at negative epsilon.
        assert np.all(values >= -np.expm1(np.minimum(eps, 0.0)) - 1e-12)


def test_a_run_that_reveals_all_gives_one_and_infinity() -> None:
    for trials in LAWS:
        profile = DataProfile(DominatingPair.infinite(), trials)
        hit = 1.0 if trials.mean >= 1.0 else trials.mean
        assert np.all(profile.delta([0.0, 5.0, 100.0]) >= hit - 1e-9)
        assert profile.epsilon(1e-3) == math.inf


@pytest.mark.parametrize("trials", LAWS)
def test_a_run_of_no_cost_costs_nothing(trials: TrialCount) -> None:
    for pair in (DominatingPair.identity(), randomized_response(0.0)):
        profile = DataProfile(pair, trials)
        assert np.all(profile.delta([0.0, 1.0]) == 0.0)
        assert profile.delta(-1.0) == pytest.approx(-math.expm1(-1.0))
        assert profile.epsilon(1e-12) == 0.0
    # And one of next to no cost costs next to nothing (the error of the grid is STEP^2).
    tiny = randomized_response(1e-12)
    assert float(DataProfile(tiny, trials).delta(0.0)) <= 1e-5 * trials.mean


def test_a_single_run_costs_what_it_costs() -> None:
    """T = 1 always: the selection is the run itself."""
    eps = np.array([0.0, 0.5, 1.0, 2.0])
    for name in ("response", "gaussian", "uneven"):
        found = DataProfile(PAIRS[name], Binomial(1, 1.0)).delta(eps)
        assert found == pytest.approx(PAIRS[name].delta(eps), rel=1e-9, abs=1e-11)


def test_more_runs_and_wider_densities_cost_more() -> None:
    pair = PAIRS["gaussian"]
    means = [DataProfile(pair, Geometric(m)).epsilon(DELTA) for m in (1.5, 3.0, 10.0, 100.0)]
    upper = [
        DataProfile(pair, Geometric(10.0), (0.9, b)).epsilon(DELTA) for b in (1.01, 1.2, 2.0, 5.0)
    ]
    lower = [
        DataProfile(pair, Geometric(10.0), (c, 2.0)).epsilon(DELTA) for c in (0.99, 0.9, 0.5, 0.1)
    ]
    for values in (means, upper, lower):
        assert values == sorted(values)
    assert upper[0] > DataProfile(pair, Geometric(10.0)).epsilon(DELTA)


def test_epsilon_is_the_safe_side_and_round_trips() -> None:
    for name in ("gaussian", "response", "approximate"):
        profile = DataProfile(PAIRS[name], Geometric(10.0), (0.75, 2.0))
        for e in (0.3, 1.0, 2.5, 4.0):
            delta = float(profile.delta(e))
            if 0.0 < delta < 1.0:
                assert profile.epsilon(delta) <= e * (1.0 + 1e-8)
                assert float(profile.delta(profile.epsilon(delta))) <= delta


def test_pure_runs_stay_pure() -> None:
    """(2 + shape) eps is Papernot & Steinke's bound; the profile bound respects it."""
    eps = 0.7
    pair = randomized_response(eps)
    for trials in (Geometric(10.0), Logarithmic(10.0), NegativeBinomial(shape=-0.5, mean=5.0)):
        limit = (2.0 + trials.shape) * eps
        assert float(DataProfile(pair, trials).delta(limit + 1e-3)) <= 1e-9


def test_bounds_are_checked() -> None:
    pair = PAIRS["response"]
    for bad in ((1.2, 2.0), (0.5, 0.9), (0.0, 2.0), (math.nan, 2.0)):
        with pytest.raises(InvalidArgumentError):
            DataProfile(pair, Geometric(3.0), bad)
    with pytest.raises(InvalidArgumentError):
        DataProfile(pair, Geometric(3.0)).epsilon(0.0)
    found = DataProfile(pair, Geometric(3.0), (0.5, 2.0)).delta([[0.0, 1.0]])
    assert found.shape == (1, 2)


# --- other people's bounds -----------------------------------------------------------------


def rdp_epsilon(event: dp_event.DpEvent, trials: NegativeBinomial | Poisson) -> float:
    accountant = RdpAccountant()
    shape = math.inf if isinstance(trials, Poisson) else trials.shape
    accountant.compose(dp_event.RepeatAndSelectDpEvent(event, trials.mean, shape))
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.slow
def test_against_rdp_koskela_and_the_attack_on_a_random_grid() -> None:
    rng = np.random.default_rng(11)
    over_rdp, over_attack, tnb = [], [], []
    for i in range(8):
        noise = float(np.exp(rng.uniform(math.log(0.6), math.log(2.5))))
        steps, rate = int(rng.integers(100, 4000)), float(np.exp(rng.uniform(-6.5, -3.5)))
        event: dp_event.DpEvent = events.dp_sgd(
            noise_multiplier=noise, sample_rate=rate, steps=steps
        )
        if i % 4 == 0:
            event = events.gaussian(2.0 * noise)
        pair = pair_of(event)
        (attainable,) = attainable_pairs(event)
        mean = float(np.exp(rng.uniform(math.log(3.0), math.log(300.0))))
        laws = [
            Geometric(mean),
            Logarithmic(mean),
            NegativeBinomial(shape=0.5, mean=mean),
            Poisson(mean),
        ]
        for trials in laws:
            ours = max(DataProfile(p, trials).epsilon(DELTA) for p in directions(pair))
            rdp = rdp_epsilon(event, trials)
            assert koskela_applies(trials)
            theirs = max(
                smallest_epsilon(lambda e, p=p, t=trials: koskela_delta(p, t, e), DELTA)
                for p in directions(pair)
            )
            attack = strongest_attack(attainable, trials, DELTA).epsilon
            assert attack <= ours <= theirs
            assert ours <= rdp
            over_rdp.append(ours / rdp)
            (over_attack if isinstance(trials, Poisson) else tnb).append(ours / attack)
    assert len(over_rdp) >= 30
    print(  # shown by pytest -rP
        "bound over RDP, geometric mean:",
        math.exp(np.mean(np.log(over_rdp))),
        "largest:",
        max(over_rdp),
        "bound over attack, TNB:",
        max(tnb),
        "Poisson:",
        max(over_attack),
    )
    assert math.exp(np.mean(np.log(over_rdp))) <= 0.78
    assert max(tnb) <= 1.03


def test_the_gain_bends_where_its_lower_density_does() -> None:
    """Two runs for certain that tell nothing: gain and cost are straight but for their bends."""
    c, big_c = 0.3, 3.0
    pair = randomized_response(1e-9)
    p = np.union1d(np.linspace(0.0, 1.0, 2001), (big_c - 1.0) / (big_c - c))
    gain = 2.0 * big_c * np.minimum(1.0 - c * p, big_c * (1.0 - p))
    cost = 2.0 * c * np.maximum(1.0 - big_c * p, c * (1.0 - p))
    for step in (1e-3, 100.0):
        profile = DataProfile(pair, Binomial(2, 2.0), (c, big_c), step=step)
        for t in (5.0, 10.0, 20.0, 40.0):
            assert float(profile.phi(t)) >= np.max(gain - t * cost) - 1e-6


def test_no_gain_less_cost_between_points_exceeds_all_at_points() -> None:
    """For convex gains, and for convex costs that are known up to rounding only."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        s = np.sort(rng.random(12))[::-1] ** rng.choice([0.3, 1.0, 4.0])
        slopes, bends = 10.0 ** rng.uniform(-3.0, 1.0, (2, 6)), rng.random((2, 6))

        def convex(x: np.ndarray, i: int, slopes=slopes, bends=bends) -> np.ndarray:
            return np.maximum(x[..., None] - bends[i], 0.0) @ slopes[i]

        error = float(rng.choice([0.0, 1e-3, 0.2]))
        low, high = (convex(s, 1) * (1.0 + sign * error * rng.random(12)) for sign in (-1.0, 1.0))
        at_points = convex(s, 0)[:-1] - extended(s[None], low[None], high[None])[0]
        between = np.linspace(s[-1], s[0], 3001)
        assert np.max(convex(between, 0) - convex(between, 1)) <= np.max(at_points) + 1e-12
