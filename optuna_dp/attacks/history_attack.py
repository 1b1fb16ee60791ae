"""One explicit mechanism under history-only policies: the best policy, and its exact outcome.

See :mod:`optuna_dp.attacks.policy_attack` for the mechanism and for the notation.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.linalg import lapack

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.core.arrays import FloatArray, IntArray

_MAX_STATES = 250


def policy_vertices(prior: npt.ArrayLike, c: float, big_c: float) -> FloatArray:
    """Returns the extreme points of {w_i f_i : c <= f_i <= C, sum w_i f_i = 1}, one per row."""
    w = np.asarray(prior, dtype=np.float64)
    points = set()
    for free in range(w.size):
        for extremes in itertools.product((c, big_c), repeat=w.size - 1):
            f = np.insert(np.asarray(extremes, dtype=np.float64), free, 0.0)
            f[free] = (1.0 - float(f @ w)) / w[free]
            if c - 1e-12 <= f[free] <= big_c + 1e-12:
                points.add(tuple(np.round(f * w, 14).tolist()))
    return np.array(sorted(points))


def shares_of(mass: FloatArray, tops: npt.ArrayLike, events: npt.ArrayLike) -> FloatArray:
    """Returns which part of each output has which rank, shape (lambdas, outputs, ranks).

    Args:
        mass: O-mass of the outputs, losses ascending.
        tops: O-mass of each block, the one of highest rank first, shape (lambdas, m).
        events: O-mass of each part of the event, the one of highest rank first, same shape.
    """
    blocks, parts = np.asarray(tops, dtype=np.float64), np.asarray(events, dtype=np.float64)
    ends = np.cumsum(mass)
    shares = np.zeros((blocks.shape[0], mass.size, 2 * blocks.shape[1] + 1))
    size = np.maximum(mass, 1e-300)
    # From the lowest losses up, and from the highest down; O-mass counted from the same end.
    above = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    for masses, before, offset in ((blocks, ends - mass, 0), (parts, above, 1)):
        reached = np.zeros(blocks.shape[0])
        assigned = np.zeros(shares.shape[:2])
        for level in range(blocks.shape[1]):
            reached = reached + masses[:, level]
            now = np.clip((reached[:, None] - before) / size, 0.0, 1.0)
            # O-null outputs may be ranked anywhere: they help in a block, if there is one.
            now = np.where(mass > 0.0, now, (reached[:, None] > 0.0) & (offset == 0))
            if offset:
                now = np.minimum(now, 1.0 - shares[:, :, ::2].sum(axis=2))
            shares[:, :, -1 - 2 * level - offset] = np.maximum(now - assigned, 0.0)
            assigned = np.maximum(assigned, now)
    shares[:, :, 0] += np.maximum(1.0 - shares.sum(axis=2), 0.0)
    return shares


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the best policy found achieves with one mechanism.

    Attributes:
        on: A(E).
        off: A'(E).
        gradient: How A(E) - e^eps A'(E) grows with the O-mass of an output at a rank, by the
            policy's own likelihood ratio; shape (lambdas, outputs, ranks). A guide.
    """

    on: float
    off: float
    gradient: FloatArray


