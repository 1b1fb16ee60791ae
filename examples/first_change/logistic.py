"""Logistic noise on a number: the event, and the profile by which it is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attr
import numpy as np

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.kinds.base import OwnEvent, checked
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray

# Points of the profile between 0 and the largest loss.
POINTS = 300
# What rounding may take from a difference of two probabilities.
ROUNDING = 1e-15


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LogisticDpEvent(OwnEvent):
    """Logistic noise, added to a number that neighbouring data sets move by at most 1.

    Attributes:
        scale: The scale of the noise, in units of that move; positive.
    """

    scale: float = checked(validation.positive, "scale")
    readers: ClassVar[Mapping[str, Callable[[str, Any], Any]]] = {"scale": validation.positive}

    def words(self, of: Callable[[Any], str]) -> str:
        """See :class:`OwnEvent`."""
        return f"logistic noise of scale {self.scale:g}"

    def pure(self, relation: str, pure_of: Callable[[Any, str], float]) -> float:
        """See :class:`OwnEvent`; the log-density has slopes between -1/scale and 1/scale."""
        return 1.0 / self.scale

    def pair(self, relation: str, pair_of: Callable[[Any, str], DominatingPair]) -> DominatingPair:
        """See :class:`OwnEvent`; the density is even, so both directions are alike."""
        epsilons, deltas = profile(self.scale)
        return DominatingPair.from_profile(epsilons, deltas, deltas)


def profile(scale: float) -> tuple[FloatArray, FloatArray]:
    """Returns points of the privacy profile, each delta an upper bound.

    The density is log-concave, so the outputs whose loss is at least epsilon are those beyond one
    point x. There u = exp(-x / scale) solves a linear equation, and delta is a difference of two
    tails.

    Args:
        scale: The scale of the noise; positive.

    Returns:
        Epsilons, shape (300,), from 0 to 1 / scale; and deltas of the same shape.
    """
    shift = np.exp(1.0 / scale)
    epsilons = np.linspace(0.0, 1.0 / scale, POINTS)
    factor = np.exp((epsilons - 1.0 / scale) / 2.0)
    u = np.maximum((1.0 - factor) / np.maximum(factor * shift - 1.0, 1e-300), 0.0)
    moved_tail = u * shift / (1.0 + u * shift)
    tail = u / (1.0 + u)
    deltas = moved_tail - np.exp(epsilons) * tail + ROUNDING
    return epsilons, np.append(deltas[:-1], 0.0)
