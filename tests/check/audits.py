"""Procedures to audit: what they claim, and how to draw their outputs by the hundred thousand."""

from __future__ import annotations

import math

import numpy as np
from whole_search import audit

import optuna_dp as odp
from optuna_dp.accounting.kinds.approximate import randomized_response
from optuna_dp.attacks.policy_attack import strongest_policy_attack
from optuna_dp.mechanisms import DoublingPlan
from optuna_dp.mechanisms.doubling import LoopState
from optuna_dp.mechanisms.sparse_vector import laplace_for
from optuna_dp.mechanisms.utility_values import RESOLUTION

from .attacked_runs import stage
from .simulation import Runs, simulate

DELTA = 1e-3
MEAN = 10.0


def claim(run, law, bounds=(1.0, 1.0), policy="history", delta=DELTA):
    return odp.selection_guarantee(run, law, density_bounds=bounds, policy=policy).epsilon(delta)


def audit_selection(*, epsilon, bounds, policy, searches, seed, mean=MEAN):
    """Audits a selection under the strongest attack known on it."""
    rng = np.random.default_rng(seed)
    pair, law = randomized_response(epsilon), odp.Geometric(mean=mean)
    attack = strongest_policy_attack(pair, law, bounds, DELTA, policy)
    staged = stage(pair, attack, bounds, mean)
    worlds = [
        simulate(
            runs,
            law,
            searches,
            rng,
            densities=densities,
            remember=staged.remember,
            initial_state=staged.initial_state,
        )
        for runs, densities in zip((staged.on, staged.off), staged.densities, strict=True)
    ]
    return audit(*worlds, delta=DELTA), attack.epsilon


def simple_worlds(on, off, law, searches, seed, *, scores, prior=(1.0,), durations=(None, None),
                  faults=None):  # fmt: skip
    rng = np.random.default_rng(seed)
    return [
        simulate(
            Runs(
                np.asarray(prior),
                np.atleast_2d(np.asarray(outputs, dtype=float)),
                np.asarray(scores, dtype=float),
                None if duration is None else np.asarray(duration, dtype=float),
            ),
            law,
            searches,
            rng,
            faults=faults,
        )
        for outputs, duration in zip((on, off), durations, strict=True)
    ]


# Propose-test: each iteration meets the worst utilities, as an adaptive proposer may arrange.

OFFSETS = {"D": np.array([-1, -1, -1, -1, 0]), "D'": np.array([0, 0, 0, 0, -1])}
K = 10


def _discrete_laplace(scale, size, rng):
    p = -math.expm1(-1.0 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


def propose_test_outputs(plan: DoublingPlan, world, searches, rng, noise_factor=1.0):
    """The answers of each loop, coded as one number, from the mechanism's own law of noise.

    A world is a name in OFFSETS, or utilities in units of 1/k.
    """
    offsets = OFFSETS[world] if isinstance(world, str) else np.asarray(world)
    threshold_scale = laplace_for(RESOLUTION, plan.epsilon / 2).scale * noise_factor
    query_scale = laplace_for(2 * RESOLUTION, plan.epsilon / 2).scale * noise_factor
    codes = np.zeros(searches, dtype=np.int64)
    states = {0: LoopState(plan)}
    choices = offsets.size + 1
    while open_codes := [code for code, state in states.items() if not state.finished]:
        following = {code: state for code, state in states.items() if state.finished}
        for code in open_codes:
            rows = np.flatnonzero(codes == code)
            answer = np.full(rows.size, -1)
            if rows.size:
                threshold = _discrete_laplace(threshold_scale, rows.size, rng)
                noise = _discrete_laplace(query_scale, (rows.size, choices - 1), rng)
                reached = offsets * RESOLUTION + noise >= threshold[:, None]
                answer = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
            base = (choices + 1) * (code + 1) + 10**6
            codes[rows] = base + answer
            for value in range(-1, choices - 1):
                state = states[code].after(None if value < 0 else value)
                following[base + value] = state
        states = following
    return codes


# The vote.


def vote_outputs(plan, searches, rng, *, neighbour, noise_factor=1.0):
    """A sufficient statistic of all noisy sums: the sum of the 2k entries that a client moves."""
    changes = min(2 * plan.votes, 2 * (plan.candidates - plan.votes))
    rate = changes * plan.variance * noise_factor**2 / 2
    noise = rng.poisson(rate, searches) - rng.poisson(rate, searches)
    return noise + (changes if neighbour else 0)
