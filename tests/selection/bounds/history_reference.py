"""An independent brute force for selections by history-only policies, on tiny output spaces.

Nothing here knows the bound's recursion except ``exact_value``, which follows the theorem letter
by letter on the tree of losses, without a grid; ``exhaustive`` knows nothing of the theorem.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from optuna_dp import Binomial, Geometric, Logarithmic, NegativeBinomial, Poisson
from optuna_dp.accounting.dominating_pairs import DominatingPair

SABOTAGES = ("u = p", "u = lo", "u = hi", "O-null kept", "factor 1", "not adaptive")


@dataclass(frozen=True)
class Instance:
    """A space of hyperparameters with discrete runs, and a pair (O, O') that dominates them all.

    Shapes: on, off, owner, score (outputs,); prior (lambdas,); pmf (N,).
    """

    losses: np.ndarray
    mass: np.ndarray
    infinite: float
    null: float
    on: np.ndarray
    off: np.ndarray
    owner: np.ndarray
    score: np.ndarray
    prior: np.ndarray
    bounds: tuple[float, float]
    law: object
    pmf: np.ndarray

    @property
    def pair(self) -> DominatingPair:
        order = np.argsort(self.losses)
        return DominatingPair(self.losses[order], self.mass[order], self.infinite, self.null)


def laws(rng):
    mean = float(rng.choice([1.4, 2.0, 4.0]))
    return [
        Geometric(mean),
        Geometric(3 * mean).capped(int(rng.integers(2, 5))),
        Logarithmic(mean),
        NegativeBinomial(shape=float(rng.choice([-0.5, 0.5, 2.5])), mean=mean),
        Poisson(mean),
        Poisson(mean).capped(int(rng.integers(2, 4))),
        Binomial(4, mean / 4 if mean < 4 else 4.0),
        Binomial(int(rng.integers(2, 5)), 1.5),
    ]


def random_instance(rng) -> Instance:
    atoms = int(rng.integers(2, 4))
    spread = rng.choice([0.5, 1.0, 3.0])
    on, off = rng.dirichlet(np.ones(atoms) * spread), rng.dirichlet(np.ones(atoms) * spread)
    on, off = (np.maximum(v, 1e-4) / np.maximum(v, 1e-4).sum() for v in (on, off))
    if rng.random() < 0.2:
        off = on * np.exp(rng.normal(0.0, 0.3, atoms))
        off /= off.sum()
    infinite = float(rng.choice([0.02, 0.1, 0.3])) if rng.random() < 0.35 else 0.0
    null = float(rng.choice([0.02, 0.1, 0.3])) if rng.random() < 0.35 else 0.0
    mass, prime = on * (1.0 - infinite), off * (1.0 - null)
    full = np.array([*mass, infinite, 0.0])
    full_prime = np.array([*prime, 0.0, null])
    lambdas = int(rng.integers(2, 4)) if atoms < 3 else 2
    c, big_c = float(rng.choice([0.1, 0.3, 0.5, 0.75, 0.9])), float(rng.choice([1.1, 1.25, 2, 4]))
    prior = np.maximum(rng.dirichlet(np.ones(lambdas) * 2.0), 0.05)
    if rng.random() < 0.3:
        share = (1.0 - c) / (big_c - c)
        prior = np.array([share, *[(1.0 - share) / (lambdas - 1)] * (lambdas - 1)])
    prior /= prior.sum()
    on_all, off_all, owner = [], [], []
    for i in range(lambdas):
        if rng.random() < 0.6:  # the dominating pair itself
            there = full + full_prime > 0.0
            p, q = full[there], full_prime[there]
        else:  # a garbling of it
            garble = rng.dirichlet(np.ones(int(rng.integers(1, 4))) * 0.5, size=full.size)
            p, q = full @ garble, full_prime @ garble
        on_all.append(p)
        off_all.append(q)
        owner += [i] * p.size
    p, q = np.concatenate(on_all), np.concatenate(off_all)
    how = rng.random()
    if how < 0.5:
        score = rng.permutation(p.size)
    elif how < 0.8:  # ties
        score = rng.integers(0, max(2, p.size // 2), p.size)
    else:  # most incriminating last
        score = np.argsort(np.argsort(p / np.maximum(q, 1e-9)))
    choices = laws(rng)
    law = choices[int(rng.integers(len(choices)))]
    longest = 4 if p.size <= 6 else 3
    pmf = np.array([law.pmf(k) for k in range(1, longest + 1)])
    return Instance(
        np.log(mass / prime), mass, infinite, null, p, q, np.array(owner), score, prior,
        (c, big_c), law, pmf,
    )  # fmt: skip


def extreme_densities(prior, c, big_c):
    """All extreme points of {f : c <= f <= C, sum prior f = 1}."""
    points = set()
    for free in range(prior.size):
        for others in itertools.product([c, big_c], repeat=prior.size - 1):
            f = np.insert(np.array(others, dtype=float), free, 0.0)
            f[free] = (1.0 - f @ prior) / prior[free]
            if c - 1e-12 <= f[free] <= big_c + 1e-12:
                points.add(tuple(np.round(np.clip(f, c, big_c), 13)))
    return np.array(sorted(points))


def exhaustive(inst: Instance, event: np.ndarray, factor: float) -> float:
    """max over all full-history policies of A(E) - factor A'(E), counting only T <= len(pmf).

    Backward over the tree of all histories. Ties in the score are broken by independent uniforms:
    with n outputs tied at the top, each wins with probability 1/n. The objective is linear in the
    density at each history, so extreme densities suffice.
    """
    n, weight = inst.on.size, inst.prior[inst.owner]
    extreme = extreme_densities(inst.prior, *inst.bounds)
    levels = np.unique(inst.score)
    a, b = np.ones(1), np.full(1, factor)
    top = np.full(1, -1)  # index of the best score so far
    tied, good = np.zeros(1), np.zeros(1)
    rank = np.searchsorted(levels, inst.score)
    rewards = []
    for p in inst.pmf:
        a, b = (np.outer(v, w * weight).ravel() for v, w in ((a, inst.on), (b, inst.off)))
        new = np.maximum(top[:, None], rank[None, :])
        kept = (top[:, None] == new).astype(float)
        joins = (rank[None, :] == new).astype(float)
        tied = (kept * tied[:, None] + joins).ravel()
        good = (kept * good[:, None] + joins * event[None, :]).ravel()
        top = new.ravel()
        rewards.append(p * good / tied * (a - b))
    value = np.zeros(a.size)
    of_lambda = (inst.owner[:, None] == np.arange(inst.prior.size)[None, :]).astype(float)
    for reward in reversed(rewards):
        value = ((reward + value).reshape(-1, n) @ of_lambda @ extreme.T).max(axis=1)
    return float(value[0])


def lo_hi(p, c, big_c):
    return max(c * p, 1.0 - big_c * (1.0 - p)), min(big_c * p, 1.0 - c * (1.0 - p))


def exact_value(inst: Instance, t: float, p: float, sabotage: str = "") -> float:
    """V1_1(1, t) of the theorem at one p, on the tree of losses; optionally a wrong variant."""
    c, big_c = inst.bounds
    lo, hi = lo_hi(p, c, big_c)
    if sabotage == "not adaptive":
        # One u for all histories: K is linear, and only the constant u is optimised.
        return max(_value(inst, t, u, u, c, big_c, 0.0) for u in np.linspace(lo, hi, 7))
    lo, hi = {"u = p": (p, p), "u = lo": (lo, lo), "u = hi": (hi, hi)}.get(sabotage, (lo, hi))
    if sabotage == "factor 1":
        c = big_c = 1.0
    return _value(inst, t, lo, hi, c, big_c, inst.null if sabotage == "O-null kept" else 0.0)


def _value(inst, t, lo, hi, c, big_c, null):
    order = np.argsort(inst.losses)
    prime = np.exp(-inst.losses)

    def kept(u):
        left, out = u, inst.mass.copy()
        for i in order:
            gone = min(left, out[i])
            out[i] -= gone
            left -= gone
        return out, max(inst.infinite - left, 0.0)

    (k_lo, inf_lo), (k_hi, _) = kept(lo), kept(hi)
    n, runs = inst.mass.size, inst.pmf.size
    tree = [np.array([t])]
    for _ in range(runs - 1):
        tree.append(np.outer(tree[-1], prime).ravel())
    left = float(k_hi @ prime) + null
    # (values on the tree, V(1, 0), V(0, 1)) after and before the output y.
    after = before = (None, 0.0, 0.0)

    def step(v, states):
        inner, top, slope = v
        if inner is None:
            return 0.0, 0.0, 0.0
        inner = inner.reshape(-1, n)
        inside = np.maximum(inner, 0.0) @ k_lo - np.maximum(-inner, 0.0) @ k_hi
        return inside + inf_lo * top + null * slope * states, (1.0 - lo) * top, left * slope

    for k in range(runs, 0, -1):
        pmf, states = inst.pmf[k - 1], tree[k - 1]
        inner, top, slope = step(after, states)
        after = (pmf * (1.0 - states) + inner, pmf + top, -pmf + slope)
        inner, top, slope = step(before, states)
        winner = np.maximum(big_c * after[0], c * after[0])
        before = (winner + inner, big_c * after[1] + top, c * after[2] + slope)
    return float(before[0][0])


def per_output_sides(inst: Instance, y: int, epsilon: float, points: int = 9):
    """Returns (best A(y) - e^eps A'(y), the p that y can have, e^eps Q(y)/P(y), P0(y))."""
    event = np.zeros(inst.on.size)
    event[y] = 1.0
    best = exhaustive(inst, event, float(np.exp(epsilon)))
    prior = (inst.prior[inst.owner] * inst.on)[:]
    above = prior[inst.score > inst.score[y]].sum()
    tied = prior[inst.score == inst.score[y]].sum()
    p = np.clip(np.linspace(above, above + tied, points), 0.0, 1.0)
    return best, p, float(np.exp(epsilon) * inst.off[y] / inst.on[y]), float(prior[y])
