"""The law of min(T, n), for any law of T."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.selection.laws.base import Mpf, TrialCount

if TYPE_CHECKING:
    from mpmath import MPContext

_LARGEST_CAP = 2_000_000


@dataclass(frozen=True, repr=False)
class Capped(TrialCount):
    """Law of min(T, n) for T of another law; made by ``law.capped(n)``.

    The RDP theorem of ``base`` does not hold for it (``docs/explanation/rdp-of-selection.md``);
    the profile bounds do.

    Args:
        base: The law of T, not itself capped.
        n: The cap, from 1 to 2 million.

    Attributes:
        mean: E[min(T, n)].

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """

    base: TrialCount
    n: int
    mean: float = field(init=False, compare=False)
    law: ClassVar[str] = "capped"

    def __post_init__(self) -> None:
        if not isinstance(self.base, TrialCount) or self.base.uncapped is not self.base:
            raise InvalidArgumentError(
                "base",
                self.base,
                allowed="it must be an uncapped law of T",
                fix="Use law.capped(n).",
            )
        n = validation.whole("n", self.n, minimum=1)
        if n > _LARGEST_CAP:
            raise InvalidArgumentError("n", n, allowed=f"it must be at most {_LARGEST_CAP}")
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "mean", float(np.sum(self._weights)))

    def __repr__(self) -> str:
        return f"{self.base!r}.capped({self.n})"

    def capped(self, n: int) -> TrialCount:
        n = validation.whole("n", n, minimum=1)
        return self if n >= self.n else self.base.capped(n)

    @property
    def maximum(self) -> int | None:
        return self.n

    @property
    def uncapped(self) -> TrialCount:
        return self.base

    def _pmf(self, k: FloatArray) -> FloatArray:
        below = k < self.n
        inner = self.base._pmf(np.where(below, k, 1.0))
        return np.where(below, inner, np.where(k == self.n, self.base._tail(self.n - 1), 0.0))

    def _tail(self, n: int) -> float:
        return self.base._tail(n) if n < self.n else 0.0

    def _cdf_at(self, k: int) -> float:
        return self.base._cdf_at(k) if k < self.n else 1.0

    def exact_tail(self, ctx: MPContext, n: int) -> Mpf:
        return self.base.exact_tail(ctx, n) if n < self.n else ctx.mpf(0)
