"""Ranges of columns that are drawn with noise, once in a study.

The first trial draws them and notes them before anybody uses them; the others read its note. A
trial draws only if all trials before it have ended without a note, so of several workers one draws
at most: Optuna gives each trial a number of its own, and a trial that has ended writes nothing
more.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from optuna.trial import FrozenTrial, Trial

from optuna_dp.core import polling
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, PlanError, Text
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.preparation.range_query import RangeQuery
from optuna_dp.preparation.schema import Schema
from optuna_dp.runs.run import Run
from optuna_dp.runs.trial_notes import note, noted
from optuna_dp.study.entries import RANGES
from optuna_dp.study.trials import read_plan, trials_of

_LONGEST_WAIT = 600.0  # Seconds.
_drawing = threading.Lock()


def draw_ranges(run: Run, schema: Schema, rows: object) -> Schema:
    """Draws ranges that nobody knows from the records, with noise, once in a study.

    In the objective, with a plan that pays for it (``plan_budget(..., schema=schema)``)::

        run = odp.start_run(trial)
        table = odp.draw_ranges(run, schema, frame).encode(frame)

    The first trial draws, by histograms with Gaussian noise, first on a logarithmic grid of what
    is possible at all, then on even bins within it. All other trials get the same ranges. A range
    is the noisy median plus and minus three noisy standard deviations.

    Guarantees:
        * One record more moves the counts of a round by the root of the number of columns at most,
          and the noise is the plan's. It costs what the plan says, whatever the records are.
        * It is drawn at most once in a study, by whatever number of workers.
        * No value of a record raises an error or a warning.

    Args:
        run: What :func:`optuna_dp.start_run` returned for the trial.
        schema: A schema with columns ``odp.Number(low, high, scale="private")``.
        rows: All the records, as for :meth:`optuna_dp.Schema.encode`.

    Returns:
        The schema with the ranges that were drawn.

    Raises:
        InvalidArgumentError: If the schema has no such columns, or others than the plan pays for.
        PlanError: If the plan does not pay for it, the study has drawn ranges of other columns, or
            an earlier trial that has not ended draws them for longer than ten minutes.

    Example:
        >>> import numpy as np, optuna, optuna_dp as odp
        >>> schema = odp.Schema(income=odp.Number(0, 1e8, scale="private"))
        >>> plan = odp.plan_budget(
        ...     epsilon=3.0, records=5000, epochs=10, pilots=0, schema=schema
        ... )
        >>> study = optuna.create_study(sampler=odp.BudgetSampler(plan))
        >>> rows = {"income": np.random.default_rng(0).normal(50_000, 10_000, 5000)}
        >>> drawn = odp.draw_ranges(odp.start_run(study.ask()), schema, rows)
        >>> drawn.open_columns
        {}
    """
    if not isinstance(run, Run):
        raise InvalidArgumentError(
            "run", run, allowed="it must be what optuna_dp.start_run(trial) returned"
        )
    if not isinstance(schema, Schema) or not schema.open_columns:
        raise InvalidArgumentError(
            "schema",
            schema,
            allowed="it must be a schema with columns whose range is to be drawn",
            fix='For example odp.Schema(income=odp.Number(0, 1e8, scale="private"), ...). By any '
            "other schema encode at once.",
        )
    ranges = run.ranks.shared(lambda: _ranges(run.own_trial(), schema, rows))
    return schema.with_ranges({name: (low, high) for name, (low, high) in ranges.items()})


def _ranges(trial: Trial, schema: Schema, rows: object) -> dict[str, list[float]]:
    """Returns the ranges of a study, drawn if no trial has drawn them."""
    query = _query(trial)
    columns = schema.open_columns
    if len(columns) != query.columns:
        raise InvalidArgumentError(
            "schema",
            Text(f"a schema with {len(columns)} open ranges"),
            problem=f"the plan pays for drawing {query.columns}",
            fix="Plan with this schema: plan_budget(..., schema=schema).",
        )
    ranges = polling.poll(lambda: _drawn_or_ours(trial), on_pause=_refuse_long_wait)
    if ranges is _OURS:
        with _drawing:  # Of threads of one trial the first draws.
            ranges = _drawn_or_ours(trial) or _drawn(trial, schema, rows, query)
    if ranges["columns"] != {name: list(ends) for name, ends in columns.items()}:
        raise PlanError(
            "This study has drawn the ranges of other columns: "
            f"{', '.join(map(repr, ranges['columns']))}. They are drawn once in a study, and the "
            "plan pays for one draw. Give the schema that the first trial gave."
        )
    drawn: dict[str, list[float]] = ranges["ranges"]
    return drawn


def _drawn(trial: Trial, schema: Schema, rows: object, query: RangeQuery) -> JsonObject:
    """Draws the ranges, and notes them in the trial before they are used."""
    # Start-up time: dp-accounting is slow to load.
    from optuna_dp.preparation.private_ranges import private_ranges

    columns, values = schema.open_columns, schema.open_values(rows)
    drawn = private_ranges([*values.values()], [*columns.values()], query)
    ranges = [[float(low), float(high)] for low, high in drawn]
    entry = {
        "person": [schema.unit, schema.most],
        "columns": {name: list(ends) for name, ends in columns.items()},
        "ranges": dict(zip(columns, ranges, strict=True)),
    }
    note(trial, RANGES, **entry)
    return entry


def _query(trial: Trial) -> RangeQuery:
    plan = read_plan(trial.study)
    query = None if plan is None else procedure_of(plan.design).ranges
    if query is None:
        raise PlanError(
            "The study's plan does not pay for drawing ranges. Plan with plan_budget(..., "
            "schema=schema), or say in the schema in which range most values lie."
        )
    return query


_OURS: JsonObject = {}


def _drawn_or_ours(trial: Trial) -> JsonObject | None:
    """Returns what was drawn; ``_OURS`` if this trial is to draw; None if an earlier one may."""
    trials = trials_of(trial.study)
    for past_trial in trials:
        if past_trial.number <= trial.number and (ranges := noted(past_trial, RANGES)) is not None:
            return ranges
    have_ended = [t.state.is_finished() for t in trials if t.number < trial.number]
    return _OURS if all(have_ended) else None


def _refuse_long_wait(waited: float) -> None:
    if waited > _LONGEST_WAIT:
        raise PlanError(
            "An earlier trial of this study has not ended and has not drawn the ranges. If its "
            "worker is dead, mark it as failed: optuna-dp recover STORAGE STUDY --fail NUMBER. If "
            "its objective encodes otherwise, call odp.draw_ranges in each trial."
        )


def times_drawn(trials: Sequence[FrozenTrial]) -> int:
    """Returns how often the trials of a study have drawn ranges."""
    return sum(noted(trial, RANGES) is not None for trial in trials)
