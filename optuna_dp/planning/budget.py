"""How a budget is split between pilots and the last run (``docs/explanation/budget.md``).

Composition of Gaussian-like mechanisms is nearly a sum of squares, so everything here is planned
in shares of the squared budget: the last run gets 1 / noise_increase^2 of it, the pilots the rest.
The shares of scores are fixed by that arithmetic, which may be a little wrong; then the accounting
is asked for the noise of the trainings at which the whole costs what it may.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from dp_accounting import dp_event
from scipy.optimize import brentq
from scipy.special import log_ndtr

from optuna_dp import validation
from optuna_dp.accounting.events import as_event
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import rdp_to_epsilon
from optuna_dp.accounting.run_rdp import rdp_of
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.numbers_shown import significant_up
from optuna_dp.planning.budget_plan import (
    BudgetPlan,
    assembled,
    checked_sample,
    checked_score,
    rung_sizes,
)
from optuna_dp.planning.calibration import NOISE, SMALLEST_NOISE, profile_epsilon
from optuna_dp.planning.fidelity import PaidRuns, rate_within, run_event, sgd_training
from optuna_dp.planning.saddle_point import Steps, estimated_epsilon
from optuna_dp.planning.target_search import guided, largest_within

# What a score on the training records may take of its run's squared budget: a tenth of a pilot's,
# which the pilot is there for; a hundredth of the last run's, 0.5 per cent more noise.
_PILOT_SCORE_SHARE, _FINAL_SCORE_SHARE = 0.1, 0.01
# On disjoint records a score costs nothing as long as it costs no more than the training.
_DISJOINT_SCORE_SHARE = 0.9
# What odp.scoring accepts.
_SMALLEST_SCORE_NOISE, _LARGEST_SCORE_NOISE = 0.1, 1e6

DEFAULT_PILOTS = (16, 4)
# A pilot with less than this of the last run's signal to noise teaches nothing.
_FAINTEST = 0.01
_MOST_PILOTS = 10_000
_LARGEST_INCREASE = 100.0
_MOST_STEPS = 10_000_000
# What a search may leave of the budget, so that the first exact answer is nearly always one.
_UNUSED = 0.007

Training = Callable[[float, int], Any]
# From noise, steps and the sample that is trained on to what that costs a record of the sample.
_OnSample = Callable[[float, int, float | None], Any]


def default_noise_increase(epsilon: float) -> float:
    """Returns by how much the last run's noise exceeds an untuned run's, unless told otherwise."""
    return 1.08 if epsilon >= 2.0 else 1.15


def plan_budget(
    *,
    epsilon: float,
    delta: float = 1e-5,
    records: int | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    run: Training | None = None,
    steps: int | None = None,
    pilots: int | tuple[int, ...] = DEFAULT_PILOTS,
    pilot_epochs: float | None = None,
    pilot_steps: int | None = None,
    noise_increase: float | None = None,
    sample: float | None = None,
    score: str | None = "training",
    score_final: bool = True,
    spare_runs: int = 0,
    neighboring_relation: str = "add_or_remove_one",
) -> BudgetPlan:
    """Returns pilots in the open and one last run that together cost a target epsilon.

    Tuning at nearly the price of one training: a few noisy pilots, whose outputs are paid for and
    may be shown, and one run with hyperparameters that are any function of those outputs. Either
    DP-SGD is planned, from ``records``, ``batch_size`` and ``epochs``; or anything else whose
    cost falls with a noise multiplier, from ``run`` and ``steps``.

    Guarantees:
        * ``plan.guarantee.epsilon(delta)`` is at most ``epsilon``, and at least 99 % of it.
        * The last run's noise is ``noise_increase`` times that of the same run (and its spare
          ones) with the whole budget and no pilots, rounded up at the fifth digit.
        * On a ladder a pilot has twice the signal to noise of one on the rung below: half the
          noise, at equal length.

    Args:
        epsilon: What everything together may cost; positive.
        delta: In (0, 1).
        records: Number of training records, a public number.
        batch_size: Expected number of records in a batch, at most ``records``.
        epochs: Length of the last run in passes over the records; positive. Rounded to steps.
        run: Instead of the three: a function of (noise multiplier, steps) that returns the event
            of one training without its score.
        steps: With ``run``: length of the last run.
        pilots: Number of pilots, or of each rung of a ladder: (16, 4) lets the best 4 of 16 try
            again with half the noise.
        pilot_epochs: Length of a pilot; like the last run unless given. A short pilot has less
            noise for the same price.
        pilot_steps: The same in steps; with ``run`` only.
        noise_increase: What the last run pays for the pilots, above 1. Unless given, 1.08, and
            1.15 where ``epsilon`` is below 2 (by experiment:
            ``docs/explanation/transfer.md``).
        sample: Chance of a record to join the secret sample that a pilot trains and is scored on,
            drawn afresh by each pilot (:meth:`Fidelity.draw_sample`); the last run has all
            records. In (0, 1); with ``"add_or_remove_one"``. Epochs of a pilot are then passes
            over its sample, with batches as large as the last run's; ``run`` is asked for the
            cost to a record of the sample. It saves computing, not privacy: DP-SGD does as well
            with short pilots, which sample by themselves (docs/explanation/budget.md).
        score: Which records runs are scored on. ``"training"``: those trained on; training and
            score both count. ``"disjoint"``: private records that are never trained on, told
            apart by a rule that looks at nothing but the record itself; the worse of the two
            counts; not with ``"replace_one"``, where one exchange may change both. None: public
            records, at no cost.
        score_final: Whether the last run is scored too (at 0.5 % more noise). If not, its score
            must not be computed on private records.
        spare_runs: How many more runs like the last one are paid for, to be used or not. Without
            any, a last run that failed cannot be repeated.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or no noise reaches the target.
        UnsupportedEventError: If no accountant judges what ``run`` returns.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.plan_budget(epsilon=3.0, records=20_000, batch_size=256, epochs=10)
        >>> plan.pilots, plan.final.steps
        (20, 781)
        >>> 2.97 <= plan.guarantee.epsilon(delta=1e-5) <= 3.0
        True
    """
    target = validation.positive("epsilon", epsilon)
    validation.open_unit("delta", delta)
    sizes = rung_sizes("pilots", pilots)
    if sum(sizes) > _MOST_PILOTS:
        raise InvalidArgumentError("pilots", pilots, f"there may be {_MOST_PILOTS} at most")
    increase = _noise_increase(noise_increase, target)
    spare = validation.whole("spare_runs", spare_runs)
    checked_score(score)
    if not isinstance(score_final, bool):
        raise InvalidArgumentError("score_final", score_final, "it must be True or False")
    share = checked_sample(sample, neighboring_relation)
    training, rate, length, pilot_length = _lengths(
        records, batch_size, epochs, pilot_epochs, run, steps, pilot_steps, share
    )
    split = _Split(
        target, float(delta), neighboring_relation, training, rate, score, score_final, share
    )
    last, ratio = split.last(1 + spare, length, increase)
    rungs = split.rungs(sizes, pilot_length, last, increase, ratio)
    return assembled(
        epsilon=target,
        delta=float(delta),
        neighboring_relation=neighboring_relation,
        sample_rate=rate,
        score=score,
        runs=[*rungs, last],
    )


@dataclass(frozen=True)
class _Split:
    """The two searches: for the last run alone, then for the pilots beside it."""

    epsilon: float
    delta: float
    relation: str
    training: _OnSample
    sample_rate: float | None
    score: str | None
    score_final: bool
    sample: float | None

    def last(self, count: int, steps: int, increase: float) -> tuple[PaidRuns, float]:
        """Returns the last runs: ``increase`` times the noise at which they cost everything.

        And cost over estimate there, which the pilots' search begins with.
        """
        whole = squared_mu(self.epsilon, self.delta)
        score_noise = self._score_noise(whole / count, _FINAL_SCORE_SHARE)
        if not self.score_final:
            score_noise = None

        def runs(noise: float, score_noise: float | None) -> PaidRuns:
            event = run_event(self.training(noise, steps, None), score_noise, self.score)
            return PaidRuns(count, noise, steps, score_noise, event)

        start = self._start(whole / count, steps)
        noise, cost, ratio = self._search(lambda value: [runs(value, score_noise)], start, 1.0)
        if cost > self.epsilon:
            raise InvalidArgumentError(
                "epsilon",
                self.epsilon,
                f"no noise reaches it: at noise multiplier {noise:g} the last run alone costs "
                f"{significant_up(cost) if math.isfinite(cost) else 'an infinite epsilon'} at "
                f"delta {self.delta:g}",
                "Allow a larger epsilon or delta, or fewer steps.",
            )
        if cost < 0.99 * self.epsilon:
            raise InvalidArgumentError(
                "epsilon",
                self.epsilon,
                f"no noise meets it: at noise multiplier {noise:g} one run costs {cost:.4g}, and "
                "no other that is planned comes nearer from below",
                "Lower a large epsilon, or train for more steps; raise a tiny one.",
            )
        if score_noise is not None:
            score_noise = _score_noise_within(score_noise * increase)
        return runs(_rounded(noise * increase), score_noise), ratio

    def rungs(
        self, sizes: tuple[int, ...], steps: int, last: PaidRuns, increase: float, ratio: float
    ) -> list[PaidRuns]:
        """Returns the pilots that cost what the last runs leave, the signal doubling by rung."""
        whole = squared_mu(self.epsilon, self.delta)
        room = whole * (1.0 - increase**-2)
        total = sum(n * 4.0**i for i, n in enumerate(sizes))
        shares = [room * 4.0**i / total for i in range(len(sizes))]
        if (sample := self.sample) is not None:
            # mu of a mechanism on a sample: mu'^2 = sample^2 (e^(mu^2) - 1), the central limit's.
            # Few pilots on a small sample are not in its limit: one may cost what a sample allows.
            at_most = squared_mu(
                math.log1p(math.expm1(min(self.epsilon, 500.0)) / sample),
                min(self.delta / sample, 0.5),
            )
            shares = [
                min(math.log1p(share / sample**2), at_most * share / whole) for share in shares
            ]
        score_noises = [self._score_noise(share, _PILOT_SCORE_SHARE) for share in shares]

        def rungs(noise: float) -> list[PaidRuns]:
            found = []
            for i, (count, score_noise) in enumerate(zip(sizes, score_noises, strict=True)):
                own = noise / 2.0**i
                training = self.training(own, steps, sample)
                event = run_event(training, score_noise, self.score, sample)
                found.append(PaidRuns(count, own, steps, score_noise, event, sample))
            return found

        start = self._start(shares[0], steps, sample)
        if self.sample_rate is None:
            # Squared cost goes as steps / noise^2.
            of_last = whole * increase**-2 / last.count
            start = last.noise_multiplier * math.sqrt(of_last / shares[0] * steps / last.steps)
        least = 2.0 ** (len(sizes) - 1)
        noise, cost, _ = self._search(lambda value: [*rungs(value), last], start, least, ratio)
        if not 0.99 * self.epsilon <= cost <= self.epsilon:
            raise InvalidArgumentError(
                "pilots",
                sizes if len(sizes) > 1 else sizes[0],
                f"no noise of pilots fills the budget beside a last run of {increase:g} times "
                f"the noise: at {noise:g} all cost {significant_up(cost)} of {self.epsilon:g}",
                "Change noise_increase, or the number or the length of the pilots.",
            )
        found = rungs(noise)
        signal = last.noise_multiplier * math.sqrt(last.steps) / (noise * math.sqrt(steps))
        if self.sample_rate is None and sample is not None:
            signal *= sample
        if signal < _FAINTEST:
            raise InvalidArgumentError(
                "pilots",
                sizes if len(sizes) > 1 else sizes[0],
                f"each would have {1.0 / signal:.0f} times the noise of the last run (at equal "
                "length) and teach nothing",
                "Use fewer pilots, or a larger noise_increase.",
            )
        return found

    def _search(
        self,
        runs: Callable[[float], list[PaidRuns]],
        start: float,
        least: float,
        ratio: float = 1.0,
    ) -> tuple[float, float, float]:
        """Returns the least noise within the budget, what all costs then, cost over estimate."""

        def composed(noise: float) -> Guarantee:
            paid = runs(_rounded(noise))
            return Guarantee(
                dp_event.ComposedDpEvent(
                    [dp_event.SelfComposedDpEvent(run.event, run.count) for run in paid]
                ),
                self.relation,
            )

        scale = replace(NOISE, high=-math.log(SMALLEST_NOISE * least), slope=1.0)
        scale = replace(scale, start=-math.log(start))

        def exact(u: float) -> float:
            return profile_epsilon(composed(scale.value(u)), self.delta)

        def rough(u: float) -> float:
            if self.sample_rate is None:
                return _rough_epsilon(composed(scale.value(u)), self.delta)
            return self._estimate(runs(_rounded(scale.value(u))))

        found = guided(exact, rough, self.epsilon, scale, ratio=ratio, tolerance=_UNUSED)
        if self.sample_rate is None:
            # An event of the caller's may be judged better by something else than its profile.
            cost = composed(scale.value(found.at)).epsilon(self.delta)
            if cost < 0.99 * self.epsilon or found.cost > self.epsilon:
                found = largest_within(
                    lambda u: composed(scale.value(u)).epsilon(self.delta),
                    self.epsilon,
                    scale.starting_at(found),
                )
        return _rounded(scale.value(found.at)), found.cost, found.cost / rough(found.at)

    def _estimate(self, paid: list[PaidRuns]) -> float:
        """Returns about what these runs of DP-SGD cost together."""
        assert self.sample_rate is not None
        parts = []
        for run in paid:
            if run.sample is not None:
                # About a Gaussian mechanism on the sample.
                noise = self._squared(run, run.sample) ** -0.5
                parts.append(Steps(run.sample, noise, run.count))
                continue
            parts.append(Steps(self.sample_rate, run.noise_multiplier, run.steps * run.count))
            if run.score_noise_multiplier is not None and self.score == "training":
                parts.append(Steps(1.0, run.score_noise_multiplier, run.count))
        return estimated_epsilon(
            parts,
            self.delta,
            near=self.epsilon,
            replace_one=self.relation == "replace_one",
        )

    def _squared(self, run: PaidRuns, sample: float) -> float:
        """Returns about mu^2 of one run on its sample, the score's included."""
        assert self.sample_rate is not None
        rate = rate_within(sample, self.sample_rate)
        # The central limit: mu^2 = q^2 S (e^(1/sigma^2) - 1) (Dong et al., arXiv 1905.02383v3).
        found = rate**2 * run.steps * math.expm1(min(run.noise_multiplier**-2, 500.0))
        if self.score == "training" and run.score_noise_multiplier is not None:
            found += run.score_noise_multiplier**-2
        return found

    def _start(self, squared: float, steps: int, sample: float | None = None) -> float:
        """Returns about the noise at which a training costs this much."""
        if self.sample_rate is None:
            return 1.0
        # See _squared, the other way round.
        moved = 2.0 if self.relation == "replace_one" else 1.0
        rate = rate_within(sample, self.sample_rate)
        return moved / math.sqrt(math.log1p(squared / (rate**2 * steps)))

    def _score_noise(self, squared: float, share: float) -> float | None:
        if self.score is None:
            return None
        part = _DISJOINT_SCORE_SHARE if self.score == "disjoint" else share
        moved = 2.0 if self.relation == "replace_one" else 1.0
        return _score_noise_within(moved * (part * squared) ** -0.5)


