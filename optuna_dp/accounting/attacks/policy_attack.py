"""Explicit attacks on adaptive selection: how much privacy a policy in [c, C] certainly costs.

The adversary owns everything the analysis leaves open: a space of two or three hyperparameters
lambda with prior masses w, the order of outputs, and the policy. Every run, whatever its lambda,
has the output laws of one *attainable* pair (O, O'). Outputs of lambda_i are labelled by their
privacy loss and ordered

    block   (its lowest losses, O-mass beta_i)   above
    event   (its highest losses, O-mass theta_i) above
    rest.

The attacker guesses D when the winner lies in the event E: there was no output in the block and at
least one in E. Two kinds of policy (``docs/explanation/history-bound.md``, "The attacks"):

* ``history``: block and event may each be of two parts, ranked block, event, block, event. The
  density is a function of the history's highest rank so far and of its log-likelihood ratio z,
  rounded to a lattice; found by dynamic programming. It runs the same on D and on D'. A(E) and
  A'(E) are then evaluated exactly, by running the two measures forward.
* ``data``: the density also knows the data set. It maximises A(E) on D and minimises A'(E) on D'.

Either way A(E) - e^eps A'(E) is a lower bound on delta of an explicit mechanism and policy; the
search over (beta, theta) can only make it weaker than it might be, never wrong.

============  ============  =================================================================
code          notation      meaning
============  ============  =================================================================
``vertices``  w_i pihat_i   probability of each lambda, at the extreme points of the policy set
``tops``      beta_i        O-masses of the blocks, the highest first
``events``    theta_i       O-masses of the parts of the event, the highest first
============  ============  =================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from optuna_dp import validation
from optuna_dp.accounting.attacks.history_attack import (
    HistoryAttack,
    Outcome,
    policy_vertices,
    shares_of,
)
from optuna_dp.accounting.attacks.history_polish import polished
from optuna_dp.accounting.attacks.selection_attack import SelectionAttack, strongest_attack
from optuna_dp.accounting.attacks.trade_off import trade_off_vertices
from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.trial_counts.base import TrialCount
from optuna_dp.trial_counts.negative_binomial import NegativeBinomial

# Taken from the attack's advantage for the rounding of sums and of linear systems.
_ROUNDING = 1e-9
_LONGEST_RUN = 20_000
# Laws up to so many runs are searched as they are, with so many runs followed in all.
_SHORT, _SLOTS = 300, 2000
# Blocks and events of the lambdas to begin with, by those of the plain attack.
_STARTS = (
    ((0.2, 1.0, 2.0), (1.0, 1.0, 1.0)),
    ((0.05, 0.3, 3.0), (1.0, 1.0, 1.0)),
    ((0.02, 0.1, 10.0), (1.0, 0.3, 0.1)),
)
# Points of the policies' lattices per root mean square of the loss: to look around, to report.
_COARSE, _FINE = 4.0, 6.0
# An ascent that ends without an event is begun again at an epsilon smaller by so much.
_LOWER = (0.0, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class PolicyAttack:
    """A reproducible attack on a selection with an adaptive policy, and what it proves.

    Attributes:
        epsilon: The selection is not (epsilon', delta)-DP for any epsilon' below this.
        delta: At this delta.
        policy: "history" or "data".
        direction: "forward" for (O, O') as the pair has them, "reverse" for (O', O).
        prior: Prior mass of each lambda.
        top_masses: beta_i, O-mass of lambda_i's outputs in each block, the highest rank first.
        event_masses: theta_i, O-mass of lambda_i's outputs in each part of the event likewise.
        plain: The attack without adaptivity, where no policy was found to be stronger (then the
            three fields before this one are empty).
    """

    epsilon: float
    delta: float
    policy: str
    direction: str
    prior: tuple[float, ...] = ()
    top_masses: tuple[tuple[float, ...], ...] = ()
    event_masses: tuple[tuple[float, ...], ...] = ()
    plain: SelectionAttack | None = None

    def describe(self) -> str:
        """Returns the recipe in words."""
        if self.plain is not None:
            return self.plain.describe()
        parts = "; ".join(
            f"lambda {i} (prior {w:.3g}): block {_sum(b)}, event {_sum(e)}"
            for i, (w, b, e) in enumerate(
                zip(self.prior, self.top_masses, self.event_masses, strict=True)
            )
        )
        sees = "earlier outputs" if self.policy == "history" else "the data"
        return (
            f"{parts}. Outputs in the block (lowest losses, {self.direction} direction) win over "
            f"those in the event (highest losses), these over the rest, where both have two parts "
            f"over the second block and the second event first; a policy that sees {sees} "
            f"chooses between densities at the bounds. Guessing the first data set when the "
            f"winner is in the event shows epsilon >= {self.epsilon:.4f} at "
            f"delta = {self.delta:g}."
        )


def strongest_policy_attack(
    pair: DominatingPair,
    trials: TrialCount,
    density_bounds: tuple[float, float],
    delta: float,
    policy: Literal["history", "data"] = "history",
) -> PolicyAttack:
    """Returns the strongest attack found by a policy with densities in [c, C], both directions.

    Guarantees:
        * ``epsilon`` is reached by an explicit mechanism, policy and event, whose probabilities
          are computed exactly up to rounding (which is taken against the attacker).
        * It is never below the attack without adaptivity, which needs no policy.

    Args:
        pair: *Attainable* output laws of one run on D and on D'.
        trials: The law of T.
        density_bounds: (c, C), with 0 < c <= 1 <= C.
        delta: In (0, 1).
        policy: What the density may depend on.
    """
    c, big_c = density_bounds
    target = validation.open_unit("delta", delta)
    if policy not in ("history", "data"):
        raise InvalidArgumentError("policy", policy, 'it must be "history" or "data"')
    plain = strongest_attack(pair, trials, target)
    best = PolicyAttack(plain.epsilon, target, policy, plain.direction, plain=plain)
    if c == big_c or not math.isfinite(plain.epsilon) or not np.any(pair.mass > 0.0):
        return best
    for direction, one_way in (("forward", pair), ("reverse", pair.reversed())):
        if policy == "history":
            if direction != plain.direction:
                continue  # the larger of the two directions costs more, with and without a policy
            found = _search_history(one_way, trials, c, big_c, plain)
        else:
            found = _search_data(one_way, trials, c, big_c, target)
        if found is not None and found[0] > best.epsilon:
            best = PolicyAttack(found[0], target, policy, direction, *found[1:])
    return best


_Masses = tuple[tuple[float, ...], ...]
_Climbed = tuple[float, FloatArray, FloatArray]
_Found = tuple[float, tuple[float, ...], _Masses, _Masses]


def _sum(masses: tuple[float, ...]) -> str:
    return " + ".join(f"{mass:.3g}" for mass in masses)


# -- history policies ---------------------------------------------------------------------------


def _advantage(on: float, off: float, delta: float) -> float:
    """Returns the epsilon that (A(E), A'(E)) shows at delta, rounded down."""
    excess = on * (1.0 - _ROUNDING) - delta
    if excess <= 0.0:
        return -math.inf
    return math.log(excess) - math.log(off * (1.0 + _ROUNDING) + 1e-300) - _ROUNDING


def _search_history(
    pair: DominatingPair, trials: TrialCount, c: float, big_c: float, start: SelectionAttack
) -> _Found | None:
    """Returns the best attack found by ascent over the ranks of outputs, if there is one."""
    delta, plain = start.delta, start.epsilon
    spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2)))
    # Policies at the bounds can about square the likelihood ratio they steer by.
    reach = 1.6 * plain + 6.0 * spread
    geometric = isinstance(trials, NegativeBinomial) and trials.shape == 1.0
    gamma = 1.0 / max(trials.mean, 1.0 + 1e-6)
    pmf, tail = (np.zeros(0), 0.0) if geometric else _truncated(trials, delta, 1.5 * plain)
    share = min((1.0 - c) / (big_c - c), (big_c - 1.0) / (big_c - c))
    prior = (share, 1.0 - 2.0 * share, share) if share < 0.5 - 1e-9 else (0.5, 0.5)

    def climb(
        points: float, tops: FloatArray, events: FloatArray, level: float, own: bool, most: int
    ) -> _Climbed:
        world = HistoryAttack(pair, (c, big_c), prior, reach, points)

        def outcome(shares: FloatArray, epsilon: float) -> Outcome:
            if geometric or not own:
                return world.geometric(shares, gamma, epsilon)
            found = world.finite(shares, pmf, epsilon)
            return replace(found, off=found.off + tail)

        # Masses too weak for an epsilon lose less the less they are: up from there lies nothing.
        for lower in _LOWER:
            found = _climb(world.on, outcome, tops, events, delta, level - lower, most)
            if math.isfinite(found[0]):
                break
        return found

    # Long laws are searched under the geometric law of their mean, which is solved at once.
    own = geometric or pmf.size <= _SHORT
    tries = 60 if geometric or not own else max(6, _SLOTS // pmf.size)
    middle = min(max(start.blocks[-1] if start.blocks else 0.5, 1e-6), 0.999)
    part = min(max(start.masses[-1] if start.masses else delta, 1e-300), 0.999)
    size = (len(prior), 1)
    looks = [
        climb(
            _COARSE,
            np.minimum(middle * np.array(lower[: len(prior)]), 0.999).reshape(size),
            np.minimum(part * np.array(upper[: len(prior)]), 0.999).reshape(size),
            plain,
            own,
            tries // 2,
        )
        for lower, upper in _STARTS
    ]
    single = max(looks, key=_level)
    # With each rank cut in two, and then on a finer lattice.
    found = climb(_COARSE, *_cut(single)[1:], max(single[0], plain), own, tries)
    best = max(single, found, key=_level)
    if geometric:
        # Ranks in one part may gain more there than those in two.
        begins = [single] if best is single else [single, found]
        fine = [climb(_FINE, *each[1:], max(each[0], plain), own, tries) for each in begins]
        best = max([best, *fine], key=_level)
        if best[1].shape[1] == 1:  # where ranks in two parts were no better
            world = HistoryAttack(pair, (c, big_c), prior, reach, _FINE)
            for parts, moves in ((1, 120), (2, 60)):
                begin = best if parts == 1 else _cut(best)
                level = best[0] if math.isfinite(best[0]) else plain
                moved = polished(world, gamma, _advantage, begin, level, delta, moves)
                best = max(best, moved, key=_level)
    elif not own:
        best = climb(_COARSE, *best[1:], plain, True, 2)
    level, tops, events = best
    if not math.isfinite(level):
        return None
    return level, prior, _rows(tops), _rows(events)


def _climb(
    mass: FloatArray,
    outcome: Callable[[FloatArray, float], Outcome],
    tops: FloatArray,
    events: FloatArray,
    delta: float,
    level: float,
    most: int,
) -> tuple[float, FloatArray, FloatArray]:
    """Returns what an ascent from one mechanism reaches: (epsilon, tops, events).

    Every output goes to the rank where it is worth most, given the others and the policy, or a
    part of all outputs does, if all of them at once make matters worse.

    Args:
        mass: O-mass of the outputs.
        outcome: Of shares and the epsilon that the policy is best at.
        tops: Shape (lambdas, m).
        events: Shape (lambdas, m).
        delta: Of the epsilon.
        level: The epsilon to begin with.
        most: How many mechanisms may be tried.
    """
    shares = shares_of(mass, tops, events)
    found = outcome(shares, level)
    part = 1.0
    for _ in range(most):
        height = found.on - math.exp(level) * found.off
        best = found.gradient.argmax(axis=2)[:, :, None]
        wanted = np.zeros_like(shares)
        np.put_along_axis(wanted, best, 1.0, axis=2)
        tried = (1.0 - part) * shares + part * wanted
        new = outcome(tried, level)
        if new.on - math.exp(level) * new.off <= height + 1e-6 * abs(height):
            part *= 0.5
            if part < 1e-3:
                break
            continue
        shares, found, part = tried, new, min(1.0, 2.0 * part)
        shown = _advantage(found.on, found.off, delta)
        if shown > level + 1e-7:
            level = shown
            found = outcome(shares, level)
    # Said again by masses alone, as it is reported.
    masses = np.einsum("ijr,j->ir", shares, mass)
    tops, events = masses[:, :0:-2], masses[:, -2::-2]
    shares = shares_of(mass, tops, events)
    for _ in range(2):
        found = outcome(shares, level)
        level = _advantage(found.on, found.off, delta)
        if not math.isfinite(level):
            break
    return level, tops, events


def _cut(found: _Climbed) -> _Climbed:
    """Returns the same with each rank cut in two."""
    tops, events = (np.concatenate([masses, masses], axis=1) / 2.0 for masses in found[1:])
    return found[0], tops, events


def _level(found: _Climbed) -> float:
    return found[0]


def _rows(table: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


def _truncated(trials: TrialCount, delta: float, epsilon: float) -> tuple[FloatArray, float]:
    """Returns (P[T = 1..N], P[T > N]) with a tail that hardly matters to the attack."""
    wanted = 1e-4 * delta * math.exp(-max(epsilon, 0.0))
    n = 1
    while float(trials.tail(n)) > wanted and n < _LONGEST_RUN:
        n = n + max(1, n // 8)
    if trials.maximum is not None:
        n = min(n, trials.maximum)
    return np.array([float(trials.pmf(k)) for k in range(1, n + 1)]), float(trials.tail(n))


# -- policies that see the data -------------------------------------------------------------------


def data_attack(
    pair: DominatingPair,
    pmf: FloatArray,
    vertices: FloatArray,
    tops: FloatArray,
    events: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Returns (max A(E) on D, min A'(E) on D') of the runs T <= len(pmf).

    Args:
        pair: Attainable pair of one run, one direction.
        pmf: P[T = 1..N].
        vertices: Extreme points of the policy set, shape (V, L).
        tops: beta, one mechanism per row, shape (M, L).
        events: theta, shape (M, L).
    """
    low, low_prime = trade_off_vertices(pair)
    high = np.concatenate([[0.0], pair.infinite_mass + np.cumsum(pair.mass[::-1])])
    high_prime = np.concatenate([[0.0], np.cumsum(pair.mass_prime[::-1])])
    if pair.infinite_mass > 0.0:
        high = np.insert(high, 1, pair.infinite_mass)
        high_prime = np.insert(high_prime, 1, 0.0)
    events = np.minimum(events, 1.0 - tops)
    # An empty block leaves out the O-null outputs too: the adversary may rank them anywhere.
    block = np.where(tops > 0.0, np.interp(tops, low, low_prime), 0.0)
    inside = np.minimum(np.interp(events, high, high_prime), 1.0 - block)
    result = []
    for top, event, best in ((tops, events, np.max), (block, inside, np.min)):
        stay, rest = 1.0 - top, np.maximum(1.0 - top - event, 0.0)
        factor = best(stay @ vertices.T, axis=1)
        seen = np.zeros(tops.shape[0])
        unseen = np.zeros(tops.shape[0])
        for p in pmf[::-1]:
            seen = p + factor * seen
            values = event * seen[:, None] + rest * unseen[:, None]
            unseen = best(values @ vertices.T, axis=1)
        result.append(unseen)
    return result[0], result[1]


def _search_data(
    pair: DominatingPair, trials: TrialCount, c: float, big_c: float, delta: float
) -> _Found | None:
    """Returns the best attack found by a seeded evolution over (beta, theta), if there is one."""
    pmf, tail = _truncated(trials, delta, math.log(big_c / c) * 2.0 + 5.0)
    w = (1.0 - c) / (big_c - c)
    small, rest = (w, 1.0 - 2.0 * w) if w < 0.5 else (1.0 - w, 2.0 * w - 1.0)
    # One lambda for the event, one for the block, each small enough to have density C (or, if
    # that is more than half of the space, the complements of sets that are), and the others.
    prior = (small, small, rest) if rest > 1e-9 else (0.5, 0.5)
    vertices = policy_vertices(prior, c, big_c)
    size = len(prior)
    # A few mechanisms at a time for laws with long tails.
    population = int(np.clip(60_000 / pmf.size, 24, 400))
    keep = population // 4
    rng = np.random.default_rng(0)  # a search, not a source of privacy: fixed, to be reproducible
    tops = np.exp(rng.uniform(math.log(1e-4), 0.0, (population, size)))
    tops[rng.random(tops.shape) < 0.4] = 0.0
    events = np.exp(rng.uniform(math.log(0.1 * delta), 0.0, (population, size)))
    events[rng.random(events.shape) < 0.3] = 0.0
    best: _Found | None = None
    for generation in range(40):
        on, off = data_attack(pair, pmf, vertices, tops, events)
        score = np.array([_advantage(a, b + tail, delta) for a, b in zip(on, off, strict=True)])
        order = np.argsort(-score)[:keep]
        i = int(order[0])
        if math.isfinite(score[i]) and (best is None or score[i] > best[0]):
            best = (float(score[i]), prior, _rows(tops[i, :, None]), _rows(events[i, :, None]))
        # The best stay, unchanged; the others are their offspring, ever closer to them.
        parents = order[rng.integers(0, keep, population - keep)]
        width = 1.5 * 0.9**generation
        new = []
        for values in (tops, events):
            child = values[parents] * np.exp(rng.normal(0.0, width, (parents.size, size)))
            fresh = rng.random(child.shape) < 0.05
            child[fresh] = np.exp(rng.uniform(math.log(delta), 0.0, int(fresh.sum())))
            child[rng.random(child.shape) < 0.05] = 0.0
            new.append(np.concatenate([values[order], np.minimum(child, 1.0)]))
        tops, events = new
    return best
