"""The privacy loss distribution of one DP-SGD step, by dp-accounting's formulas on whole arrays.

dp-accounting looks for the event that decides each hockey stick in a loop over the grid, which
takes most of the time of judging a training. Here all are found at once. A hockey stick is the
*largest* difference over events, so an event that rounding moved a little is still almost the
best: the error enters squared. The masses of the events and the discretisation are
dp-accounting's own.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from optuna_dp.core.arrays import FloatArray


def applies_to(event: dp_event.DpEvent) -> bool:
    """Returns whether the event is a Gaussian mechanism on a Poisson sample."""
    return (
        isinstance(event, dp_event.PoissonSampledDpEvent)
        and isinstance(event.event, dp_event.GaussianDpEvent)
        and 0.0 < event.sampling_probability < 1.0
        and event.event.noise_multiplier > 0.0
    )


def loss_distribution(
    event: dp_event.DpEvent, relation: str, interval: float
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Returns the pessimistic PLD that dp-accounting's accountant makes of the event.

    Args:
        event: One that :func:`applies_to` takes.
        relation: "add_or_remove_one" or "replace_one".
        interval: Of the grid.
    """
    if relation == "replace_one":
        pmf = _one_way(event, AdjacencyType.REPLACE, interval)
        return privacy_loss_distribution.PrivacyLossDistribution(pmf)
    return privacy_loss_distribution.PrivacyLossDistribution(
        _one_way(event, AdjacencyType.REMOVE, interval),
        _one_way(event, AdjacencyType.ADD, interval),
    )


def _one_way(
    event: dp_event.DpEvent, adjacency: AdjacencyType, interval: float
) -> pld_pmf.DensePLDPmf:
    rate, noise = event.sampling_probability, event.event.noise_multiplier
    mechanism = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=adjacency)
    epsilon_range = mechanism.connect_dots_bounds()
    low = math.floor(epsilon_range.epsilon_lower / interval)
    high = math.ceil(epsilon_range.epsilon_upper / interval)
    epsilons = np.arange(low, high + 1) * interval
    cuts = _cuts(epsilons, rate, noise, adjacency)
    is_finite = ~np.isnan(cuts)
    # Where no outcome has so small a loss, all of them count; where none has so large a one, none.
    deltas = np.zeros(epsilons.size)
    if adjacency == AdjacencyType.REMOVE:
        deltas = -np.expm1(np.minimum(epsilons, 0.0))
    deltas[is_finite] = mechanism.mu_upper_cdf(cuts[is_finite]) - np.exp(
        epsilons[is_finite] + mechanism.mu_lower_log_cdf(cuts[is_finite])
    )
    # dp-accounting's connect-the-dots (arXiv 2207.04380v1), without its dictionary of all losses.
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    falls = -np.diff(deltas)
    rises_back, down = falls / -math.expm1(-interval), falls / math.expm1(interval)
    masses = np.append(1.0 - deltas[0], rises_back) - np.append(down, 0.0)
    return pld_pmf.DensePLDPmf(interval, low, np.maximum(masses, 0.0), float(deltas[-1]), True)


def _cuts(epsilons: FloatArray, rate: float, noise: float, adjacency: AdjacencyType) -> FloatArray:
    """Returns below which outcome the loss exceeds each epsilon, NaN where at all or at none.

    The noise is centred at 0 without the record, at -1 with it ("remove", "replace": the other
    data set's record moves it to 1) or at 1 ("add").
    """
    variance = noise**2
    with np.errstate(divide="ignore", invalid="ignore"):
        if adjacency == AdjacencyType.REPLACE:
            # (1 - q) sinh(eps / 2) e^(1 / 2 sigma^2) / q = sinh(-x / sigma^2 - eps / 2), in logs.
            size = np.abs(epsilons) / 2.0
            log_sinh = size + np.log(-np.expm1(-2.0 * size) / 2.0)
            log_right = log_sinh + 0.5 / variance + math.log1p(-rate) - math.log(rate)
            asinh = np.logaddexp(0.5 * np.logaddexp(0.0, 2.0 * log_right), log_right)
            return np.asarray(-variance * (np.sign(epsilons) * asinh + 0.5 * epsilons))
        # The loss without sampling: log(1 + (e^eps - 1) / q), and its mirror image.
        sign = 1.0 if adjacency == AdjacencyType.REMOVE else -1.0
        loss = sign * epsilons
        small = np.log1p(np.expm1(np.minimum(loss, 1.0)) / rate)
        large = loss - math.log(rate) + np.log1p(-(1.0 - rate) * np.exp(-np.maximum(loss, 1.0)))
        unsampled = sign * np.where(loss > 1.0, large, small)
    shift = 0.5 if adjacency == AdjacencyType.ADD else -0.5
    cuts = shift - unsampled * variance
    cuts[~np.isfinite(unsampled)] = math.nan
    return np.asarray(cuts)
