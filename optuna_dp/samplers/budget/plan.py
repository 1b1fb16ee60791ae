"""Plans of a budget: rungs of pilots, and the last run (``docs/explanation/budget.md``).

Data only; :func:`optuna_dp.plan_budget` chooses them, and the accounting computes their cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from optuna_dp.core import by_name, validation
from optuna_dp.core.json_entries import Entry, plain, stored
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.evidence.stated_run import STORED_EVENT
from optuna_dp.preparation.range_query import RangeQuery
from optuna_dp.runs.run import Run
from optuna_dp.runs.run_events import run_event, sgd_training

if TYPE_CHECKING:
    from dp_accounting import dp_event

    from optuna_dp.accounting.guarantee import Guarantee

SCORES = ("training", "disjoint", None)


@dataclass(frozen=True)
class PaidRuns(Entry):
    """Runs of one kind, as a plan charges for them.

    Attributes:
        count: How many.
        noise_multiplier: Noise of one step over the clipping norm.
        steps: Number of noisy steps.
        score_noise_multiplier: Noise of the score; None if none is charged for.
        training: The event of one without its score, in a plan that was made from ``run``. None
            for DP-SGD, whose event follows from the numbers.
    """

    count: int
    noise_multiplier: float
    steps: int
    score_noise_multiplier: float | None
    training: Any = field(default=None, metadata={**STORED_EVENT, "optional": True}, hash=False)

    def __post_init__(self) -> None:
        validation.whole("count", self.count, 1)
        validation.whole("steps", self.steps, 1)
        validation.positive("noise_multiplier", self.noise_multiplier)
        if self.score_noise_multiplier is not None:
            validation.positive("score_noise_multiplier", self.score_noise_multiplier)

    def training_event(self, sample_rate: float | None) -> dp_event.DpEvent:
        """Returns what the training of one costs; ``sample_rate`` is the plan's."""
        if sample_rate is None:
            return self.training
        return sgd_training(self.noise_multiplier, sample_rate, self.steps)

    def event(self, sample_rate: float | None, score: str | None) -> dp_event.DpEvent:
        """Returns what one costs with its score; both arguments are the plan's."""
        return run_event(self.training_event(sample_rate), self.score_noise_multiplier, score)


