"""Faults of scores, reports and attributes: values without noise, or with too little of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from optuna_dp.exact_values import common_unit, is_share
from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.exact_attributes import are_shares, is_noisy, numbers_in
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.stage import Stage
from optuna_dp.testing.watched_scores import paid_scores, spent_precision

_ADD_NOISE = (
    "If it is made of private records, add noise and pay for it (odp.scoring.private_accuracy); "
    "if they are public, say public_score=True."
)


def of_score_noise(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields noisy scores that cost more than the event pays for scores."""
    for run in runs:
        if stage.event is None or not run.scores:
            return
        paid = paid_scores(stage.event, accounted=len(run.spendings))
        is_paid = spent_precision(run.scores) <= paid.precision * (1.0 + 1e-6)
        if is_paid or not (paid.is_known or paid.answers):
            continue
        noise = " and ".join(f"{score.noise_multiplier:.4g}" for score in run.scores)
        count = len(run.scores)
        together = f", together as one of {spent_precision(run.scores) ** -0.5:.4g}"
        pays = (
            f"as much as one score of noise multiplier {paid.precision**-0.5:.4g} costs"
            if paid.precision
            else "no score"
        )
        # Scores of parts that have no record in common cost as much as the dearest of them.
        may_be_of_parts = max(spent_precision([score]) for score in run.scores) <= (
            paid.precision * (1.0 + 1e-6)
        )
        yield Finding(
            "score noise",
            f"A run computes {count} noisy score{'s' * (count > 1)} of noise multiplier "
            f"{noise}{together if count > 1 else ''}, and the event pays for {pays}."
            + (" That is enough only if no record is in two of them." if may_be_of_parts else ""),
            "Give the score the noise that the event states (score_event(...), or run.score under "
            "a plan), and compose one event for each score.",
            certain=paid.is_known and not may_be_of_parts,
        )
        return


def of_records_in_several_scores(
    run: CheckedRun, missing: CheckedRun, stage: Stage, records: int
) -> Iterator[Finding]:
    """Yields scores that share records, where the event pays for one of them only.

    Each has fewer values if a record is missing, so that they are computed from the records. And
    together they have more values than there are records.

    Args:
        run: A run on all records.
        missing: The same on all but one.
        stage: What they are runs of.
        records: How many records there are.
    """
    if stage.event is None or len(run.scores) < 2 or len(run.scores) != len(missing.scores):
        return
    paid = paid_scores(stage.event, accounted=len(run.spendings))
    is_paid = spent_precision(run.scores) <= paid.precision * (1.0 + 1e-6)
    fewer = all(
        score.records > score_of_missing.records
        for score, score_of_missing in zip(run.scores, missing.scores, strict=True)
    )
    count = sum(score.records for score in run.scores)
    if is_paid or not paid.is_known or not fewer or count <= records:
        return
    yield Finding(
        "score noise",
        f"A run computes {len(run.scores)} noisy scores from {count} values of {records} records, "
        "so records are in two of them, and the event does not pay for both.",
        "Compose one event for each score (score_event(...)), or score disjoint parts of the "
        "records.",
    )


def of_sizes(
    runs: Sequence[CheckedRun], missing: CheckedRun, relation: str | None
) -> Iterator[Finding]:
    """Yields scores that are divided by the number of records.

    Args:
        runs: Runs on all records.
        missing: A run on all but one.
        relation: The neighbouring relation; None if it is not known.
    """
    sizes = {tuple(score.size for score in run.scores) for run in runs}
    sizes_of_missing = tuple(score.size for score in missing.scores)
    if len(sizes) != 1 or relation == "replace_one" or missing.value is None:
        return
    (before,) = sizes
    if before and len(before) == len(sizes_of_missing) and before != sizes_of_missing:
        yield Finding(
            "size of the score",
            f"The score's size is {before[0]} with all records and {sizes_of_missing[0]} if one "
            "is missing. If a record may be added or removed, the number of records is private.",
            "Give a number that was fixed beforehand: size=1000, not size=len(y).",
            certain=relation == "add_or_remove_one",
        )


def of_exact_scores(
    runs: Sequence[CheckedRun], first_run: CheckedRun | None, stage: Stage
) -> Iterator[Finding]:
    """Yields scores that are equal in two runs, or shares of a number of records."""
    values = [run.value for run in runs if run.value is not None]
    if len(values) < 2:
        return
    all_values = (
        [*values, first_run.value]
        if first_run is not None and first_run.value is not None
        else values
    )
    yield from _of_equal(all_values, runs, stage)
    finite = {value for value in all_values if math.isfinite(value)}
    if all(map(is_share, values)) or common_unit(sorted(finite)):
        yield Finding(
            "exact score",
            f"The scores {values[0]!r} and {values[1]!r} are shares of a number of records.",
            _ADD_NOISE,
            certain=not _have_noisy_ends(runs, stage),
        )


def of_equal_scores(
    compared: Sequence[CheckedRun], runs: Sequence[CheckedRun], stage: Stage
) -> Iterator[Finding]:
    """Yields a score that is the very same in runs of other randomness.

    Args:
        compared: Runs with other randomness each.
        runs: Those whose draws were looked at.
        stage: What they are runs of.
    """
    if not any(run.reads for run in runs):
        values = [run.value for run in compared if run.value is not None]
        yield from _of_equal(values, runs, stage)


