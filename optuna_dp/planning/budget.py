"""Makes a budget plan from an epsilon and a training; ``budget_split`` has the searches."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from dp_accounting import dp_event

from optuna_dp.accounting.events import as_event
from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError, Text, type_of
from optuna_dp.planning.batch import batch_choices
from optuna_dp.planning.budget_split import Split, squared_mu
from optuna_dp.preparation.range_query import STRENGTH_THAT_WORKS, RangeQuery
from optuna_dp.preparation.schema import Schema
from optuna_dp.samplers.budget.plan import BudgetPlan, PaidRuns, checked_score, rung_sizes
from optuna_dp.training.schedules import FEWEST_STEPS

_logger = logging.getLogger("optuna_dp")

# By replays of searches (docs/explanation/searches.md): twelve pilots of a sixth of the last run's
# length, then three.
AUTO_PILOTS, AUTO_LENGTH = (12, 3), 0.16
# The same page: a short list where the signal of a first pilot's training is below the one, for
# pilots at random rank badly there; one run where it is below the other.
RANKING_SIGNAL, LEAST_SIGNAL = 200.0, 3.0
# A first guess and the five of odp.short_list.
AUTO_CANDIDATES = 6
# A candidate of a short list is tried for this share of the last run's length (the same page).
CANDIDATE_LENGTH = 0.4
# Of the squared budget, for drawing ranges (by experiment: docs/results/preparation.md).
RANGES_SHARE = 0.05
# How many plans are tried for a person's epsilon, and how much of it one has to use.
_MOST_TRIED, _LEAST_USED = 8, 0.99
_MOST_PILOTS = 10_000
_LARGEST_INCREASE = 100.0
_MOST_STEPS = 10_000_000

# From noise multiplier and steps to the event of one training without its score.
TrainingEvent = Callable[[float, int], dp_event.DpEvent]


_FAMILIAR_NAMES = {
    **dict.fromkeys(("target_epsilon", "eps", "budget"), validation.by_another_name("epsilon")),
    "target_delta": validation.by_another_name("delta"),
    **dict.fromkeys(
        ("n", "size", "sample_size", "num_samples", "num_records", "dataset_size"),
        validation.by_another_name("records"),
    ),
    "n_epochs": validation.by_another_name("epochs"),
    "num_epochs": validation.by_another_name("epochs"),
    **dict.fromkeys(
        ("n_trials", "trials", "n_pilots"), validation.by_another_name("pilots")
    ),
    "sample_rate": (
        "the plan computes it",
        "Write records=... and batch_size=... .",
    ),
    **dict.fromkeys(
        ("noise_multiplier", "sigma"),
        ("the plan computes it from epsilon", "Take the argument away, and read it off "
         "odp.start_run(trial).noise_multiplier."),
    ),
    **dict.fromkeys(
        ("max_grad_norm", "clipping_norm", "l2_norm_clip"),
        ("it costs no privacy", "Give clipping_norm= to odp.train."),
    ),
}  # fmt: skip


@validation.answers_familiar_names(_FAMILIAR_NAMES)
def plan_budget(
    *,
    epsilon: float,
    delta: float = 1e-5,
    records: int | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    work: float | None = None,
    run: TrainingEvent | None = None,
    steps: int | None = None,
    pilots: int | tuple[int, ...] | Literal["auto"] = "auto",
    candidates: int | None = None,
    pilot_epochs: float | None = None,
    pilot_steps: int | None = None,
    noise_increase: float | None = None,
    score: str | None = "training",
    score_final: bool = True,
    spare_runs: int = 0,
    neighboring_relation: str = "add_or_remove_one",
    schema: Schema | None = None,
) -> BudgetPlan:
    """Returns released pilots and one last run that together cost a target epsilon.

    With ``pilots=0`` it is a plan of a single run: the one to take where learning rate, clipping
    norm and batch size are all there is to choose, which follow from public numbers
    (``docs/explanation/known-without-data.md``).

    With ``candidates=k`` it is a plan for a short list: k configurations that are good guesses by
    public knowledge (:func:`optuna_dp.short_list`), each tried once, then one run with the best.
    Where features or models are open this beats random pilots by one to four points.

    Tuning at nearly the price of one run: a few noisy pilots, whose outputs are charged for and
    may be shown, and one run with hyperparameters that are any function of those outputs. Either
    DP-SGD is planned, from ``records``, ``batch_size`` and ``epochs``; or anything else whose
    cost falls with a noise multiplier, from ``run`` and ``steps``.

    Guarantees:
        * ``plan.guarantee.epsilon(delta)`` is at most ``epsilon``, and at least 99 % of it.
        * The last run's noise is ``noise_increase`` times that of the same run (and its spare
          ones) with the whole budget and no pilots, rounded up at the fifth digit.
        * On a ladder a pilot has twice the signal to noise of one on the rung below: half the
          noise, at equal length.

    Args:
        epsilon: What everything together may cost; positive.
        delta: In (0, 1); warns if it is not below one over the number of records, and says in
            the log of ``optuna_dp`` if it is above a tenth of that.
        records: Number of training records, a public number.
        batch_size: Expected number of records in a batch, at most ``records``. Left out, it is
            the one that accounting favors for the computing given, with 150 steps or more: see
            :func:`optuna_dp.batch_choices`.
        epochs: Length of the last run in passes over the records; positive. Rounded to steps.
            Without ``batch_size`` it is the computing that may be spent: the last run takes less
            where more would buy nothing.
        work: Without ``batch_size``: times the computing; positive, 1 unless given.
        run: Instead of the three: a function of (noise multiplier, steps) that returns the event
            of one training without its score. If that is about clients
            (:func:`optuna_dp.per_client`), so is the plan, and a score is the mean of one number
            for each client.
        steps: With ``run``: length of the last run.
        pilots: Number of pilots, or of each rung of a ladder: (16, 4) lets the best 4 of 16 try
            again with half the noise. 0: no pilots. ``"auto"``: (12, 3), and with ``records``
            short ones, of a sixth of the last run's steps but at least 20, so that all take less
            than three trainings. Where the noise of their training hides which settings are good,
            it plans a short list instead, as ``candidates=6`` does, for the list that you give to
            the sampler: where batch size x sqrt(steps) / noise multiplier of a first pilot is
            below 200, which 20,000 records have below epsilon 0.37. Below 3 it plans one run. A
            log line says so. ``pilot_epochs`` or ``noise_increase`` asks for pilots in any
            case. By experiment, and coarse: ``docs/explanation/searches.md``.
        candidates: Instead of ``pilots``: how many candidates a short list has, 2 or more. Each is
            one pilot of 0.4 of the last run's steps (but at least 20), all on one rung, and
            the last run takes the best score. The list itself is given to the sampler,
            ``BudgetSampler(plan, candidates=[...])``, or enqueued. None (the default): no list.
        pilot_epochs: Length of a pilot; like the last run unless given, or short with
            ``pilots="auto"`` and ``candidates``. A short pilot has less noise for the same price.
        pilot_steps: The same in steps; with ``run`` only.
        noise_increase: What the last run pays for the pilots, above 1. Unless given, 1.08, and
            1.15 where ``epsilon`` is below 2 (by experiment:
            ``examples/budget/README.md``).
        score: Which records runs are scored on. ``"training"``: those trained on; training and
            score both count. ``"disjoint"``: private records that are never trained on, told
            apart by a rule that looks at nothing but the record itself; the worse of the two
            counts; not with ``"replace_one"``, where one exchange may change both. None: public
            records, at no cost.
        score_final: Whether the last run is scored too (at 0.5 % more noise). If not, its score
            must not be computed on private records.
        spare_runs: How many more runs like the last one are paid for, to be used or not. Without
            any, a last run that failed cannot be repeated.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``.
        schema: A schema with columns whose range nobody knows, ``odp.Number(0, 1e8,
            scale="private")``. A twentieth of the squared budget then pays for drawing the ranges
            with noise, once (:func:`optuna_dp.draw_ranges`), so that the trainings have some 3 %
            more noise. ``plan.ranges`` says what it costs, and how well it will work. If the
            schema keeps several records of a person (``unit=``, ``most=``), ``epsilon`` is what
            everything may cost each person, by the bound for groups; without it, what everything
            costs one record. A schema with neither changes nothing, and need not be given.

    Raises:
        InvalidArgumentError: If an argument is not allowed, no noise reaches the target, or the
            records are too few to draw ranges of so many columns.
        UnsupportedEventError: If no accountant supports what ``run`` returns.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.plan_budget(epsilon=3.0, records=20_000, batch_size=256, epochs=10)
        >>> plan.pilots, plan.final.steps
        (15, 781)
        >>> 2.97 <= plan.guarantee.epsilon(delta=1e-5) <= 3.0
        True
    """
    target = validation.positive("epsilon", epsilon)
    validation.open_unit("delta", delta)
    if schema is not None and not isinstance(schema, Schema):
        raise InvalidArgumentError(
            "schema", type_of(schema), allowed="it must be an optuna_dp.Schema"
        )
    sizes = _checked_sizes(pilots, candidates)
    is_auto = candidates is None and isinstance(pilots, str)
    pilot_settings = {
        "noise_increase": noise_increase,
        "pilot_epochs": pilot_epochs,
        "pilot_steps": pilot_steps,
    }
    are_pilots_set = any(value is not None for value in pilot_settings.values())
    if not sizes:
        _refuse_without_pilots(pilot_settings)
    last_run_count = 1 + validation.whole("spare_runs", spare_runs)
    checked_score(score)
    if not isinstance(score_final, bool):
        raise InvalidArgumentError("score_final", score_final, allowed="it must be True or False")
    chooses_batch = None not in (records, epochs) and batch_size is None and run is None
    if work is not None and not chooses_batch:
        raise InvalidArgumentError(
            "work",
            work,
            problem="it needs a plan that chooses the batch size itself",
            fix="Leave out batch_size, or give more epochs instead of work.",
        )

    def plan_of(record_epsilon: float) -> BudgetPlan:
        """Returns the plan that costs one record this epsilon."""
        batch, passes = batch_size, epochs
        if chooses_batch and records is not None and epochs is not None:
            batch, passes = _favored(
                record_epsilon, delta, records, epochs, work, neighboring_relation
            )
        training = _training(records, batch, passes, pilot_epochs, run, steps, pilot_steps)
        pilot_length = training.pilot_steps
        if is_auto and training.sample_rate is not None and pilot_epochs is None:
            pilot_length = _short(AUTO_LENGTH, training.steps)
        if candidates is not None and pilot_epochs is None and pilot_steps is None:
            pilot_length = _short(CANDIDATE_LENGTH, training.steps)
        increase = _checked_increase(noise_increase, record_epsilon) if sizes else 1.0
        split = Split(
            record_epsilon,
            float(delta),
            neighboring_relation,
            training.event,
            training.sample_rate,
            score,
            score_final,
            _ranges(schema, record_epsilon, float(delta), records, neighboring_relation),
        )
        last_runs, ratio = split.last(last_run_count, training.steps, increase)
        rungs = split.rungs(sizes, pilot_length, last_runs, increase, ratio) if sizes else []
        plan = BudgetPlan(
            epsilon=record_epsilon,
            delta=split.delta,
            neighboring_relation=neighboring_relation,
            sample_rate=training.sample_rate,
            batch_size=None if batch is None else float(batch),
            score=score,
            paid_pilots=tuple(rungs),
            paid_last=last_runs,
            candidates=None if candidates is None else sizes[0],
            ranges=split.ranges,
        )
        if not is_auto or are_pilots_set:
            return plan
        if is_blind(plan):
            last_runs, _ = split.last(last_run_count, training.steps, 1.0)
            return replace(plan, paid_pilots=(), paid_last=last_runs)
        if can_rank(plan):
            return plan
        listed_length = _short(CANDIDATE_LENGTH, training.steps)
        listed = split.rungs((AUTO_CANDIDATES,), listed_length, last_runs, increase, ratio)
        return replace(plan, paid_pilots=tuple(listed), candidates=AUTO_CANDIDATES)

    most = None if schema is None else schema.most
    plan = plan_of(target) if most in (None, 1) else _for_persons(plan_of, target, delta, most)
    validation.warn_of_large_delta(plan.delta, records)
    if is_auto and not are_pilots_set and plan.rung_sizes != AUTO_PILOTS:
        _logger.warning("%s", _words_on_auto(plan))
    return plan


def _for_persons(
    plan_of: Callable[[float], BudgetPlan], epsilon: float, delta: float, most: int
) -> BudgetPlan:
    """Returns the plan that costs a person with so many records the target epsilon.

    The epsilon of a person is nearly a power of that of a record, so few plans are tried.
    """
    record_epsilon, best = epsilon / most, None
    for _ in range(_MOST_TRIED):
        try:
            plan = plan_of(record_epsilon)
        except InvalidArgumentError as error:
            if error.argument != "epsilon":
                raise
            share = f"of a person with {most} records each has {record_epsilon:.3g}"
            raise InvalidArgumentError(
                "epsilon", epsilon, problem=f"{share}; {error.why}", fix=error.fix
            ) from None
        person_epsilon = group_epsilon(plan.guarantee, delta, most)
        if person_epsilon <= epsilon and (best is None or plan.epsilon > best.epsilon):
            best = replace(plan, most=most, person_epsilon=person_epsilon)
        if _LEAST_USED * epsilon <= person_epsilon <= epsilon:
            break
        # A little less than the target, so that most first corrections are within it.
        record_epsilon *= 0.997 * epsilon / person_epsilon
    if best is None:
        raise InvalidArgumentError(
            "epsilon",
            epsilon,
            problem=f"no plan was found that costs a person with {most} records so little",
            fix="Keep fewer records of each person (most=), or allow a larger epsilon or delta.",
        )
    return best


def score_spread(plan: BudgetPlan, runs: PaidRuns) -> float | None:
    """Returns the standard deviation of an accuracy by the noise of its score alone, a share.

    None for scores without noise, and where the plan does not know how many records are scored.
    """
    if plan.score != "training" or plan.sample_rate is None or plan.batch_size is None:
        return None
    if runs.score_noise_multiplier is None:
        return None
    return runs.score_noise_multiplier * plan.sample_rate / (2.0 * plan.batch_size)


def training_signal(plan: BudgetPlan, runs: PaidRuns) -> float | None:
    """Returns what a training can learn, in standard deviations of its noise.

    batch size * sqrt(steps) / noise multiplier. If every clipped gradient had norm 1 and pointed
    in one direction, the sum over all steps would be so many standard deviations of the noise in
    that direction. It is also the number of records times the training's mu, in the limit of much
    noise. None in a plan of a function, which says nothing of batches.
    """
    if plan.batch_size is None:
        return None
    return plan.batch_size * math.sqrt(runs.steps) / runs.noise_multiplier


def is_blind(plan: BudgetPlan) -> bool:
    """Returns whether the noise of a pilot's training hides nearly all that it learns."""
    signal = training_signal(plan, plan.paid_pilots[0]) if plan.pilots else None
    return signal is not None and signal < LEAST_SIGNAL


