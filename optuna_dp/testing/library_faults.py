"""Faults of private trainers of other libraries: what they spend, and what they are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from dp_accounting import dp_event

from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent
from optuna_dp.testing.checked_run import CheckedRun
from optuna_dp.testing.finding import Finding
from optuna_dp.testing.stage import Stage
from optuna_dp.testing.watched_fits import changed_settings, moved, moved_weights

# Compiled code of these draws its noise from the operating system.
_NOISE_UNSEEN = ("DP-EBM", "SmartNoise")
_BOUNDS = "bounds of the records"
_PUBLIC_BOUNDS = (
    "Give what is possible at all (an age of 0 to 120), the range of a public table, or a private "
    "estimate that the event charges for."
)


def of_privacy_warnings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what other libraries warned of: that their own guarantee does not hold."""
    for text in dict.fromkeys(text for run in runs for text in run.privacy_warnings):
        yield Finding(
            "privacy warning",
            f"A library warned that its guarantee does not hold. {text}",
            "Give it what it asks for: bounds and norms of the data that are public.",
            about=text,
        )


def of_categories(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields features of a DP-EBM that are not continuous: it reads their values off the records.

    Which values the model names is decided by noisy counts (``private_categorical_binning`` of
    interpret-core 0.7.8), also where the user lists the values. The name of a value that a single
    record has stands in the model far more often than a delta of 1e-7 allows.
    """
    kinds = {
        str(kind)
        for run in runs
        for fit in run.fits
        if fit.library == "DP-EBM"
        for kind in fit.settings.get("feature_types", ())
        if kind != "continuous"
    }
    if kinds:
        yield Finding(
            "values of the records",
            f"DP-EBM is given features that are not continuous ({', '.join(sorted(kinds)[:3])}). "
            "Its model names values that it has read off the records: one that a single record "
            "has is there far more often than delta allows.",
            "Give a category as columns of 0 and 1, one for each value of a public list, as "
            "continuous features with privacy_bounds of (0, 1).",
        )


def of_spendings(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields what the trainers of other libraries spent beside what the event says."""
    spendings = max((run.spendings for run in runs), key=len)
    if not spendings:
        return
    names = " and ".join(dict.fromkeys(spending.library for spending in spendings))
    seeds = sorted({spending.seed for spending in spendings if spending.seed is not None})
    if seeds:
        yield Finding(
            "fixed seed",
            f"{names} draws its noise from the seed {seeds[0]}, which is the same in each run.",
            "Leave out random_state: whoever knows the seed can subtract the noise.",
        )
    if stage.event is None:
        return
    epsilon, delta = (
        sum(spending.epsilon for spending in spendings),
        sum(spending.delta for spending in spendings),
    )
    most_epsilon, most_delta = _stated_budget(stage.event, delta)
    if epsilon > most_epsilon * (1.0 + 1e-6) or delta > most_delta * (1.0 + 1e-6):
        yield Finding(
            "wrong epsilon",
            f"{names} spent epsilon {epsilon:.4g} and delta {delta:.3g} in {len(spendings)} "
            f"fits of a run, and the event says {most_epsilon:.4g} and {most_delta:.3g}.",
            "State what is spent, pure_dp(epsilon) or approximate_dp(epsilon, delta), with one "
            "for each fit; or give the trainer the epsilon of the run, "
            "1 / run.noise_multiplier where the plan says pure_dp(1 / noise).",
        )


def _stated_budget(event: Any, delta: float) -> tuple[float, float]:
    """Returns the (epsilon, delta) that an event states for trainings of other libraries.

    Args:
        event: Of a run.
        delta: What was spent, for an event that states no epsilon.
    """
    parts = _approximate_parts(event)
    if parts:
        return sum(part.epsilon for part in parts), sum(part.delta for part in parts)
    # Lazy: only such events need it.
    from optuna_dp.accounting.guarantee import Guarantee

    at = min(max(delta, 1e-12), 0.5)
    return float(Guarantee(event).epsilon(at)), at


def _approximate_parts(event: Any) -> list[ApproximateDpEvent]:
    if isinstance(event, ApproximateDpEvent):
        return [event]
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return _approximate_parts(event.event) * int(event.count)
    parts = getattr(event, "events", None)
    if isinstance(parts, list | tuple):
        return [inner for part in parts for inner in _approximate_parts(part)]
    return []


def of_bounds(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields bounds and norms that are extremes of the records that a trainer is given."""
    names = {(fit.library, name) for run in runs for fit in run.fits for name in fit.from_extremes}
    for library, name in sorted(names):
        yield Finding(
            _BOUNDS,
            f"{library} is given a {name} that equals extremes of the records to the last digit. "
            "If it was computed from private records, its epsilon is false.",
            _PUBLIC_BOUNDS,
            certain=False,
            about=name,
        )


def of_replaced_in_fits(
    base: CheckedRun,
    odd: CheckedRun,
    stage: Stage,
    scores: Literal["private", "public", "none"],
) -> Iterator[Finding]:
    """Yields what depends on the records in what trainers of other libraries are given.

    Only fits before which nothing private was computed are compared: what depends on the records
    by a private statistic may have been paid for.

    Args:
        base: A run whose fits are the same if it is repeated with the same randomness.
        odd: The same with one record replaced.
        stage: What it is a run of.
        scores: What the scores are computed on.
    """
    certain = not stage.may_pay_for_statistics(base.spendings, scores)
    for fit, odd_fit in zip(base.fits, odd.fits, strict=False):
        if fit.spent_before or odd_fit.spent_before or fit.library != odd_fit.library:
            return
        settings = changed_settings(fit, odd_fit)
        if settings:
            yield Finding(
                _BOUNDS,
                f"Another record gives another {' and '.join(settings)} for {fit.library}: it is "
                "computed from the records, and no noise was seen in it.",
                _PUBLIC_BOUNDS,
                certain=certain,
                about=settings[0],
            )
            return
        moved_records, count = moved(fit, odd_fit)
        if 2 * moved_records > count:
            yield Finding(
                "statistics of the records",
                f"One record changes {moved_records} of the {count} records that {fit.library} is "
                "given: they were scaled, centred or projected by numbers computed from all.",
                "Scale by public constants, or by private statistics that the event charges for.",
                certain=certain,
            )
            return
        moved_count = moved_weights(fit, odd_fit)
        if moved_count:
            yield Finding(
                "weights of the records",
                f"One record changes what {fit.library} is given beside {moved_count} other "
                "records, such as sample_weight: it was computed from all records.",
                "Let the weight of a record depend on that record and on public numbers only.",
                certain=certain,
            )
            return


def of_kept_counts(
    run: CheckedRun, missing: CheckedRun, relation: str | None
) -> Iterator[Finding]:
    """Yields models that hold the exact number of records.

    Args:
        run: A run on all records.
        missing: A run on all but one.
        relation: The neighbouring relation; None if it is not known.
    """
    if relation == "replace_one":
        return
    for fit, fit_of_missing in zip(run.fits, missing.fits, strict=False):
        if fit.kept_count and 0 < fit_of_missing.kept_count < fit.kept_count:
            yield Finding(
                "number of records",
                f"The model of {fit.library} tells the number of records: its bag_weights_ is "
                f"{fit.kept_count}, and {fit_of_missing.kept_count} if one is missing. If a "
                "record may be added or removed, that number is private.",
                "Before you save or release the model: del model.bag_weights_. It predicts "
                "without.",
                certain=False,
            )
            return


def noise_that_is_not_repeated(runs: Sequence[CheckedRun]) -> str:
    """Returns the name of a library that drew noise which no check can repeat; "" if none did."""
    libraries = (
        spending.library
        for run in runs
        for spending in run.spendings
        if spending.library in _NOISE_UNSEEN and spending.seed is None
    )
    return next(libraries, "")
