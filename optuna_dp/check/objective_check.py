"""A look at an objective before any budget is spent, for mistakes that people make in a hurry.

The objective is run twice with the same hyperparameters, and its source is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from optuna_dp.accounting.events import as_event
from optuna_dp.check import randomness, run_faults, score_faults
from optuna_dp.check.checked_run import CheckedRun, checked_run
from optuna_dp.check.objective_report import AS_GIVEN_NOTE, Finding, ObjectiveReport
from optuna_dp.check.source_hints import hints_at
from optuna_dp.check.watched_columns import watching_encodings
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.runs.run_plan import RunPlan

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import Trial

    from optuna_dp.samplers.budget.plan import BudgetPlan


def check_objective(
    objective: Callable[[Trial], object],
    event: dp_event.DpEvent | None = None,
    *,
    plan: BudgetPlan | RunPlan | None = None,
    public_score: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ObjectiveReport:
    """Runs an objective twice, reads its source, and says which common mistakes it has.

    Under a plan it is the last run that is made twice. Looked for are runs that fail, that
    never ask what they may spend or that read other trials; seeds; scores, reports and user
    attributes without noise; noisy scores that cost more than is paid for; other libraries'
    privacy warnings; choices that a study refuses; and what ``release`` would refuse. There are
    hints at columns that a schema describes wrongly. The source gives hints: preparation outside
    of a schema, early stops, checkpoints, seeds.

    Nothing is written but what the objective writes, and no budget is spent: use made-up data, or
    data that you may look at. It proves nothing. What it cannot see: ``docs/how-to/audit.md``.

    Args:
        objective: As given to ``study.optimize``.
        event: What a run costs, as given to the sampler (``run=``); None if it is not known.
        plan: In place of ``event``: what ``start_run(trial)`` says, a budget plan or the
            :class:`optuna_dp.RunPlan` that a sampler is given as ``run=``.
        public_score: Scores, reports and attributes are computed on public records, and may be
            exact.
        progress: Called with a line of text before each run.

    Returns:
        What was found, the most serious first.

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
        >>> [found.name for found in report.findings][:2]
        ['repeated score', 'fixed seed']
    """
    if not callable(objective):
        raise InvalidArgumentError(
            "objective",
            objective,
            allowed="it must be a function of a trial, as for study.optimize",
        )
    if plan is not None and event is not None:
        raise InvalidArgumentError(
            "event", event, problem="a plan has events of its own; give one of both"
        )
    if event is not None:
        as_event("event", event)
    if plan is not None:
        event = _event_of(plan)
    wrong_call = run_faults.wrong_arguments(objective)
    if wrong_call is not None:
        return ObjectiveReport((wrong_call, *hints_at(objective)), 0)

    tell = progress or (lambda words: None)
    odd_columns: dict[str, Finding] = {}
    with randomness.generators_kept(), watching_encodings(odd_columns):
        tell("run 1: a first look")
        runs = [checked_run(objective, plan)]
        if not runs[0].failure:
            tell("run 2: the same hyperparameters again")
            runs.append(checked_run(objective, plan, runs[0]))
    findings = [*_of_runs(runs, event, plan, public_score=public_score), *odd_columns.values()]
    findings += hints_at(objective)
    note = AS_GIVEN_NOTE if any(run.takes_records_as_given for run in runs) else ""
    return ObjectiveReport(_once(findings), len(runs), note)


def _event_of(plan: BudgetPlan | RunPlan) -> dp_event.DpEvent:
    """Returns the event of the run that is checked: of a budget, the last one."""
    try:
        return plan.event if isinstance(plan, RunPlan) else plan.final.event
    except (AttributeError, OptunaDPError):
        raise InvalidArgumentError(
            "plan", plan, allowed="it must be what plan_budget returned, or an optuna_dp.RunPlan"
        ) from None


def _of_runs(
    runs: Sequence[CheckedRun],
    event: dp_event.DpEvent | None,
    plan: BudgetPlan | RunPlan | None,
    *,
    public_score: bool,
) -> Iterator[Finding]:
    """Yields what runs with the same hyperparameters show, the most serious first.

    Args:
        runs: Two; one if it failed.
        event: What a run costs; None if it is not known.
        plan: None for a study without a plan of runs.
        public_score: Whether scores may be exact.
    """
    yield from run_faults.failed_runs(runs)
    yield from run_faults.reads_of_other_trials(runs)
    yield from run_faults.refused_choices(runs)
    if not any(run.failure for run in runs):
        if plan is not None:
            yield from run_faults.runs_not_started(runs)
        if not public_score:
            yield from score_faults.exact_scores(runs)
            yield from score_faults.numbers_in_attributes(runs)
            yield from score_faults.reported_values(runs)
            yield from score_faults.too_little_score_noise(runs, event)
        yield from run_faults.seeds(runs)
    yield from run_faults.privacy_warnings(runs)
    yield from run_faults.refused_runs(runs)


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns each kind of finding once, one that is certain where there are both."""
    kinds: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kind = (finding.name, finding.about)
        if kind not in kinds or (finding.certain and not kinds[kind].certain):
            kinds[kind] = finding
    return tuple(kinds.values())