def can_rank(plan: BudgetPlan) -> bool:
    """Returns whether pilots at random rank settings well enough, as far as the plan can know."""
    signal = training_signal(plan, plan.paid_pilots[0]) if plan.pilots else None
    return signal is None or signal >= RANKING_SIGNAL


def _words_on_auto(plan: BudgetPlan) -> str:
    """Returns why pilots="auto" planned something else than pilots, and what to do."""
    if not plan.pilots:
        return (
            "plan_budget planned one run and no pilots: with these records at this epsilon the "
            "noise of a pilot's training hides nearly all that it learns. Enqueue your best "
            "guess, or the first of odp.short_list(...) if you doubt it. pilots=(12, 3) plans "
            "pilots all the same."
        )
    return (
        f"plan_budget planned a short list of {plan.candidates} candidates and no pilots at "
        "random: with these records at this epsilon the noise of their training often hides which "
        "settings are good. Give your own guess and the others of a list, for example "
        'BudgetSampler(plan, candidates=[guess, *odp.short_list("table")]). Candidates that '
        "nobody gives are proposed at random. If you trust your guess, pilots=0 plans one run; "
        "pilots=(12, 3) plans pilots all the same."
    )


def _checked_sizes(
    pilots: int | tuple[int, ...] | Literal["auto"], candidates: int | None
) -> tuple[int, ...]:
    """Returns how many pilots each rung has."""
    is_auto = isinstance(pilots, str) and pilots == "auto"
    if candidates is None:
        sizes = AUTO_PILOTS if is_auto else rung_sizes("pilots", pilots)
    elif is_auto:
        sizes = (validation.whole("candidates", candidates, 2),)
    else:
        raise InvalidArgumentError(
            "candidates",
            candidates,
            problem=f"a short list has one pilot for each candidate, and pilots={pilots!r} asks "
            "for others",
            fix="Leave one of the two out.",
        )
    if sum(sizes) > _MOST_PILOTS:
        name, value = ("pilots", pilots) if candidates is None else ("candidates", candidates)
        raise InvalidArgumentError(name, value, problem=f"there may be {_MOST_PILOTS} at most")
    return sizes


