"""Between dp-accounting's privacy loss distributions (PLDs) and our dominating pairs.

A PLD of dp-accounting holds one discrete loss distribution per direction on a grid of multiples
of a discretisation interval. They compose by FFT, which leaves noise: here a PLD is read at
epsilon >= 0 only, and what the noise may have taken is added back (:func:`fft_slack`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant, pld_pmf, privacy_loss_distribution
from scipy.fft import irfft, next_fast_len, rfft

from optuna_dp.accounting.dominating_pairs import DominatingPair
from optuna_dp.accounting.events import neighboring_relation
from optuna_dp.accounting.reading_points import reading_points
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import UnsupportedEventError

# Below this a profile of double precision means nothing.
FLOOR = 1e-16
DEFAULT_INTERVAL = 1e-4
_LARGEST_EXPONENT = 700.0
# What a composition may cut off, as in dp-accounting.
_TAIL = 1e-15
# Terms of a transform below e to this change a probability by 2e-26 at most.
_LOG_OF_NOTHING = -60.0
# Chernoff's bound is the best of those of this many orders; the largest exponential is e^512.
_ORDERS = 10


# This module is the only place that touches private attributes of dp-accounting.


class Side(NamedTuple):
    """The privacy losses of one direction: of each atom its loss and mass, and what is infinite.

    Attributes:
        losses: Shape (n,), ascending.
        masses: Shape (n,).
        infinite_mass: Mass of infinite loss.
    """

    losses: FloatArray
    masses: FloatArray
    infinite_mass: float


def sides(pld: privacy_loss_distribution.PrivacyLossDistribution) -> tuple[Side, Side]:
    """Returns the losses of a PLD for removing and for adding a record."""
    return _side(pld._pmf_remove), _side(pld._pmf_add)


def _side(pmf: pld_pmf.PLDPmf) -> Side:
    if isinstance(pmf, pld_pmf.DensePLDPmf):
        at, masses = pmf._lower_loss + np.arange(pmf.size), np.asarray(pmf._probs)
    else:
        of = sorted(pmf._loss_probs.items())
        at, masses = np.array([k for k, _ in of]), np.array([mass for _, mass in of])
    return Side(at * pmf._discretization, masses, float(pmf._infinity_mass))


def is_pessimistic(pld: privacy_loss_distribution.PrivacyLossDistribution) -> bool:
    """Whether a PLD is known to be rounded toward less privacy."""
    return bool(pld._pmf_remove._pessimistic_estimate and pld._pmf_add._pessimistic_estimate)


def fft_slack(applications: int) -> float:
    """Returns what must be added to every delta of a PLD composed by FFT this many times.

    Composed Gaussians, whose profile is known exactly, come out up to 2e-14 too low after 2,000
    convolutions, 9e-12 after 300,000, and 2.4e-14 for a single mechanism, at points of its grid
    (dp-accounting composes that with an identity). The values are several times those (a test
    measures it).
    """
    return 1e-13 if applications <= 1 else 2e-13 + 1.5e-16 * applications


def native_pld(
    event: dp_event.DpEvent, relation: str, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns the pessimistic PLD of an event that dp-accounting's PLD accountant supports."""
    accountant = PLDAccountant(neighboring_relation(relation), interval)
    try:
        accountant.compose(event)
    except (ValueError, MemoryError, OverflowError) as error:  # found only now
        raise UnsupportedEventError(event, f"dp-accounting says: {error}") from error
    # Dense: of a sparse one dp-accounting would compute ``size ** times`` before it composes it, a
    # number of millions of digits.
    directions = (
        pmf.to_dense_pmf() for pmf in (accountant._pld._pmf_remove, accountant._pld._pmf_add)
    )
    return privacy_loss_distribution.PrivacyLossDistribution(*directions)


