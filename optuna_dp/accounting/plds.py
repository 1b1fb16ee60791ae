"""Between dp-accounting's privacy loss distributions (PLDs) and our dominating pairs.

A PLD of dp-accounting holds one discrete loss distribution per direction on a grid of multiples
of a discretisation interval. They compose by FFT, which leaves noise: here a PLD is read at
epsilon >= 0 only, and what the noise may have taken is added back (:func:`fft_slack`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting.pld import PLDAccountant, pld_pmf, privacy_loss_distribution

from optuna_dp.accounting.dominating_pairs import LARGEST_EPSILON, DominatingPair
from optuna_dp.accounting.events import neighboring_relation
from optuna_dp.accounting.reading_points import reading_points
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import UnsupportedEventError

# Below this a profile of double precision means nothing.
FLOOR = 1e-16
DEFAULT_INTERVAL = 1e-4
# At which the public profile is read, should dp-accounting hide its distributions.
_POINTS = 1000
_LARGEST_EXPONENT = 700.0


def private_parts(accountant: Any) -> tuple[Any, Any] | None:
    """Returns the loss distributions (remove, add) of an accountant or a PLD, or None.

    This module is the only place that touches private attributes of dp-accounting. Should these
    move, callers fall back to the public profile, the maximum of both directions: sound, a little
    looser.
    """
    pld = getattr(accountant, "_pld", accountant)
    remove, add = getattr(pld, "_pmf_remove", None), getattr(pld, "_pmf_add", None)
    if isinstance(remove, pld_pmf.PLDPmf) and isinstance(add, pld_pmf.PLDPmf):
        return remove, add
    return None


def is_pessimistic(pld: Any) -> bool:
    """Whether a PLD is known to be rounded toward less privacy; no if that cannot be seen."""
    return all(
        getattr(side, "_pessimistic_estimate", False) for side in private_parts(pld) or (None,)
    )


def fft_slack(applications: int) -> float:
    """Returns what must be added to every delta of a PLD composed by FFT this many times.

    Composed Gaussians, whose profile is known exactly, come out up to 2e-14 too low after 2,000
    convolutions, 9e-12 after 300,000, and 2e-15 for a single mechanism (dp-accounting composes
    that with an identity). The values are several times those (a test measures it).
    """
    return 1e-14 if applications <= 1 else 2e-13 + 1.5e-16 * applications


def native_pld(event: Any, relation: str, interval: float) -> Any:
    """Returns the pessimistic PLD of an event that dp-accounting's PLD accountant supports."""
    accountant = PLDAccountant(neighboring_relation(relation), interval)
    try:
        accountant.compose(event)
    except (ValueError, MemoryError, OverflowError) as error:  # found only now
        raise UnsupportedEventError(event, f"dp-accounting says: {error}") from error
    parts = private_parts(accountant)
    if parts is not None:
        return privacy_loss_distribution.PrivacyLossDistribution(*parts)
    top = min(accountant.get_epsilon(FLOOR), accountant.get_epsilon(1e-12) * 1.5 + interval)
    top = top if math.isfinite(top) else LARGEST_EPSILON
    epsilons = np.linspace(0.0, top, _POINTS)
    deltas = np.array([accountant.get_delta(float(e)) for e in epsilons])
    return pld_of_pair(DominatingPair.from_profile(epsilons, deltas, deltas), interval)


def pair_of_pld(pld: Any, slack: float) -> DominatingPair:
    """Returns a dominating pair of a PLD, read at epsilon >= 0 in both directions.

    Args:
        pld: dp-accounting's, pessimistic; "remove" becomes the forward direction.
        slack: Added to every delta read.
    """
    parts = private_parts(pld)
    forward, reverse = (pld, pld) if parts is None else parts
    epsilons = reading_points(forward, reverse, FLOOR + slack, dense_atoms)
    return DominatingPair.from_profile(
        epsilons, *(deltas_at(side, epsilons) + slack for side in (forward, reverse))
    )


def deltas_at(side: Any, epsilons: FloatArray) -> FloatArray:
    """Returns ``side.get_delta_for_epsilon(epsilons)``, finite and ascending, within [0, 1].

    For a dense distribution dp-accounting's sums are added up here, in the same order, by numpy
    instead of a loop in Python, which takes longer than the composition.
    """
    atoms = dense_atoms(side)
    if atoms is None:
        values = np.asarray(side.get_delta_for_epsilon(epsilons), dtype=np.float64)
    else:
        losses, probs, infinite = atoms
        falling = probs[::-1]
        upper = np.cumsum(np.concatenate([[infinite], falling]))
        # Of factors beyond what floats hold less is taken off, which is safe.
        factors = np.exp(np.minimum(-losses[::-1], _LARGEST_EXPONENT))
        lower = np.cumsum(np.concatenate([[0.0], falling * factors]))
        above = losses.size - np.searchsorted(losses, epsilons, side="right")
        values = upper[above] - np.exp(epsilons) * lower[above]
    return np.clip(values, 0.0, 1.0)


def dense_atoms(side: Any) -> tuple[FloatArray, FloatArray, float] | None:
    """Returns (losses, their mass, infinite mass) of a dense loss distribution, or None."""
    names = ("_lower_loss", "_discretization", "_probs", "_infinity_mass")
    parts: list[Any] = [getattr(side, name, None) for name in names]
    if not isinstance(side, pld_pmf.DensePLDPmf) or any(part is None for part in parts):
        return None
    first, interval, probs, infinite = parts
    masses = np.asarray(probs, dtype=np.float64)
    return (np.arange(masses.size) + first) * interval, masses, float(infinite)


def pld_of_pair(pair: DominatingPair, interval: float) -> Any:
    """Returns a PLD on multiples of ``interval`` that dominates the pair.

    Each atom is split onto its two neighbours on the grid so that both its O-mass and its
    O'-mass are kept: the atom is a garbling of the two, so the result dominates. It is the
    connect-the-dots discretisation (arXiv 2207.04380v1) without its differences of near numbers.
    """

    def side(one: DominatingPair) -> Any:
        if one.losses.size == 0:
            return pld_pmf.create_pmf({0: 0.0}, interval, one.infinite_mass, True)
        below = np.floor(one.losses / interval).astype(np.int64)
        to_next = np.clip((below + 1) * interval - one.losses, 0.0, interval)
        low = np.clip(np.expm1(to_next) / math.expm1(interval), 0.0, 1.0) * one.mass
        first, last = int(below[0]), int(below[-1]) + 1
        probs = np.zeros(last - first + 1)
        np.add.at(probs, below - first, low)
        np.add.at(probs, below + 1 - first, one.mass - low)
        return pld_pmf.DensePLDPmf(interval, first, probs, one.infinite_mass, True)

    return privacy_loss_distribution.PrivacyLossDistribution(side(pair), side(pair.reversed()))