def _refuse_without_pilots(pilot_settings: Mapping[str, float | None]) -> None:
    for name, value in pilot_settings.items():
        if value is not None:
            raise InvalidArgumentError(
                name, value, problem="it needs pilots, and the plan has none", fix="Leave it out."
            )


def _checked_increase(value: float | None, epsilon: float) -> float:
    """Returns by how much the last run's noise exceeds an untuned run's."""
    if value is None:
        return 1.08 if epsilon >= 2.0 else 1.15
    increase = validation.number("noise_increase", value)
    if not 1.0 < increase <= _LARGEST_INCREASE:
        raise InvalidArgumentError(
            "noise_increase",
            value,
            allowed=f"it must be above 1 and at most {_LARGEST_INCREASE:g}",
            fix="1.08 gives the pilots one seventh of the squared budget, 1.2 gives three tenths.",
        )
    return increase


def _favored(
    epsilon: float, delta: float, records: int, epochs: float, work: float | None, relation: str
) -> tuple[int, float]:
    """Returns the favored batch size, and the epochs that its steps make."""
    choice = batch_choices(
        epsilon=epsilon,
        delta=delta,
        records=records,
        epochs=epochs,
        work=1.0 if work is None else work,
        neighboring_relation=relation,
    ).favored
    return choice.batch_size, choice.epochs


