"""Canaries among the gradients of a DP-SGD training, which show how noisy each step is.

In each step, each of some coordinates of the gradient becomes a canary: by a fair coin, a made-up
record is added to the batch whose gradient lies along that coordinate and is a thousand times as
long as the clipping norm. A training that clips each record's gradient makes it as long as the
norm; one that clips the mean, or forgets a layer, leaves it longer, so that it is guessed more
often, or stands out from the others by more than any noise.
Somebody who knows everything but the coins sees the noisy sum and guesses them. Where a step adds
Gaussian noise of ``noise_multiplier`` clipping norms, nobody guesses a coin right with more than
the chance p = Phi(1 / (2 noise_multiplier)), whatever else is known; so the share V of right
guesses in a step has mean at most p given all steps before, and

    wealth = product over steps of (1 + b (V / p - 1)),    0 < b < 1,

has mean at most 1: it exceeds 20 with probability at most 0.05 (Markov). The coins are tossed anew
in every step, so each step is a fresh test and the steps multiply; nothing is assumed of how the
canaries of one step depend on each other.

What the canaries have added is taken out again after the guess, so the training goes on as if they
had not been there.

====================  ==================================================================
code                  notation
====================  ==================================================================
``noise_multiplier``  standard deviation of a step's noise over the clipping norm
``best_chance``       p, the largest chance of a right guess
``shares``            V, of right guesses in each step
``_STAKE``            b
====================  ==================================================================
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from optuna_dp import validation
from optuna_dp.arrays import FloatArray, IntArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.testing.gradient_steps import Steps

# Of numpy or of PyTorch; what is returned is of the same kind.
Array = TypeVar("Array")

_STAKE = 0.95
# Of a canary's gradient over the clipping norm.
LENGTH = 1000.0
# A canary stands out that is so many deviations (of the others, by their median) too long. Their
# median is off by a factor of 0.4 less than once in a million steps; 6 deviations are rarer.
_FAR, _FEWEST_TO_COMPARE = 15.0, 32
_MOST_PER_STEP = 10_000


@dataclass(frozen=True, eq=False)
class Coins:
    """The canaries of one step.

    Attributes:
        coordinates: Of the flattened gradient, all different, shape (k,).
        included: Whether each canary is in the batch, shape (k,).
    """

    coordinates: IntArray
    included: npt.NDArray[np.bool_]


class GradientCanaries:
    """Puts canaries into the steps of a DP-SGD training and guesses which are in.

    A training loop of your own calls :meth:`examples` on the gradients of a batch before they are
    clipped, and :meth:`observe` on their sum with its noise::

        each = canaries.examples(each, clipping_norm)  # shape (batch, dimension)
        clipped = each * np.minimum(1, clipping_norm / norms(each))[:, None]
        noisy = canaries.observe(clipped.sum(axis=0) + noise)

    A loop that has the sum of the clipped gradients only calls :meth:`insert` on that sum, and
    then nothing is seen of how records are clipped. Arrays are numpy's or PyTorch's.

    Args:
        canaries: Canaries in each step, 1 to 10,000. A gradient with fewer coordinates has as many
            as it has coordinates.

    Attributes:
        shares: The share of right guesses in each step so far.
        counts: How many canaries each step had.
        longer: The length, in clipping norms, of the longest canary that was not clipped; 0 if
            all seem to be.
        before_clipping: Whether all canaries came in before the clipping.
        steps: What was observed, without the canaries.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or the two are not called in turn.

    Example:
        >>> import numpy as np
        >>> from optuna_dp.testing import GradientCanaries
        >>> canaries, rng = GradientCanaries(canaries=50), np.random.default_rng()
        >>> clipped_sum = np.zeros(200)
        >>> summed = canaries.insert(clipped_sum, clipping_norm=1.0)
        >>> noisy = canaries.observe(summed + 1e-9 * rng.normal(size=200))  # as good as no noise
        >>> canaries.shares
        [1.0]
        >>> bool(np.abs(noisy - clipped_sum).max() < 1e-6)  # the canaries are out again
        True
    """

    def __init__(self, canaries: int = 64) -> None:
        self._per_step = validation.whole("canaries", canaries, 1)
        if canaries > _MOST_PER_STEP:
            raise InvalidArgumentError(
                "canaries", canaries, f"at most {_MOST_PER_STEP} are of use"
            )
        # Coins that the training cannot know, and no seed of its own can repeat.
        self._rng = np.random.default_rng(secrets.randbits(256))
        self._open: tuple[Coins, FloatArray, float] | None = None
        self.shares: list[float] = []
        self.counts: list[int] = []
        self.longer = 0.0
        self.before_clipping = True
        self.steps = Steps()

    @classmethod
    def none(cls) -> GradientCanaries:
        """Returns an object that inserts nothing, and only notes the steps."""
        canaries = cls()
        canaries._per_step = 0
        return canaries

    def examples(self, gradients: Array, clipping_norm: float) -> Array:
        """Returns the gradients of a batch with those of this step's canaries behind them.

        Args:
            gradients: One row for each record of the batch, before clipping, over all layers;
                shape (batch, dimension).
            clipping_norm: C, above 0.
        """
        record_gradients = _plain(gradients)
        if record_gradients.ndim != 2:
            raise InvalidArgumentError(
                "gradients", record_gradients.shape, "it needs a row for each record"
            )
        norm, coins = self._begin(record_gradients.shape[1], clipping_norm)
        length = np.linalg.norm(record_gradients, axis=1, keepdims=True)
        clipped = record_gradients * np.minimum(1.0, norm / np.maximum(length, 1e-300))
        self._open = coins, clipped.sum(axis=0), norm
        coordinates = coins.coordinates[coins.included]
        rows = np.zeros((coordinates.size, record_gradients.shape[1]))
        rows[np.arange(coordinates.size), coordinates] = LENGTH * norm
        return _like(gradients, np.concatenate([record_gradients, rows]))

    def insert(self, clipped_sum: Array, clipping_norm: float) -> Array:
        """Returns the sum of clipped gradients with this step's canaries added, of equal shape."""
        records_sum = _plain(clipped_sum)
        norm, coins = self._begin(records_sum.size, clipping_norm)
        self.before_clipping = False
        self._open = coins, records_sum, norm
        return _like(clipped_sum, records_sum + self._added(coins, norm, records_sum.shape))

    def observe(self, noisy_sum: Array) -> Array:
        """Guesses from the noisy sum, and returns it without the canaries, of equal shape."""
        if self._open is None:
            raise InvalidArgumentError(
                "noisy_sum",
                "a sum without canaries",
                "insert or examples has to be called before observe",
            )
        coins, records_sum, norm = self._open
        noisy = _plain(noisy_sum)
        if noisy.shape != records_sum.shape:
            raise InvalidArgumentError(
                "noisy_sum", noisy.shape, f"its shape must be that of the sum, {records_sum.shape}"
            )
        self._open = None
        self.guess(coins, (noisy - records_sum).ravel()[coins.coordinates] / norm)
        without = noisy - self._added(coins, norm, records_sum.shape)
        self.steps.add(without, norm)
        return _like(noisy_sum, without)

    def _begin(self, dimension: int, clipping_norm: float) -> tuple[float, Coins]:
        if self._open is not None:
            raise InvalidArgumentError(
                "canaries",
                "a second sum",
                "observe has to be called after each insert or examples",
            )
        return validation.positive("clipping_norm", clipping_norm), self.toss(dimension)

    def toss(self, dimension: int) -> Coins:
        """Returns new canaries for a gradient with so many coordinates."""
        size = min(self._per_step, dimension)
        return Coins(
            self._rng.choice(dimension, size, replace=False), self._rng.random(size) < 0.5
        )

    def guess(self, coins: Coins, seen: FloatArray) -> None:
        """Guesses "in" where more than half a clipping norm is seen, and writes down the share.

        Args:
            coins: This step's canaries.
            seen: The noisy sum less what the records gave, in clipping norms, at each canary.
        """
        if not coins.included.size:
            return
        right = (seen > 0.5) == coins.included
        if len(seen) >= _FEWEST_TO_COMPARE:
            scale = 1.4826 * float(np.median(np.abs(seen - np.median(seen))))
            longest = float(np.abs(seen).max())
            if longest > 2.0 + _FAR * scale:
                self.longer = max(self.longer, longest)
        self.shares.append(float(np.mean(right)))
        self.counts.append(len(right))

    @staticmethod
    def _added(coins: Coins, norm: float, shape: tuple[int, ...]) -> FloatArray:
        flat = np.zeros(math.prod(shape))
        flat[coins.coordinates[coins.included]] = norm
        return flat.reshape(shape)


