"""How a learning rate falls over a training, and which of its weights are averaged at the end.

Both are functions of the number of a step alone, so they cost no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError

Decay = Literal["constant", "linear", "cosine"]
DECAYS: tuple[Decay, ...] = ("constant", "linear", "cosine")
# Fewer of them cannot use what signal they have, at any rate.
FEWEST_STEPS = 20


@dataclass(frozen=True)
class Schedule:
    """A decay of the learning rate, and an average of the last weights.

    The default of :func:`optuna_dp.train` is ``Schedule("constant", averaged_share=0.25)``. It
    lost least of those that were compared (``docs/explanation/known-without-data.md``).

    Attributes:
        decay: "constant", "linear" (to zero after the last step) or "cosine" (likewise).
        averaged_share: Share of the steps, the last ones, after which weights are averaged into
            the model that is returned; in [0, 1]. 0 takes the last weights as they are.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    decay: Decay | str  # a str too: what suggest_categorical returns; checked below
    averaged_share: float = 0.0

    def __post_init__(self) -> None:
        if self.decay not in DECAYS:
            allowed = f"it must be one of {', '.join(map(repr, DECAYS))}"
            raise InvalidArgumentError("decay", self.decay, allowed=allowed)
        if validation.non_negative("averaged_share", self.averaged_share) > 1.0:
            raise InvalidArgumentError(
                "averaged_share", self.averaged_share, allowed="it must be at most 1"
            )

    def factor(self, step: int, steps: int) -> float:
        """Returns what the first step's learning rate is multiplied by.

        Args:
            step: The number of a step, from 0 to ``steps - 1``.
            steps: How many there are.
        """
        progress = step / steps
        if self.decay == "linear":
            return 1.0 - progress
        return 0.5 * (1.0 + math.cos(math.pi * progress)) if self.decay == "cosine" else 1.0

    def noise_factor(self, steps: int) -> float:
        """Returns the noise of a weight at the end over that of a constant rate; at most 1.

        A step's noise is in those of the averaged weights that come after it. Exact for SGD; a
        momentum and Adam's moments spread it over some more steps.

        Args:
            steps: How many steps there are.
        """
        averaged = max(self.averaged_steps(steps), 1)
        total = 0.0
        for step in range(steps):
            share = min(steps - step, averaged) / averaged
            total += (share * self.factor(step, steps)) ** 2
        return math.sqrt(total / steps)

    def averaged_steps(self, steps: int) -> int:
        """Returns after how many of the last steps the weights are averaged; 0 for none."""
        return round(self.averaged_share * steps)


CONSTANT = Schedule("constant")
DEFAULT_SCHEDULE = Schedule("constant", averaged_share=0.25)
