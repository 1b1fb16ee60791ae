"""What an audit of one training sees beside its canaries: clipping, batches, seeds and lengths.

The training is run on the records it is given, twice with fresh randomness; then with the
randomness of the first and one record replaced, as ``optuna_dp.check_objective`` does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from optuna_dp.testing import data_reads, gradient_steps
from optuna_dp.testing import objective_faults as faults
from optuna_dp.testing.checked_run import CheckedRun, Stage
from optuna_dp.testing.draws import Draws
from optuna_dp.testing.gradient_canaries import GradientCanaries
from optuna_dp.testing.made_up_data import records_in, with_odd_record
from optuna_dp.testing.objective_faults import Finding
from optuna_dp.testing.randomness import Randomness
from optuna_dp.testing.watched_opacus import watching_opacus

# Records are replaced in turn, until one of each scale has moved a step; few are in no batch at
# all. Where a model saturates, on one side or far out, a record has no gradient.
_SCALES = (-1e3, 1e3, -10.0, 10.0)
_MOST_NEIGHBOURS = 8

NORMALISATION = "BatchNorm and statistics of private records"
CLIPPING = f"clipping, {NORMALISATION}"
BATCHES = "who joins the batches"


def check_training(
    train: Callable[..., Any], event: Any, data: Any, *, opacus: bool
) -> tuple[list[Finding], list[str]]:
    """Returns what was found in a training beside its canaries, and what could not be seen.

    Args:
        train: Takes data, after a :class:`GradientCanaries` unless it uses Opacus.
        event: What it costs.
        data: An array or tensor of records, or several of equal length.
        opacus: Whether its steps are those of Opacus.
    """
    randomness, stage, records = Randomness(), Stage("", 0, event), records_in(data)

    def run(seed: int, given: Any, draws: bool = False) -> CheckedRun:
        found = CheckedRun(value=0.0)
        with randomness.controlled(), watching_opacus(found.opacus, found.steps):
            randomness.seed(seed)
            if draws:
                found.draws = Draws(lambda: randomness.drawn)
            watched = data_reads.watched(given, found.batches)
            with found.draws.watching():
                if opacus:
                    train(watched)
                else:
                    canaries = GradientCanaries.none()
                    train(canaries, watched)
                    found.steps = canaries.steps
            found.states = randomness.read()
        return found

    try:
        seeds = secrets.randbits(63), secrets.randbits(63)
        run(seeds[0], data)  # libraries may begin otherwise than they go on
        runs = [run(seed, data, draws=True) for seed in seeds]
        findings = list(faults.of_training(runs, stage, records))
        if faults.may_have_stopped(runs, stage):
            findings += faults.of_lengths([*runs, run(secrets.randbits(63), data)], stage)
        unseen = []
        moved = None
        if gradient_steps.same(runs[0].steps, run(seeds[0], data).steps):
            found, moved = of_neighbours(
                runs[0],
                lambda row, scale: run(seeds[0], with_odd_record(data, row, scale)),
                stage,
                records,
            )
            findings += found
        if not moved:
            unseen.append(CLIPPING)
        if not faults.batches_seen(runs, stage, records):
            unseen.append(BATCHES)
    finally:
        randomness.restore()
    return findings, unseen


def of_neighbours(
    base: CheckedRun, run: Callable[[int, float], CheckedRun], stage: Stage, records: int
) -> tuple[list[Finding], bool]:
    """Replaces one record after the other, until four have moved a step.

    Args:
        base: The run on the records as they are.
        run: Takes a record's row and a scale, and runs with the randomness of ``base``.
        stage: What it is a run of.
        records: How many there are.

    Returns:
        What was found, and whether any record has moved a step.
    """
    seen = 0
    for number, row in enumerate(list(_rows(base.batches, records))[:_MOST_NEIGHBOURS]):
        odd = run(row, _SCALES[number % len(_SCALES)])
        found = faults.of_neighbour(base, odd, stage)
        if found is not None:
            return [found], True
        seen += not gradient_steps.same(base.steps, odd.steps)
        if seen == len(_SCALES):
            break
    return [], seen > 0


def _rows(batches: data_reads.Batches, records: int) -> Iterator[int]:
    """Yields records to replace: of the first batch if it is known, else any."""
    first: Sequence[int] = [] if not batches.sets else batches.sets[0][:4].tolist()
    yield from first
    yield from (records * (2 * i + 1) // (2 * _MOST_NEIGHBOURS) for i in range(_MOST_NEIGHBOURS))
