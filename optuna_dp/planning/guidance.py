"""What a budget plan is worth: what its pilots can see, and what else its epsilon would buy.

For guidance only. What matters in the end is accuracy, which no accounting knows:
``docs/explanation/what-tuning-costs.md`` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from dp_accounting import dp_event

from optuna_dp.accounting.events import compose
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.kinds.bounded_range import bounded_range
from optuna_dp.core.json_entries import Entry
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.batch import noise_of_training, remark_on_batch
from optuna_dp.planning.budget import can_rank, score_spread, training_signal
from optuna_dp.planning.calibration import NOISE, profile_epsilon, rough_epsilon
from optuna_dp.planning.saddle_point import Steps, estimated_epsilon
from optuna_dp.planning.target_search import Scale, SearchResult, guided
from optuna_dp.runs.run_events import run_event, sgd_training
from optuna_dp.samplers.budget.plan import BudgetPlan
from optuna_dp.selection.guarantee import selection_guarantee
from optuna_dp.selection.laws.negative_binomial import Geometric

# Where the noise of a score alone spreads an accuracy by as much, few differences can be seen.
BLIND = 0.1
_DENSITY_BOUNDS = (0.75, 2.0)
# What a choice among partitions' utilities takes of epsilon, and on how many models it rests.
_CHOICE_SHARE, _CANDIDATES = 0.25, 20
_FAINT = (
    "The noise of its pilots' training often hides which settings are good: a short list of good "
    "guesses (candidates=) usually finds more."
)
# Looser than a plan's, which is what is run.
_TOLERANCE, _LOOSE = 0.01, 0.03


# The plan itself.

PLAN_HEADS = ("runs", "noise", "steps", "score noise", "SGD", "Adam")


def plan_rows(plan: BudgetPlan) -> list[tuple[str, ...]]:
    """Returns what the runs of a plan spend, under :data:`PLAN_HEADS`, as text."""
    runs = [(f"{n} pilots", r) for n, r in zip(plan.rung_sizes, plan.rungs, strict=True)]
    runs.append(("1 last run", plan.final))
    if plan.spare_runs:
        runs.append((f"{plan.spare_runs} spare", plan.final))
    rows = []
    for name, run in runs:
        score_noise = run.score_noise_multiplier
        rates = ["unknown", "unknown"]
        if run.batch_size is not None:
            rates = [f"{run.learning_rate(optimizer):.3g}" for optimizer in ("sgd", "adam")]
        rows.append(
            (
                name,
                f"{run.noise_multiplier:.4g}",
                f"{run.steps}",
                "none" if score_noise is None else f"{score_noise:.4g}",
                *rates,
            )
        )
    return rows


def remark_on_plan(plan: BudgetPlan) -> str:
    """Returns what is unfavorable about a plan's batch and about its pilots; may be empty."""
    remarks = [remark_on_batch(plan)]
    if plan.candidates is None and not can_rank(plan):
        remarks.append(_FAINT)
    return " ".join(filter(None, remarks))


# What its pilots can see.


@dataclass(frozen=True)
class PilotWorth(Entry):
    """What the pilots of one rung are worth.

    Attributes:
        pilots: How many there are.
        steps: Length of one.
        epsilon: What one of them costs by itself: it sees as little as a training of this epsilon.
        signal: What its training can learn, in standard deviations of its noise: batch size
            * sqrt(steps) / noise multiplier.
        spread: Standard deviation of an accuracy by the noise of its score alone, a share; None if
            the score is on other records than the training's.
    """

    pilots: int
    steps: int
    epsilon: float
    signal: float
    spread: float | None


def pilot_worth(plan: BudgetPlan) -> list[PilotWorth]:
    """Returns what the pilots of each rung are worth.

    Args:
        plan: Of DP-SGD: made from ``records``, ``batch_size`` and ``epochs``.
    """
    return [
        PilotWorth(
            pilots=runs.count,
            steps=runs.steps,
            epsilon=profile_epsilon(Guarantee(rung.event, plan.neighboring_relation), plan.delta),
            signal=_of_sgd(plan, training_signal(plan, runs)),
            spread=score_spread(plan, runs),
        )
        for runs, rung in zip(plan.paid_pilots, plan.rungs, strict=True)
    ]


def noise_of_twice(plan: BudgetPlan) -> float:
    """Returns how many times the last run's noise it would take to have twice the pilots.

    Pilots of the same noise; about, in shares of the squared budget, of which the last run has
    one over the square of its noise increase. Infinite if the budget cannot pay for them.

    Args:
        plan: Of DP-SGD.

    Raises:
        InvalidArgumentError: If its runs are not DP-SGD.
    """
    untuned = noise_of_training(
        plan.epsilon,
        plan.delta,
        _of_sgd(plan, plan.sample_rate),
        plan.paid_last.steps * plan.paid_last.count,
        plan.neighboring_relation == "replace_one",
    )
    share = min((untuned / plan.paid_last.noise_multiplier) ** 2, 1.0)
    return math.sqrt(share / (2.0 * share - 1.0)) if share > 0.5 else math.inf


def _of_sgd(plan: BudgetPlan, value: float | None) -> float:
    """Returns what only a plan of DP-SGD has; refuses other plans."""
    if value is None:
        raise InvalidArgumentError("plan", plan, problem="its runs are not DP-SGD")
    return value


# What else its epsilon would buy.


@dataclass(frozen=True)
class Alternative(Entry):
    """One way to come to a model at the same total epsilon.

    Attributes:
        name: In words.
        noise_multiplier: Of the run that is released; None where no noise reaches the target.
        trainings: How many, in words.
        computing: Steps in units of one training, on average.
    """

    name: str
    noise_multiplier: float | None
    trainings: str
    computing: float