class _Training(NamedTuple):
    """A training, and the lengths that were asked for.

    Attributes:
        event: A function of (noise multiplier, steps); None for DP-SGD.
        sample_rate: Of DP-SGD; None for a training that was given as a function.
        steps: Of the last run.
        pilot_steps: Of a pilot.
    """

    event: TrainingEvent | None
    sample_rate: float | None
    steps: int
    pilot_steps: int


def _training(
    records: int | None,
    batch_size: float | None,
    epochs: float | None,
    pilot_epochs: float | None,
    run: TrainingEvent | None,
    steps: int | None,
    pilot_steps: int | None,
) -> _Training:
    """Returns the training of one of the two groups of arguments; refuses parts of both."""
    # batch_size may be left out, so it is named last.
    of_sgd = {
        "records": records,
        "epochs": epochs,
        "pilot_epochs": pilot_epochs,
        "batch_size": batch_size,
    }
    of_run = {"run": run, "steps": steps, "pilot_steps": pilot_steps}
    arguments, surplus = (of_sgd, of_run) if run is None else (of_run, of_sgd)
    for name, value in surplus.items():
        if value is not None:
            raise InvalidArgumentError(
                name,
                value,
                problem="a plan needs either records, batch_size and epochs (DP-SGD), or run "
                "and steps",
                fix="Leave one group out.",
            )
    for name, value in arguments.items():
        if value is None and not name.startswith("pilot_"):
            raise InvalidArgumentError(
                name,
                value,
                problem="it is missing",
                fix="Give records and epochs for DP-SGD, batch_size if you like; or run and "
                "steps.",
            )
    if run is None:
        return _dp_sgd(records, batch_size, epochs, pilot_epochs)
    return _given(run, steps, pilot_steps)


