"""The runs of earlier batches: a set fixed by slot numbers alone, never by who ended first."""

from __future__ import annotations

from collections.abc import Callable

from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.polling import poll
from optuna_dp.errors import WaitError
from optuna_dp.study.entries import GIVEN_BACK
from optuna_dp.study.trials import below_number, ended, trials_of
from optuna_dp.study.waiting import Waiting


def completed_batches(
    study: Study,
    first_of_batch: int,
    *,
    is_own: Callable[[FrozenTrial], bool],
    batches: str = "DPHyPOSampler a batch_size",
    otherwise: str = ", or schedule='any' (which costs more)",
    names_trials: bool = False,
) -> list[FrozenTrial]:
    """Returns all runs of slots below ``first_of_batch``, when all of them have ended.

    Waits without an end: whether a run that gave up after some time fails would depend on how long
    others take, which no guarantee covers.

    Args:
        study: The study.
        first_of_batch: The first slot of the batch that asks.
        is_own: Whether this very thread started a run; waiting for it would be for ever.
        batches: What to enlarge so that fewer runs wait, in words; empty if nothing helps.
        otherwise: What else would help, in words.
        names_trials: Whether a warning may say which runs are waited for.

    Raises:
        WaitError: If a run waited for is this thread's own.
    """
    enlarge = f". Or give {batches} of at least the number of runs that you ask for together"
    enlarge = enlarge if batches else ""

    def read() -> list[FrozenTrial] | None:
        earlier_trials = list(below_number(trials_of(study), first_of_batch))
        open_runs = [trial for trial in earlier_trials if not ended(trial)]
        if any(is_own(trial) for trial in open_runs):
            # Nothing of data or durations is in this: whoever fails this run may do so.
            raise WaitError(
                "This run waits for all runs of earlier batches, and this thread started one of "
                "them. Tell its result first (study.tell), then ask this run for its parameters "
                "again. If you have lost that trial, mark it as failed (optuna-dp recover)"
                f"{enlarge}{otherwise}."
            )
        if any(GIVEN_BACK.of(trial) for trial in open_runs):
            raise WaitError(
                "This run waits for the study's first run, and that was given back: an error "
                "ended it before it began. Mend the objective, mark this run as failed (optuna-dp "
                "recover), and call study.optimize again."
            )
        if open_runs or len(earlier_trials) < first_of_batch:
            return None
        return earlier_trials

    waiting = Waiting(
        study,
        "for runs of earlier batches",
        below=first_of_batch,
        advice=f"To keep n workers busy, give {batches} of n." if batches else "",
        names_trials=names_trials,
    )
    return poll(read, waiting.pause)
