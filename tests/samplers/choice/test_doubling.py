from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from optuna_dp.mechanisms import DoublingPlan, Utilities, propose_test
from optuna_dp.mechanisms.doubling import LoopState, granules

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "propose_test"))

from claims import claimed_iterations_to_the_end, claimed_largest_step
from simulated_loops import fidelity, simulate_loops, simulate_noisy_max


def longest(state):
    """The longest loop over ALL sequences of answers, by memoised search."""
    seen = {}

    def visit(state):
        if state.finished:
            return state.iterations
        place = state.position, state.step, state.iterations
        if place not in seen:
            seen[place] = max(visit(state.after(0)), visit(state.after(None)))
        return seen[place]

    return visit(state)


def without_cap(monkeypatch):
    """Takes the hard cap away, so that only the argument of the proof bounds the loop."""
    monkeypatch.setattr(DoublingPlan, "iteration_bound", property(lambda self: 10**9))


@pytest.mark.parametrize("n", range(1, 40))
def test_every_sequence_of_answers_ends_within_2n_minus_1_and_one_reaches_it(n, monkeypatch):
    plan = DoublingPlan(1.0, granularity=min(1 / n, 0.999), lower_bound=0.0 if n > 1 else 0.5)
    n = plan.n
    assert plan.iteration_bound == 2 * n - 1
    without_cap(monkeypatch)
    assert longest(LoopState(plan)) == 2 * n - 1


def test_accept_reject_accept_is_a_worst_case(monkeypatch):
    plan = DoublingPlan(1.0, granularity=0.1)
    without_cap(monkeypatch)
    state = LoopState(plan)
    while not state.finished:
        state = state.after(3 if state.iterations % 2 == 0 else None)
    assert state.iterations == 19
    assert state.utility == 1


def test_accumulating_floats_breaks_the_bound():
    # The same worst case with u += g in floating point: 21 iterations, above 2n - 1 = 19.
    u, step, iterations = 0.0, 1, 0
    while step > 0 and u < 1:
        if iterations % 2 == 0:
            u, step = u + step * 0.1, 2 * step
        else:
            step //= 2
        iterations += 1
    assert iterations == 21


def test_a_hundred_thousand_noisy_loops_stay_within_the_bound_and_reach_it(monkeypatch):
    bounds = {}
    for n, k in ((3, 10), (5, 10), (5, 100), (8, 30)):
        plan = DoublingPlan(0.1, granularity=math.ceil(1000 / n) / 1000)
        assert plan.n == n
        bounds[n, k] = plan
    without_cap(monkeypatch)
    rng = np.random.default_rng(0)
    for (n, k), plan in bounds.items():
        # Adversary: utilities of every run near the thresholds where the loop lingers.
        utilities = rng.choice(np.linspace(0, 1, 2 * n + 1), size=(25_000, 2))
        loops = simulate_loops(utilities, plan, k, 25_000, rng)
        assert loops.iterations.max() <= 2 * n - 1
        if n <= 5:
            assert loops.iterations.max() == 2 * n - 1


