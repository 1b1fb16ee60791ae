"""What a check could not look at, and how to let it look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from optuna_dp.testing.checked_run import CheckedRun, can_be_limited
from optuna_dp.testing.stage import Stage
from optuna_dp.testing.stated_training import alternatives
from optuna_dp.testing.training_faults import batches_seen

# How a check is given the records.
_DATA = (
    "--data DATA, with `def objective(trial, data=DATA):` and, as its first line, `x, y = data` "
    "in place of the records that it uses now"
)


def not_checked(
    stages: Sequence[tuple[Stage, Sequence[CheckedRun]]], records: int, step_has_moved: bool | None
) -> Iterator[str]:
    """Yields what could not be looked at.

    Args:
        stages: Each kind of run, and its runs.
        records: How many records were given; 0 if none.
        step_has_moved: Whether a step was seen that a record has moved; None if none was looked
            for.
    """
    runs = [run for _, pair in stages for run in pair]
    trainings = [training for stage, _ in stages for training in alternatives(stage.event)]
    if all(stage.event is None for stage, _ in stages):
        yield "what a run costs: give its event, or the plan."
    elif all(run.is_enforced for run in runs):
        pass  # odp.train draws, clips, adds the noise and steps, whatever the objective does.
    elif any(run.spendings for run in runs):
        names = " and ".join(dict.fromkeys(s.library for run in runs for s in run.spendings))
        yield (
            f"whether {names} clips and adds the noise that it says: its own word was compared "
            "with the event."
        )
    elif any(not run.failure for run in runs) and not any(run.opacus.steps for run in runs):
        yield (
            "noise and steps: no Opacus optimizer was seen. Audit the training "
            "(optuna_dp.testing.audit_training)."
        )
    if runs and all(run.is_enforced for run in runs):
        if not records:
            yield (
                "failures on other data, and what is done with the records before odp.train: give "
                f"data= ({_DATA})."
            )
    elif not records:
        yield (
            "failures on other data, what is done with the records before the training, clipping, "
            f"BatchNorm, and who joins the batches: give data= ({_DATA})."
        )
    elif trainings:
        if not step_has_moved:
            yield (
                "clipping, BatchNorm and statistics of private records: no step was seen that one "
                "record moves. Audit the training with data=."
            )
        if not any(batches_seen(pair, stage, records) for stage, pair in stages):
            yield "who joins the batches: they are not read from data one after the other."
    if not can_be_limited():
        yield "hangs: no time limit can be set here."


def not_checked_of_origins(
    runs: Sequence[CheckedRun],
    scores: Literal["private", "public"],
    records: int,
    *,
    record_moves_a_fit: bool,
    record_is_untouched: bool,
) -> Iterator[str]:
    """Yields what could not be looked at of where bounds, scores and their noise come from.

    Args:
        runs: All that were compared.
        scores: What the scores are said to be computed on.
        records: How many records were given; 0 if none.
        record_moves_a_fit: Whether a record was seen that changes what a trainer is given.
        record_is_untouched: Whether a record was seen that the training does not meet.
    """
    compared = list(dict.fromkeys(fit.library for run in runs for fit in run.fits))
    spenders = dict.fromkeys(spending.library for run in runs for spending in run.spendings)
    unseen = [library for library in spenders if library not in compared]
    if unseen:
        yield (
            f"where the bounds and scales of {' and '.join(unseen)} come from: what it is given "
            "is not looked at."
        )
    if compared and not record_moves_a_fit:
        yield f"where the bounds, norms and scales of {' and '.join(compared)} come from: " + (
            "no record was seen that changes what it is given."
            if records
            else "bounds and norms were compared with the extremes of the records. Give data=."
        )
    scored = any(run.value is not None for run in runs)
    if scores == "private" and scored and not any(run.scores for run in runs):
        yield (
            "how much noise the score has: it comes neither from odp.scoring nor from run.score."
        )
    if scores == "public" and scored and not record_is_untouched:
        yield "whether scores are computed on public records only: " + (
            "no record was seen that the training does not meet."
            if records
            else "give all private records as data=, also those that are held back."
        )