class HistoryAttack:
    """Mechanisms on one lattice of losses, under history-only policies.

    A mechanism is given by ``shares``: of each lambda's outputs, those of one loss put together,
    which part has which rank. Even ranks are blocks (0 is the rest), odd ones the event; the
    highest rank wins. The policy knows the highest rank so far and z, the sum of the losses.

    Args:
        pair: Attainable pair of one run, one direction.
        bounds: (c, C).
        prior: Prior masses of the lambdas, shape (L,).
        reach: Largest log-likelihood ratio that the policy tells apart.
        points_per_spread: Points of the lattice per root mean square of the loss.
    """

    def __init__(
        self,
        pair: DominatingPair,
        bounds: tuple[float, float],
        prior: npt.ArrayLike,
        reach: float,
        points_per_spread: float = 5.0,
    ) -> None:
        spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2))) or 1.0
        step = max(spread / points_per_spread, (reach + 8.0 * spread) / _MAX_STATES)
        low, high = -int(np.ceil(8.0 * spread / step)), int(np.ceil(reach / step))
        self.z: FloatArray = step * np.arange(low, high + 1, dtype=np.float64)
        self._start = np.zeros(self.z.size)
        self._start[-low] = 1.0
        # An event is made of the highest losses, however rare: those near its epsilon must not be
        # put together with the ones beyond.
        farthest = max(6.0 * spread, 0.75 * reach)
        #: O-mass and O'-mass of the outputs, by loss.
        self.on, self.off, shift = _on_lattice(pair, step, int(np.ceil(farthest / step)))
        self._vertices = policy_vertices(prior, *bounds)
        n = self.z.size
        self._target = np.clip(np.arange(n)[:, None] + shift[None, :], 0, n - 1)
        middle = -int(shift[0])  # the output that moves nothing
        #: Where the window of z = 0 begins among the padded masses.
        self._first = n - 1 + middle
        #: How many outputs lead below the lattice, and how many not above it, from each z.
        self._short = np.clip(middle - np.arange(n), 0, shift.size)
        self._long = np.clip(middle + n - np.arange(n), 0, shift.size)
        self._buffers: dict[tuple[bool, tuple[int, ...]], FloatArray] = {}
        #: The last policy, for each number of ranks.
        self._policies: dict[int, IntArray] = {}

    def geometric(self, shares: FloatArray, gamma: float, epsilon: float) -> Outcome:
        """Returns the outcome under geometric T, for the policy that is best at ``epsilon``."""
        ranks, n, keep = shares.shape[2], self.z.size, 1.0 - gamma
        moves, stays = self._matrices(shares, self.on)
        gain = self._gain(epsilon)
        values = np.zeros((ranks, n))
        # Mechanisms tried one after the other have nearly the same best policy.
        choices = self._policies.setdefault(ranks, np.zeros((ranks, n), dtype=np.int64))
        up, systems = np.zeros((shares.shape[0], n)), []
        for rank in range(ranks - 2, -1, -1):
            up += moves[rank + 1] @ values[rank + 1]
            reward = gamma * gain if rank % 2 else np.zeros(n)
            for _ in range(30):
                weights = self._vertices[choices[rank]]
                system = _Steps(weights, stays[rank], keep)
                values[rank] = system.worth(reward + keep * np.einsum("zi,iz->z", weights, up))
                now = self._choice(up + stays[rank] @ values[rank])
                if np.array_equal(now, choices[rank]):
                    break
                choices[rank] = now
            else:
                system = _Steps(self._vertices[choices[rank]], stays[rank], keep)
            systems.append(system)
        weights = self._vertices[choices]
        off_moves, off_stays = self._matrices(shares, self.off)
        of_off = [_Steps(w, stay, keep) for w, stay in zip(weights[:-1], off_stays, strict=False)]
        off = self._visits(shares, self.off, weights, off_moves, keep, of_off)[1]
        visits, on = self._visits(shares, self.on, weights, moves, keep, systems[::-1])
        gradient = np.zeros_like(shares)
        self._add_gradient(gradient, weights, visits, values)
        return Outcome(gamma * on, gamma * off, gradient)

    def _visits(
        self,
        shares: FloatArray,
        mass: FloatArray,
        weights: FloatArray,
        moves: FloatArray,
        keep: float,
        systems: list[_Steps],
    ) -> tuple[FloatArray, float]:
        """Returns how often each rank and z are met before a run, and an event after one."""
        ranks, n, lambdas = weights.shape
        visits, below = np.zeros((ranks, n)), np.zeros((lambdas, n))
        begin, after = self._start, 0.0
        # The mass of each rank, and up to it, whatever the state.
        exactly = np.einsum("ijr,j->ri", shares, mass)
        at_most = np.cumsum(exactly, axis=0)
        for rank, system in enumerate(systems):
            visits[rank] = system.visits(begin)
            here = (weights[rank] * visits[rank][:, None]).T
            if rank % 2:
                risen = float(below.sum(axis=1) @ exactly[rank])
                after += risen + float(here.sum(axis=1) @ at_most[rank])
            below += here
            begin = keep * np.einsum("iz,izy->y", below, moves[rank + 1])
        return visits, after

    def finite(self, shares: FloatArray, pmf: FloatArray, epsilon: float) -> Outcome:
        """Returns the outcome of the runs T <= len(pmf), for the policy best at ``epsilon``."""
        ranks, n = shares.shape[2], self.z.size
        moves, stays = self._matrices(shares, self.on)
        gain = np.where(np.arange(ranks)[:, None] % 2 == 1, self._gain(epsilon), 0.0)
        values, weights = np.zeros((pmf.size, ranks, n)), []
        onward: FloatArray = np.zeros((ranks, n))
        for k in range(pmf.size - 1, -1, -1):
            values[k] = onward + pmf[k] * gain
            values[k, -1] = 0.0
            single = (moves @ values[k][:, None, :, None])[..., 0]
            # What moves up from a rank: everything of a higher rank.
            up = np.cumsum(single[::-1], axis=0)[::-1] - single
            worth = up + (stays @ values[k][:, None, :, None])[..., 0]
            by_vertex = self._vertices @ worth  # (ranks, vertices, n)
            onward = by_vertex.max(axis=1)
            weights.append(self._vertices[by_vertex.argmax(axis=1)])
        weights.reverse()
        gradient = np.zeros_like(shares)
        outcome = []
        for mass in (self.off, self.on):
            there, here = self._matrices(shares, mass)
            visits, total = np.zeros((ranks, n)), 0.0
            visits[0] = self._start
            for k in range(pmf.size):
                if mass is self.on:
                    self._add_gradient(gradient, weights[k], visits, values[k])
                visits = one_run(weights[k], visits, there, here)
                total += float(pmf[k]) * float(visits[1::2].sum())
            outcome.append(total)
        return Outcome(outcome[1], outcome[0], gradient)

    def _matrices(self, shares: FloatArray, mass: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the transitions from z to z of outputs of a rank, and of up to that rank.

        Shapes (ranks, lambdas, n, n). They hold until this is called for the same mass again.
        """
        n = self.z.size
        parts = (shares * mass[:, None]).transpose(2, 0, 1)  # (ranks, lambdas, outputs)
        masses = np.stack([parts, np.cumsum(parts, axis=0)])
        # Row z is the masses shifted by z: a window of what stands between two rows of zeros.
        padded = np.zeros((*masses.shape[:3], masses.shape[3] + 2 * (n - 1)))
        padded[..., n - 1 : 1 - n] = masses
        rows = sliding_window_view(padded, n, axis=-1)[..., self._first :: -1, :][..., :n, :]
        # Written where those before were: new memory takes longer than what is put in it.
        key = mass is self.on, rows.shape
        if key not in self._buffers:
            self._buffers[key] = np.empty(rows.shape)
        windows = self._buffers[key]
        windows[...] = rows
        # What would leave the lattice stays at its ends.
        sums = np.zeros((*masses.shape[:3], masses.shape[3] + 1))
        np.cumsum(masses, axis=-1, out=sums[..., 1:])
        windows[..., 0] += sums[..., self._short]
        windows[..., -1] += sums[..., -1:] - sums[..., self._long]
        return windows[0], windows[1]

    def _add_gradient(
        self, gradient: FloatArray, weights: FloatArray, visits: FloatArray, values: FloatArray
    ) -> None:
        reached = (weights * visits[:, :, None]).transpose(0, 2, 1)
        onward = values[:, self._target]  # (ranks, n, outputs)
        # The rank after a run is the larger one: the output's, or that of before.
        gradient += (np.cumsum(reached, axis=0) @ onward).transpose(1, 2, 0)
        held = reached @ onward
        gradient += (np.cumsum(held[::-1], axis=0)[::-1] - held).transpose(1, 2, 0)

    def _gain(self, epsilon: float) -> FloatArray:
        return 1.0 - np.exp(np.minimum(epsilon - self.z, 60.0))

    def _choice(self, values: FloatArray) -> IntArray:
        """Returns the best vertex at each z, from the value of each lambda, shape (L, n)."""
        return np.asarray((self._vertices @ values).argmax(axis=0), dtype=np.int64)


class _Steps:
    """Runs that stay at one rank, each followed by another with probability ``keep``."""

    def __init__(self, weights: FloatArray, stays: FloatArray, keep: float) -> None:
        # Factored once for both uses, and by LAPACK itself: its checks take as long as it does.
        system = -keep * np.einsum("zi,izy->zy", weights, stays)
        system.reshape(-1)[:: system.shape[0] + 1] += 1.0
        # As LAPACK stores matrices, by column, this one is transposed.
        self._factors, self._pivots, failed = lapack.dgetrf(system.T, overwrite_a=True)
        if failed:
            raise np.linalg.LinAlgError(f"dgetrf: {failed}")

    def worth(self, after: FloatArray) -> FloatArray:
        """Returns what each z is worth, if one run is worth ``after``."""
        return np.asarray(lapack.dgetrs(self._factors, self._pivots, after, trans=1)[0])

    def visits(self, begin: FloatArray) -> FloatArray:
        """Returns how often each z is met, from masses of where one begins."""
        return np.asarray(lapack.dgetrs(self._factors, self._pivots, begin)[0])


def one_run(
    weights: FloatArray, visits: FloatArray, moves: FloatArray, stays: FloatArray
) -> FloatArray:
    """Returns the measure over (rank, z) that one run makes of ``visits``."""
    reached = (weights * visits[:, :, None]).transpose(0, 2, 1)[:, :, None, :]
    below = np.cumsum(reached, axis=0) - reached
    after = (below @ moves + reached @ stays).sum(axis=1)[:, 0]
    # Nothing matters after the highest rank: it wins, and is not in the event.
    after[-1] = 0.0
    return np.asarray(after)


def _on_lattice(
    pair: DominatingPair, step: float, reach: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Returns (O-mass, O'-mass, shift of z) of the outputs, those of one shift put together.

    Putting outputs together is a garbling, and the shift is a function of the output, so a policy
    that adds the shifts up is a policy of the history: nothing is approximated.
    """
    tap = np.clip(np.rint(pair.losses / step).astype(np.int64), -reach, reach)
    size = 2 * reach + 3
    on: FloatArray = np.bincount(tap + reach + 1, pair.mass, size).astype(np.float64)
    off: FloatArray = np.bincount(tap + reach + 1, pair.mass_prime, size).astype(np.float64)
    on[-1], off[0] = pair.infinite_mass, pair.null_mass
    return on, off, np.arange(-reach - 1, reach + 2, dtype=np.int64)
