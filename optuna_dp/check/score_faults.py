"""Faults of scores, reports and attributes: values without noise, or with too little of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from optuna_dp.check.checked_run import CheckedRun
from optuna_dp.check.objective_report import Finding
from optuna_dp.check.watched_scores import paid_precision, spent_precision
from optuna_dp.core.exact_values import are_shares_of_one_number, common_unit, is_share

_ADD_NOISE = (
    "return run.score(correct) under a plan, or odp.scoring.private_accuracy(correct, size=..., "
    "noise_multiplier=...) and its score_event in the event. If it is made of public records, say "
    "public_score=True (--public-score)."
)

# A number with more decimals was not rounded by a person.
_DECIMALS = 8
# With fewer decimals, a noisy score may be equal to an exact one by chance.
_FEWEST_DECIMALS = 3
_IN_TEXT = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?")


def exact_scores(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields scores without noise: shares of records, equal ones, and none of this package's.

    A noisy score of this package may be rounded or clipped: then it is a share of records, too,
    and two may be equal. It is told by being watched where its noise is added.

    Args:
        runs: Two with the same hyperparameters and other randomness.
    """
    values = [run.value for run in runs if run.value is not None]
    if len(values) < 2 or any(run.reads for run in runs):
        return
    if values[0] != values[1] and all(map(_returns_exact, runs)):
        yield Finding(
            "exact score",
            f"A run computes a noisy score and returns {values[0]!r}, which is the same score "
            "before its noise was added.",
            "return the noisy score, and keep the other one nowhere.",
        )
    elif (
        values[0] != values[1] and _are_unrounded_shares(values)
        if any(run.scores for run in runs)
        else _are_exact(values)
    ):
        yield Finding(
            "exact score",
            f"The scores {values[0]!r} and {values[1]!r} are shares of a number of records.",
            _ADD_NOISE,
        )
    elif values[0] == values[1] and not all(run.scores for run in runs):
        yield Finding(
            "repeated score",
            f"Two runs have the very same score, {values[0]!r}: it has no noise, or the second "
            "run was given the first one's.",
            f"compute each run's score in that run, with fresh noise: {_ADD_NOISE}",
        )
    elif not any(run.scores for run in runs) and all(run.judgement is None for run in runs):
        yield Finding(
            "noise of your own",
            "The score comes neither from run.score nor from odp.scoring. How much noise it has, "
            "nothing here can tell.",
            _ADD_NOISE,
            certain=False,
        )


def _are_exact(values: Sequence[float]) -> bool:
    """Returns whether values are shares of a number of records, in any precision."""
    distinct = sorted({value for value in values if math.isfinite(value)})
    return (
        all(map(is_share, values))
        or (len(distinct) == 2 and are_shares_of_one_number(*distinct))
        or common_unit(distinct) is not None
    )


def _returns_exact(run: CheckedRun) -> bool:
    """Returns whether a run returns a score without its noise, and not a rounded noisy one."""
    value = run.value or 0.0
    exact = any(math.isclose(value, mean, rel_tol=1e-9) for mean in _without_noise(run))
    return exact and not any(
        value in (score.value, *(round(score.value, digits) for digits in range(1, 9)))
        for score in run.scores
    )