# Whole numbers, for which the Renyi divergence of a sampled Gaussian is a short sum.
_FEW_ORDERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512)


def _rough_epsilon(paid: Guarantee, delta: float) -> float:
    """Returns about 1.1 times what the accounting says, in a hundredth of the time."""
    curve = rdp_of(paid.event, paid.neighboring_relation, _FEW_ORDERS)
    return rdp_to_epsilon(np.array(_FEW_ORDERS, dtype=float), curve, delta)


def squared_mu(epsilon: float, delta: float) -> float:
    """Returns mu^2 of the Gaussian mechanism that is exactly (epsilon, delta)-DP.

    Nothing is guaranteed by it; shares of budgets are shares of this.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        first = log_ndtr(mu / 2.0 - epsilon / mu)
        second = epsilon + log_ndtr(-mu / 2.0 - epsilon / mu)
        return float(first + math.log1p(-min(math.exp(second - first), 1.0 - 1e-16))) - math.log(
            delta
        )

    return math.exp(2.0 * float(brentq(excess, math.log(1e-9), math.log(1e4))))


def _lengths(
    records: Any,
    batch_size: Any,
    epochs: Any,
    pilot_epochs: Any,
    run: Any,
    steps: Any,
    pilot_steps: Any,
    sample: float | None,
) -> tuple[_OnSample, float | None, int, int]:
    """Returns how a training's event is made, its sampling rate, its steps, and a pilot's."""
    of_sgd = {
        "records": records,
        "batch_size": batch_size,
        "epochs": epochs,
        "pilot_epochs": pilot_epochs,
    }
    of_run = {"run": run, "steps": steps, "pilot_steps": pilot_steps}
    mine, other = (of_sgd, of_run) if run is None else (of_run, of_sgd)
    for name, value in other.items():
        if value is not None:
            raise InvalidArgumentError(
                name,
                value,
                "a plan is made either from records, batch_size and epochs (DP-SGD) or from run "
                "and steps",
            )
    for name, value in mine.items():
        if value is None and not name.startswith("pilot_"):
            raise InvalidArgumentError(
                name,
                value,
                "it is missing",
                "Give records, batch_size and epochs for DP-SGD, or run and steps.",
            )
    if run is not None:
        if not callable(run):
            raise InvalidArgumentError(
                "run",
                run,
                "it must be a function of (noise multiplier, steps) that returns an event",
                "For example run=lambda noise, steps: odp.gaussian(noise / steps**0.5).",
            )
        length = validation.whole("steps", steps, 1)
        shorter = (
            length if pilot_steps is None else validation.whole("pilot_steps", pilot_steps, 1)
        )
        if shorter > length:
            raise InvalidArgumentError(
                "pilot_steps", pilot_steps, f"it must be at most steps, {length}"
            )
        return _checked(run), None, length, shorter
    count = validation.whole("records", records, 1)
    batch = validation.positive("batch_size", batch_size)
    if batch > count:
        raise InvalidArgumentError(
            "batch_size", batch_size, f"it must be at most the number of records, {count}"
        )
    passes = validation.positive("epochs", epochs)
    rate = batch / count
    on_sample = rate_within(sample, rate)
    if sample is not None and batch > count * sample * (1.0 + 1e-9):
        raise InvalidArgumentError(
            "sample",
            sample,
            f"a sample of about {count * sample:.4g} records is smaller than a batch of {batch:g}",
            f"It must be at least {significant_up(rate)}.",
        )
    few = passes if pilot_epochs is None else validation.positive("pilot_epochs", pilot_epochs)
    if few > passes:
        raise InvalidArgumentError(
            "pilot_epochs", pilot_epochs, f"it must be at most epochs, {epochs}"
        )

    def training(noise: float, steps: int, sample: float | None) -> Any:
        return sgd_training(noise, rate_within(sample, rate), steps)

    return training, rate, _steps(passes, rate), _steps(few, on_sample)


def _steps(epochs: float, rate: float) -> int:
    steps = round(epochs / rate)
    if not 1 <= steps <= _MOST_STEPS:
        raise InvalidArgumentError(
            "epochs", epochs, f"it must make between 1 and {_MOST_STEPS} steps, not {steps}"
        )
    return steps


def _checked(run: Training) -> _OnSample:
    def training(noise: float, steps: int, sample: float | None) -> Any:
        event = run(noise, steps)
        return as_event("what run returns", event)

    return training


def _noise_increase(value: Any, epsilon: float) -> float:
    if value is None:
        return default_noise_increase(epsilon)
    increase = validation.number("noise_increase", value)
    if not 1.0 < increase <= _LARGEST_INCREASE:
        raise InvalidArgumentError(
            "noise_increase",
            value,
            f"it must be above 1 and at most {_LARGEST_INCREASE:g}",
            "1.08 leaves a seventh of the squared budget to the pilots, 1.2 three tenths.",
        )
    return increase


def _score_noise_within(noise: float) -> float:
    return _rounded(min(max(noise, _SMALLEST_SCORE_NOISE), _LARGEST_SCORE_NOISE))


def _rounded(noise: float) -> float:
    """Returns the noise with five digits, never less: a script shows what was judged."""
    return float(significant_up(noise, digits=5))
