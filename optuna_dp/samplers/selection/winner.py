"""Choosing the winner among the runs.

The order is by outcome alone: the score first, then the tie-break that the run was given when it
started. Completion order, trial numbers and times do not enter; ``study.best_trial``, which in
memory keeps the first to complete among equals, is not used.
"""

from __future__ import annotations

from collections.abc import Iterable

from optuna.trial import FrozenTrial

from optuna_dp.evidence.ended_runs import EndedRun
from optuna_dp.study.trials import score


def choose(runs: Iterable[EndedRun], *, maximize: bool) -> FrozenTrial | None:
    """Returns the best run's trial, or None if no run has a score."""
    sign = 1.0 if maximize else -1.0
    scores = [(run, score(run.trial)) for run in runs]
    ranked = [(sign * value, run.tie_break, run) for run, value in scores if value is not None]
    if not ranked:
        return None
    return max(ranked, key=lambda entry: entry[:2])[2].trial
