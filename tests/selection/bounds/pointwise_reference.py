"""An independent brute force for the pointwise bound, start-up runs included.

``best_policy`` walks the tree of all histories and knows nothing of the theorem; ``exact_value``
follows the theorem letter by letter on the tree of losses, with the k0 of the given output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from selection.bounds.history_reference import Instance, extreme_densities, laws, lo_hi

SABOTAGES = ("only lo", "only hi", "k0 itself", "factor 1", "O-null kept", "k0 5 % too large")
STARTUP_SABOTAGES = ("one slot too many", "later runs one slot late", "winner one slot late")


@dataclass(frozen=True)
class Space:
    """Hyperparameters whose runs are garblings of one pair, and how they garble it.

    ``kernel[s, o]`` is the chance that a run of the output's owner turns atom s into output o; the
    last two atoms are the infinite loss and what has no O-mass.
    """

    instance: Instance
    kernel: np.ndarray
    startup: int

    def beats(self, y: int, omega: float) -> np.ndarray:
        """k0 of every atom: the chance under the prior to beat (y, omega)."""
        inst = self.instance
        weight = inst.prior[inst.owner]
        above = (inst.score > inst.score[y]) + (1.0 - omega) * (inst.score == inst.score[y])
        return np.clip(self.kernel @ (weight * above), 0.0, 1.0)


def random_space(rng, startup: bool = False) -> Space:
    atoms = int(rng.integers(2, 4))
    spread = rng.choice([0.5, 1.0, 3.0])
    on, off = (rng.dirichlet(np.ones(atoms) * spread) for _ in range(2))
    on, off = (np.maximum(v, 1e-4) / np.maximum(v, 1e-4).sum() for v in (on, off))
    infinite = float(rng.choice([0.02, 0.1, 0.3])) if rng.random() < 0.35 else 0.0
    null = float(rng.choice([0.02, 0.1, 0.3])) if rng.random() < 0.35 else 0.0
    mass, prime = on * (1.0 - infinite), off * (1.0 - null)
    full, full_prime = np.array([*mass, infinite, 0.0]), np.array([*prime, 0.0, null])
    lambdas = int(rng.integers(2, 4)) if atoms < 3 else 2
    c, big_c = float(rng.choice([0.1, 0.3, 0.5, 0.75, 0.9])), float(rng.choice([1.1, 1.25, 2, 4]))
    prior = np.maximum(rng.dirichlet(np.ones(lambdas) * 2.0), 0.05)
    if rng.random() < 0.4:
        share = (1.0 - c) / (big_c - c)
        prior = np.array([share, *[(1.0 - share) / (lambdas - 1)] * (lambdas - 1)])
    prior /= prior.sum()
    blocks, owner = [], []
    for i in range(lambdas):
        if rng.random() < 0.6:
            block = np.eye(full.size)[:, full + full_prime > 0.0]
        else:
            block = rng.dirichlet(np.ones(int(rng.integers(1, 4))) * 0.5, size=full.size)
        blocks.append(block)
        owner += [i] * block.shape[1]
    kernel = np.concatenate(blocks, axis=1)
    p, q = full @ kernel, full_prime @ kernel
    how = rng.random()
    if how < 0.5:
        score = rng.permutation(p.size)
    elif how < 0.75:
        score = rng.integers(0, max(2, p.size // 2), p.size)
    else:
        score = np.argsort(np.argsort(p / np.maximum(q, 1e-9)))
    choices = laws(rng)
    law = choices[int(rng.integers(len(choices)))]
    pmf = np.array([law.pmf(k) for k in range(1, (4 if p.size <= 6 else 3) + 1)])
    inst = Instance(
        np.log(mass / prime), mass, infinite, null, p, q, np.array(owner), score, prior,
        (c, big_c), law, pmf,
    )  # fmt: skip
    return Space(inst, kernel, int(rng.integers(1, 3)) if startup else 0)


def best_policy(space: Space, event: np.ndarray, factor: float) -> float:
    """max over full-history policies of A(E) - factor A'(E); start-up slots use the prior."""
    inst = space.instance
    n, weight = inst.on.size, inst.prior[inst.owner]
    free, fixed = extreme_densities(inst.prior, *inst.bounds), np.ones((1, inst.prior.size))
    rank = np.searchsorted(np.unique(inst.score), inst.score)
    a, b, top = np.ones(1), np.full(1, factor), np.full(1, -1)
    tied, good = np.zeros(1), np.zeros(1)
    rewards = []
    for p in inst.pmf:
        a, b = (np.outer(v, w * weight).ravel() for v, w in ((a, inst.on), (b, inst.off)))
        new = np.maximum(top[:, None], rank[None, :])
        kept, joins = (top[:, None] == new).astype(float), (rank[None, :] == new).astype(float)
        tied = (kept * tied[:, None] + joins).ravel()
        good = (kept * good[:, None] + joins * event[None, :]).ravel()
        top = new.ravel()
        rewards.append(p * good / tied * (a - b))
    value = np.zeros(a.size)
    of_lambda = (inst.owner[:, None] == np.arange(inst.prior.size)[None, :]).astype(float)
    for slot in range(inst.pmf.size, 0, -1):
        extreme = fixed if slot <= space.startup else free
        value = ((rewards[slot - 1] + value).reshape(-1, n) @ of_lambda @ extreme.T).max(axis=1)
    return float(value[0])