def _given(run: TrainingEvent, steps: int | None, pilot_steps: int | None) -> _Training:
    """Returns a training that was given as a function."""
    if not callable(run):
        raise InvalidArgumentError(
            "run",
            run,
            allowed="it must be a function of (noise multiplier, steps) that returns an event",
            fix="For example run=lambda noise, steps: odp.gaussian(noise / steps**0.5).",
        )
    length = validation.whole("steps", steps, 1)
    shorter = length if pilot_steps is None else validation.whole("pilot_steps", pilot_steps, 1)
    if shorter > length:
        raise InvalidArgumentError(
            "pilot_steps", pilot_steps, allowed=f"it must be at most steps, {length}"
        )

    def event(noise: float, steps: int) -> dp_event.DpEvent:
        return as_event("what run returns", run(noise, steps))

    return _Training(event, None, length, shorter)


def _dp_sgd(
    records: int | None,
    batch_size: float | None,
    epochs: float | None,
    pilot_epochs: float | None,
) -> _Training:
    """Returns a training by DP-SGD."""
    count = validation.whole("records", records, 1)
    batch = validation.positive("batch_size", batch_size)
    if batch > count:
        raise InvalidArgumentError(
            "batch_size", batch_size, allowed=f"it must be at most the number of records, {count}"
        )
    passes = validation.positive("epochs", epochs)
    pilot_passes = (
        passes if pilot_epochs is None else validation.positive("pilot_epochs", pilot_epochs)
    )
    if pilot_passes > passes:
        raise InvalidArgumentError(
            "pilot_epochs", pilot_epochs, allowed=f"it must be at most epochs, {epochs}"
        )
    rate = batch / count
    return _Training(None, rate, _steps(passes, rate), _steps(pilot_passes, rate))


