"""Checks of an objective, or of a training, before any budget is spent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from optuna_dp import validation
from optuna_dp.accounting.events import as_event
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.testing import (
    check_gaps,
    exact_attributes,
    gradient_steps,
    library_faults,
    randomness_faults,
    run_faults,
    score_faults,
    searched_costs,
    training_faults,
)
from optuna_dp.testing.checked_run import Bench, CheckedRun
from optuna_dp.testing.data_reads import watched
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.gradient_canaries import GradientCanaries
from optuna_dp.testing.made_up_data import records_in, variants, with_odd_record
from optuna_dp.testing.objective_report import NO_EVENT, CheckInterrupted, ObjectiveReport
from optuna_dp.testing.pair_faults import of_pair
from optuna_dp.testing.source_hints import hints_at
from optuna_dp.testing.stage import Stage

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.trial import Trial

    from optuna_dp.budget.plan import BudgetPlan

# Records are replaced in turn, until one of each scale has moved a step; few are in no batch at
# all. Where a model saturates, on one side or far out, a record has no gradient.
_SCALES = (-1e3, 1e3, -10.0, 10.0)
_MOST_NEIGHBOURS = 8
# A trainer of another library is given all records at once: a large one and a small one will do.
_ENOUGH_FITS = 2
# Another label may be predicted as well, or as badly, as the one before.
_ENOUGH_UNTOUCHED = 3

NORMALISATION = "BatchNorm and statistics of private records"
CLIPPING = f"clipping, {NORMALISATION}"
BATCHES = "who joins the batches"

# Noise that cannot be repeated may give few scores, which are equal or not by luck. Whatever their
# chances, runs that share nothing are accused of it less than once in 1,000 checks: of four runs
# with one randomness only the first differs in at most 1 of 8 cases, which is seen five times; two
# copies always agree, and six times on something else than the two before, in at most 7 of 10,000
# cases if 16 pairs of copies are looked at (computed pair by pair; the most over all chances of
# two to four scores).
_SETTINGS, _RUNS_OF_EACH = 5, 4
_CHANGES, _PAIRS_OF_COPIES = 6, 16
# How often equal outcomes are seen again before a hint, and before a public score is judged.
_CONFIRMATIONS = 6
# Seconds that two copies of the process have at least.
_AT_LEAST = 10.0

# What a run takes: the trial, and what is written down of it.
_Objective = Callable[[Any, CheckedRun], Any]


def check_objective(
    objective: Callable[..., Any],
    event: dp_event.DpEvent | None = None,
    *,
    plan: BudgetPlan | None = None,
    data: Any = None,
    public_score: bool = False,
    direction: Literal["maximize", "minimize"] = "maximize",
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
    quick: bool = False,
) -> ObjectiveReport:
    """Runs an objective a few times and looks for what makes its stated cost untrue.

    Each kind of run (a pilot and the last run of a plan, or the one kind of a plain study) is run
    twice with the same hyperparameters and fresh randomness, and twice more with the randomness of
    the first two, in a study in memory that holds other trials. Looked for are fixed seeds, scores
    and attributes without noise, reads of other trials, whatever an earlier run has left, reported
    values and early stops that nothing pays for, exits, hangs, noisy scores that cost more than
    the event pays for, and what Opacus did beside what the event says. If what a run spends
    follows the hyperparameters, it is run at both ends of their ranges. With ``data``, more runs
    ask whether it fails on other data, how far one record moves a step of its training, who joins
    the batches, whether one record moves the bounds or the other records that a trainer of
    diffprivlib or a DP-EBM is given, and whether a public score depends on records that are not
    trained on.

    Nothing is written but what the objective writes, and no budget is spent: use made-up data, or
    data that you may look at. What cannot be seen is listed in ``not_checked``; what was looked
    for and not found may still be wrong: ``docs/how-to/audit.md``.

    Args:
        objective: As given to ``study.optimize``. With ``data``, it takes it as second argument.
        event: What a run costs, as given to ``PrivacyCallback``; None if it is not known.
        plan: For studies with a budget, in place of ``event``: what ``fidelity(trial)`` says.
        data: An array or a tensor of records, or several of equal length; None if the objective
            has its own.
        public_score: Scores and reports are computed on public records, and may be exact.
        direction: "maximize" or "minimize".
        time_limit: Seconds that one run may take; None for any time. It needs POSIX and the main
            thread.
        progress: Called with a line of text before each run.
        quick: Runs two times in all, the last kind of run only and without ``data``. What takes
            more runs is not looked at, and ``not_checked`` says so.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        KeyboardInterrupt: If it is interrupted. It shows what was found before, and has it as
            ``report``.

    Example:
        >>> import random, optuna_dp as odp
        >>> def objective(trial):
        ...     random.seed(0)
        ...     return trial.suggest_float("x", 0, 1) + random.gauss(0, 1)
        >>> report = odp.check_objective(objective)
        >>> report.ok
        False
        >>> [found.name for found in report.findings][:2]
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
    if time_limit is not None:
        validation.positive("time_limit", time_limit)
    if quick and data is not None:
        raise InvalidArgumentError(
            "data",
            type(data).__name__,
            "a quick check does not look at the records",
            "Leave out quick (--quick), or data (--data).",
        )
    data_variants = variants(data) if data is not None else []
    stages = _stages(event, plan)
    incomplete = (NO_EVENT,) if event is None and plan is None else ()
    wrong_call = run_faults.of_arguments(objective, 1 if data is None else 2)
    if wrong_call is not None:
        nothing_else = "everything else: the objective could not be called."
        findings = (wrong_call, *hints_at(objective))
        return ObjectiveReport(findings, (nothing_else,), 0, incomplete)

    def on(records: Any) -> _Objective:
        if data is None:
            return lambda trial, run: objective(trial)
        return lambda trial, run: objective(trial, watched(records, run.batches))

    bench = Bench(on(data), plan, direction, time_limit, progress or (lambda words: None))
    check = _Check(bench, "public" if public_score else "private", data)
    try:
        if quick:
            check.run_quickly(stages[-1])
        else:
            check.run(stages, on, data_variants)
    except KeyboardInterrupt as interrupt:
        reason = f"interrupted{f' ({interrupt})' if str(interrupt) else ''} in run {bench.runs}"
        check.findings += hints_at(objective)
        unknown = "what the interrupted run and those that were to come would have shown."
        raise CheckInterrupted(
            ObjectiveReport(check.found(), (unknown,), bench.runs, (reason, *incomplete))
        ) from interrupt
    if plan is not None and not any(run.asked for run in check.all_runs):
        check.findings.append(run_faults.of_no_fidelity())
    check.findings += hints_at(objective)
    gaps = (
        *check_gaps.not_checked(check.stages, check.records, check.moved),
        *check_gaps.not_checked_of_origins(
            check.all_runs,
            "public" if public_score else "private",
            check.records,
            record_moves_a_fit=check.fits_moved,
            record_is_untouched=check.was_untouched,
        ),
        *dict.fromkeys(check.unknown),
    )
    return ObjectiveReport(check.found(), gaps, bench.runs, incomplete)