def _of_equal(
    values: Sequence[float], runs: Sequence[CheckedRun], stage: Stage
) -> Iterator[Finding]:
    equal = next((value for value in values if values.count(value) > 1), None)
    if equal is not None:
        # Counts with noise in whole numbers are shares as well, and two may be equal.
        yield Finding(
            "repeated score",
            f"Two runs have the very same score, {equal!r}.",
            _ADD_NOISE,
            certain=not (_have_noisy_ends(runs, stage) and is_share(equal)),
        )


def _have_noisy_ends(runs: Sequence[CheckedRun], stage: Stage) -> bool:
    return all(run.draws.noise_after(stage.steps) for run in runs)


def of_reports(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields reports for pruning that nothing pays for."""
    for run in runs:
        # The score itself may be reported: it is released anyway.
        values = [value for value in run.reports.values() if value != run.value]
        limit = stage.answers_beside_score
        if len(values) > limit:
            yield Finding(
                "reported values",
                f"A run reports {len(values)} values for pruning, and its event pays for {limit} "
                "beside the score.",
                "Report what is computed on public records (public_score=True), or add noise to "
                "each and compose its cost into the event.",
            )
            return


def of_score_of_untouched(base: CheckedRun, stage: Stage) -> Finding:
    """Returns what a public score shows that a record changes which no training has met.

    Args:
        base: A run whose score changes so.
        stage: What it is a run of.
    """
    return Finding(
        "score of private records",
        "A record that is in no step of the training changes the score, which is said to be "
        "computed on public records.",
        "Score on records that are public, and not among the data; or hold back a private "
        "part by optuna_dp.partition and pay for the score's noise.",
        certain=not stage.may_pay_for_statistics(base.spendings, "public"),
    )


def may_be_frozen(runs: Sequence[CheckedRun], findings: Sequence[Finding]) -> bool:
    """Returns whether it is worth asking for a score that is a function of the model alone."""
    exclusive_faults = {"repeated score", "exact score", "fixed seed"}
    scored = all(run.value is not None and not run.reads for run in runs)
    return (
        scored
        and all(r.opacus.steps for r in runs)
        and not any(f.name in exclusive_faults for f in findings)
    )


def of_frozen(run: CheckedRun, reseeded: CheckedRun) -> Iterator[Finding]:
    """Yields what two runs show whose randomness is the same until training has ended."""
    same_training = run.opacus.is_training_of(reseeded.opacus)
    if same_training and run.value is not None and run.value == reseeded.value:
        yield Finding(
            "exact score",
            "The same model has the very same score twice: nothing random is in it.",
            _ADD_NOISE,
        )


def same_share(run: CheckedRun, second_run: CheckedRun) -> bool:
    """Returns whether an attribute may be a share of records, which two runs hardly tell."""
    numbers, second_numbers = numbers_in(run.attributes), numbers_in(second_run.attributes)
    return any(
        is_share(value) and not value.is_integer() and place in second_numbers
        for place, value in numbers.items()
    )


def of_scores_in_attributes(places: Sequence[str]) -> Iterator[Finding]:
    """Yields an attribute that is a score without its noise.

    Args:
        places: The attributes that are; see ``exact_attributes.scores_without_noise``.
    """
    if places:
        yield Finding(
            "exact attribute",
            f"The user attribute {places[0]!r} is the score before its noise was added.",
            "Take it out, or keep the noisy score: attributes may be released, and a storage is "
            "read by others.",
        )


def of_repeated(
    run: CheckedRun, repeat: CheckedRun, fresh_runs: Sequence[CheckedRun], stage: Stage
) -> Iterator[Finding]:
    """Yields what a run shows that was repeated with the same randomness.

    Args:
        run: A run.
        repeat: The same with equal randomness.
        fresh_runs: The same with other randomness, one or more.
        stage: What it is a run of.
    """
    fresh_run = fresh_runs[0]
    if run.value is None or run.value != repeat.value or run.value == fresh_run.value:
        return
    numbers, repeated_numbers = numbers_in(run.attributes), numbers_in(repeat.attributes)
    fresh_numbers = [numbers_in(fresh.attributes) for fresh in fresh_runs]
    exact_attributes = [
        place
        for place, value in numbers.items()
        if value == repeated_numbers.get(place)
        and all(place in fresh for fresh in fresh_numbers)
        and are_shares([value, *(fresh[place] for fresh in fresh_numbers)])
        and not is_noisy(value, run)
    ]
    if exact_attributes:
        yield Finding(
            "exact attribute",
            f"The user attribute {exact_attributes[0]!r} is a share of a number of records "
            f"({numbers[exact_attributes[0]]!r}).",
            _ADD_NOISE,
        )
    steps = stage.steps
    if (
        steps > 1
        and not is_share(run.value)  # said already
        and not stage.answers_beside_score
        and not run.is_enforced  # odp.train draws the score's noise where no line is looked at
        and all(run_draws.end_with(steps) for run_draws in (run.draws, fresh_run.draws))
    ):
        yield Finding(
            "exact score",
            "The last random number of a run is drawn where every step draws its noise: after the "
            "training nothing is added to the score.",
            _ADD_NOISE,
        )