def _numbers_in(attribute: object, name: str = "") -> Iterator[tuple[str, float]]:
    """Yields the numbers of an attribute by name, those in lists, mappings and texts included."""
    if isinstance(attribute, int | float):
        yield name, attribute
    elif isinstance(attribute, str):
        for place, digits in enumerate(_IN_TEXT.findall(attribute)):
            yield f"{name}, number {place + 1} of its text", float(digits)
    elif isinstance(attribute, dict):
        for key, value in attribute.items():
            yield from _numbers_in(value, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(attribute, list | tuple):
        for place, value in enumerate(attribute):
            yield from _numbers_in(value, f"{name}[{place}]")


def numbers_in_attributes(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields user attributes that are scores without noise.

    An attribute that is a score before its noise was added is one for certain. Any other that
    changes from run to run is suspected if it is a share of a number of records.

    Args:
        runs: Two with the same hyperparameters and other randomness.
    """
    flattened = [dict(_numbers_in(run.attributes)) for run in runs]
    for name in flattened[0]:
        values = [numbers[name] for numbers in flattened if name in numbers]
        if len(values) < len(runs) or len(set(values)) < 2:
            continue
        exact = all(_is_without_noise(value, run) for value, run in zip(values, runs, strict=True))
        if exact:
            problem = f"The user attribute {name!r} is the score before its noise was added."
        elif _are_unrounded_shares(values):
            problem = (
                f"The user attribute {name!r} changes from run to run, and is a share of a "
                "number of records."
            )
        else:
            continue
        yield Finding(
            "exact attribute",
            problem,
            "take it out, or keep the noisy score: attributes may be released, and a storage is "
            "read by others.",
            certain=exact,  # a mean size of batches is a share, too
            about=name,
        )


def _is_without_noise(value: float, run: CheckedRun) -> bool:
    """Returns whether a value is an exact score of a run, whole or rounded as texts have it."""
    exact = _without_noise(run)
    if any(math.isclose(value, mean, rel_tol=1e-6) for mean in exact):
        return True
    decimals = len(repr(value).partition(".")[2])
    if decimals < _FEWEST_DECIMALS or "e" in repr(value):
        return False
    noisy = (round(score.value, decimals) for score in run.scores)
    return value in (round(mean, decimals) for mean in exact) and value not in noisy


def _without_noise(run: CheckedRun) -> list[float]:
    return [mean for score in run.scores for mean in score.without_noise()]


def _are_unrounded_shares(values: Sequence[float]) -> bool:
    """Returns whether values are shares of a number of records, and no person has rounded them.

    A rounded number is a share as well, and says nothing: noisy values may be rounded.
    """
    shares = all(is_share(value) and not float(value).is_integer() for value in values)
    return shares and any(value != round(value, _DECIMALS) for value in values)


def reported_values(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields reports for pruning that are no noisy scores of this package."""
    for run in runs:
        noisy = {run.value, *(score.value for score in run.scores)}
        values = [value for value in run.reports.values() if value not in noisy]
        if values:
            are_exact = _are_exact(values)
            yield Finding(
                "reported values",
                f"A run reports {len(values)} values for pruning that come neither from run.score "
                f"nor from odp.scoring{', and are shares of records' if are_exact else ''}.",
                "report nothing, or what is computed on public records (public_score=True), or "
                "noisy scores, each with its cost in the event.",
                certain=are_exact,
            )
            return


def too_little_score_noise(runs: Sequence[CheckedRun], event: object) -> Iterator[Finding]:
    """Yields noisy scores that cost more than the event pays for scores.

    Args:
        runs: Some runs.
        event: What one of them costs; None if it is not stated.
    """
    paid = math.inf if event is None else paid_precision(event) * (1.0 + 1e-6)
    run = max(runs, key=lambda run: spent_precision(run.scores))
    spent = spent_precision(run.scores)
    if spent <= paid:
        return
    # Scores of parts that have no record in common cost as much as the dearest of them.
    may_be_of_parts = max(spent_precision([score]) for score in run.scores) <= paid
    noise = " and ".join(f"{score.noise_multiplier:.4g}" for score in run.scores)
    pays = f"one score of noise multiplier {paid**-0.5:.4g}" if paid else "no score"
    yield Finding(
        "score noise",
        f"A run computes {len(run.scores)} noisy score{'s' * (len(run.scores) > 1)} of noise "
        f"multiplier {noise}, and the event pays for {pays}."
        + (" That is enough only if no record is in two of them." if may_be_of_parts else ""),
        "give the score the noise that the event states (score_event(...), or run.score under a "
        "plan), and compose one event for each score.",
        certain=not may_be_of_parts,
    )