def alternatives(plan: BudgetPlan) -> list[Alternative]:
    """Returns the plan itself and what else its epsilon would buy.

    Every way is solved for the same total epsilon, with the steps of the plan's last run and
    scores on the training records at the cost of the plan's own.

    Args:
        plan: Of DP-SGD: made from ``records``, ``batch_size`` and ``epochs``.

    Raises:
        InvalidArgumentError: If the plan is not of DP-SGD.
    """
    ways = _Ways(plan, _of_sgd(plan, plan.sample_rate))

    def noise(point: SearchResult) -> float | None:
        return NOISE.value(point.at) if point.cost <= plan.epsilon else None

    def secretly(name: str, mean: int, point: SearchResult) -> Alternative:
        return Alternative(name, noise(point), f"secret, {mean} on average", float(mean))

    last_noise = plan.paid_last.noise_multiplier
    if plan.pilots:
        pilot_steps = sum(runs.count * runs.steps for runs in plan.paid_pilots)
        computing = pilot_steps / plan.paid_last.steps + 1.0
        name = "pilots, then one run (this plan)"
        rows = [
            Alternative(name, last_noise, f"{plan.pilots} + 1", computing),
            Alternative("one run, no pilots", noise(ways.one_run()), "1", 1.0),
        ]
    else:
        rows = [Alternative("one run (this plan)", last_noise, "1", 1.0)]
    ten = ways.rand_tune(10)
    return [
        *rows,
        secretly("RandTune, mean 10", 10, ten),
        secretly("RandTune, mean 30", 30, ways.rand_tune(30)),
        secretly("DP-HyPO (0.75, 2), mean 10", 10, ways.dp_hypo(10, near=ten)),
        Alternative(
            f"noisy max of {_CANDIDATES}, partitions",
            noise(ways.noisy_max()),
            f"{_CANDIDATES} without privacy + 1",
            _CANDIDATES + 1.0,
        ),
    ]


@dataclass(frozen=True)
class _Ways:
    """Searches of the noise with which other methods cost the epsilon of a plan."""

    plan: BudgetPlan
    sample_rate: float

    @property
    def _score(self) -> float | None:
        """The noise of a selection's scores: like that of a pilot of the highest rung."""
        runs = self.plan.paid_pilots[-1] if self.plan.pilots else self.plan.paid_last
        return runs.score_noise_multiplier

    @cached_property
    def _scale(self) -> Scale:
        return replace(NOISE, start=-math.log(self.plan.paid_last.noise_multiplier))

    def _training(self, u: float) -> dp_event.DpEvent:
        return sgd_training(NOISE.value(u), self.sample_rate, self.plan.paid_last.steps)

    def one_run(self) -> SearchResult:
        """One training without a score."""
        return self._composed(self._training)

    def noisy_max(self) -> SearchResult:
        """A choice among candidates, then one training."""
        choice = _CHOICE_SHARE * self.plan.epsilon
        # Such a choice costs about as much as Gaussian noise of two over its range.
        return self._composed(
            lambda u: compose(bounded_range(choice), self._training(u)), 2.0 / choice
        )

    def _composed(
        self, event_at: Callable[[float], dp_event.DpEvent], *noises: float
    ) -> SearchResult:
        plan = self.plan
        return guided(
            lambda u: profile_epsilon(
                Guarantee(event_at(u), plan.neighboring_relation), plan.delta
            ),
            lambda u: self._estimate(u, noises, plan.delta),
            plan.epsilon,
            self._scale,
            ratio=1.0,
            tolerance=_TOLERANCE,
        )

    def rand_tune(self, mean: int) -> SearchResult:
        """Secretly many runs, so many on average."""
        plan, score = self.plan, self._score
        noises = () if score is None else (score,)
        # One run where it counts; the search costs about so much more.
        return guided(
            lambda u: profile_epsilon(self._selection(u, mean, (1.0, 1.0)), plan.delta),
            lambda u: self._estimate(u, noises, plan.delta / mean),
            plan.epsilon,
            self._scale,
            ratio=1.15,
            tolerance=_TOLERANCE,
        )

    def dp_hypo(self, mean: int, near: SearchResult) -> SearchResult:
        """The same with densities that learn; the search begins near the one without."""
        plan = self.plan
        # The slow one: led by the older of its bounds, which is about so much larger.
        return guided(
            lambda u: profile_epsilon(self._selection(u, mean, _DENSITY_BOUNDS), plan.delta),
            lambda u: rough_epsilon(self._selection(u, mean, _DENSITY_BOUNDS), plan.delta),
            plan.epsilon,
            replace(self._scale, start=near.at - 0.05, slope=near.slope),
            ratio=0.96,
            tolerance=_LOOSE,
        )

    def _selection(self, u: float, mean: int, bounds: tuple[float, float]) -> Guarantee:
        return selection_guarantee(
            run_event(self._training(u), self._score, self.plan.score),
            Geometric(mean),
            density_bounds=bounds,
            neighboring_relation=self.plan.neighboring_relation,
        )

    def _estimate(self, u: float, noises: tuple[float, ...], delta: float) -> float:
        """Returns about what a training costs beside Gaussian mechanisms, in milliseconds."""
        parts = [Steps(self.sample_rate, NOISE.value(u), self.plan.paid_last.steps)]
        parts += [Steps(1.0, noise, 1) for noise in noises]
        is_replace_one = self.plan.neighboring_relation == "replace_one"
        return estimated_epsilon(parts, delta, near=self.plan.epsilon, replace_one=is_replace_one)
