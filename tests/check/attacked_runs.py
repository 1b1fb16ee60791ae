"""The strongest known attacks as laws of runs that can be simulated.

An attack of :mod:`optuna_dp.attacks.policy_attack` is a prior, an order of outputs
(a block of the least incriminating outputs first, then an event of the most incriminating ones,
perhaps both again, then the rest) and a policy. An output's score is its rank: 0 for the rest,
even for blocks, odd for the event. Here it is turned into laws of single runs on D and on D', and
into the policy itself, so that whole searches can be drawn and audited.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.attacks.history_attack import policy_vertices, shares_of
from optuna_dp.attacks.policy_attack import PolicyAttack
from optuna_dp.core.arrays import FloatArray, IntArray

from .simulation import Densities, Remember, Runs

_REACH = 40
_FARTHEST = 60.0


@dataclass(frozen=True, eq=False)
class Staged:
    """An attack, ready to be simulated.

    Attributes:
        on: Law of one run on D.
        off: Law of one run on D'.
        densities: The policy on D and on D' (the same object where it cannot see the data).
        remember: How the policy's state follows from its runs.
        initial_state: The state before the first run.
    """

    on: Runs
    off: Runs
    densities: tuple[Densities | None, Densities | None] = (None, None)
    remember: Remember | None = None
    initial_state: int = 0


def stage(
    pair: DominatingPair, attack: PolicyAttack, density_bounds: tuple[float, float], mean: float
) -> Staged:
    """Returns an attack on a selection with geometric T, with its policy.

    Args:
        pair: The attainable pair that was attacked.
        attack: What ``strongest_policy_attack`` of
            :mod:`optuna_dp.attacks.policy_attack` found.
        density_bounds: (c, C) of the policy.
        mean: Mean of the geometric law of T.
    """
    one_way = pair if attack.direction == "forward" else pair.reversed()
    if attack.plain is not None:
        # Without a policy: one hyperparameter. The groups of the plain attack become one event.
        masses, blocks = attack.plain.masses, attack.plain.blocks
        attack = replace(
            attack,
            prior=(1.0,),
            top_masses=(blocks[-1:],),
            event_masses=(masses[-1:],),
            plain=None,
        )
    on, off, loss = _laws(one_way, attack)
    prior = np.asarray(attack.prior, dtype=np.float64)
    scores = np.repeat(np.arange(on.shape[1] // loss.size, dtype=np.float64), loss.size)
    law_on, law_off = Runs(prior, on, scores), Runs(prior, off, scores)
    if prior.size == 1:
        return Staged(law_on, law_off)
    if attack.policy == "data":
        return Staged(law_on, law_off, _data_policy(law_on, law_off, density_bounds))
    densities, remember, initial = _history_policy(
        on, attack, density_bounds, mean, prior, scores, loss
    )
    return Staged(law_on, law_off, (densities, densities), remember, initial)


def _laws(pair: DominatingPair, attack: PolicyAttack) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Output laws by hyperparameter: each loss, split into its ranks, the lowest first."""
    mass = np.concatenate([[0.0], pair.mass, [pair.infinite_mass]])
    prime = np.concatenate([[pair.null_mass], pair.mass_prime, [0.0]])
    loss = np.concatenate([[-math.inf], pair.losses, [math.inf]])
    shares = shares_of(mass, attack.top_masses, attack.event_masses).transpose(0, 2, 1)
    rows = len(attack.prior)
    return (shares * mass).reshape(rows, -1), (shares * prime).reshape(rows, -1), loss


def _data_policy(on: Runs, off: Runs, bounds: tuple[float, float]) -> tuple[Densities, Densities]:
    """On D the density favours the event over the block, on D' the block over the event."""
    vertices = policy_vertices(on.prior, *bounds)

    def favouring(runs: Runs, sign: float) -> Densities:
        value = runs.outputs @ np.where(runs.scores == 1.0, 1.0, 0.0)
        value = value - runs.outputs @ np.where(runs.scores == 2.0, 1.0, 0.0)
        ratio = vertices[int(np.argmax(sign * (vertices @ value)))] / runs.prior
        return lambda state: np.broadcast_to(ratio, (state.size, ratio.size))

    return favouring(on, 1.0), favouring(off, -1.0)


def _history_policy(
    on: FloatArray,
    attack: PolicyAttack,
    bounds: tuple[float, float],
    mean: float,
    prior: FloatArray,
    scores: FloatArray,
    loss: FloatArray,
) -> tuple[Densities, Remember, int]:
    """The policy that dynamic programming finds: by (best rank so far, log-likelihood ratio)."""
    vertices = policy_vertices(prior, *bounds)
    ranks = scores.astype(np.int64)
    moves = np.tile(np.clip(loss, -_FARTHEST, _FARTHEST), ranks[-1] + 1)
    step = max(float(np.min(np.abs(loss[np.isfinite(loss)]))), 0.05)
    z: FloatArray = step * np.arange(-_REACH, _REACH + 1, dtype=np.float64)
    n = z.size
    target = np.clip(np.rint((z[:, None] + moves - z[0]) / step), 0, n - 1).astype(np.int64)
    choices = _best_policy(on, ranks, vertices, z, target, 1.0 / mean, attack.epsilon)
    table = (vertices / prior)[choices.ravel()]  # state = z + n * rank

    def densities(state: IntArray) -> FloatArray:
        return np.asarray(table[state])

    def remember(state: IntArray, which: IntArray, output: IntArray) -> IntArray:
        best = np.maximum(state // n, ranks[output])
        return np.asarray(target[state % n, output] + n * best, dtype=np.int64)

    return densities, remember, _REACH


def _best_policy(
    on: FloatArray,
    ranks: IntArray,
    vertices: FloatArray,
    z: FloatArray,
    target: IntArray,
    gamma: float,
    epsilon: float,
) -> IntArray:
    """Returns the best vertex at each best rank and log-likelihood ratio, shape (ranks, n).

    Value iteration for A(E) - e^epsilon A'(E) under geometric T; any policy is a valid attack, so
    where the iteration stops does not matter.
    """
    number = int(ranks[-1]) + 1
    gain = gamma * (1.0 - np.exp(np.minimum(epsilon - z, _FARTHEST)))
    won = np.where(np.arange(number)[:, None] % 2 == 1, gain, 0.0)
    best = np.maximum(np.arange(number)[:, None], ranks)[:, None, :]  # (rank, 1, output)
    after = won
    for _ in range(int(12.0 / gamma)):
        # The highest block stays the best, and is worth nothing.
        value = vertices @ (on @ after[best, target].transpose(0, 2, 1))  # (rank, vertex, z)
        after = won + (1.0 - gamma) * value.max(axis=1)
    return np.asarray(value.argmax(axis=1))
