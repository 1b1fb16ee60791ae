"""The law of a single run: nothing is random, and nothing is secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from optuna_dp.arrays import FloatArray
from optuna_dp.trial_counts.base import TrialCount


@dataclass(frozen=True)
class Once(TrialCount):
    """T = 1, always: one run is no selection, and costs what one run costs.

    The default of :class:`optuna_dp.PilotSampler` with a plan, whose pilots have done the
    searching by the time of the one run.

    Attributes:
        mean: E[T], 1.

    Raises:
        InvalidArgumentError: By every method, if an argument is not allowed.

    Example:
        >>> import optuna_dp as odp
        >>> odp.Once().pmf([0, 1, 2]).tolist()
        [0.0, 1.0, 0.0]
    """

    mean: float = field(default=1.0, init=False, repr=False, compare=False)
    law: ClassVar[str] = "once"

    @property
    def maximum(self) -> int | None:
        return 1

    def _pmf(self, k: FloatArray) -> FloatArray:
        return np.where(k == 1.0, 1.0, 0.0)

    def _tail(self, n: int) -> float:
        return 1.0 if n < 1 else 0.0

    def _pgf(self, s: FloatArray) -> FloatArray:
        return s

    def _pgf_derivative(self, s: FloatArray) -> FloatArray:
        return np.ones_like(s)

    def _hit(self, fraction: float) -> float:
        return fraction

    def _exact_tail(self, ctx: Any, n: int) -> Any:
        return ctx.mpf(1 if n < 1 else 0)
