"""Finds the faults of an objective in the runs that were watched."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.kinds.approximate import ApproximateDpEvent
from optuna_dp.exact_values import common_unit, is_share
from optuna_dp.testing import data_reads, draws
from optuna_dp.testing import gradient_steps as gradients
from optuna_dp.testing import watched_opacus as opacus
from optuna_dp.testing.checked_run import CheckedRun, Stage, can_be_limited
from optuna_dp.testing.stated_training import StatedTraining, alternatives, answers_in
from optuna_dp.testing.watched_fits import changed_settings, moved, moved_weights
from optuna_dp.testing.watched_scores import paid_scores, spent_precision

_ADD_NOISE = (
    "If it is made of private records, add noise and pay for it (odp.scoring.private_accuracy); "
    "if they are public, say public_score=True."
)
# Compiled code of these draws its noise from the operating system.
_NOISE_UNSEEN = ("DP-EBM", "SmartNoise")
_BOUNDS = "bounds of the records"
_PUBLIC_BOUNDS = (
    "Give what is possible at all (an age of 0 to 120), the range of a public table, or a private "
    "estimate that the event charges for."
)


@dataclass(frozen=True)
class Finding:
    """Something that an objective does and should not.

    Attributes:
        name: Of the kind of fault, two or three words.
        what: What was seen.
        change: What to change.
        certain: Whether it has to be changed; otherwise it is a hint to look at.
        about: What it is about, where there may be several of a kind.
    """

    name: str
    what: str
    change: str
    certain: bool = True
    about: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.what} {self.change}"


def of_pair(
    runs: Sequence[CheckedRun],
    first_run: CheckedRun | None,
    stage: Stage,
    scores: Literal["private", "public", "none"],
) -> Iterator[Finding]:
    """Yields what two runs with the same hyperparameters show, after another one with others."""
    yield from _of_seeds(runs, stage)
    yield from _of_privacy_warnings(runs if first_run is None else [first_run, *runs])
    yield from _of_libraries(runs, stage)
    yield from _of_bounds(runs if first_run is None else [first_run, *runs])
    yield from _of_reads(runs)
    yield from of_endings(runs)
    if scores == "private":
        yield from _of_score_noise(runs, stage)
        # What other trials are made of says nothing about this one's score.
        if not any(run.reads for run in runs):
            yield from _of_scores(runs, first_run, stage)
        yield from _of_reports(runs, stage)
    if scores != "public":
        yield from of_lengths(runs, stage)
    if stage.event is not None:
        yield from _of_opacus(runs, stage)
    yield from _of_conduct(runs)


def batches_seen(runs: Sequence[CheckedRun], stage: Stage, records: int) -> bool:
    """Returns whether as many batches were seen as are needed to tell how they are drawn."""
    rates = [training.sample_rate for training in alternatives(stage.event)]
    return bool(rates) and any(
        data_reads.shows_steps(run.batches, max(rates), records) or run.opacus.batch_sizes
        for run in runs
    )


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
        called = "the trial alone" if count == 1 else "the trial and the records"
        return Finding(
            "arguments",
            f"{name}{signature} cannot be called with {called}: {error}.",
            "Write an objective(trial), as study.optimize calls it: it suggests what is tuned, "
            "trains once, and returns the score. Give --data (data=) only if it takes the records "
            "second.",
        )
    return None


def of_endings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields how runs ended otherwise than with a score, and what they left at work."""
    failures = {run.failure for run in runs if run.kind == "failure"}
    every_run_fails = len(failures) == 1 and all(run.kind == "failure" for run in runs)
    for run in runs:
        if run.kind == "failure" and not run.reads:
            yield Finding(
                "failure",
                f"{'Every' if every_run_fails else 'A'} run fails ({run.failure}).",
                "Mend this first, then check again: runs that fail show little else."
                if every_run_fails
                else "Whether a run fails is released with it, so it must not depend on the data.",
            )
        elif run.kind == "exit":
            yield Finding(
                "exit",
                f"A run ends the whole program ({run.failure}).",
                "Return a score, or raise optuna.TrialPruned.",
            )
        elif run.kind == "time limit":
            yield Finding(
                "time limit",
                f"A run had not ended after {run.seconds:.0f} seconds.",
                "If it hangs, mend it; if it is only long, check it with fewer records or steps, "
                "or with a larger time_limit.",
            )
        if run.threads:
            yield Finding(
                "threads left",
                f"A run leaves threads at work ({', '.join(run.threads)}).",
                "Join them before the run ends: what they do later belongs to no run.",
            )


