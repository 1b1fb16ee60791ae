"""Faults of a run as Optuna sees it: how it is called, what it reads, and how it ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.finding import Finding


def of_arguments(objective: Callable[..., Any], count: int) -> Finding | None:
    """Returns a finding if an objective cannot be called as a check calls it, else None.

    Args:
        objective: What is to be checked.
        count: 1 for the trial alone, 2 for the trial and the records.
    """
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):  # builtins and the like do not say
        return None
    try:
        signature.bind(*range(count))
    except TypeError as error:
        name = getattr(objective, "__name__", type(objective).__name__)
        if count > 1:
            called, change = "the trial and the records", _records_as_argument(name)
        else:
            called = "the trial alone"
            change = (
                "Write an objective(trial), as study.optimize calls it: it suggests what is "
                "tuned, trains once, and returns the score. Give --data (data=) if it takes the "
                "records second."
            )
        return Finding(
            "arguments", f"{name}{signature} cannot be called with {called}: {error}.", change
        )
    return None


def _records_as_argument(name: str) -> str:
    """Returns how to change an objective that does not take the records.

    Args:
        name: Of the objective.
    """
    return (
        f"Two lines change. First `def {name}(trial):` becomes `def {name}(trial, data=DATA):`, "
        "where DATA is the name that you give as --data, such as DATA = (x, y). Then, as its "
        "first line, `x, y = data`: all that it uses of the records comes from there. The study "
        "calls it as before."
    )


def of_endings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields how runs ended otherwise than with a score, and what they left at work."""
    failures = {run.failure for run in runs if run.kind == "failure"}
    every_run_fails = len(failures) == 1 and all(run.kind == "failure" for run in runs)
    for run in runs:
        if run.kind == "failure" and not run.reads:
            yield Finding(
                "failure",
                f"{'Every' if every_run_fails else 'A'} run fails ({run.failure}).",
                "Mend this first, then check again: runs that fail show little else."
                if every_run_fails
                else "Whether a run fails is released with it, so it must not depend on the data.",
            )
        elif run.kind == "exit":
            yield Finding(
                "exit",
                f"A run ends the whole program ({run.failure}).",
                "Return a score, or raise optuna.TrialPruned.",
            )
        elif run.kind == "time limit":
            yield Finding(
                "time limit",
                f"A run had not ended after {run.seconds:.0f} seconds.",
                "If it hangs, mend it; if it is only long, check it with fewer records or steps, "
                "or with a larger time_limit.",
            )
        if run.threads:
            yield Finding(
                "threads left",
                f"A run leaves threads at work ({', '.join(run.threads)}).",
                "Join them before the run ends: what they do later belongs to no run.",
            )


def of_reads(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields reads of other trials."""
    reads = sorted({name for run in runs for name in run.reads})
    if reads:
        yield Finding(
            "other trials",
            f"A run reads other trials of its study ({', '.join(reads)}).",
            "Use nothing in the objective but its own trial: no best value so far, no warm start.",
        )


def of_conduct(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what a release would say of runs of a study with a budget."""
    for run in runs:
        # What one says of an objective that never asked has a finding of its own.
        if run.judgement is None or not run.asked:
            continue
        if run.judgement.refusal is not None:
            yield Finding(
                "refused at release",
                f"release() refuses such a run: {run.judgement.refusal}",
                "No word of the curator's changes that.",
            )
            return
        if run.judgement.not_compared is not None:
            yield Finding(
                "not compared",
                "release() refuses such a run unless you vouch for it: "
                f"{run.judgement.not_compared}",
                "Otherwise say why the plan is kept: release(study, vouched='...').",
                certain=False,
            )
            return


def of_other_data(words: str, run: CheckedRun, base: CheckedRun) -> Iterator[Finding]:
    """Yields what a run on made-up data shows."""
    if run.failure and not base.failure:
        yield Finding(
            "failure on data",
            f"A run fails if {words} ({run.failure}).",
            "Whether a run fails is released with it: handle such data, or exclude them by a rule "
            "fixed beforehand.",
            about=words,
        )


def of_no_fidelity() -> Finding:
    """Returns what an objective lacks that never asks what it may spend."""
    return Finding(
        "fidelity not asked",
        "A run of a study with a budget never calls odp.fidelity(trial).",
        "Train with the noise and the steps of run = odp.fidelity(trial): they change from run to "
        "run.",
    )


def of_no_main_guard() -> Finding:
    """Returns what a script lacks that starts its study when it is imported."""
    return Finding(
        "no main guard",
        "Importing the script starts its study; it was stopped before the first trial.",
        'Put what starts the study under if __name__ == "__main__": workers and checks import '
        "the script.",
    )