@pytest.mark.slow
def test_a_hundred_thousand_adversarial_answers_stay_within_the_bound(monkeypatch):
    # An adversary who chooses every batch chooses the odds of every answer: random walks with
    # the odds that keep the step small, at the papers' granularity.
    plan = DoublingPlan(0.1)
    without_cap(monkeypatch)
    rng = np.random.default_rng(1)
    runs = 100_000
    position, step, used = (np.full(runs, v) for v in (0, 1, 0))
    for _ in range(400):
        live = (step > 0) & (position < plan.n)
        accept = rng.random(runs) < np.where(step <= 1, 0.999, 0.001)
        used += live
        position = np.where(live & accept, position + step, position)
        step = np.where(live, np.where(accept, 2 * step, step // 2), step)
    assert used.max() == 2 * plan.n - 1 == 199


@pytest.mark.parametrize(
    ("u0", "g", "n"),
    [(0.0, 0.1, 10), (0.7, 0.1, 3), (0.0, 0.01, 100), (0.1, 0.3, 3), (0.5, 0.6, 1), (0, 0.3, 4)],
)
def test_granules_are_counted_on_the_decimals_written(u0, g, n):
    assert granules(u0, g) == n
    assert DoublingPlan(1.0, granularity=np.float64(g), lower_bound=u0).n == n


def test_caps():
    assert DoublingPlan(1.0, variant="capped").iteration_bound == math.ceil(5 * math.log2(101))
    assert DoublingPlan(1.0, variant="capped", max_iterations=9).iteration_bound == 9
    assert DoublingPlan(1.0, max_iterations=9).iteration_bound == 9
    assert DoublingPlan(1.0, max_iterations=10**6).iteration_bound == 199
    for plan in (DoublingPlan(1.0, variant="capped"), DoublingPlan(1.0, max_iterations=9)):
        state = LoopState(plan)
        while not state.finished:
            state = state.after(0)
        assert state.iterations <= plan.iteration_bound
    # Without the stop at 1 the step alone decides: "always accept" runs into the cap.
    state = LoopState(DoublingPlan(1.0, variant="capped"))
    while not state.finished:
        state = state.after(0)
    assert state.iterations == 34
    assert state.utility > 1


def test_no_iteration_beyond_what_is_paid_for():
    state = LoopState(DoublingPlan(1.0, max_iterations=1)).after(0)
    with refuses("answer"):
        state.after(0)


def test_state_follows_the_algorithm():
    state = LoopState(DoublingPlan(1.0, granularity=0.1, lower_bound=0.2))
    seen = []
    for answer in (4, None, 2, None, None):
        seen.append((float(state.threshold), state.step))
        state = state.after(answer)
    assert seen == [(0.3, 1), (0.5, 2), (0.4, 1), (0.6, 2), (0.5, 1)]
    assert (state.position, state.step, state.choice) == (2, 0, 2)
    assert state.finished


def test_with_little_noise_the_best_candidate_is_found_by_binary_search():
    utilities = Utilities.from_scores(np.linspace(0, 0.935, 32)[:, None] * np.ones(4))
    for variant in ("bounded", "capped"):
        plan = DoublingPlan(1e5, variant=variant)
        state = propose_test(utilities, plan)
        assert state.choice == 31
        assert float(state.utility) == 0.93
        assert state.iterations < 25
        assert state.step == 0


def test_the_states_of_a_loop_are_those_after_each_answer():
    plan, answers = DoublingPlan(1.0, granularity=0.1), [4, None, 2]
    states = plan.states(answers)
    assert [state.iterations for state in states] == [0, 1, 2, 3]
    assert plan.states() == [LoopState(plan)]
    assert [before.after(a) for before, a in zip(states, answers, strict=False)] == states[1:]


def test_nothing_may_be_chosen():
    state = propose_test(Utilities.from_scores([[0.0, 0.0]]), DoublingPlan(1e5))
    assert state.choice is None
    assert state.iterations == 1


def test_ties_go_to_the_first_and_one_candidate_works():
    for scores in ([[0.505, 0.505]] * 3, [[1.0, 1.0]]):
        assert propose_test(Utilities.from_scores(scores), DoublingPlan(1e6)).choice == 0


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"granularity": 0.0}, "granularity"),
        ({"granularity": 1.0}, "granularity"),
        ({"granularity": 1e-7}, "granularity"),
        ({"granularity": math.nan}, "granularity"),
        ({"lower_bound": 1.0}, "lower_bound"),
        ({"lower_bound": -0.01}, "lower_bound"),
        ({"lower_bound": math.nan}, "lower_bound"),
        ({"variant": "unbounded"}, "variant"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"max_iterations": 2.5}, "max_iterations"),
        ({"max_iterations": 10**7, "variant": "capped"}, "max_iterations"),
    ],
)
def test_bad_plans(arguments, argument):
    with refuses(argument):
        DoublingPlan(**({"epsilon": 1.0} | arguments))


@pytest.mark.slow
def test_the_simulation_behaves_like_the_mechanism():
    """Fails falsely with probability below 1e-8: 6.2 standard errors of the mechanism's runs."""
    means = np.random.default_rng(0).random(20)
    utilities, plan = Utilities.from_means(means, 50), DoublingPlan(0.4, granularity=0.05)
    real = [propose_test(utilities, plan) for _ in range(250)]
    loops = simulate_loops(means, plan, 50, 20_000, np.random.default_rng(0))
    for ours, simulated in (
        ([r.iterations for r in real], loops.iterations),
        (
            [means[r.choice] if r.choice is not None else 0 for r in real],
            means.max() * fidelity(means, loops.choice),
        ),
    ):
        error = np.std(simulated) / math.sqrt(len(ours))
        assert abs(np.mean(ours) - np.mean(simulated)) < 6.2 * error


