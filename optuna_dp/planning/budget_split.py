"""Splits a budget between pilots and the last run (``docs/explanation/budget.md``).

Composition of Gaussian-like mechanisms is nearly a sum of squares, so everything here is planned
in shares of the squared budget: the last run gets 1 / noise_increase^2 of it, the pilots the rest.
The shares of scores are fixed by that arithmetic, which may be a little wrong; then the accounting
is asked for the noise of the trainings at which the whole costs what it may.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from dp_accounting import dp_event
from scipy.optimize import brentq
from scipy.special import log_ndtr

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import rdp_to_epsilon
from optuna_dp.accounting.run_rdp import rdp_of
from optuna_dp.core.numbers_shown import significant_up
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.calibration import NOISE, SMALLEST_NOISE, profile_epsilon
from optuna_dp.planning.saddle_point import Steps, estimated_epsilon
from optuna_dp.planning.target_search import guided, largest_within
from optuna_dp.preparation.range_query import RangeQuery
from optuna_dp.samplers.budget.plan import PaidRuns, composed

# What a score on the training records may take of its run's squared budget: a fifth of a pilot's,
# which the pilot is there for (by experiment: docs/explanation/searches.md); a hundredth of the
# last run's, 0.5 per cent more noise.
_PILOT_SCORE_SHARE, _FINAL_SCORE_SHARE = 0.2, 0.01
# On disjoint records a score costs nothing as long as it costs no more than the training.
_DISJOINT_SCORE_SHARE = 0.9
# What odp.scoring accepts.
_SMALLEST_SCORE_NOISE, _LARGEST_SCORE_NOISE = 0.1, 1e6
# A pilot with less than this of the last run's signal to noise teaches nothing.
_FAINTEST = 0.01
# What either search may leave of the budget: a step of the secant after the first exact answer.
_UNUSED = 0.001


@dataclass(frozen=True)
class Split:
    """The two searches: for the last run alone, then for the pilots beside it."""

    epsilon: float
    delta: float
    relation: str
    # From noise and steps to an event; None for DP-SGD.
    training: Callable[[float, int], dp_event.DpEvent] | None
    sample_rate: float | None
    score: str | None
    score_final: bool
    ranges: RangeQuery | None = None  # What is charged besides the runs.

    @property
    def _squared_mu(self) -> float:
        """The squared budget of the runs."""
        budget = squared_mu(self.epsilon, self.delta)
        if self.ranges is None:
            return budget
        return budget - self.ranges.squared_mu(self.relation)

    def last(self, count: int, steps: int, increase: float) -> tuple[PaidRuns, float]:
        """Returns the last runs: ``increase`` times the noise at which they cost everything.

        And cost over estimate there, which the pilots' search begins with.
        """
        budget = self._squared_mu
        score_noise = self._score_noise(budget / count, _FINAL_SCORE_SHARE)
        if not self.score_final:
            score_noise = None

        def runs(noise: float, score_noise: float | None) -> PaidRuns:
            return self._paid(count, noise, steps, score_noise)

        start = self._start(budget / count, steps)
        noise, cost, ratio = self._search(lambda value: [runs(value, score_noise)], start, 1.0)
        if cost > self.epsilon:
            raise InvalidArgumentError(
                "epsilon",
                self.epsilon,
                problem=f"it is too small: at noise multiplier {noise:g} the last run alone costs "
                f"{significant_up(cost) if math.isfinite(cost) else 'an infinite epsilon'} at "
                f"delta {self.delta:g}",
                fix="Allow a larger epsilon or delta, or fewer steps.",
            )
        if cost < 0.99 * self.epsilon:
            raise InvalidArgumentError(
                "epsilon",
                self.epsilon,
                problem=f"no noise multiplier gives it: the nearest one below, {noise:g}, costs "
                f"{cost:.4g}",
                fix="If epsilon is large, lower it or train for more steps. If it is tiny, "
                "raise it.",
            )
        if score_noise is not None:
            score_noise = _score_noise_within(score_noise * increase)
        return runs(_rounded(noise * increase), score_noise), ratio

    def rungs(
        self,
        sizes: tuple[int, ...],
        steps: int,
        last_runs: PaidRuns,
        increase: float,
        ratio: float,
    ) -> list[PaidRuns]:
        """Returns the pilots that cost what the last runs leave, the signal doubling by rung."""
        budget = self._squared_mu
        pilot_budget = budget * (1.0 - increase**-2)
        total = sum(n * 4.0**i for i, n in enumerate(sizes))
        shares = [pilot_budget * 4.0**i / total for i in range(len(sizes))]
        score_noises = [self._score_noise(share, _PILOT_SCORE_SHARE) for share in shares]

        def rungs(noise: float) -> list[PaidRuns]:
            return [
                self._paid(count, noise / 2.0**i, steps, score_noise)
                for i, (count, score_noise) in enumerate(zip(sizes, score_noises, strict=True))
            ]

        start = self._start(shares[0], steps)
        if self.sample_rate is None:
            # Squared cost goes as steps / noise^2.
            of_last = budget * increase**-2 / last_runs.count
            start = last_runs.noise_multiplier * math.sqrt(
                of_last / shares[0] * steps / last_runs.steps
            )
        divisor = 2.0 ** (len(sizes) - 1)
        noise, cost, _ = self._search(
            lambda value: [*rungs(value), last_runs], start, divisor, ratio
        )
        if not 0.99 * self.epsilon <= cost <= self.epsilon:
            raise InvalidArgumentError(
                "pilots",
                sizes if len(sizes) > 1 else sizes[0],
                problem=f"no noise of the pilots fits the budget with a last run of {increase:g} "
                f"times the noise: at {noise:g} all cost {significant_up(cost)} of "
                f"{self.epsilon:g}",
                fix="Change noise_increase, or the number or the length of the pilots.",
            )
        pilots = rungs(noise)
        signal = (
            last_runs.noise_multiplier * math.sqrt(last_runs.steps) / (noise * math.sqrt(steps))
        )
        if signal < _FAINTEST:
            raise InvalidArgumentError(
                "pilots",
                sizes if len(sizes) > 1 else sizes[0],
                problem=f"each pilot would have {1.0 / signal:.0f} times the noise of the last "
                "run (at equal length), too much to learn from",
                fix="Use fewer pilots, or a larger noise_increase.",
            )
        return pilots

    def _paid(self, count: int, noise: float, steps: int, score_noise: float | None) -> PaidRuns:
        training = None if self.training is None else self.training(noise, steps)
        return PaidRuns(count, noise, steps, score_noise, training)

    def _search(
        self,
        runs: Callable[[float], list[PaidRuns]],
        start: float,
        divisor: float,
        ratio: float = 1.0,
    ) -> tuple[float, float, float]:
        """Returns the least noise within the budget, what all costs then, cost over estimate."""

        def guarantee(u: float) -> Guarantee:
            charged_runs = runs(_rounded(scale.value(u)))
            event = composed(charged_runs, self.sample_rate, self.score, self.ranges)
            return Guarantee(event, self.relation)

        scale = replace(NOISE, high=-math.log(SMALLEST_NOISE * divisor), slope=1.0)
        scale = replace(scale, start=-math.log(start))

        def exact(u: float) -> float:
            return profile_epsilon(guarantee(u), self.delta)

        def rough(u: float) -> float:
            if self.sample_rate is None:
                return _rough_epsilon(guarantee(u), self.delta)
            return self._estimate(runs(_rounded(scale.value(u))))

        point = guided(exact, rough, self.epsilon, scale, ratio=ratio, tolerance=_UNUSED)
        if self.sample_rate is None:
            # An event of the caller's may be judged better by something else than its profile.
            cost = guarantee(point.at).epsilon(self.delta)
            if not (1.0 - _UNUSED) * self.epsilon <= cost <= self.epsilon:
                point = largest_within(
                    lambda u: guarantee(u).epsilon(self.delta),
                    self.epsilon,
                    scale.starting_at(point),
                    tolerance=_UNUSED,
                )
        return _rounded(scale.value(point.at)), point.cost, point.cost / rough(point.at)

    def _estimate(self, charged_runs: list[PaidRuns]) -> float:
        """Returns about what these runs of DP-SGD cost together."""
        assert self.sample_rate is not None  # for the type checker
        noises = () if self.ranges is None else self.ranges.noise_multipliers
        parts = [Steps(1.0, noise, 1) for noise in noises]
        for run in charged_runs:
            parts.append(Steps(self.sample_rate, run.noise_multiplier, run.steps * run.count))
            if run.score_noise_multiplier is not None and self.score == "training":
                parts.append(Steps(1.0, run.score_noise_multiplier, run.count))
        return estimated_epsilon(
            parts,
            self.delta,
            near=self.epsilon,
            replace_one=self.relation == "replace_one",
        )

    def _start(self, squared: float, steps: int) -> float:
        """Returns about the noise at which a training costs this much."""
        if self.sample_rate is None:
            return 1.0
        return central_limit_noise(
            squared, self.sample_rate, steps, replace_one=self.relation == "replace_one"
        )

    def _score_noise(self, squared: float, share: float) -> float | None:
        if self.score is None:
            return None
        part = _DISJOINT_SCORE_SHARE if self.score == "disjoint" else share
        sensitivity = 2.0 if self.relation == "replace_one" else 1.0
        return _score_noise_within(sensitivity * (part * squared) ** -0.5)


# Whole numbers, for which the Renyi divergence of a sampled Gaussian is a short sum.
_FEW_ORDERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512)


def _rough_epsilon(guarantee: Guarantee, delta: float) -> float:
    """Returns about 1.1 times what the accounting says, in a hundredth of the time."""
    curve = rdp_of(guarantee.judged_event, guarantee.neighboring_relation, _FEW_ORDERS)
    return rdp_to_epsilon(np.array(_FEW_ORDERS, dtype=float), curve, delta)


def squared_mu(epsilon: float, delta: float) -> float:
    """Returns mu^2 of the Gaussian mechanism that is exactly (epsilon, delta)-DP.

    Nothing is guaranteed by it; shares of budgets are shares of this.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        log_above = log_ndtr(mu / 2.0 - epsilon / mu)
        log_below = epsilon + log_ndtr(-mu / 2.0 - epsilon / mu)
        return float(
            log_above + math.log1p(-min(math.exp(log_below - log_above), 1.0 - 1e-16))
        ) - math.log(delta)

    return math.exp(2.0 * float(brentq(excess, math.log(1e-9), math.log(1e4))))


def central_limit_noise(
    squared: float, sample_rate: float, steps: int, *, replace_one: bool
) -> float:
    """Returns about the noise at which DP-SGD takes a squared budget, for many steps.

    By mu^2 = q^2 S (e^(1/sigma^2) - 1), the central limit of Dong et al., arXiv 1905.02383v3.
    """
    sensitivity = 2.0 if replace_one else 1.0
    return sensitivity / math.sqrt(math.log1p(squared / (sample_rate**2 * steps)))


def _score_noise_within(noise: float) -> float:
    return _rounded(min(max(noise, _SMALLEST_SCORE_NOISE), _LARGEST_SCORE_NOISE))


def _rounded(noise: float) -> float:
    """Returns the noise with five digits, never less: a script shows what was judged."""
    return float(significant_up(noise, digits=5))
