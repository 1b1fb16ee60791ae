"""Faults of a run as Optuna sees it: how it is called, what it reads, and how it ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence

from optuna_dp.check.checked_run import CheckedRun
from optuna_dp.check.objective_report import Finding
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.study.draws import check_choices


def wrong_arguments(objective: Callable[..., object]) -> Finding | None:
    """Returns a finding if an objective cannot be called with a trial alone, else None."""
    try:
        signature = inspect.signature(objective)
    except (TypeError, ValueError):  # builtins and the like do not say
        return None
    try:
        signature.bind(0)
    except TypeError as error:
        name = getattr(objective, "__name__", type(objective).__name__)
        return Finding(
            "arguments",
            f"{name}{signature} cannot be called with the trial alone: {error}.",
            "write an objective(trial), as study.optimize calls it: it suggests what is tuned, "
            "trains once, and returns the score.",
        )
    return None


def failed_runs(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields how runs ended otherwise than with a score."""
    for run in runs:
        if run.failure and not run.reads:
            yield Finding(
                "failure",
                f"A run fails ({run.failure}).",
                "mend this first, then check again. Whether a run fails is released with it, so "
                "it must not depend on the data.",
            )


def runs_not_started(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what an objective under a plan lacks that never asks what it may spend."""
    if not any(run.has_asked for run in runs):
        yield Finding(
            "run not started",
            "A run of a study with a plan of its runs never calls odp.start_run(trial).",
            "run = odp.start_run(trial), and train with the noise and the steps of run. In a "
            "budget they change from run to run.",
        )


def refused_choices(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields choices of a hyperparameter that a study refuses when a run asks for them."""
    for name, distribution in runs[0].distributions.items():
        try:
            check_choices(name, distribution)
        except InvalidArgumentError as error:
            yield Finding(
                "choices",
                f"A study refuses the {error.argument}: {error.why}.",
                error.fix,
                about=name,
            )


def reads_of_other_trials(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields reads of other trials."""
    reads = sorted({name for run in runs for name in run.reads})
    if reads:
        yield Finding(
            "other trials",
            f"A run reads other trials of its study ({', '.join(reads)}).",
            "use nothing in the objective but its own trial: no best value so far, no warm start.",
        )


def seeds(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
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


def privacy_warnings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what other libraries warned of: that their own guarantee does not hold."""
    for text in dict.fromkeys(text for run in runs for text in run.privacy_warnings):
        yield Finding(
            "privacy warning",
            f"A library warned that its guarantee does not hold. {text}",
            "give it what it asks for: bounds and norms of the data that are public.",
            about=text,
        )


def refused_runs(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what a release would say of runs of a study with a plan of its runs."""
    for run in runs:
        # What one says of an objective that never asked has a finding of its own.
        if run.judgement is None or not run.judgement.asked:
            continue
        if run.judgement.refused is not None:
            yield Finding(
                "refused at release",
                f"release() refuses such a run: {run.judgement.refused}",
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


def no_main_guard() -> Finding:
    """Returns what a script lacks that starts its study when it is imported."""
    return Finding(
        "no main guard",
        "Importing the script starts its study; it was stopped before the first trial.",
        'put what starts the study under if __name__ == "__main__": workers and checks import '
        "the script.",
        certain=False,
    )
