"""Plans of a budget: rungs of pilots, and the last run (``docs/explanation/budget.md``).

Data only; :func:`optuna_dp.plan_budget` chooses them, and the accounting computes their cost.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from optuna_dp import validation
from optuna_dp.budget.fidelity import (
    Fidelity,
    PaidRuns,
    rate_within,
    run_event,
    seal_of,
    sgd_training,
)
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.hooks import call_optional
from optuna_dp.json_records import Record, stored

if TYPE_CHECKING:
    from dp_accounting import dp_event

    from optuna_dp.accounting.guarantee import Guarantee

SCORES = ("training", "disjoint", None)


@dataclass(frozen=True)
class BudgetPlan:
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
        score: Whose records scores are computed on: "training", "disjoint" or None (public ones).
        rung_sizes: How many pilots each rung has.
        rungs: What a pilot of each rung may spend.
        final: What the last run may spend.
        spare_runs: How many more runs like the last one are charged for.

    Raises:
        InvalidArgumentError: If parts contradict each other, or are not allowed.
    """

    epsilon: float
    delta: float
    neighboring_relation: str
    score: str | None
    rung_sizes: tuple[int, ...]
    rungs: tuple[Fidelity, ...]
    final: Fidelity
    spare_runs: int = 0

    def __post_init__(self) -> None:
        rung_sizes("rung_sizes", self.rung_sizes)
        if len(self.rungs) != len(self.rung_sizes):
            raise InvalidArgumentError(
                "rungs",
                f"{len(self.rungs)} of them",
                f"there must be as many as rung_sizes, {len(self.rung_sizes)}",
            )
        validation.positive("epsilon", self.epsilon)
        validation.open_unit("delta", self.delta)
        validation.whole("spare_runs", self.spare_runs)
        checked_score(self.score)
        if self.score == "disjoint" and self.neighboring_relation == "replace_one":
            # One record leaves the training, another joins the score: both change at once, and
            # the two changes together may cost more than either kind of replacement alone.
            raise InvalidArgumentError(
                "score",
                self.score,
                "replace_one does not allow it: one replacement may change both parts of the data",
                "Plan with score='training', which charges for both, or with add_or_remove_one.",
            )
        checked_sample(self.sample, self.neighboring_relation)
        if not all(_is_as_stated(run, self.score) for run in (*self.rungs, self.final)):
            raise InvalidArgumentError(
                "event",
                "that of a run",
                "it must be that of the noise multiplier, steps and sample beside it",
                "Make another plan with optuna_dp.plan_budget.",
            )

    def _repr_html_(self) -> str:
        return str(call_optional("page of a notebook", self))

    def __repr__(self) -> str:
        rungs = ", ".join(
            f"{count} pilots of noise {rung.noise_multiplier:.4g} for {rung.steps} steps"
            for count, rung in zip(self.rung_sizes, self.rungs, strict=True)
        )
        spare = f", and {self.spare_runs} to spare" if self.spare_runs else ""
        on = "" if self.sample is None else f", each on a secret sample of {self.sample:g}"
        then = f"{rungs}{on}, then " if rungs else ""
        remark = str(call_optional("remark on a plan", self))
        return (
            f"BudgetPlan(<epsilon {self.epsilon:g} at delta {self.delta:g}: {then}one "
            f"run of noise {self.final.noise_multiplier:.4g} for {self.final.steps} steps{spare}"
            f"{remark and '. ' + remark}>)"
        )

    @property
    def pilots(self) -> int:
        """How many pilots there are, on all rungs together."""
        return sum(self.rung_sizes)

    @property
    def runs(self) -> int:
        """How many runs are charged for: pilots, the last run, spare ones."""
        return self.pilots + 1 + self.spare_runs

    @property
    def pilot(self) -> Fidelity:
        """What a pilot of the first rung may spend.

        Raises:
            InvalidArgumentError: If the plan has no pilots.
        """
        if not self.rungs:
            raise InvalidArgumentError("pilots", 0, "a plan of one run has no pilot")
        return self.rungs[0]

    @property
    def sample(self) -> float | None:
        """Chance of a record to join a pilot's sample; None if pilots run on everything."""
        return self.rungs[0].sample if self.rungs else None

    @property
    def event(self) -> dp_event.DpEvent:
        """The composition of all runs that may start."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from dp_accounting import dp_event

        counted = [*zip(self.rungs, self.rung_sizes, strict=True), (self.final, self._finals)]
        return dp_event.ComposedDpEvent(
            [dp_event.SelfComposedDpEvent(run.event, count) for run, count in counted]
        )

    @property
    def guarantee(self) -> Guarantee:
        """What holds for the outputs of all runs together, computed from :attr:`event`."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting.guarantee import Guarantee

        return Guarantee(self.event, self.neighboring_relation)

    def fidelity(self, slot: int) -> Fidelity:
        """Returns what the run of a slot may spend: pilots rung by rung, then the last runs.

        Args:
            slot: From 0 to ``runs - 1``.

        Raises:
            InvalidArgumentError: If it is none of them: no such run is charged for.
        """
        left = validation.whole("slot", slot)
        if left >= self.runs:
            raise InvalidArgumentError(
                "slot", slot, f"the plan has the runs 0 to {self.runs - 1} only"
            )
        for size, rung in zip(self.rung_sizes, self.rungs, strict=True):
            if left < size:
                return rung
            left -= size
        return self.final

    @property
    def _finals(self) -> int:
        return 1 + self.spare_runs

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values, from which :meth:`from_json` makes an equal plan."""
        runs = [*zip(self.rungs, self.rung_sizes, strict=True), (self.final, self._finals)]
        *rungs, final = (
            PaidRuns(
                n,
                r.noise_multiplier,
                r.steps,
                r.score_noise_multiplier,
                r.event,
                seal=r.seal,
            )
            for r, n in runs
        )
        return _PlanRecord(
            epsilon=self.epsilon,
            delta=self.delta,
            neighboring_relation=self.neighboring_relation,
            sample_rate=self.final.sample_rate,
            batch_size=self.final.batch_size,
            score=self.score,
            rungs=tuple(rungs),
            final=final,
            sample=self.sample,
        ).to_json()

    @classmethod
    def from_json(cls, data: Any) -> BudgetPlan:
        """Reads what :meth:`to_json` wrote; refuses anything else.

        Raises:
            InvalidArgumentError: If ``data`` is anything else, or its parts contradict each other:
                an event that is not that of the noise and steps beside it, say.
            UnsupportedEventError: If no accountant supports an event.
        """
        record = _PlanRecord.from_json(data)
        plan = assembled(
            epsilon=record.epsilon,
            delta=record.delta,
            neighboring_relation=record.neighboring_relation,
            sample_rate=record.sample_rate,
            batch_size=record.batch_size,
            score=record.score,
            runs=[*(replace(run, sample=record.sample) for run in record.rungs), record.final],
        )
        plan.guarantee  # noqa: B018  # refuses events that no accountant supports
        return plan


@dataclass(frozen=True)
class _PlanRecord(Record):
    """A plan as it is stored: what all runs have in common, and what each kind is charged for."""

    constants: ClassVar[dict[str, Any]] = {"format": "optuna-dp budget plan", "version": 1}

    epsilon: float
    delta: float
    neighboring_relation: str
    sample_rate: float | None
    batch_size: float | None
    score: str | None
    rungs: tuple[PaidRuns, ...]
    final: PaidRuns
    sample: float | None = field(default=None, metadata=stored(optional=True))

    def __post_init__(self) -> None:
        for name in ("sample_rate", "batch_size", "sample"):
            if getattr(self, name) is not None:
                validation.positive(name, getattr(self, name))
        if (self.sample_rate is None) != (self.batch_size is None):
            raise ValueError("it needs both sample_rate and batch_size, or neither")
        if self.sample is not None and not self.rungs:
            raise ValueError("it has a sample and no pilots")
        sealed = {run.seal is not None for run in (*self.rungs, self.final)}
        if sealed != {self.sample_rate is None}:
            raise ValueError("it needs a seal for each run, or sample_rate and batch_size")

    @classmethod
    def refusal(cls, data: Any, why: str, fix: str = "") -> InvalidArgumentError:
        """Returns the error for what is no record of a plan."""
        allowed = f"it must be what BudgetPlan.to_json returned ({why})"
        return InvalidArgumentError("data", data, allowed, fix)


def assembled(
    *,
    epsilon: float,
    delta: float,
    neighboring_relation: str,
    sample_rate: float | None,
    batch_size: float | None,
    score: str | None,
    runs: list[PaidRuns],
) -> BudgetPlan:
    """Returns the plan of these runs: rungs from the first on, then the last runs."""
    *rungs, last = runs
    records = None if sample_rate is None or batch_size is None else batch_size / sample_rate

    def fidelity(run: PaidRuns, rung: int) -> Fidelity:
        scored = run.score_noise_multiplier is not None
        return Fidelity(
            noise_multiplier=run.noise_multiplier,
            steps=run.steps,
            sample_rate=None if sample_rate is None else rate_within(run.sample, sample_rate),
            score_noise_multiplier=run.score_noise_multiplier,
            batch_size=batch_size,
            event=run.event,
            is_pilot=run is not last,
            rung=rung,
            sample=run.sample,
            records=records,
            scored_on="public" if score is None else score if scored else None,
            neighboring_relation=neighboring_relation,
            seal=run.seal or (seal_of(run) if sample_rate is None else None),
        )

    return BudgetPlan(
        epsilon=epsilon,
        delta=delta,
        neighboring_relation=neighboring_relation,
        score=score,
        rung_sizes=tuple(run.count for run in rungs),
        rungs=tuple(fidelity(run, i) for i, run in enumerate(rungs)),
        final=fidelity(last, len(rungs)),
        spare_runs=last.count - 1,
    )


def rung_sizes(name: str, value: Any) -> tuple[int, ...]:
    """Returns how many pilots each rung has: whole numbers that do not grow; none for 0 or ()."""
    given = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not given or (type(value) is int and value == 0):
        return ()
    sizes = tuple(validation.whole(name, size, 1) for size in given)
    if any(later > earlier for earlier, later in itertools.pairwise(sizes)):
        raise InvalidArgumentError(
            name,
            value,
            "a rung must not have more pilots than the rung before it",
            "The best pilots of a rung run again on the next one, for example (16, 4).",
        )
    return sizes


def checked_sample(value: Any, neighboring_relation: str) -> float | None:
    """Returns the share of the records that a pilot's sample holds, None for all of them."""
    if value is None:
        return None
    sample = validation.open_unit("sample", value)
    if neighboring_relation != "add_or_remove_one":
        raise InvalidArgumentError(
            "sample",
            value,
            f"a secret sample needs neighboring_relation='add_or_remove_one', not "
            f"{neighboring_relation!r}",
            "Leave out sample, or plan with add_or_remove_one.",
        )
    return sample


def _is_as_stated(run: Fidelity, score: str | None) -> bool:
    """Returns whether a run's event is that of the noise, steps and sample beside it."""
    if run.sample_rate is None:
        rate = getattr(run.event, "sampling_probability", None)
        return run.seal == seal_of(run) and (run.sample is None or rate == run.sample)
    training = sgd_training(run.noise_multiplier, run.sample_rate, run.steps)
    return bool(run.event == run_event(training, run.score_noise_multiplier, score, run.sample))


def checked_score(value: Any) -> None:
    """Refuses what is no place to score on."""
    if not any(value is known or value == known for known in SCORES):
        raise InvalidArgumentError(
            "score",
            value,
            "it must be 'training' (scored on the training records), 'disjoint' (on private "
            "records that are never trained on) or None (on public records)",
        )