def exact_value(space: Space, t: float, k0: np.ndarray, sabotage: str = "") -> float:
    """V1_1(1, t) of the theorem for one k0 (atoms, infinite loss, ...); or a wrong variant."""
    inst, startup = space.instance, space.startup
    n, runs = inst.mass.size, inst.pmf.size
    if sabotage == "k0 5 % too large":
        k0 = np.minimum(1.05 * k0, 1.0)
    if sabotage == "one slot too many":
        startup += 1
    null = inst.null if sabotage == "O-null kept" else 0.0
    prime = np.exp(-inst.losses)
    tree = [np.array([t])]
    for _ in range(runs - 1):
        tree.append(np.outer(tree[-1], prime).ravel())

    def bounds(slot, late=0):
        return inst.bounds if slot > startup + late else (1.0, 1.0)

    def step(v, states, slot):
        inner, top, slope = v
        if inner is None:
            return 0.0, 0.0, 0.0
        lo, hi = np.transpose([lo_hi(float(k), *bounds(slot)) for k in k0])
        if sabotage == "only lo":
            hi = lo
        elif sabotage == "only hi":
            lo = hi
        elif sabotage == "k0 itself":
            lo = hi = k0
        keep_lo, keep_hi = inst.mass * (1.0 - lo[:n]), inst.mass * (1.0 - hi[:n])
        inner = inner.reshape(-1, n)
        inside = np.maximum(inner, 0.0) @ keep_lo - np.maximum(-inner, 0.0) @ keep_hi
        infinite = inst.infinite * (1.0 - lo[n])
        left = float(keep_hi @ prime) + null
        return (
            inside + infinite * top + null * slope * states,
            (float(keep_lo.sum()) + infinite) * top,
            left * slope,
        )

    after = before = (None, 0.0, 0.0)
    for k in range(runs, 0, -1):
        pmf, states = inst.pmf[k - 1], tree[k - 1]
        later = k if sabotage == "later runs one slot late" else k + 1
        inner, top, slope = step(after, states, later)
        after = (pmf * (1.0 - states) + inner, pmf + top, -pmf + slope)
        inner, top, slope = step(before, states, k)
        c, big_c = bounds(k, late=1 if sabotage == "winner one slot late" else 0)
        if sabotage == "factor 1":
            c = big_c = 1.0
        winner = np.maximum(big_c * after[0], c * after[0])
        before = (winner + inner, big_c * after[1] + top, c * after[2] + slope)
    return float(before[0][0])


def sides(space: Space, y: int, epsilon: float, sabotage: str = "") -> tuple[float, float]:
    """Returns (best A(y) - e^eps A'(y), P0(y) times the theorem's value at y's own k0)."""
    inst = space.instance
    event = np.zeros(inst.on.size)
    event[y] = 1.0
    best = best_policy(space, event, float(np.exp(epsilon)))
    t = float(np.exp(epsilon) * inst.off[y] / inst.on[y])
    unique = np.sum(inst.score == inst.score[y]) == 1 and inst.pmf.size < 3
    omegas = (0.0, 1.0) if unique else np.linspace(0.0, 1.0, 9)
    value = max(exact_value(space, t, space.beats(y, float(w)), sabotage) for w in omegas)
    return best, float(inst.prior[inst.owner[y]] * inst.on[y]) * value