def _steps(epochs: float, rate: float) -> int:
    steps = round(epochs / rate)
    if not 1 <= steps <= _MOST_STEPS:
        raise InvalidArgumentError(
            "epochs",
            epochs,
            allowed=f"it must make between 1 and {_MOST_STEPS} steps, not {steps}",
        )
    return steps


def _short(share: float, length: int) -> int:
    """Returns the steps of a short pilot."""
    return min(length, max(FEWEST_STEPS, round(share * length)))


def _ranges(
    schema: Schema | None, epsilon: float, delta: float, records: int | None, relation: str
) -> RangeQuery | None:
    """Returns the query that draws the ranges of a schema; None if there are none to draw."""
    if schema is None:
        return None
    names = sorted(schema.open_columns)
    if not names:
        return None
    query = RangeQuery.within(
        columns=len(names),
        records=validation.whole("records", records, 1),
        squared_mu=RANGES_SHARE * squared_mu(epsilon, delta),
        neighboring_relation=relation,
    )
    if not query.works:
        raise InvalidArgumentError(
            "schema",
            Text(f"a schema with the open ranges of {', '.join(map(repr, names))}"),
            problem="the records are too few to draw them with noise: records x mu / "
            f"sqrt(columns) is {query.strength:.3g}, and it works from {STRENGTH_THAT_WORKS:g} "
            "on",
            fix=f"Say in which range most values of {', '.join(map(repr, names))} lie, for "
            f"example odp.Schema({names[0]}=(low, high), ...). A guess that is twice as wide as "
            "it should be costs less than ranges that were drawn from few records.",
        )
    return query