def check_training(
    train: Callable[..., Any], event: Any, data: Any, *, opacus: bool
) -> tuple[tuple[Finding, ...], list[str]]:
    """Returns what is found in a training beside its canaries, and what could not be seen.

    Args:
        train: Takes data, after a :class:`GradientCanaries` unless it uses Opacus.
        event: What it costs.
        data: An array or tensor of records, or several of equal length.
        opacus: Whether its steps are those of Opacus.
    """

    def on(dataset: Any) -> _Objective:
        def once(trial: Trial, run: CheckedRun) -> float:
            records = watched(dataset, run.batches)
            if opacus:
                train(records)
            else:
                canaries = GradientCanaries.none()
                run.steps = canaries.steps
                train(canaries, records)
            return 0.0

        return once

    bench = Bench(on(data), None, "maximize", None, lambda words: None)
    check = _Check(bench, "none", data)
    check.run(_stages(event, None), on, [])
    gaps = [] if check.moved else [CLIPPING]
    if not any(
        training_faults.batches_seen(pair, stage, check.records) for stage, pair in check.stages
    ):
        gaps.append(BATCHES)
    return check.found(), gaps


class _Check:
    """The runs of one check, and what they have shown so far."""

    def __init__(
        self, bench: Bench, scores: Literal["private", "public", "none"], data: Any
    ) -> None:
        self.findings: list[Finding] = []
        self.unknown: list[str] = []
        self.stages: list[tuple[Stage, list[CheckedRun]]] = []
        self.records = 0 if data is None else records_in(data)
        self.moved: bool | None = None
        self.fits_moved = self.was_untouched = False
        self._bench, self._scores, self._data = bench, scores, data
        self._seeds: list[int] = []
        self._repeats = self._fits_repeat = False

    @property
    def all_runs(self) -> list[CheckedRun]:
        """The runs with fresh randomness, of all stages."""
        return [run for _, pair in self.stages for run in pair]

    @property
    def _may_go_on(self) -> bool:
        """Returns whether further runs make sense: each would take the whole time limit."""
        return not any(run.kind == "time limit" for run in self.all_runs)

    def run(
        self,
        stages: Sequence[Stage],
        on: Callable[[Any], _Objective],
        data_variants: Sequence[tuple[str, Any]],
    ) -> None:
        """Runs each kind of run, then the last kind with one record replaced and on other data."""
        try:
            for stage in stages:
                self._stage(stage)
            if self._data is not None and self._may_go_on:
                self._neighbours(on)
                stage, (base, *_) = self.stages[-1]
                for words, variant in data_variants:
                    seed = secrets.randbits(63)
                    variant_run = self._bench.run(words, stage, seed, base, objective=on(variant))
                    self.findings += run_faults.of_other_data(words, variant_run, base)
                    if records_in(variant) < self.records:
                        pair = self.stages[-1][1]
                        relation = self._bench.relation
                        self.findings += score_faults.of_sizes(pair, variant_run, relation)
                        self.findings += library_faults.of_kept_counts(base, variant_run, relation)
                        self.findings += score_faults.of_records_in_several_scores(
                            base, variant_run, stage, self.records
                        )
        finally:
            self._bench.randomness.restore()

    def run_quickly(self, stage: Stage) -> None:
        """Runs one kind of run twice, with the same hyperparameters and fresh randomness."""
        pair: list[CheckedRun] = []
        self.stages.append((stage, pair))
        try:
            for _ in range(2):
                if self._may_go_on:
                    model_run = pair[0] if pair else None
                    seed = secrets.randbits(63)
                    pair.append(
                        self._bench.run("fresh randomness", stage, seed, model_run, draws=True)
                    )
        finally:
            self._bench.randomness.restore()
        self.findings += (
            of_pair(pair, None, stage, self._scores)
            if self._may_go_on
            else run_faults.of_endings(pair)
        )
        self.unknown.append(
            "what takes more runs than two: pilots, exact losses and attributes, searched costs, "
            "and what a run leaves for the next. Leave out quick (--quick) for these."
        )

    def found(self) -> tuple[Finding, ...]:
        """Returns each kind of finding once, one that is certain where there are both."""
        kinds: dict[tuple[str, str], Finding] = {}
        for finding in self.findings:
            kind = (finding.name, finding.about)
            if kind not in kinds or (finding.certain and not kinds[kind].certain):
                kinds[kind] = finding
        return tuple(kinds.values())

    def _stage(self, stage: Stage) -> None:
        if not self._may_go_on:
            return
        bench = self._bench
        self._seeds = [secrets.randbits(63) for _ in range(3)]
        pair: list[CheckedRun] = []
        first_run = None if self.stages else bench.run("the first run", stage, self._seeds[2])
        self.stages.append((stage, pair))
        if first_run is not None and first_run.kind == "time limit":
            pair.append(first_run)
        for seed in self._seeds[:2]:
            if self._may_go_on:
                model_run = pair[0] if pair else None
                pair.append(bench.run("fresh randomness", stage, seed, model_run, draws=True))
        if not self._may_go_on:
            self.findings += run_faults.of_endings(pair)
            return
        self.findings += of_pair(pair, first_run, stage, self._scores)
        if self._scores != "public" and training_faults.may_have_stopped(pair, stage):
            seed = secrets.randbits(63)
            third = bench.run("as short as the one before?", stage, seed, pair[0])
            self.findings += training_faults.of_lengths([*pair, third], stage)
        if self.records and stage.event is not None:
            self.findings += training_faults.of_batches(pair, stage, self.records)
        if first_run is not None:
            self._judge_costs(stage, pair, first_run)
        if self._scores == "private":
            self._judge_attributes(stage, pair)
        self._judge_repeated(stage, pair, first_run)

    def _judge_costs(self, stage: Stage, pair: list[CheckedRun], first_run: CheckedRun) -> None:
        """Runs at both ends of the hyperparameters, if what a run spends follows them."""
        if stage.event is None or not searched_costs.follow_hyperparameters(first_run, pair):
            return
        for word, end in searched_costs.at_ends(pair[0]):
            seed = secrets.randbits(63)
            run = self._bench.run(f"hyperparameters at their {word} value", stage, seed, end)
            self.findings += searched_costs.of_run_at_end(word, run, stage, self._scores)

    def _judge_attributes(self, stage: Stage, pair: list[CheckedRun]) -> None:
        """Looks for scores without noise in attributes, in more runs if there may be some."""
        runs = list(pair)
        for _ in range(_CONFIRMATIONS + 1):
            # Two runs may have one score by chance.
            if not exact_attributes.scores_without_noise(runs, may_be_equal=True):
                return
            seed = secrets.randbits(63)
            runs.append(self._bench.run("an exact attribute?", stage, seed, pair[0]))
        places = exact_attributes.scores_without_noise(runs)
        self.findings += score_faults.of_scores_in_attributes(places)

    def _judge_repeated(
        self, stage: Stage, pair: list[CheckedRun], first_run: CheckedRun | None
    ) -> None:
        def repeated(number: int, model_run: CheckedRun) -> CheckedRun:
            words = "the same randomness again"
            return self._bench.run(words, stage, self._seeds[number], model_run)

        repeat = repeated(0, pair[0])
        self._fits_repeat = bool(repeat.fits) and pair[0].fits == repeat.fits
        library = library_faults.noise_that_is_not_repeated(pair)
        if library:
            self.unknown.append(
                "what a run leaves for the next, and exact losses and attributes: "
                f"{library} draws noise that cannot be repeated."
            )
            return
        changes = [(0, pair[0], repeat)]
        if first_run is not None:
            # What only the very first run has set, no later one shows.
            changes.append((2, first_run, repeated(2, first_run)))
        changes = [change for change in changes if change[1].outcome() != change[2].outcome()]
        self._repeats = all(number != 0 for number, *_ in changes)
        if not self._repeats and (
            self._first_of_settings_differs(stage) or self._drifts(stage, pair[0])
        ):
            self.findings.append(randomness_faults.of_what_is_left())
        elif changes:
            if not self._repeats and self._scores == "private":
                self.findings += score_faults.of_equal_scores([pair[1], repeat], pair, stage)

            def is_settled(number: int, before: CheckedRun, after: CheckedRun) -> bool:
                """Returns whether a run first drew otherwise, and then always gives the same."""
                return before.drawing() != after.drawing() and all(
                    repeated(number, before).outcome() == after.outcome()
                    for _ in range(_CONFIRMATIONS)
                )

            # It may be a library that begins otherwise than it goes on.
            if any(is_settled(*change) for change in changes):
                self.findings.append(replace(randomness_faults.of_what_is_left(), certain=False))
            else:
                self.unknown.append(
                    "what a run leaves for the next: with the same randomness it gives something "
                    "else, which may be a source of randomness that cannot be repeated, or a file."
                )
        elif self._scores == "private" and not any(run.reads for run in pair):
            fresh_runs = [pair[1]]
            if score_faults.same_share(*pair):
                seed = secrets.randbits(63)
                fresh_runs.append(self._bench.run("an equal attribute?", stage, seed, pair[0]))
            faults_of_repeats = list(score_faults.of_repeated(pair[0], repeat, fresh_runs, stage))
            if not faults_of_repeats and score_faults.may_be_frozen(pair, self.findings):
                faults_of_repeats += score_faults.of_frozen(
                    pair[0], self._with_fresh_end(stage, pair[0])
                )
            self.findings += faults_of_repeats

    def _first_of_settings_differs(self, stage: Stage) -> bool:
        """Returns whether, of equal runs, it is always the first that gives something else.

        Each time it has other hyperparameters, so that a cache has no result for it yet.
        """
        for _ in range(_SETTINGS):
            seed = secrets.randbits(63)
            first_run = self._bench.run("other hyperparameters", stage, seed)
            outcomes: list[str] = []
            for _ in range(_RUNS_OF_EACH - 1):
                run = self._bench.run("the same randomness again", stage, seed, first_run)
                outcomes.append(_of_a_score(run))
                if (
                    not outcomes[-1]
                    or outcomes[-1] == first_run.outcome()
                    or outcomes[-1] != outcomes[0]
                ):
                    return False
        return True

    def _drifts(self, stage: Stage, model_run: CheckedRun) -> bool:
        """Returns whether what is sure to be repeated changes from run to run.

        If two copies of this process always agree, all that a run draws is under control, and
        what changes in *this* process is what its runs leave behind.
        """

        def again() -> CheckedRun:
            return self._bench.run("the same randomness again", stage, self._seeds[0], model_run)

        outcome, changes, seconds = "", -1, model_run.seconds
        for _ in range(_PAIRS_OF_COPIES):
            before, outcome = outcome, _of_two_copies(lambda: _of_a_score(again()), seconds)
            if not outcome:
                return False
            # What is left behind need not change a score each time: shares of records are few.
            changes += outcome != before
            if changes == _CHANGES:
                return True
            again()
        return False

    def _with_fresh_end(self, stage: Stage, model_run: CheckedRun) -> CheckedRun:
        """Runs with the randomness of ``model_run`` until the training ends, then fresh."""
        last_step = model_run.opacus.steps

        def reseed(step: int) -> None:
            if step == last_step:
                self._bench.randomness.seed(secrets.randbits(63))

        return self._bench.run(
            "fresh randomness after the training", stage, self._seeds[0], model_run, at_step=reseed
        )

    def _neighbours(self, on: Callable[[Any], _Objective]) -> None:
        """Replaces one record after the other, with the randomness of the last stage's first run.

        Ends when enough of them have moved the training, or one shows a fault.
        """
        stage, (base, *_) = self.stages[-1]
        sees_steps = self._repeats and bool(base.steps.sums) and stage.event is not None
        step_moves = fit_moves = 0
        untouched: list[tuple[CheckedRun, _Objective]] = []
        rows = list(_rows(base.batches.sets, self.records))[:_MOST_NEIGHBOURS]
        for number, row in enumerate(rows if sees_steps or self._fits_repeat else []):
            on_odd = on(with_odd_record(self._data, row, _SCALES[number % len(_SCALES)]))
            odd = self._bench.run(
                "one record replaced", stage, self._seeds[0], base, objective=on_odd
            )
            faults_of_record = []
            if sees_steps:
                fault = training_faults.of_neighbour(base, odd, stage)
                faults_of_record += [] if fault is None else [fault]
                step_moves += fault is not None or not gradient_steps.same(base.steps, odd.steps)
            if self._fits_repeat:
                faults_of_record += library_faults.of_replaced_in_fits(
                    base, odd, stage, self._scores
                )
                fit_moves += base.fits != odd.fits
            if training_faults.is_same_training(base, odd):
                untouched.append((odd, on_odd))
            self.findings += faults_of_record
            has_enough = step_moves >= len(_SCALES) or fit_moves >= _ENOUGH_FITS
            if self._scores == "public":
                has_enough = has_enough and len(untouched) >= _ENOUGH_UNTOUCHED
            if faults_of_record or has_enough:
                break
        self.moved, self.fits_moved = step_moves > 0, fit_moves > 0
        # A training that no record moves may be one on public records, and not the one paid for.
        if self._scores == "public" and self._repeats and (self.moved or self.fits_moved):
            self.was_untouched = bool(untouched)
            for odd, on_odd in untouched:
                if odd.value == base.value:
                    continue
                if not self._both_repeat(base, odd, on_odd):
                    self.unknown.append(
                        "whether scores are computed on public records only: with the same "
                        "randomness they are not the same."
                    )
                    return
                self.findings.append(score_faults.of_score_of_untouched(base, stage))
                return

    def _both_repeat(self, base: CheckedRun, odd: CheckedRun, on_odd: _Objective) -> bool:
        """Returns whether two runs that differ in a record always give their own scores again."""
        stage, words = self.stages[-1][0], "the same randomness again"
        return all(
            self._bench.run(words, stage, self._seeds[0], run, objective=on).value == run.value
            for _ in range(_CONFIRMATIONS)
            for run, on in ((odd, on_odd), (base, None))
        )


