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
            called = "the trial and the records"
            change = (
                f"`def {name}(trial, data=DATA):`, where DATA is the name that you give as "
                "--data, such as DATA = (x, y). Then, as its first line, `x, y = data`: all that "
                "it uses of the records comes from there. The study calls it as before."
            )
        else:
            called = "the trial alone"
            change = (
                "write an objective(trial), as study.optimize calls it: it suggests what is "
                "tuned, trains once, and returns the score. Give --data (data=) if it takes the "
                "records second."
            )
        return Finding(
            "arguments", f"{name}{signature} cannot be called with {called}: {error}.", change
        )
    return None


def of_endings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields how runs ended otherwise than with a score."""
    for run in runs:
        if run.kind == "failure" and not run.reads:
            yield Finding(
                "failure",
                f"A run fails ({run.failure}).",
                "mend this first, then check again. Whether a run fails is released with it, so "
                "it must not depend on the data.",
            )
        elif run.kind == "exit":
            yield Finding(
                "exit",
                f"A run ends the whole program ({run.failure}).",
                "return a score, or raise optuna.TrialPruned.",
            )
        elif run.kind == "time limit":
            yield Finding(
                "time limit",
                f"A run had not ended after {run.seconds:.0f} seconds.",
                "if it hangs, mend it; if it is only long, check it with fewer records or steps, "
                "or with a larger time_limit.",
            )


def of_no_fidelity(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what an objective under a plan lacks that never asks what it may spend."""
    if not any(run.asked for run in runs):
        yield Finding(
            "fidelity not asked",
            "A run of a study with a budget never calls odp.fidelity(trial).",
            "run = odp.fidelity(trial), and train with the noise and the steps of run: they "
            "change from run to run.",
        )


def of_reads(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields reads of other trials."""
    reads = sorted({name for run in runs for name in run.reads})
    if reads:
        yield Finding(
            "other trials",
            f"A run reads other trials of its study ({', '.join(reads)}).",
            "use nothing in the objective but its own trial: no best value so far, no warm start.",
        )


def of_seeds(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields seeds that make two runs draw the same.

    A training by ``odp.train`` draws batches and noise elsewhere: there a seed does no harm.
    """
    first, second = runs
    names = [name for name in first.states if first.states[name] == second.states.get(name)]
    if names and not all(run.is_enforced for run in runs):
        yield Finding(
            "fixed seed",
            f"Two runs leave the generator of {' and '.join(names)} in the same state.",
            "take the seed out (torch.manual_seed, np.random.seed, seed_everything): noise that "
            "repeats is no noise. Draw a split or first weights with another generator than "
            "noise and batches.",
        )


def of_privacy_warnings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what other libraries warned of: that their own guarantee does not hold."""
    for text in dict.fromkeys(text for run in runs for text in run.privacy_warnings):
        yield Finding(
            "privacy warning",
            f"A library warned that its guarantee does not hold. {text}",
            "give it what it asks for: bounds and norms of the data that are public.",
            about=text,
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
                "change the objective. No word of the curator's makes release() accept it.",
            )
            return
        if run.judgement.not_compared is not None:
            yield Finding(
                "not compared",
                "release() refuses such a run unless you vouch for it: "
                f"{run.judgement.not_compared}",
                "or say why the plan is kept: release(study, vouched='...').",
                certain=False,
            )
            return


def of_record_left_out(run: CheckedRun, base: CheckedRun) -> Iterator[Finding]:
    """Yields a failure that one record decides.

    Args:
        run: A run on all records but one.
        base: A run on all records.
    """
    if run.failure and not base.failure:
        yield Finding(
            "failure on data",
            f"A run fails if one record is missing ({run.failure}).",
            "handle such data, or exclude them by a rule fixed beforehand: whether a run fails is "
            "released with it.",
        )


def of_no_main_guard() -> Finding:
    """Returns what a script lacks that starts its study when it is imported."""
    return Finding(
        "no main guard",
        "Importing the script starts its study; it was stopped before the first trial.",
        'put what starts the study under if __name__ == "__main__": workers and checks import '
        "the script.",
        certain=False,
    )