@dataclass(frozen=True, repr=False)
class BudgetPlan(Entry):
    """Rungs of released pilots, then one last run, within one target epsilon.

    Guarantees:
        * ``guarantee`` is the composition of every run that may start: all pilots of all rungs,
          the last run, and the spare ones. It is computed from the events each time, never from
          what the planner believed.
        * It holds whatever proposes the hyperparameters from the outputs of earlier runs
          (``docs/explanation/budget.md``).

    Attributes:
        epsilon: The target. What is guaranteed is ``guarantee.epsilon(delta)``.
        delta: In (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".
        sample_rate: Chance of a record to join a step; None if the plan was made from ``run``.
        batch_size: Expected number of records in a batch; None likewise.
        score: Whose records scores are computed on: "training", "disjoint" or None (public ones).
        paid_pilots: The pilots of each rung, as they are charged for.
        paid_last: The last run and the spare ones, as they are charged for.
        candidates: Of a plan for a short list, how many candidates it has: each is one pilot, and
            the last run takes the best. None: the pilots are proposed.
        most: The most records of one person, where the plan was made for persons; else None.
        person_epsilon: What everything costs a person with so many, at ``delta``; ``epsilon`` is
            then what it costs one record.
        ranges: How ranges of columns are drawn with noise, once, before the first training; None
            if none are.

    Raises:
        InvalidArgumentError: If parts contradict each other, or are not allowed.
    """

    constants: ClassVar[dict[str, Any]] = {"format": "optuna-dp budget plan", "version": 1}

    epsilon: float
    delta: float
    neighboring_relation: str
    sample_rate: float | None
    batch_size: float | None
    score: str | None
    paid_pilots: tuple[PaidRuns, ...] = field(metadata=stored(key="rungs"))
    paid_last: PaidRuns = field(metadata=stored(key="final"))
    candidates: int | None = field(default=None, metadata=stored(optional=True))
    most: int | None = field(default=None, metadata=stored(optional=True))
    person_epsilon: float | None = field(default=None, metadata=stored(optional=True))
    ranges: RangeQuery | None = field(default=None, metadata=stored(optional=True, write=plain))

    def __post_init__(self) -> None:
        rung_sizes("rung_sizes", self.rung_sizes)
        validation.positive("epsilon", self.epsilon)
        validation.open_unit("delta", self.delta)
        for name in ("sample_rate", "batch_size"):
            if getattr(self, name) is not None:
                validation.positive(name, getattr(self, name))
        if (self.sample_rate is None) != (self.batch_size is None):
            raise InvalidArgumentError(
                "batch_size",
                self.batch_size,
                problem="it needs both sample_rate and batch_size, or none",
            )
        checked_score(self.score)
        if self.candidates is not None and self.rung_sizes != (self.candidates,):
            raise InvalidArgumentError(
                "candidates",
                self.candidates,
                problem=f"each needs a pilot of its own on the only rung, and the rungs have "
                f"{self.rung_sizes}",
                fix="Make another plan with optuna_dp.plan_budget.",
            )
        if self.score == "disjoint" and self.neighboring_relation == "replace_one":
            # One record leaves the training, another joins the score: both change at once, and
            # the two changes together may cost more than either kind of replacement alone.
            raise InvalidArgumentError(
                "score",
                self.score,
                problem="replace_one does not allow it: one replacement may change both parts "
                "of the data",
                fix="Plan with score='training', which charges for both, or with "
                "add_or_remove_one.",
            )
        runs = (*self.paid_pilots, self.paid_last)
        if self.score is None and any(run.score_noise_multiplier is not None for run in runs):
            raise InvalidArgumentError(
                "score",
                None,
                problem="scores would be computed without noise, and the plan was made for "
                "scores with it",
                fix="Make another plan with optuna_dp.plan_budget(score=None, ...).",
            )
        if any((run.training is None) == (self.sample_rate is None) for run in runs):
            raise InvalidArgumentError(
                "training",
                Text("that of a run"),
                problem="a plan has either a sample_rate, for DP-SGD, or the event of each "
                "training",
                fix="Make another plan with optuna_dp.plan_budget.",
            )
        if self.neighboring_relation == "null_client":
            # Start-up time: samplers hold plans; dp-accounting is slow.
            from optuna_dp.accounting.units import check_relation

            check_relation(self.event, self.neighboring_relation)

    def _repr_html_(self) -> str | None:
        return by_name.notebook_page(self)

    def __repr__(self) -> str:
        words = "pilots" if self.candidates is None else "candidates, each a pilot"
        runs = [
            f"{paid.count} {words} of noise {paid.noise_multiplier:.4g} for {paid.steps} steps"
            for paid in self.paid_pilots
        ]
        last = self.paid_last
        last_run = f"one run of noise {last.noise_multiplier:.4g} for {last.steps} steps"
        if self.spare_runs:
            last_run += f", and {self.spare_runs} to spare"
        then = f"{', '.join(runs)}, then {last_run}" if runs else last_run
        sentences = [f"epsilon {self.epsilon:g} at delta {self.delta:g}: {then}"]
        if self.ranges is not None:
            sentences.append(self.ranges.in_words())
        if self.person_epsilon is not None:
            persons = f"A person with up to {self.most} records"
            sentences.append(f"{persons}: epsilon {self.person_epsilon:.4g}")
        if remark := by_name.remark_on_plan(self):
            sentences.append(remark)
        return f"BudgetPlan(<{'. '.join(sentences)}>)"

    @property
    def rung_sizes(self) -> tuple[int, ...]:
        """How many pilots each rung has."""
        return tuple(runs.count for runs in self.paid_pilots)

    @cached_property
    def rungs(self) -> tuple[Run, ...]:
        """What a pilot of each rung may spend."""
        return tuple(self._run(runs, i) for i, runs in enumerate(self.paid_pilots))

    @cached_property
    def final(self) -> Run:
        """What the last run may spend."""
        return self._run(self.paid_last, len(self.paid_pilots))

    @property
    def spare_runs(self) -> int:
        """How many more runs like the last one are charged for."""
        return self.paid_last.count - 1

    @property
    def pilots(self) -> int:
        """How many pilots there are, on all rungs together."""
        return sum(self.rung_sizes)

    @property
    def runs(self) -> int:
        """How many runs are charged for: pilots, the last run, spare ones."""
        return self.pilots + self.paid_last.count

    @property
    def pilot(self) -> Run:
        """What a pilot of the first rung may spend.

        Raises:
            InvalidArgumentError: If the plan has no pilots.
        """
        if not self.rungs:
            raise InvalidArgumentError("pilots", 0, problem="a plan of one run has no pilot")
        return self.rungs[0]

    @property
    def event(self) -> dp_event.DpEvent:
        """The composition of all runs that may start, and of drawing ranges."""
        runs = (*self.paid_pilots, self.paid_last)
        return composed(runs, self.sample_rate, self.score, self.ranges)

    @property
    def guarantee(self) -> Guarantee:
        """What holds for the outputs of all runs together, computed from :attr:`event`."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.guarantee import Guarantee

        return Guarantee(self.event, self.neighboring_relation)

    def run_at(self, slot: int) -> Run:
        """Returns what the run of a slot may spend: pilots rung by rung, then the last runs.

        Args:
            slot: From 0 to ``runs - 1``.

        Raises:
            InvalidArgumentError: If it is none of them: no such run is charged for.
        """
        position = validation.whole("slot", slot)
        if position >= self.runs:
            raise InvalidArgumentError(
                "slot", slot, problem=f"the plan has the runs 0 to {self.runs - 1} only"
            )
        for size, rung in zip(self.rung_sizes, self.rungs, strict=True):
            if position < size:
                return rung
            position -= size
        return self.final

    def _run(self, runs: PaidRuns, rung: int) -> Run:
        records = None
        if self.batch_size is not None and self.sample_rate is not None:
            records = self.batch_size / self.sample_rate
        has_score = runs.score_noise_multiplier is not None
        scored_on = "public" if self.score is None else self.score if has_score else None
        return Run(
            noise_multiplier=runs.noise_multiplier,
            steps=runs.steps,
            sample_rate=self.sample_rate,
            score_noise_multiplier=runs.score_noise_multiplier,
            batch_size=self.batch_size,
            event=runs.event(self.sample_rate, self.score),
            training=runs.training_event(self.sample_rate),
            is_pilot=rung < len(self.paid_pilots),
            rung=rung,
            records=records,
            scored_on=scored_on,
            neighboring_relation=self.neighboring_relation,
        )

    @classmethod
    def from_json(cls, data: object) -> BudgetPlan:
        """Reads what :meth:`to_json` wrote; refuses anything else.

        Raises:
            InvalidArgumentError: If ``data`` is anything else, or its parts contradict each other.
            UnsupportedEventError: If no accountant supports an event.
        """
        plan = super().from_json(data)
        plan.guarantee  # noqa: B018  # refuses events that no accountant supports
        return plan

    @classmethod
    def refusal(cls, data: object, reason: str, fix: str = "") -> InvalidArgumentError:
        """Returns the error for JSON that is not that of a plan."""
        requirement = f"it must be what BudgetPlan.to_json returned ({reason})"
        return InvalidArgumentError("data", data, allowed=requirement, fix=fix)


def composed(
    runs: Iterable[PaidRuns],
    sample_rate: float | None,
    score: str | None,
    ranges: RangeQuery | None,
) -> dp_event.DpEvent:
    """Returns the event of drawing ranges, if any are drawn, and of all these runs."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from dp_accounting import dp_event

    events = [] if ranges is None else [ranges.event]
    for paid in runs:
        events.append(dp_event.SelfComposedDpEvent(paid.event(sample_rate, score), paid.count))
    return dp_event.ComposedDpEvent(events)


def rung_sizes(name: str, value: object) -> tuple[int, ...]:
    """Returns how many pilots each rung has: whole numbers that do not grow; none for 0 or ()."""
    sizes_or_zero = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not sizes_or_zero or (type(value) is int and value == 0):
        return ()
    sizes = tuple(validation.whole(name, size, 1) for size in sizes_or_zero)
    if any(next_size > size for size, next_size in itertools.pairwise(sizes)):
        raise InvalidArgumentError(
            name,
            value,
            allowed="a rung must not have more pilots than the rung before it",
            fix="The best pilots of a rung run again on the next one, for example (16, 4).",
        )
    return sizes


def checked_score(value: object) -> None:
    """Refuses what is no place to score on."""
    if not any(value is place or value == place for place in SCORES):
        raise InvalidArgumentError(
            "score",
            value,
            allowed="it must be 'training' (scored on the training records), 'disjoint' (on "
            "private records that are never trained on) or None (on public records)",
        )