def composed(
    parts: list[tuple[privacy_loss_distribution.PrivacyLossDistribution, int]],
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns the PLD of all parts together.

    dp-accounting composes two at a time, in complex numbers and with loops in Python. This is one
    product of real Fourier transforms for all parts, with the same allowances.

    Args:
        parts: PLDs on multiples of one interval, pessimistic, and how often each is applied.
    """
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    directions = (
        [(getattr(pld, name).to_dense_pmf(), times) for pld, times in parts]
        for name in ("_pmf_remove", "_pmf_add")
    )
    return privacy_loss_distribution.PrivacyLossDistribution(*map(_convolved, directions))


def _convolved(parts: list[tuple[pld_pmf.DensePLDPmf, int]]) -> pld_pmf.DensePLDPmf:
    low, high = _chernoff([(np.asarray(pmf._probs), times) for pmf, times in parts])
    length = next_fast_len(max(high - low + 1, *(pmf.size for pmf, _ in parts)), real=True)
    product = np.ones(length // 2 + 1, dtype=np.complex128)
    for pmf, times in parts:
        transform = rfft(pmf._probs, length)
        # The other powers, most of them, are as good as zero and take long to compute.
        large = np.abs(transform) > math.exp(_LOG_OF_NOTHING / times)
        product[large] *= transform[large] ** times
        product[~large] = 0.0
    # What lies outside the range is wrapped around into it; it is counted as infinite loss too.
    probs = np.roll(irfft(product, length), -(low % length))[: high - low + 1]
    log_finite = sum(times * math.log1p(-pmf._infinity_mass) for pmf, times in parts)
    lowest_index = low + sum(times * pmf._lower_loss for pmf, times in parts)
    infinite = min(_TAIL - math.expm1(log_finite), 1.0)
    return pld_pmf.DensePLDPmf(parts[0][0]._discretization, lowest_index, probs, infinite, True)


def _chernoff(parts: list[tuple[FloatArray, int]]) -> tuple[int, int]:
    """Returns the ends of a range outside which sums of indices have at most _TAIL of the mass.

    Args:
        parts: The probabilities of indices 0, 1, ..., and how many such indices are added up.
    """
    longest = max(probs.size for probs, _ in parts)
    # Each is twice the one before, so that exponentials are squares of those before.
    orders = 2.0 ** np.arange(_ORDERS) / longest
    ends = []
    for sign in (-1.0, 1.0):
        log_moments = np.zeros(_ORDERS)
        for probs, times in parts:
            powers = np.exp(sign * orders[0] * np.arange(probs.size))
            for i in range(_ORDERS):
                log_moments[i] += times * math.log(float(probs @ powers))
                powers = powers * powers if i < _ORDERS - 1 else powers
        ends.append(float(((log_moments + math.log(2.0 / _TAIL)) / orders).min()))
    largest = sum(times * (probs.size - 1) for probs, times in parts)
    low = max(0, math.floor(-ends[0]) - 1)
    return low, max(low, min(largest, math.ceil(ends[1]) + 1))


def pair_of_pld(
    pld: privacy_loss_distribution.PrivacyLossDistribution, slack: float
) -> DominatingPair:
    """Returns a dominating pair of a PLD, read at epsilon >= 0 in both directions.

    Args:
        pld: dp-accounting's, pessimistic; "remove" becomes the forward direction.
        slack: Added to every delta read.
    """
    directions = sides(pld)
    knots = [np.append(0.0, side.losses[side.losses > 0.0]) for side in directions]
    epsilons = reading_points(
        [(at, deltas_at(side, at)) for at, side in zip(knots, directions, strict=True)],
        FLOOR + slack,
    )
    return DominatingPair.from_profile(
        epsilons, *(deltas_at(side, epsilons) + slack for side in directions)
    )


def deltas_at(side: Side, epsilons: FloatArray) -> FloatArray:
    """Returns the hockey sticks at epsilons >= 0, within [0, 1].

    The sums of dp-accounting's ``get_delta_for_epsilon``, in the same order, by numpy instead of
    a loop in Python, which takes longer than the composition.
    """
    losses, masses, infinite = side
    falling = masses[::-1]
    upper = np.cumsum(np.concatenate([[infinite], falling]))
    # Of factors beyond what floats hold less is taken off, which is safe.
    factors = np.exp(np.minimum(-losses[::-1], _LARGEST_EXPONENT))
    lower = np.cumsum(np.concatenate([[0.0], falling * factors]))
    atoms_above = losses.size - np.searchsorted(losses, epsilons, side="right")
    # At losses beyond what floats hold nothing is left to take off.
    subtrahend = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT)) * lower[atoms_above]
    return np.asarray(np.clip(upper[atoms_above] - subtrahend, 0.0, 1.0))


def pld_of_pair(
    pair: DominatingPair, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns a PLD on multiples of ``interval`` that dominates the pair."""
    directions = (pmf_of_pair(direction, interval) for direction in (pair, pair.reversed()))
    return privacy_loss_distribution.PrivacyLossDistribution(*directions)


def pmf_of_pair(pair: DominatingPair, interval: float) -> pld_pmf.PLDPmf:
    """Returns the loss distribution of :func:`pld_of_pair` in the forward direction.

    Each atom is split onto its two neighbours on the grid so that both its O-mass and its
    O'-mass are kept: the atom is a garbling of the two, so the result dominates. It is the
    connect-the-dots discretisation (arXiv 2207.04380v1) without its differences of near numbers.
    """
    if pair.losses.size == 0:
        return pld_pmf.create_pmf({0: 0.0}, interval, pair.infinite_mass, True)
    grid_index = np.floor(pair.losses / interval).astype(np.int64)
    to_next = np.clip((grid_index + 1) * interval - pair.losses, 0.0, interval)
    lower_mass = np.clip(np.expm1(to_next) / math.expm1(interval), 0.0, 1.0) * pair.mass
    lowest, highest = int(grid_index[0]), int(grid_index[-1]) + 1
    probs = np.zeros(highest - lowest + 1)
    np.add.at(probs, grid_index - lowest, lower_mass)
    np.add.at(probs, grid_index + 1 - lowest, pair.mass - lower_mass)
    return pld_pmf.DensePLDPmf(interval, lowest, probs, pair.infinite_mass, True)