@pytest.mark.parametrize(
    ("k_epsilon", "expected"), [(1, 0.53), (10, 0.69), (100, 0.97), (1000, 0.999)]
)
def test_fidelity_at_the_papers_settings(k_epsilon, expected):
    rng = np.random.default_rng(0)
    utilities = rng.random((1500, 100))
    loops = simulate_loops(utilities, DoublingPlan(0.1), 10 * k_epsilon, 1500, rng)
    assert fidelity(utilities, loops.choice).mean() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_without_noise_the_loop_is_a_doubling_search(n):
    # Lemma 1 of "Constant-overhead": about 2 log2 n up and down, two more for each binary digit.
    plan = DoublingPlan(1.0, granularity=1 / n)
    rng = np.random.default_rng(0)
    utilities = rng.random((500, 3)) * 0.99
    loops = simulate_loops(utilities, plan, 2, 500, rng, noise_factor=0.0)
    best = utilities.max(axis=1)
    assert loops.iterations.max() <= 4 * math.log2(n) + 3
    reached = loops.positions[-1] / n
    assert ((reached <= best + 1e-9) & (best < reached + 1 / n + 1e-9)).all()


def test_without_noise_the_loop_takes_one_iteration_more_than_lemma_1_counts():
    """Constant-overhead, Lemma 1: n = 2^k - 1 + n', and n' has m binary digits that are one."""
    plan = DoublingPlan(1.0, granularity=1e-4, variant="capped", max_iterations=1000)
    for n in range(1, 600):
        state = LoopState(plan)
        while not state.finished:
            state = state.after(0 if state.position + state.step <= n else None)
        k = (n + 1).bit_length() - 1
        m = (n - (2**k - 1)).bit_count()
        assert state.position == n
        assert state.iterations == (2 * m + 2 * k) + 1


def test_equations_11_and_14_of_constant_overhead_for_all_sequences_of_answers():
    """The first is true and is met; the second counts one iteration too few."""
    start = LoopState(DoublingPlan(1.0, granularity=1e-4, variant="capped", max_iterations=10**6))
    equalities = 0
    for answers in itertools.product((0, None), repeat=11):
        state = start
        for done, answer in enumerate(answers):
            if state.finished:
                break
            assert state.step <= claimed_largest_step(state.position)
            equalities += state.step == claimed_largest_step(state.position)
            rest = answers[done:]
            left, step = count_to_the_end(state, rest)
            if left is not None:
                accepts = sum(answer is not None for answer in rest[:left])
                assert left == claimed_iterations_to_the_end(step, accepts) + 1
            state = state.after(answer)
    assert equalities


def count_to_the_end(state, answers):
    """How many of these answers lead to step 0, None if they do not; and the first step."""
    step = state.step
    for count, answer in enumerate(answers, start=1):
        state = state.after(answer)
        if state.finished:
            return count, step
    return None, step


def test_equation_6_of_constant_overhead_forgets_the_number_of_candidates():
    """Of three equally good ones, with noise of scale 4 / (k e0), one passes too often."""
    n, k_epsilon = 100, 10.0
    claimed = n ** (-k_epsilon / 4)
    one_passes = 0.5 * math.exp(-k_epsilon / 4 * math.log(n))
    assert 1 - (1 - one_passes) ** 2 <= claimed < 1 - (1 - one_passes) ** 3


def test_noisy_max_is_better_at_the_same_total_budget():
    rng = np.random.default_rng(0)
    utilities = rng.random((1500, 100))
    assert fidelity(utilities, simulate_noisy_max(utilities, 1.0, 10, 1500, rng)).mean() > 0.79


def test_state_is_data():
    plan = DoublingPlan(0.5)
    assert LoopState(plan) == LoopState(plan)
    assert hash(plan) == hash(DoublingPlan(0.5))
