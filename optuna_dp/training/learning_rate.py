"""The learning rate that follows from public numbers (``docs/explanation/known-without-data.md``).

The noise of DP-SGD moves every weight in a random walk. Its standard deviation at the end, c, is a
number without a unit, and accuracy as a function of c is about the same curve for all optimisers,
noise multipliers, batches and lengths (the linear scaling rule of Panda et al., ICML 2024,
arXiv:2212.04486, and the total amount of noise of Sander et al., arXiv:2210.03403). So a rate is
chosen by its c, and no record is needed. That the best c is about the same for all data sets is
an observation, not a theorem.
"""

from __future__ import annotations

import math
from typing import Literal

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.training.schedules import CONSTANT, Schedule

Optimizer = Literal["sgd", "momentum", "adam", "adamw"]
OPTIMIZERS: tuple[Optimizer, ...] = ("sgd", "momentum", "adam", "adamw")

NOISE_PER_WEIGHT = 0.3
# The rate of SGD times the clipping norm, where there is hardly any noise. Networks on the digits
# collapsed from 13 to 26 on; at 5 nothing that was tried had lost much.
LARGEST_STEP = 5.0


def learning_rate(
    optimizer: Optimizer | str = "sgd",
    *,
    noise_multiplier: float,
    steps: int,
    batch_size: float,
    clipping_norm: float = 1.0,
    momentum: float = 0.9,
    noise_per_weight: float = NOISE_PER_WEIGHT,
    schedule: Schedule = CONSTANT,
) -> float:
    """Returns the rate at which the noise of each weight adds up to a given size.

    The closed rule for small dense models: softmax regressions and networks of a few linear
    layers. It does not know the model, and the noise that others bear is another: 0.05 to 0.1 for
    transformers, LoRA and networks with normalised groups, where 0.3 lost 5 to 20 points of
    accuracy. For them see :func:`rehearse_module`.

    With noise multiplier s, clipping norm C, S steps and expected batch B, the rate for noise c is

    * SGD: ``c B / (s C sqrt(S))``;
    * momentum m: (1 - m) times that, and for few steps more, because a velocity that starts at
      zero is still rising: ``sqrt(S / sum((1 - m^k)^2 for k in 1..S))`` times;
    * Adam and AdamW: ``c / sqrt(S)``, as long as noise dominates the second moment, which it does
      wherever DP-SGD has noise to speak of. The noise comes out 4 % larger for 150 steps and 20 %
      larger for 20, because of the bias correction.

    No record is needed, so the rate costs no privacy. Features should be of order one. The rate
    of SGD and momentum is capped where there is hardly any noise: there the loss limits it.

    Args:
        optimizer: "sgd", "momentum" (SGD with momentum, not Nesterov's), "adam" or "adamw".
        noise_multiplier: Noise of one step over the clipping norm; positive.
        steps: Number of steps, at least 1.
        batch_size: Expected number of records in a batch, which sums of gradients are divided by;
            positive.
        clipping_norm: Largest norm of one record's gradient; positive. Adam does not depend on it.
        momentum: In [0, 1); for "momentum" only.
        noise_per_weight: Standard deviation of the noise that one weight has at the end; positive.
        schedule: How the rate falls, and which of the last weights are averaged. By default the
            rate is constant. Otherwise what is returned is the rate of the first step.

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import optuna_dp as odp
        >>> round(odp.learning_rate(noise_multiplier=2.0, steps=225, batch_size=100), 6)
        1.0
    """
    noise = validation.positive("noise_multiplier", noise_multiplier)
    length = validation.whole("steps", steps, 1)
    batch = validation.positive("batch_size", batch_size)
    norm = validation.positive("clipping_norm", clipping_norm)
    momentum_share = checked_momentum(momentum)
    size = validation.positive("noise_per_weight", noise_per_weight)
    check_optimizer(optimizer)
    if not isinstance(schedule, Schedule):
        raise InvalidArgumentError(
            "schedule", schedule, allowed="it must be an optuna_dp.Schedule"
        )
    size /= schedule.noise_factor(length)
    if optimizer in ("adam", "adamw"):
        return size / math.sqrt(length)
    step = min(size * batch / (noise * math.sqrt(length)), LARGEST_STEP) / norm
    return step if optimizer == "sgd" else step * _slowed(momentum_share, length)


def check_optimizer(value: object) -> None:
    """Refuses what is no optimiser with a rule."""
    if value not in OPTIMIZERS:
        raise InvalidArgumentError(
            "optimizer", value, allowed=f"it must be one of {', '.join(map(repr, OPTIMIZERS))}"
        )


def checked_momentum(value: object) -> float:
    """Returns a share of the velocity that is kept, in [0, 1)."""
    share = validation.non_negative("momentum", value)
    if share >= 1.0:
        raise InvalidArgumentError("momentum", value, allowed="it must be at least 0 and below 1")
    return share


def _slowed(m: float, steps: int) -> float:
    """Returns the rate of momentum over that of SGD which adds up to as much noise.

    A step's noise has moved the weights by ``(1 - m^k) / (1 - m)`` after k steps; the squares are
    summed over k = 1..steps.
    """
    total = steps - 2.0 * m * (1.0 - m**steps) / (1.0 - m)
    total += m * m * (1.0 - m ** (2 * steps)) / (1.0 - m * m)
    return (1.0 - m) * math.sqrt(steps / total)
