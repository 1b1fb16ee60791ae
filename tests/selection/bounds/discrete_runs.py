"""Runs with a handful of outputs, whose selections can be computed exactly."""

from __future__ import annotations

import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair


def pair_of_laws(on: np.ndarray, off: np.ndarray) -> DominatingPair:
    """The pair of two discrete laws, equal losses merged."""
    both = (on > 0) & (off > 0)
    losses = np.round(np.log(on[both] / off[both]), 12)
    unique, group = np.unique(losses, return_inverse=True)
    mass = np.bincount(group, on[both], minlength=unique.size)
    prime = np.bincount(group, off[both], minlength=unique.size)
    exact = np.log(mass / prime) if unique.size else unique
    return DominatingPair(exact, mass, float(on[off == 0].sum()), float(off[on == 0].sum()))


def random_laws(rng: np.random.Generator, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws on the same outputs: near or far, with zeros and equal losses now and then."""
    on = rng.dirichlet(np.full(outputs, rng.choice([0.3, 1.0, 5.0])))
    off = on * np.exp(rng.normal(size=outputs) * rng.choice([0.05, 0.4, 1.5]))
    on, off = np.maximum(on, 1e-9), np.maximum(off, 1e-9)
    if rng.random() < 0.3:
        on[rng.integers(outputs)] = 0.0
    if rng.random() < 0.4:
        off[np.flatnonzero(on > 0)[rng.integers((on > 0).sum())]] = 0.0
    if rng.random() < 0.2 and outputs > 2:
        off[1] = off[0] * on[1] / on[0] if on[0] > 0 else off[1]
    if on.sum() == 0.0 or off.sum() == 0.0:
        return random_laws(rng, outputs)
    return on / on.sum(), off / off.sum()


def envelope(pairs: list[DominatingPair]) -> DominatingPair:
    """One pair that dominates several, as `worst_case` needs."""
    if len(pairs) == 1:
        return pairs[0]
    knots = np.unique(np.concatenate([[0.0], *(np.abs(p.losses) for p in pairs)]))
    forward = np.max([p.delta(knots) for p in pairs], axis=0)
    reverse = np.max([p.reversed().delta(knots) for p in pairs], axis=0)
    return DominatingPair.from_profile(knots, forward, reverse)