def _plain(values: Any) -> FloatArray:
    """Returns numbers of numpy or PyTorch as an array of its own."""
    array = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    return np.array(array, dtype=np.float64)


def _like(original: Array, values: FloatArray) -> Array:
    """Returns an array in the form that the original has: PyTorch's on its device, or numpy's."""
    template: Any = original
    result: Any = values
    if hasattr(original, "detach"):
        import torch  # an extra; the caller has it

        result = torch.as_tensor(values, dtype=template.dtype, device=template.device)
    return cast("Array", result)


def best_chance(noise_multiplier: float) -> float:
    """Returns the largest chance of a right guess about one record of one step."""
    return 0.5 * math.erfc(-1.0 / (2.0 * math.sqrt(2.0) * noise_multiplier))


def log_wealth(shares: FloatArray, chance: float) -> FloatArray:
    """Returns the logarithm of the wealth after all steps.

    Args:
        shares: Shares of right guesses, shape (..., steps).
        chance: What their mean is at most, if the claim is true; in [1/2, 1].
    """
    return np.asarray(np.log1p(_STAKE * (shares / chance - 1.0)).sum(axis=-1))


def noise_at_most(shares: FloatArray, error: float) -> float:
    """Returns an upper bound on the noise multiplier of the quietest step; inf if none.

    Args:
        shares: Shares of right guesses, shape (steps,).
        error: The largest chance that every step has more noise than the bound.
    """
    from scipy.special import ndtri  # start-up time: scipy.special is slow to load

    def refuted(chance: float) -> bool:
        return float(log_wealth(shares, chance)) >= -math.log(error)

    low, high = 0.5, 1.0
    if not refuted(low):
        return math.inf
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return math.inf if low <= 0.5 else float(1.0 / (2.0 * ndtri(low)))


def power(counts: list[int], stated: float, actual: float, error: float) -> float:
    """Returns how often steps of noise ``actual`` are found out when ``stated`` is claimed.

    ``counts`` are canaries by step, ``error`` is the largest chance to accuse an honest training.

    By simulation, 4,000 trainings with independent canaries.
    """
    rng = np.random.default_rng(0)  # no secret: the same question has the same answer
    sizes = np.asarray(counts)
    rejections = 0
    for _ in range(40):
        shares = rng.binomial(sizes, best_chance(actual), (100, sizes.size)) / sizes
        rejections += int((log_wealth(shares, best_chance(stated)) >= -math.log(error)).sum())
    return rejections / 4000
