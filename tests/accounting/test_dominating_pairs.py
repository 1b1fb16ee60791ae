"""Dominating pairs: exact answers, and profiles turned into pairs that never fall below them."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optuna_dp.accounting import dominating_pairs
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.attacks.data_attack import trade_off_vertices
from optuna_dp.errors import InvalidArgumentError


def random_pair(rng: np.random.Generator, atoms: int = 12, spread: float = 3.0) -> DominatingPair:
    """A pair of two random distributions on few outputs, some of them impossible in one world."""
    p, q = rng.dirichlet(np.full(atoms, 0.7), size=2)
    if rng.random() < 0.5:
        p[0], q[1] = 0.0, 0.0
        p, q = p / p.sum(), q / q.sum()
    both = (p > 1e-12) & (q > 1e-12)
    losses = np.log(p[both] / q[both]) * spread / 3.0
    mass = p[both]
    order = np.argsort(losses)
    losses, mass = losses[order], mass[order]
    # The rescaled losses no longer fit the O'-masses: put what is missing where it is allowed.
    prime = float(np.sum(mass * np.exp(-losses)))
    mass = mass / max(1.0, prime, mass.sum())
    return DominatingPair(
        losses,
        mass,
        max(1.0 - float(mass.sum()), 0.0),
        max(1.0 - float(np.sum(mass * np.exp(-losses))), 0.0),
    )


def exact_delta(pair: DominatingPair, epsilon: float) -> mpmath.mpf:
    """The hockey stick of the stored atoms in 60 digits."""
    with mpmath.workdps(60):
        t = mpmath.exp(mpmath.mpf(epsilon))
        total = mpmath.mpf(pair.infinite_mass)
        for loss, mass in zip(pair.losses.tolist(), pair.mass.tolist(), strict=True):
            prime = mpmath.mpf(mass) * mpmath.exp(-mpmath.mpf(loss))
            total += max(mpmath.mpf(mass) - t * prime, 0)
        return total


def gaussian_delta(epsilon: float, noise: float) -> mpmath.mpf:
    """Balle & Wang, arXiv 1805.06530v2, Theorem 8, in 60 digits."""
    with mpmath.workdps(60):
        mu, e = 1 / mpmath.mpf(noise), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


class TestClosedForms:
    def test_randomized_response_has_its_textbook_profile(self) -> None:
        pair = randomized_response(1.0, 1e-5)
        eps = np.array([0.0, 0.3, 0.999, 1.0, 2.0])
        p = math.e / (1.0 + math.e)
        expected = 1e-5 + (1.0 - 1e-5) * np.maximum(p - np.exp(eps) * (1.0 - p), 0.0)
        assert pair.delta(eps) == pytest.approx(expected, abs=1e-15)
        assert pair.epsilon(1e-5) <= 1.0
        assert pair.epsilon(0.9e-5) == math.inf
        assert pair.delta(eps) == pytest.approx(pair.reversed().delta(eps))

    def test_a_base_of_zero_cost_costs_zero(self) -> None:
        for pair in (DominatingPair.identity(), randomized_response(0.0)):
            assert float(pair.delta(0.0)) == 0.0
            assert pair.epsilon(1e-300) == 0.0

    @pytest.mark.parametrize("pair", [
        DominatingPair.infinite(),
        randomized_response(1.0, 1.0),
        randomized_response(math.inf),
        randomized_response(5000.0),
    ])  # fmt: skip
    def test_no_protection_is_infinite_not_nan(self, pair: DominatingPair) -> None:
        assert pair.is_infinite
        assert pair.epsilon(0.5) == math.inf
        assert pair.delta([-3.0, 0.0, 900.0]) == pytest.approx([1.0, 1.0, 1.0])
        assert np.interp([0.0, 0.5, 1.0], *trade_off_vertices(pair)) == pytest.approx(
            [1.0, 1.0, 1.0]
        )


class TestAnswers:
    @pytest.mark.parametrize("seed", range(20))
    def test_delta_is_exact_at_every_real_epsilon(self, seed: int) -> None:
        pair = random_pair(np.random.default_rng(seed))
        for epsilon in (-40.0, -2.0, -0.1, 0.0, 1e-9, 0.7, 3.0, 50.0):
            assert float(pair.delta(epsilon)) == pytest.approx(
                float(exact_delta(pair, epsilon)), rel=1e-12, abs=1e-15
            )

    @pytest.mark.parametrize("seed", range(20))
    def test_both_directions_are_tied_by_the_symmetry_identity(self, seed: int) -> None:
        pair = random_pair(np.random.default_rng(seed))
        eps = np.linspace(0.0, 6.0, 50)
        expected = 1.0 - np.exp(-eps) * (1.0 - pair.delta(eps))
        assert pair.reversed().delta(-eps) == pytest.approx(expected, abs=1e-14)

    def test_reversing_twice_is_the_same_object(self) -> None:
        pair = random_pair(np.random.default_rng(0))
        assert pair.reversed().reversed() is pair

    @pytest.mark.slow
    @settings(max_examples=200, deadline=None)
    @given(seed=st.integers(0, 10**6), exponent=st.floats(-14.0, -0.01))
    def test_epsilon_is_on_the_safe_side_and_tight(self, seed: int, exponent: float) -> None:
        pair = random_pair(np.random.default_rng(seed))
        delta = 10.0**exponent
        epsilon = pair.epsilon(delta)
        if math.isinf(epsilon):
            assert pair.infinite_mass > delta
            return
        assert float(pair.delta(epsilon)) <= delta
        if epsilon > 1e-9:
            assert float(pair.delta(epsilon * (1.0 - 1e-9) - 1e-12)) >= delta * (1.0 - 1e-9)

    @pytest.mark.parametrize("seed", range(10))
    def test_trade_off_is_the_best_event_of_all(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        pair = random_pair(rng, atoms=8)
        mass = np.concatenate((pair.mass, [pair.infinite_mass, 0.0]))
        prime = np.concatenate((pair.mass_prime, [0.0, pair.null_mass]))
        subsets = (np.arange(2**mass.size)[:, None] >> np.arange(mass.size)) & 1
        p, g = subsets @ mass, subsets @ prime
        assert np.all(np.interp(np.minimum(p, 1.0), *trade_off_vertices(pair)) >= g - 1e-12)
        # A vertex is itself an event, so the curve is attained there.
        for p_vertex, g_vertex in zip(*trade_off_vertices(pair), strict=True):
            assert np.max(g[p <= p_vertex + 1e-12]) == pytest.approx(g_vertex, abs=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("far", [1.0, 100.0, 2e4])
    def test_a_mixture_is_the_sum_of_its_parts(self, far: float) -> None:
        """Also where a power of e by itself would be no float."""
        rng = np.random.default_rng(5)
        pair = random_pair(rng)
        shifts, weights = np.clip(far * rng.normal(size=40), -700.0, 700.0), rng.random(40)
        eps = np.concatenate([shifts + rng.normal(size=40), [0.0, far]])
        parts = np.array([[float(exact_delta(pair, e - s)) for s in shifts] for e in eps])
        assert pair.mixture(eps, np.exp(shifts), weights) == pytest.approx(
            parts @ weights, rel=1e-12
        )

    def test_sticks_that_are_tiny_at_zero_keep_their_digits(self) -> None:
        spread = 1e-9
        high = math.exp(spread) / (1.0 + math.exp(spread))
        pair = DominatingPair([-spread, spread], [1.0 - high, high])
        eps = spread * np.linspace(-0.9, 0.9, 51)
        exact = [float(exact_delta(pair, e)) for e in eps]
        found = pair.mixture(eps, np.ones(1), np.ones(1))
        assert found == pytest.approx(pair.delta(eps), rel=1e-13, abs=0.0)
        assert found == pytest.approx(exact, rel=1e-6, abs=0.0)

    def test_masses_that_do_not_quite_add_up_are_not_magnified(self) -> None:
        low = 5e-10 + math.exp(-40.0)
        pair = DominatingPair([-40.0, 40.0], [math.exp(-40.0), 1.0 - low])
        eps = np.linspace(1.0, 39.0, 40)
        exact = [float(exact_delta(pair, e)) for e in eps]
        found = pair.mixture(eps, np.ones(1), np.ones(1))
        assert found == pytest.approx(exact, rel=1e-13, abs=0.0)

    def test_trade_off_dual_is_the_reversed_profile(self) -> None:
        pair = random_pair(np.random.default_rng(3))
        for p in (1e-6, 0.01, 0.3, 0.9):
            lines = [
                math.exp(e) * p + float(pair.reversed().delta(e))
                for e in (*pair.losses, *(-pair.losses), -50.0, 50.0)
            ]
            assert float(np.interp(p, *trade_off_vertices(pair))) == pytest.approx(
                min(*lines, 1.0), abs=1e-9
            )


class TestFromProfile:
    @pytest.mark.slow
    @settings(max_examples=150, deadline=None)
    @given(seed=st.integers(0, 10**6), points=st.integers(1, 40))
    def test_dominates_the_mechanism_everywhere(self, seed: int, points: int) -> None:
        rng = np.random.default_rng(seed)
        truth = random_pair(rng)
        eps = np.unique(np.concatenate(([0.0], rng.uniform(0.0, 5.0, points))))
        made = DominatingPair.from_profile(eps, truth.delta(eps), truth.reversed().delta(eps))
        every = np.linspace(-8.0, 8.0, 161)
        assert np.all(made.delta(every) >= truth.delta(every) - 1e-15)
        assert np.all(made.reversed().delta(every) >= truth.reversed().delta(every) - 1e-15)

    @pytest.mark.parametrize("seed", range(20))
    def test_gives_back_a_discrete_pair(self, seed: int) -> None:
        truth = random_pair(np.random.default_rng(seed))
        eps = np.unique(np.concatenate(([0.0], np.abs(truth.losses))))
        made = DominatingPair.from_profile(eps, truth.delta(eps), truth.reversed().delta(eps))
        every = np.linspace(-8.0, 8.0, 161)
        assert made.delta(every) == pytest.approx(truth.delta(every), abs=2e-14)
        assert made.infinite_mass == pytest.approx(truth.infinite_mass, abs=1e-14)

    @pytest.mark.slow
    @pytest.mark.parametrize(("noise", "top"), [(0.25, 60.0), (4.0, 4.0), (1000.0, 0.02)])
    def test_values_at_the_points_are_kept_to_the_last_bit(self, noise: float, top: float) -> None:
        eps = np.linspace(0.0, top, 201)
        given_values = np.array([float(gaussian_delta(e, noise)) for e in eps])
        assert given_values[-1] < 1e-4
        made = DominatingPair.from_profile(eps, given_values, given_values)
        for one in (made, made.reversed()):
            assert np.all(one.delta(eps) >= given_values * (1.0 - 2.0**-52))
            assert one.delta(eps) == pytest.approx(given_values, rel=1e-9, abs=1e-13)
            for i in range(0, 201, 23):
                exact = exact_delta(one, float(eps[i]))
                assert exact >= mpmath.mpf(float(given_values[i])) * (1 - mpmath.mpf(2) ** -52)

    def test_without_the_repair_rounding_would_take_delta_away(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        eps = np.linspace(0.0, 4.0, 401)
        values = np.array([float(gaussian_delta(e, 4.0)) for e in eps])
        monkeypatch.setattr(dominating_pairs, "give_back_rounding", lambda pair, hull: pair)
        made = DominatingPair.from_profile(eps, values, values)
        assert not np.all(made.upper_delta(eps) >= values.astype(np.longdouble))

    def test_small_deltas_at_large_losses_do_not_cancel(self) -> None:
        """A mechanism with delta 1e-14 at loss 60, and its mirror image."""
        eps = np.array([0.0, 1.0, 30.0, 60.0])
        forward = np.array([0.5, 0.1, 1e-9, 1e-14])
        reverse = np.array([0.5, 0.2, 1e-10, 3e-15])
        made = DominatingPair.from_profile(eps, forward, reverse)
        assert made.delta(eps) == pytest.approx(forward, rel=1e-6)
        assert made.reversed().delta(eps) == pytest.approx(reverse, rel=1e-6)
        assert made.infinite_mass == pytest.approx(1e-14, rel=1e-2)
        assert made.null_mass == pytest.approx(3e-15, rel=1e-2)

    def test_takes_the_hull_of_upper_bounds_that_are_not_convex(self) -> None:
        eps = np.array([0.0, 1.0, 2.0, 3.0])
        loose = np.array([0.5, 0.49, 0.48, 0.0])  # convexity forces the middle down
        made = DominatingPair.from_profile(eps, loose, loose)
        chord = 0.5 * (1.0 - (np.exp(eps) - 1.0) / (math.exp(3.0) - 1.0))
        assert np.all(made.delta(eps) <= chord + 1e-12)
        assert np.all(made.mass >= 0.0)

    @pytest.mark.parametrize("shape", ["any", "steps", "bump"])
    def test_is_the_largest_convex_function_below_the_points(self, shape: str) -> None:
        """Against every chord there is: no corner is lost, and none is left that is none."""
        rng = np.random.default_rng(8)
        for _ in range(60):
            eps = np.unique(np.append(rng.uniform(0.0, 3.0, rng.integers(1, 14)), 0.0))
            deltas = np.sort(rng.random((2, eps.size)))[:, ::-1]
            if shape == "steps":
                deltas = np.ceil(4.0 * deltas) / 4.0
            elif shape == "bump":  # convex but for a few points, as sums of bounds are
                deltas = np.exp(-2.0 * eps) * np.where(rng.random(eps.size) < 0.2, 1.3, 1.0) / 2.0
                deltas = np.minimum.accumulate(np.array([deltas, deltas]), axis=1)
            deltas[:, 0] = deltas[:, 0].min()
            deltas = np.minimum.accumulate(deltas, axis=1)
            made = DominatingPair.from_profile(eps, *deltas)
            t = np.concatenate([[0.0], np.exp(-eps[:0:-1]), np.exp(eps)])
            h = np.concatenate(
                [[1.0], 1.0 - t[1 : eps.size] * (1.0 - deltas[1, :0:-1]), deltas[0]]
            )
            least = np.minimum.accumulate(h)  # level lines to the right of each point
            for j in range(t.size):
                for k in range(j + 1, t.size):
                    between = slice(j, k + 1)
                    chord = np.interp(t[between], t[[j, k]], h[[j, k]])
                    least[between] = np.minimum(least[between], chord)
            assert made.delta(np.log(t[1:])) == pytest.approx(least[1:], rel=1e-9, abs=1e-12)

    def test_uses_one_value_for_the_total_variation(self) -> None:
        made = DominatingPair.from_profile([0.0, 1.0], [0.3, 0.1], [0.25, 0.1])
        assert float(made.delta(0.0)) == pytest.approx(0.25)
        assert float(made.reversed().delta(0.0)) == pytest.approx(0.25)

    def test_increasing_bounds_are_read_down(self) -> None:
        made = DominatingPair.from_profile([0.0, 1.0, 2.0], [0.1, 0.2, 0.05], [0.1, 0.3, 0.05])
        assert float(made.delta(1.0)) <= 0.1

    def test_no_information_is_no_protection(self) -> None:
        assert DominatingPair.from_profile([0.0, 1.0], [1.0, 1.0], [1.0, 1.0]).is_infinite
        one_sided = DominatingPair.from_profile([0.0, 1.0], [1.0, 1.0], [0.2, 0.0])
        truth_allows = 0.2  # total variation bounds both directions
        assert float(one_sided.delta(0.0)) <= truth_allows + 1e-12

    def test_points_beyond_the_range_of_floats_are_left_out_soundly(self) -> None:
        made = DominatingPair.from_profile(
            [0.0, 500.0, 2000.0], [0.5, 1e-3, 0.0], [0.5, 1e-3, 0.0]
        )
        assert made.infinite_mass == pytest.approx(1e-3)

    @pytest.mark.parametrize(
        ("arguments", "name"),
        [
            (([], [], []), "epsilons"),
            (([-1.0], [0.1], [0.1]), "epsilons"),
            (([0.0, 0.0], [0.1, 0.1], [0.1, 0.1]), "epsilons"),
            (([0.0, math.nan], [0.1, 0.1], [0.1, 0.1]), "epsilons"),
            (([0.0], [math.nan], [0.1]), "delta_forward"),
            (([0.0], [0.1], [-0.1]), "delta_reverse"),
            (([0.0], [0.1], [0.1, 0.1]), "delta_reverse"),
        ],
    )
    def test_bad_profiles_are_refused_by_name(
        self, arguments: tuple[list[float], ...], name: str
    ) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            DominatingPair.from_profile(*arguments)
        assert caught.value.argument == name


class TestConstructor:
    @pytest.mark.parametrize(
        ("losses", "mass", "infinite", "null", "name"),
        [
            ([0.0], [0.9], 0.0, 0.1, "mass"),
            ([0.0], [1.0], 0.0, 0.1, "mass_prime"),
            ([1.0, 0.0], [0.5, 0.5], 0.0, 0.0, "losses"),
            ([math.inf], [1.0], 0.0, 0.0, "losses"),
            ([-800.0], [0.0], 1.0, 1.0, "losses"),
            ([0.0], [-1.0], 1.0, 1.0, "mass"),
            ([0.0], [math.nan], 0.0, 0.0, "mass"),
            ([0.0, 1.0], [1.0], 0.0, 0.0, "losses"),
            ([0.0], [0.0], 1.5, 1.0, "infinite_mass"),
        ],
    )
    def test_refuses_what_is_not_a_pair(
        self, losses: list[float], mass: list[float], infinite: float, null: float, name: str
    ) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            DominatingPair(np.array(losses), np.array(mass), infinite, null)
        assert caught.value.argument == name

    def test_is_immutable(self) -> None:
        pair = DominatingPair.identity()
        with pytest.raises(ValueError, match="read-only"):
            pair.mass[0] = 2.0

    def test_questions_out_of_range_are_refused(self) -> None:
        pair = DominatingPair.identity()
        for bad in (-0.1, 1.1, math.nan):
            with pytest.raises(InvalidArgumentError):
                pair.epsilon(bad)
        with pytest.raises(InvalidArgumentError):
            pair.delta(math.nan)
        with pytest.raises(InvalidArgumentError):
            pair.mixture(np.array([0.0, math.nan]), np.ones(2), np.ones(2))


def test_a_hull_edge_across_zero_keeps_its_masses() -> None:
    """Nearly disjoint mechanisms: no knot near zero, heights near one, and nothing may cancel."""
    eps = np.concatenate([[0.0], np.linspace(3.0, 80.0, 400)])
    profile = -np.expm1((eps - 80.0) / 4.0)
    pair = DominatingPair.from_profile(eps, profile, profile)
    assert abs(pair.mass.sum() + pair.infinite_mass - 1.0) < 1e-12
    assert abs(pair.mass_prime.sum() + pair.null_mass - 1.0) < 1e-12
    for direction in (pair, pair.reversed()):
        assert np.all(direction.delta(eps) >= profile * (1.0 - 1e-15))
        assert np.all(direction.delta(eps) <= profile + 1e-6)