def of_lengths(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    """Yields early stops that nothing charges for, seen by runs of unequal length."""
    lengths = [length(run) for run in runs]
    if any(run.kind or run.value is None for run in runs) or _paid(stage) or stage.event is None:
        return
    if min(lengths) and len(set(lengths)) > 1:
        yield Finding(
            "early stop",
            f"Runs with the same hyperparameters take {min(lengths)} and {max(lengths)} steps, "
            "and the event charges for nothing but the training and the score.",
            "Take a fixed number of steps, or stop by noisy values and compose their cost into "
            "the event; add noise in a step whose batch is empty, too.",
        )


def length(run: CheckedRun) -> int:
    """Returns how many steps a run took, or batches it read; 0 if neither was seen."""
    return run.steps.count or run.batches.count


def may_have_stopped(runs: Sequence[CheckedRun], stage: Stage) -> bool:
    """Whether runs of equal length were shorter than the event states, perhaps by chance."""
    return 0 < length(runs[0]) == length(runs[1]) < _steps(stage)


def _of_seeds(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    a, b = runs
    repeated_states = [name for name in a.states if a.states[name] == b.states.get(name)]
    fixed_generators = draws.fixed(a.draws, b.draws)
    steps = _steps(stage)
    # Fewer draws may be a split or first weights, which need no noise.
    certain = bool(repeated_states) or a.opacus.has_noise_of(b.opacus)
    if repeated_states:
        problem = (
            f"Two runs leave the generator of {' and '.join(repeated_states)} in the same state."
        )
    elif certain:
        problem = "Opacus has added the very same noise in two runs."
    elif fixed_generators:
        busiest = max(fixed_generators, key=lambda generator: generator.changes)
        certain = 0 < steps <= busiest.changes
        problem = (
            f"The generator {busiest.name!r} has a fixed seed, and a run draws from it at "
            f"{busiest.changes} moments."
        )
    else:
        return
    yield Finding(
        "fixed seed",
        problem,
        "Take the seed out (torch.manual_seed, np.random.seed, default_rng(0), seed_everything, "
        "generator=): noise that repeats is no noise. Draw a split or first weights with another "
        "generator than noise and batches.",
        certain=certain,
    )


def _of_privacy_warnings(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what other libraries warned of: that their own guarantee does not hold."""
    for text in dict.fromkeys(text for run in runs for text in run.privacy_warnings):
        yield Finding(
            "privacy warning",
            f"A library warned that its guarantee does not hold. {text}",
            "Give it what it asks for: bounds and norms of the data that are public.",
            about=text,
        )


def _of_libraries(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
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


def _of_bounds(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
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
    certain = not _may_pay_for_statistics(base, stage, scores)
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


def _may_pay_for_statistics(
    run: CheckedRun, stage: Stage, scores: Literal["private", "public", "none"]
) -> bool:
    """Returns whether an event may charge for more than the seen trainings and the score."""
    if stage.event is None:
        return True
    return answers_in(stage.event) > len(run.spendings) + (scores == "private")


def is_same_training(run: CheckedRun, odd: CheckedRun) -> bool:
    """Returns whether two runs took the very same steps, and gave trainers the very same."""
    if odd.value is None or not (run.steps.count or run.fits):
        return False
    steps = run.steps.sums, odd.steps.sums
    return (
        run.fits == odd.fits
        and run.steps.count == odd.steps.count == len(steps[0]) == len(steps[1])
        and all(map(np.array_equal, *steps))
    )


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
        certain=not _may_pay_for_statistics(base, stage, "public"),
    )


def noise_that_is_not_repeated(runs: Sequence[CheckedRun]) -> str:
    """Returns the name of a library that drew noise which no check can repeat; "" if none did."""
    libraries = (
        spending.library
        for run in runs
        for spending in run.spendings
        if spending.library in _NOISE_UNSEEN and spending.seed is None
    )
    return next(libraries, "")


def _of_score_noise(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
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


def _of_reads(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    reads = sorted({name for run in runs for name in run.reads})
    if reads:
        yield Finding(
            "other trials",
            f"A run reads other trials of its study ({', '.join(reads)}).",
            "Use nothing in the objective but its own trial: no best value so far, no warm start.",
        )


def _of_scores(
    runs: Sequence[CheckedRun], first_run: CheckedRun | None, stage: Stage
) -> Iterator[Finding]:
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
    return all(run.draws.noise_after(_steps(stage)) for run in runs)


def _steps(stage: Stage) -> int:
    """Returns the smallest number of noisy steps that the event states; 0 if it states none."""
    return min((training.steps for training in alternatives(stage.event)), default=0)


def _paid(stage: Stage) -> int:
    """Returns for how many noisy answers the event pays beside the score."""
    return 0 if stage.event is None else max(0, answers_in(stage.event) - 1)


def _of_conduct(runs: Sequence[CheckedRun]) -> Iterator[Finding]:
    """Yields what a release would say of runs of a study with a budget."""
    for run in runs:
        # What one says of an objective that never asked has a finding of its own.
        if run.judgement is None or not run.asked:
            continue
        if run.judgement.refusal is not None:
            yield Finding(
                "refused at release",
                f"release() refuses such a run: {run.judgement.refusal}",
                "No word of the curator's changes that.",
            )
            return
        if run.judgement.not_compared is not None:
            yield Finding(
                "not compared",
                "release() refuses such a run unless you vouch for it: "
                f"{run.judgement.not_compared}",
                "Otherwise say why the plan is kept: release(study, vouched='...').",
                certain=False,
            )
            return


def _of_reports(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    for run in runs:
        # The score itself may be reported: it is released anyway.
        values = [value for value in run.reports.values() if value != run.value]
        limit = _paid(stage)
        if len(values) > limit:
            yield Finding(
                "reported values",
                f"A run reports {len(values)} values for pruning, and its event pays for {limit} "
                "beside the score.",
                "Report what is computed on public records (public_score=True), or add noise to "
                "each and compose its cost into the event.",
            )
            return


def _of_opacus(runs: Sequence[CheckedRun], stage: Stage) -> Iterator[Finding]:
    opacus_runs = [run.opacus for run in runs if run.opacus.steps]
    trainings = alternatives(stage.event)
    if not opacus_runs or not trainings:
        return
    # A worst case holds for whichever of its trainings this one is.
    judged = [list(_beside(opacus_runs, training)) for training in trainings]
    yield from min(judged, key=len)


def _beside(
    opacus_runs: Sequence[opacus.OpacusRun], training: StatedTraining
) -> Iterator[Finding]:
    """Yields each kind of fault once, though several runs may have it."""
    kinds: dict[str, Finding] = {}
    for run in opacus_runs:
        for fault in _of_training(run, training):
            kinds.setdefault(fault.name, fault)
    yield from kinds.values()


def _of_training(run: opacus.OpacusRun, training: StatedTraining) -> Iterator[Finding]:
    low = opacus.too_little_noise(run, training)
    if low is not None:
        yield Finding(
            "too little noise",
            f"Opacus adds noise of {low:.4g} clipping norms, and the event says "
            f"{training.noise_multiplier:.4g}.",
            "State the noise that is added, or add what is stated (look for "
            "optimizer.noise_multiplier and for schedulers of it).",
        )
    if run.steps > training.steps:
        yield Finding(
            "too many steps",
            f"The training takes {run.steps} noisy steps, and the event says {training.steps}.",
            "Count steps and not epochs: len(data_loader) times epochs.",
        )
    rate = opacus.batches_too_large(run, training)
    if rate is not None:
        yield Finding(
            "sampling rate",
            f"Batches are sampled at rate {rate:.6g}, and the event says "
            f"{training.sample_rate:.6g}.",
            "Opacus samples at rate 1 / len(data_loader): state that.",
        )
    if opacus.not_poisson(run.batch_sizes, training.sample_rate):
        yield _not_poisson(
            f"most batches have one size ({max(run.batch_sizes)} at most), which Poisson sampling "
            "hardly ever gives."
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
    """Whether an attribute is one share in two runs: a setting, or an exact value by chance."""
    return any(
        _is_share(value) and value == second_run.attributes.get(key)
        for key, value in run.attributes.items()
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
    exact_attributes = [
        key
        for key, value in run.attributes.items()
        if value == repeat.attributes.get(key) and _is_exact(key, value, fresh_runs)
    ]
    if exact_attributes:
        yield Finding(
            "exact attribute",
            f"The user attribute {exact_attributes[0]!r} is a share of a number of records "
            f"({run.attributes[exact_attributes[0]]!r}).",
            _ADD_NOISE,
        )
    steps = _steps(stage)
    if (
        steps > 1
        and not is_share(run.value)  # said already
        and not _paid(stage)
        and not run.is_enforced  # odp.train draws the score's noise where no line is looked at
        and all(run_draws.end_with(steps) for run_draws in (run.draws, fresh_run.draws))
    ):
        yield Finding(
            "exact score",
            "The last random number of a run is drawn where every step draws its noise: after the "
            "training nothing is added to the score.",
            _ADD_NOISE,
        )


def _is_exact(key: str, value: Any, fresh_runs: Sequence[CheckedRun]) -> bool:
    """Whether an attribute is a share of records, and not the same in every run."""
    values = [value, *(run.attributes.get(key) for run in fresh_runs)]
    return all(map(_is_share, values)) and len(set(values)) > 1


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and not value.is_integer() and is_share(value)


def of_other_data(words: str, run: CheckedRun, base: CheckedRun) -> Iterator[Finding]:
    """Yields what a run on made-up data shows."""
    if run.failure and not base.failure:
        yield Finding(
            "failure on data",
            f"A run fails if {words} ({run.failure}).",
            "Whether a run fails is released with it: handle such data, or exclude them by a rule "
            "fixed beforehand.",
            about=words,
        )


def of_neighbour(run: CheckedRun, odd: CheckedRun, stage: Stage) -> Finding | None:
    """Returns what a run shows of which one record was replaced, with the same randomness."""
    trainings = alternatives(stage.event)
    if not trainings:
        return None
    noise = min(training.noise_multiplier for training in trainings)
    move = gradients.first_move(run.steps, odd.steps, noise)
    if move is None or not gradients.too_far(*move):
        return None
    times = 2.0 * move[0] / move[1]
    return Finding(
        "sensitivity",
        f"One record moves the sum of a step by {times:.3g} clipping norms, where 2 are allowed.",
        "Clip the gradient of each record over all layers, not their mean; use no BatchNorm and "
        "no mean, scale or selection made of private records before the training.",
        # Noisy statistics that the event charges for move a sum a little as well.
        certain=not _paid(stage),
    )


def of_what_is_left() -> Finding:
    """Returns what runs were seen to take over from earlier ones."""
    return Finding(
        "shared state",
        "A run that is repeated with the same randomness gives something else than before.",
        "A run may use nothing of another run: no cache, no file, no model of an earlier run. If "
        "only the data are kept, load them before the search.",
    )


def of_batches(runs: Sequence[CheckedRun], stage: Stage, records: int) -> Iterator[Finding]:
    """Yields how batches are drawn, if that is not by a coin for each record."""
    trainings = alternatives(stage.event)
    for run in runs:
        words = [
            data_reads.not_poisson(run.batches, training.sample_rate, training.steps, records)
            or (opacus.not_poisson([len(b) for b in run.batches.sets], training.sample_rate)
                and "most batches have one size")
            for training in trainings
        ]  # fmt: skip
        if words and all(words):
            yield _not_poisson(f"{words[0]}, which Poisson sampling hardly ever does.")
            return


def _not_poisson(problem: str) -> Finding:
    return Finding(
        "batches not Poisson",
        f"{problem[0].upper()}{problem[1:]}",
        "Draw each batch by a coin for each record (rng.random(n) < rate), or train on the loader "
        "that Opacus' make_private returns, with poisson_sampling=True: shuffled batches are "
        "another mechanism and cost more.",
    )


def of_no_fidelity() -> Finding:
    """Returns what an objective lacks that never asks what it may spend."""
    return Finding(
        "fidelity not asked",
        "A run of a study with a budget never calls odp.fidelity(trial).",
        "Train with the noise and the steps of run = odp.fidelity(trial): they change from run to "
        "run.",
    )


def of_no_main_guard() -> Finding:
    """Returns what a script lacks that starts its study when it is imported."""
    return Finding(
        "no main guard",
        "Importing the script starts its study; it was stopped before the first trial.",
        'Put what starts the study under if __name__ == "__main__": workers and checks import '
        "the script.",
    )


def of_seeds_at_the_top(names: Sequence[str]) -> Finding:
    """Returns what a script does that seeds global generators when it is imported."""
    return Finding(
        "seed at the top",
        f"Importing the script seeds {' and '.join(names)}.",
        "Take the seed out, unless neither noise nor batches come from there: everybody who reads "
        "the script can repeat and subtract them.",
        certain=False,
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
                "data= (--data NAME; the objective then takes the data as its second argument)."
            )
    elif not records:
        yield (
            "failures on other data, what is done with the records before the training, clipping, "
            "BatchNorm, and who joins the batches: give data= (--data NAME; the objective then "
            "takes the data as its second argument)."
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
