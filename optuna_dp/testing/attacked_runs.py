"""The strongest known attacks as laws of runs that can be simulated.

An attack of :mod:`optuna_dp.accounting.attacks.policy_attack` is a prior, an order of outputs
(a block of the least incriminating outputs first, then an event of the most incriminating ones,
then the rest) and a policy. Here it is turned into laws of single runs on D and on D', and into
the policy itself, so that whole searches can be drawn and audited.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from optuna_dp.accounting.attacks.history_attack import policy_vertices
from optuna_dp.accounting.attacks.policy_attack import PolicyAttack
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.testing.simulation import Densities, Remember, Runs

BLOCK, EVENT, REST = 2.0, 1.0, 0.0

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
            :mod:`optuna_dp.accounting.attacks.policy_attack` found.
        density_bounds: (c, C) of the policy.
        mean: Mean of the geometric law of T.
    """
    one_way = pair if attack.direction == "forward" else pair.reversed()
    if attack.plain is not None:
        # Without a policy: one hyperparameter. The groups of the plain attack become one event.
        masses, blocks = attack.plain.masses, attack.plain.blocks
        attack = replace(
            attack, prior=(1.0,), top_masses=blocks[-1:], event_masses=masses[-1:], plain=None
        )
    on, off, loss = _laws(one_way, attack)
    prior = np.asarray(attack.prior, dtype=np.float64)
    scores = np.repeat([BLOCK, EVENT, REST], loss.size)
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
    """Output laws by hyperparameter: each loss, split into its block, event and rest."""
    mass = np.concatenate([[0.0], pair.mass, [pair.infinite_mass]])
    prime = np.concatenate([[pair.null_mass], pair.mass_prime, [0.0]])
    loss = np.concatenate([[-math.inf], pair.losses, [math.inf]])
    tops = np.asarray(attack.top_masses)[:, None]
    events = np.asarray(attack.event_masses)[:, None]
    before = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    above = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    size = np.maximum(mass, 1e-300)
    block = np.where(mass > 0, np.clip((tops - before) / size, 0, 1), 1.0 * (tops > 0))
    event = np.where(mass > 0, np.clip((events - above) / size, 0, 1), 0.0)
    event = np.minimum(event, 1.0 - block)
    shares = np.stack([block, event, 1.0 - block - event], axis=1)  # (L, label, loss)
    rows = len(attack.prior)
    return (
        (shares * mass).reshape(rows, -1),
        (shares * prime).reshape(rows, -1),
        loss,
    )


def _data_policy(on: Runs, off: Runs, bounds: tuple[float, float]) -> tuple[Densities, Densities]:
    """On D the density favours the event over the block, on D' the block over the event."""
    vertices = policy_vertices(on.prior, *bounds)

    def favouring(runs: Runs, sign: float) -> Densities:
        value = runs.outputs @ np.where(runs.scores == EVENT, 1.0, 0.0)
        value = value - runs.outputs @ np.where(runs.scores == BLOCK, 1.0, 0.0)
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
    """The policy that dynamic programming finds: by (event seen, log-likelihood ratio)."""
    vertices = policy_vertices(prior, *bounds)
    ratios = vertices / prior
    moves = np.tile(np.clip(loss, -_FARTHEST, _FARTHEST), 3)
    step = max(float(np.min(np.abs(loss[np.isfinite(loss)]))), 0.05)
    z: FloatArray = step * np.arange(-_REACH, _REACH + 1, dtype=np.float64)
    n = z.size
    target = np.clip(np.rint((z[:, None] + moves - z[0]) / step), 0, n - 1).astype(np.int64)
    first, later = _best_policy(on, scores, vertices, z, target, 1.0 / mean, attack.epsilon)
    table = np.concatenate([ratios[first], ratios[later]])  # state = z + n * (event seen)

    def densities(state: IntArray) -> FloatArray:
        return np.asarray(table[state])

    def remember(state: IntArray, which: IntArray, output: IntArray) -> IntArray:
        seen = (state >= n) | (scores[output] == EVENT)
        return np.asarray(target[state % n, output] + n * seen, dtype=np.int64)

    return densities, remember, _REACH


def _best_policy(
    on: FloatArray,
    scores: FloatArray,
    vertices: FloatArray,
    z: FloatArray,
    target: IntArray,
    gamma: float,
    epsilon: float,
) -> tuple[IntArray, IntArray]:
    """Returns the best vertex at each log-likelihood ratio before and after the event was seen.

    Value iteration for A(E) - e^epsilon A'(E) under geometric T; any policy is a valid attack, so
    where the iteration stops does not matter.
    """
    gain = 1.0 - np.exp(np.minimum(epsilon - z, _FARTHEST))
    enter, stay = scores == EVENT, scores == REST
    seen, unseen = gamma * gain, np.zeros(z.size)
    for _ in range(int(12.0 / gamma)):
        onward = seen[target]  # (z, output)
        after = vertices @ (on[:, enter | stay] @ onward[:, enter | stay].T)  # (vertex, z)
        seen = gamma * gain + (1.0 - gamma) * after.max(axis=0)
        before = vertices @ (
            on[:, enter] @ onward[:, enter].T
            + (1.0 - gamma) * (on[:, stay] @ unseen[target][:, stay].T)
        )
        unseen = before.max(axis=0)
    return before.argmax(axis=0), after.argmax(axis=0)
