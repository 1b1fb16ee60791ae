"""One explicit mechanism under history-only policies: the best policy, and its exact outcome.

See :mod:`optuna_dp.accounting.attacks.policy_attack` for the mechanism and for the notation.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.arrays import FloatArray, IntArray

_LATTICE_PER_SPREAD = 5.0
_MAX_STATES = 200


def policy_vertices(prior: npt.ArrayLike, c: float, big_c: float) -> FloatArray:
    """Returns the extreme points of {w_i f_i : c <= f_i <= C, sum w_i f_i = 1}, one per row."""
    w = np.asarray(prior, dtype=np.float64)
    points = set()
    for free in range(w.size):
        for others in itertools.product((c, big_c), repeat=w.size - 1):
            f = np.insert(np.asarray(others, dtype=np.float64), free, 0.0)
            f[free] = (1.0 - float(f @ w)) / w[free]
            if c - 1e-12 <= f[free] <= big_c + 1e-12:
                points.add(tuple(np.round(f * w, 14).tolist()))
    return np.array(sorted(points))


class HistoryAttack:
    """One mechanism (prior, block and event masses) under history-only policies.

    Args:
        pair: Attainable pair of one run, one direction.
        bounds: (c, C).
        prior: Prior masses of the lambdas, shape (L,).
        tops: beta_i, shape (L,).
        events: theta_i, shape (L,).
        reach: Largest log-likelihood ratio that the policy tells apart.
    """

    def __init__(
        self,
        pair: DominatingPair,
        bounds: tuple[float, float],
        prior: npt.ArrayLike,
        tops: npt.ArrayLike,
        events: npt.ArrayLike,
        reach: float,
    ) -> None:
        spread = math.sqrt(float(np.sum(pair.mass * pair.losses**2))) or 1.0
        step = max(spread / _LATTICE_PER_SPREAD, (reach + 8.0 * spread) / _MAX_STATES)
        low, high = -int(np.ceil(8.0 * spread / step)), int(np.ceil(reach / step))
        self.z: FloatArray = step * np.arange(low, high + 1, dtype=np.float64)
        self._zero = -low
        on, off, shift = _on_lattice(pair, step, int(np.ceil(6.0 * spread / step)))
        self._vertices = policy_vertices(prior, *bounds)
        top = np.asarray(tops, dtype=np.float64)[:, None]
        event = np.asarray(events, dtype=np.float64)[:, None]
        ends = np.cumsum(on)
        starts = np.concatenate([[0.0], ends[:-1]])
        size = np.maximum(on, 1e-300)
        block = np.where(on > 0.0, np.clip((top - starts) / size, 0.0, 1.0), top > 0.0)
        # O-mass counted from the highest loss; what rounding adds at the end does not matter.
        above = np.concatenate([np.cumsum(on[::-1])[::-1][1:], [0.0]])
        inside = np.where(on > 0.0, np.clip((event - above) / size, 0.0, 1.0), 0.0)
        inside = np.minimum(inside, 1.0 - block)
        n = self.z.size
        target = np.clip(np.arange(n)[:, None] + shift[None, :], 0, n - 1)
        self._index = np.arange(n)[:, None] * n + target
        rest = 1.0 - block - inside
        # Transition matrices [lambda, from z, to z] for the outputs of each label.
        self._on = tuple(self._matrices(part * on) for part in (1.0 - block, inside, rest))
        self._off = tuple(self._matrices(part * off) for part in (1.0 - block, inside, rest))

    def _matrices(self, masses: FloatArray) -> FloatArray:
        n = self.z.size
        out = [
            np.bincount(
                self._index.ravel(), np.broadcast_to(m, self._index.shape).ravel(), n * n
            ).reshape(n, n)
            for m in masses
        ]
        return np.array(out)

    def geometric(self, gamma: float, epsilon: float) -> tuple[float, float]:
        """Returns (A(E), A'(E)) under geometric T, for the policy that is best at ``epsilon``."""
        z = 1.0 - gamma
        gain = self._gain(epsilon)
        stay, enter, rest = self._on
        eye = np.eye(self.z.size)
        seen: FloatArray = np.zeros(self.z.size)
        unseen: FloatArray = seen
        later: IntArray = np.zeros(self.z.size, dtype=np.int64)
        first = later
        for _ in range(30):
            seen = np.asarray(
                np.linalg.solve(eye - z * self._mixed(stay, later), gamma * gain), np.float64
            )
            now = self._choice(stay @ seen)
            if np.array_equal(now, later):
                break
            later = now
        for _ in range(30):
            start = self._mixed(enter, first) @ seen
            unseen = np.asarray(
                np.linalg.solve(eye - z * self._mixed(rest, first), start), np.float64
            )
            now = self._choice(enter @ seen + z * (rest @ unseen))
            if np.array_equal(now, first):
                break
            first = now
        result = []
        for stay, enter, rest in (self._on, self._off):
            begin = np.zeros(self.z.size)
            begin[self._zero] = 1.0
            reached = np.linalg.solve(eye - z * self._mixed(rest, first).T, begin)
            entered = self._mixed(enter, first).T @ reached
            ended = np.linalg.solve(eye - z * self._mixed(stay, later).T, entered)
            result.append(gamma * float(ended.sum()))
        return result[0], result[1]

    def finite(self, pmf: FloatArray, epsilon: float) -> tuple[float, float]:
        """Returns (A(E), A'(E)) of the runs T <= len(pmf), for the policy best at ``epsilon``."""
        gain = self._gain(epsilon)
        stay, enter, rest = self._on
        seen, unseen = np.zeros(self.z.size), np.zeros(self.z.size)
        choices = []
        for k in range(pmf.size, 0, -1):
            # `seen` and `unseen` are values after run k; the choices are those before it.
            later_values = stay @ seen
            later = self._choice(later_values)
            after = float(pmf[k - 1]) * gain
            if k < pmf.size:
                after = after + self._best(later_values)
            first_values = enter @ after + rest @ unseen
            choices.append((self._choice(first_values), later))
            seen, unseen = after, self._best(first_values)
        choices.reverse()
        result = []
        for stay, enter, rest in (self._on, self._off):
            total = 0.0
            before, inside = np.zeros(self.z.size), np.zeros(self.z.size)
            before[self._zero] = 1.0
            for k in range(pmf.size):
                # A history with an event behind it uses the choice made after run k.
                later = choices[k - 1][1] if k else choices[0][0]
                inside = self._push(enter, choices[k][0], before) + self._push(stay, later, inside)
                before = self._push(rest, choices[k][0], before)
                total += float(pmf[k]) * float(inside.sum())
            result.append(total)
        return result[0], result[1]

    def _gain(self, epsilon: float) -> FloatArray:
        return 1.0 - np.exp(np.minimum(epsilon - self.z, 60.0))

    def _choice(self, values: FloatArray) -> IntArray:
        """Returns the best vertex at each z, from the value of each lambda, shape (L, n)."""
        return np.asarray((self._vertices @ values).argmax(axis=0), dtype=np.int64)

    def _best(self, values: FloatArray) -> FloatArray:
        return np.asarray((self._vertices @ values).max(axis=0))

    def _mixed(self, matrices: FloatArray, choice: IntArray) -> FloatArray:
        return np.asarray(np.einsum("zi,izy->zy", self._vertices[choice], matrices))

    def _push(self, matrices: FloatArray, choice: IntArray, measure: FloatArray) -> FloatArray:
        weights = self._vertices[choice] * measure[:, None]
        total = np.zeros(self.z.size)
        for i in range(matrices.shape[0]):
            total += weights[:, i] @ matrices[i]
        return total


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