def _rows(batches: Sequence[Any], records: int) -> Iterator[int]:
    """Yields records to replace: of the first batch if it is known, then any, even and odd."""
    for batch in batches[:1]:
        yield from batch[:4].tolist()
    for i in range(_MOST_NEIGHBOURS):
        row = records * (2 * i + 1) // (2 * _MOST_NEIGHBOURS)
        yield min(row - row % 2 + i % 2, records - 1)


def _of_a_score(run: CheckedRun) -> str:
    return "" if run.value is None else run.outcome()


def _stages(event: Any, plan: BudgetPlan | None) -> list[Stage]:
    if plan is None:
        return [Stage("", 0, event)]
    try:
        pilots = [Stage("pilot", 0, plan.fidelity(0).event)] if plan.pilots else []
        return [*pilots, Stage("last run", plan.pilots, plan.final.event)]
    except (AttributeError, OptunaDPError):
        raise InvalidArgumentError("plan", plan, "it must be what plan_budget returned") from None


def _of_two_copies(run: Callable[[], str], seconds: float) -> str:
    """Returns what two copies of this process get that run at the same time; "" if they differ.

    Also "" if a run fails, or where processes cannot be copied.

    Args:
        run: What is repeated; it returns "" if it failed.
        seconds: How long it took here.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that wait do no harm
            outcomes = _in_copies(run, _AT_LEAST + 5.0 * seconds)
    except (
        ValueError,
        AssertionError,
        OSError,
    ):  # no fork, or a process that may have no children
        return ""
    return outcomes[0] if len(outcomes) == 2 and outcomes[0] == outcomes[1] else ""


def _in_copies(run: Callable[[], str], seconds: float) -> list[str]:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)  # what one writes to a file, the other should not read
    copies = []
    outcomes = []
    try:
        for _ in range(2):
            receiver, sender = context.Pipe(duplex=False)
            copy = context.Process(target=_say, args=(run, barrier, sender), daemon=True)
            copy.start()
            sender.close()
            copies.append((copy, receiver))
        for _, receiver in copies:
            with contextlib.suppress(EOFError):
                if receiver.poll(seconds):
                    outcomes.append(receiver.recv())
    finally:  # also where the check is interrupted
        for copy, _ in copies:
            copy.kill()
            copy.join()
    return outcomes


def _say(run: Callable[[], str], barrier: Any, to: Any) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # threads do not survive the copy
    barrier.wait(_AT_LEAST)
    to.send(run())
