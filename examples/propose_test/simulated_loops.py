"""SIMULATION ONLY: the mechanisms on numpy noise, many runs at once, to study what they do.

Numpy's noise is seeded and floating-point; nothing made here is private and nothing here may be
released. The mechanisms themselves never import this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optuna_dp.core.arrays import FloatArray, IntArray
from optuna_dp.mechanisms.doubling import DoublingPlan

_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False)
class SimulatedLoops:
    """Many simulated loops.

    Attributes:
        choice: (runs,) chosen index, -1 for none.
        iterations: (runs,) iterations used.
        positions: (iterations + 1, runs) granules accumulated after each iteration; a finished
            run keeps its last value.
        steps: (iterations + 1, runs) step after each iteration, likewise.
        choices: (iterations + 1, runs) choice after each iteration, likewise.
    """

    choice: IntArray
    iterations: IntArray
    positions: IntArray
    steps: IntArray
    choices: IntArray


def simulate_loops(
    utilities: npt.ArrayLike,
    plan: DoublingPlan,
    n_partitions: int,
    runs: int,
    rng: np.random.Generator,
    *,
    noise_factor: float = 1.0,
    stop_at_bound: bool = True,
    most_iterations: int = 10_000,
) -> SimulatedLoops:
    """Simulates the doubling loop with continuous Laplace noise.

    Args:
        utilities: (n_candidates,) or (runs, n_candidates) averaged utilities.
        plan: The loop.
        n_partitions: k.
        runs: Number of loops.
        rng: Source of the simulation's noise.
        noise_factor: Multiplies all noise; 0 is the "non-randomized world" of the papers.
        stop_at_bound: False leaves the iterations unbounded (up to ``most_iterations``), as the
            papers' figures do.
        most_iterations: Where an unbounded simulation gives up.
    """
    table = _table(utilities, runs)
    scale = noise_factor / (n_partitions * plan.epsilon)
    u0, g = plan.lower_bound, plan.granularity
    limit = plan.iteration_bound if stop_at_bound else most_iterations
    position, step = np.zeros(runs, dtype=np.int64), np.ones(runs, dtype=np.int64)
    choice, iterations = np.full(runs, -1, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    history = [(position.copy(), step.copy(), choice.copy())]
    while len(history) <= limit:
        active = step > 0
        if plan.variant == "bounded":
            active &= position < plan.n
        live = np.flatnonzero(active)
        if len(live) == 0:
            break
        threshold = u0 + (position[live] + step[live]) * g
        threshold = threshold + scale * 2 * rng.laplace(size=len(live))
        answer = _first_reaching(table, live, threshold, 4 * scale, rng)
        yes, no = live[answer >= 0], live[answer < 0]
        choice[yes] = answer[answer >= 0]
        position[yes] += step[yes]
        step[yes] *= 2
        step[no] //= 2
        iterations[live] += 1
        history.append((position.copy(), step.copy(), choice.copy()))
    positions, steps, choices = (np.stack(series) for series in zip(*history, strict=True))
    return SimulatedLoops(choice, iterations, positions, steps, choices)


def simulate_noisy_max(
    utilities: npt.ArrayLike,
    epsilon: float,
    n_partitions: int,
    runs: int,
    rng: np.random.Generator,
) -> IntArray:
    """Simulates report-noisy-max with exponential noise of mean ``2/(k epsilon)``; (runs,)."""
    table = _table(utilities, runs)
    noise = rng.exponential(2 / (n_partitions * epsilon), size=table.shape)
    return np.asarray(np.argmax(table + noise, axis=1), dtype=np.int64)


def fidelity(utilities: npt.ArrayLike, choice: IntArray) -> FloatArray:
    """Utility of the chosen candidate over the best one; 0 where nothing was chosen."""
    table = _table(utilities, len(choice))
    chosen = np.take_along_axis(table, np.maximum(choice, 0)[:, None], axis=1)[:, 0]
    return np.asarray(np.where(choice >= 0, chosen, 0.0) / table.max(axis=1), dtype=np.float64)


def _table(utilities: npt.ArrayLike, runs: int) -> FloatArray:
    """(runs, n_candidates) utilities, repeated if they are the same in all runs."""
    values = np.asarray(utilities, dtype=np.float64)
    return np.broadcast_to(values, (runs, values.shape[-1]))


def _first_reaching(
    table: FloatArray,
    live: IntArray,
    threshold: FloatArray,
    scale: float,
    rng: np.random.Generator,
) -> IntArray:
    """(len(live),) first candidate whose noisy utility reaches the run's threshold, or -1."""
    answers = np.empty(len(live), dtype=np.int64)
    block = max(1, _CELLS_AT_ONCE // table.shape[1])
    for start in range(0, len(live), block):
        rows = live[start : start + block]
        noisy = table[rows]
        if scale > 0:
            noisy = noisy + rng.laplace(scale=scale, size=noisy.shape)
        reached = noisy >= threshold[start : start + block, None]
        answers[start : start + block] = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
    return answers
