"""Checks of an objective before any budget is spent: :func:`check_objective`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from optuna_dp.accounting.events import as_event
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.testing import objective_faults as faults
from optuna_dp.testing.checked_run import Bench, CheckedRun, Stage
from optuna_dp.testing.left_behind import LeftBehind
from optuna_dp.testing.made_up_data import variants
from optuna_dp.testing.objective_faults import Finding
from optuna_dp.testing.random_states import RandomStates
from optuna_dp.testing.watched_files import WatchedFiles

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import Trial

    from optuna_dp.budget.plan import BudgetPlan


@dataclass(frozen=True)
class ObjectiveReport:
    """What :func:`check_objective` found.

    Attributes:
        findings: What is wrong, or may be; empty if nothing was found, which proves nothing.
        not_checked: What could not be looked at, and why, one sentence each.
        runs: How often the objective was run.
    """

    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    runs: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found that has to be changed; hints do not count."""
        return not any(found.certain for found in self.findings)

    def check(self) -> None:
        """Raises ``AssertionError`` with what was found unless :attr:`ok`."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        lines = [f"{'FAULT' if f.certain else 'hint '} {f}" for f in self.findings]
        lines += [f"not checked: {sentence}" for sentence in self.not_checked]
        count = sum(found.certain for found in self.findings)
        verdict = f"{count} to mend" if count else "nothing found, which proves nothing"
        return "\n".join([*lines, f"{verdict}; {self.runs} runs of the objective."])

    def to_json(self) -> str:
        """Returns the report as JSON, for programs."""
        return json.dumps(
            {
                "ok": self.ok,
                "findings": [
                    {"name": f.name, "certain": f.certain, "what": f.what, "change": f.change}
                    for f in self.findings
                ],
                "not_checked": list(self.not_checked),
                "runs": self.runs,
            },
            indent=2,
        )


def check_objective(
    objective: Callable[..., Any],
    event: dp_event.DpEvent | None = None,
    *,
    plan: BudgetPlan | None = None,
    data: Any = None,
    public_score: bool = False,
    direction: Literal["maximize", "minimize"] = "maximize",
) -> ObjectiveReport:
    """Runs an objective a few times and looks for what makes its stated cost untrue.

    Each kind of run (a pilot and the last run of a plan, or the one kind of a plain study) is run
    twice with the same hyperparameters, in a study in memory that holds other trials. Looked for
    are fixed seeds, scores without noise, reads of other trials, files or variables that an
    earlier run has left, reported values that nothing pays for, and what Opacus did beside what
    the event says. Where Opacus' noise can be frozen, two more runs ask whether the score is a
    function of the model alone. With ``data``, four more ask whether it fails on other data.

    Nothing is written but what the objective writes, and no budget is spent: use made-up data, or
    data that you may look at. What is not found may still be wrong: ``docs/how-to/audit.md``.

    Args:
        objective: As given to ``study.optimize``. With ``data``, it takes it as second argument.
        event: What a run costs, as given to ``PrivacyCallback``; None if it is not known.
        plan: For studies with a budget, in place of ``event``: what ``fidelity(trial)`` says.
        data: An array of records, or several of equal length; None if the objective has its own.
        public_score: Scores and reports are computed on public records, and may be exact.
        direction: "maximize" or "minimize".

    Raises:
        InvalidArgumentError: If an argument is not allowed.

    Example:
        >>> import random, optuna_dp as odp
        >>> def objective(trial):
        ...     random.seed(0)
        ...     return trial.suggest_float("x", 0, 1) + random.gauss(0, 1)
        >>> report = odp.check_objective(objective)
        >>> report.ok
        False
        >>> [found.name for found in report.findings]
        ['fixed seed', 'repeated score']
    """
    if not callable(objective):
        raise InvalidArgumentError(
            "objective", objective, "it must be a function of a trial, as for study.optimize"
        )
    if direction not in ("maximize", "minimize"):
        raise InvalidArgumentError("direction", direction, "it must be 'maximize' or 'minimize'")
    if plan is not None and event is not None:
        raise InvalidArgumentError(
            "event", event, "a plan has events of its own; give one of both"
        )
    if event is not None:
        as_event("event", event)
    others = variants(data) if data is not None else []
    run = objective if data is None else partial(_with_data, objective, data)
    files, left, states = WatchedFiles(), LeftBehind(objective), RandomStates()
    bench = Bench(run, plan, files, direction)
    findings: list[Finding] = []
    try:
        for number, stage in enumerate(_stages(event, plan)):
            pair = [bench.run(stage)]
            if number == 0:
                left.after_first_run()
            pair.append(bench.run(stage, pair[0]))
            if number == 0:
                left.after_last_run()
            found = list(faults.of_pair(pair, stage, public_score=public_score))
            if not public_score and faults.may_be_frozen(pair, found):
                found += faults.of_frozen(*_frozen(bench, stage, pair[0]))
            findings += found
        first = pair[0]
        for words, other in others:
            again = bench.run(stage, first, objective=partial(_with_data, objective, other))
            findings += faults.of_other_data(words, again, first)
    finally:
        states.restore()
    findings += faults.of_what_is_left(files.inherited, left.inherited)
    return ObjectiveReport(
        tuple(_once(findings)),
        tuple(faults.not_checked(event, plan, pair, others)),
        bench.runs,
    )


def _stages(event: Any, plan: BudgetPlan | None) -> list[Stage]:
    if plan is None:
        return [Stage("", 0, event)]
    try:
        return [
            Stage("pilot", 0, plan.fidelity(0).event),
            Stage("last run", plan.pilots, plan.final.event),
        ]
    except (AttributeError, OptunaDPError):
        raise InvalidArgumentError("plan", plan, "it must be what plan_budget returned") from None


def _with_data(objective: Callable[..., Any], data: Any, trial: Trial) -> Any:
    return objective(trial, data)


def _frozen(bench: Bench, stage: Stage, like: CheckedRun) -> Sequence[CheckedRun]:
    """Runs twice with equal randomness up to the last step of training, and fresh after it."""
    last = like.opacus.steps

    def reseed(step: int) -> None:
        if step == last:
            RandomStates.seed()

    return [bench.run(stage, like, seed=1, at_step=reseed) for _ in range(2)]


def _once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yields each kind of finding once: a pilot's is as good as the last run's."""
    seen = set()
    for found in findings:
        if (found.name, found.about) not in seen:
            seen.add((found.name, found.about))
            yield found
