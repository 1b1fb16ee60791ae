"""What two runs with the same hyperparameters show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.library_faults import (
    of_bounds,
    of_categories,
    of_privacy_warnings,
    of_spendings,
)
from optuna_dp.testing.randomness_faults import of_seeds
from optuna_dp.testing.run_faults import of_conduct, of_endings, of_reads
from optuna_dp.testing.score_faults import of_exact_scores, of_reports, of_score_noise
from optuna_dp.testing.stage import Stage
from optuna_dp.testing.training_faults import of_lengths, of_opacus


def of_pair(
    runs: Sequence[CheckedRun],
    first_run: CheckedRun | None,
    stage: Stage,
    scores: Literal["private", "public", "none"],
) -> Iterator[Finding]:
    """Yields what two runs with the same hyperparameters show, after another one with others."""
    yield from of_seeds(runs, stage)
    yield from of_privacy_warnings(runs if first_run is None else [first_run, *runs])
    yield from of_spendings(runs, stage)
    yield from of_bounds(runs if first_run is None else [first_run, *runs])
    yield from of_categories(runs if first_run is None else [first_run, *runs])
    yield from of_reads(runs)
    yield from of_endings(runs)
    if scores == "private":
        yield from of_score_noise(runs, stage)
        # What other trials are made of says nothing about this one's score.
        if not any(run.reads for run in runs):
            yield from of_exact_scores(runs, first_run, stage)
        yield from of_reports(runs, stage)
    if scores != "public":
        yield from of_lengths(runs, stage)
    if stage.event is not None:
        yield from of_opacus(runs, stage)
    yield from of_conduct(runs)
