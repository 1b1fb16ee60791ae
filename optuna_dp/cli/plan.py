"""``optuna-dp plan``: what private selections cost, before any data are touched."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from optuna_dp.cli.common import AsJson, Relation, clear_errors, option, table
from optuna_dp.core import validation
from optuna_dp.core.numbers_shown import rounded_down, rounded_up
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dp_accounting import dp_event

    from optuna_dp.planning.selection_plan import PlanRow, SelectionPlan


def plan(
    noise_multiplier: Annotated[
        float | None,
        option("NUMBER", "Noise of DP-SGD over its clipping norm, unless it is solved for."),
    ] = None,
    sample_rate: Annotated[
        float | None, option("RATE", "Batch size over the number of records, in (0, 1].")
    ] = None,
    steps: Annotated[int | None, option("COUNT", "Steps of DP-SGD in one run.")] = None,
    delta: Annotated[float, option("NUMBER", "Delta of every epsilon, in (0, 1).")] = 1e-5,
    score_noise: Annotated[
        float | None,
        option(
            "NUMBER",
            "Noise of the run's score over what one record moves it. Leave out if the score "
            "costs nothing.",
        ),
    ] = None,
    event: Annotated[
        str | None, option("JSON", "The run's event, instead of the options above but --delta.")
    ] = None,
    law: Annotated[
        list[str] | None,
        option(
            "LAW",
            "Distribution of the number of runs: geometric, logarithmic, poisson, "
            "negative-binomial:SHAPE or binomial:N. Repeat for more.",
        ),
    ] = None,
    mean: Annotated[
        list[float] | None,
        option("NUMBER", "Mean number of runs. Repeat for more."),
    ] = None,
    density_bounds: Annotated[
        list[str] | None,
        option(
            "c,C",
            "Also searches whose density stays between c and C times the prior (default: 0.75,2 "
            "at the smallest mean); 'none' for no such search. Repeat for more.",
        ),
    ] = None,
    relation: Relation = "add-or-remove-one",
    target_epsilon: Annotated[
        float | None,
        option("NUMBER", "Find the noise multiplier with which each search costs this."),
    ] = None,
    attacks: Annotated[
        bool | None,
        typer.Option(
            "--attacks/--no-attacks", help="Look for attacks (default: without a target)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare private selections (RandTune, DP-HyPO), or find the noise for an epsilon.

    Each row has one distribution of the secret number of runs, and runs that learn from earlier
    ones within density bounds, or not at all. optuna-dp budget is the recommended method.

    Example: optuna-dp plan --noise-multiplier 1 --sample-rate .0043 --steps 2344
    """
    with clear_errors(plan, **_FLAGS):
        # Before the accountants are loaded: a typing error shows at once.
        training = {
            "--noise-multiplier": noise_multiplier,
            "--sample-rate": sample_rate,
            "--steps": steps,
            "--score-noise": score_noise,
        }
        _check(event, training, target_epsilon)
        # Lazy: start-up time.
        from rich.console import Console
        from threadpoolctl import threadpool_limits

        from optuna_dp.planning import selection_plan

        run = _dp_sgd(training) if event is None else _read(event)
        plan_of_rows = selection_plan.selection_plan(
            run,
            delta=delta,
            laws=law or selection_plan.LAWS,
            means=mean or selection_plan.MEANS,
            density_bounds=None if density_bounds is None else _bounds(density_bounds),
            neighboring_relation=relation.replace("-", "_"),
            target_epsilon=target_epsilon,
        )
        with_attacks = target_epsilon is None if attacks is None else attacks
        columns = _columns(plan_of_rows, with_attacks)
        # Rows are computed here. Their linear systems are small: on a busy machine several threads
        # spend four times as long, most of it waiting for each other.
        with threadpool_limits(1), Console(stderr=True).status("Accounting ..."):
            if as_json:
                text = json.dumps(
                    plan_of_rows.to_json(attack=with_attacks), indent=2, sort_keys=True
                )
            else:
                rows = _rows(plan_of_rows, columns)
    if as_json:
        typer.echo(text)
        return
    console = Console()
    console.print(_title(plan_of_rows), highlight=False)
    console.print(table("", [column.name for column in columns], rows))
    for column in columns:
        if column.meaning:
            console.print(f"{column.name}: {column.meaning}", style="dim", highlight=False)
    if any(row.note for row in plan_of_rows.rows):
        console.print(
            "none: out of reach; use fewer runs, more noise or a larger target.", style="dim"
        )


# The library's names of arguments, by what the user typed.
_FLAGS = {
    "data": "--event",
    "shape": "--law: shape",
    "n": "--law: n",
    "means": "--mean",
    "density_bounds[0]": "--density-bounds: c",
    "density_bounds[1]": "--density-bounds: C",
}


# The run.


def _check(event: str | None, training: Mapping[str, object], target: float | None) -> None:
    """Refuses options that contradict each other, or leave open what a run is."""
    noise = training["--noise-multiplier"]
    if event is not None:
        for name, value in training.items():
            if value is not None:
                raise InvalidArgumentError(
                    name,
                    value,
                    problem="it cannot be combined with --event",
                    fix="Use one or the other.",
                )
        if target is not None:
            raise InvalidArgumentError(
                "--target-epsilon",
                target,
                problem="the noise of an --event is fixed",
                fix="Use the DP-SGD options.",
            )
        return
    for name in ("--sample-rate", "--steps"):
        if training[name] is None:
            raise InvalidArgumentError(
                name, None, problem="it is needed to say what one run costs", fix="Or use --event."
            )
    if noise is None and target is None:
        raise InvalidArgumentError(
            "--noise-multiplier", None, problem="it is needed unless --target-epsilon is given"
        )
    if noise is not None and target is not None:
        raise InvalidArgumentError(
            "--noise-multiplier",
            noise,
            problem="it is what --target-epsilon solves for",
            fix="Leave out one of the two. odp.calibrate finds a mean or density bounds.",
        )


def _read(event: str) -> dp_event.DpEvent:
    """Returns the event of a run from its JSON."""
    from optuna_dp.accounting.event_json import event_from_json  # start-up time

    try:
        return event_from_json(json.loads(event))
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            "--event", event, allowed=f"it must be JSON ({error})"
        ) from None


def _dp_sgd(
    training: dict[str, Any],
) -> dp_event.DpEvent | Callable[[float], dp_event.DpEvent]:
    """Returns the event of a run of DP-SGD; without a noise the function that makes it of one."""
    from optuna_dp.accounting import events  # start-up time

    noise, score_noise = training["--noise-multiplier"], training["--score-noise"]
    score = None
    if score_noise is not None:
        score = events.gaussian(validation.positive("score_noise", score_noise))

    def run(noise: float) -> dp_event.DpEvent:
        rate, steps = training["--sample-rate"], training["--steps"]
        event = events.dp_sgd(noise_multiplier=noise, sample_rate=rate, steps=steps)
        return event if score is None else events.compose(event, score)

    return run if noise is None else run(noise)


def _bounds(texts: list[str]) -> list[tuple[float, float]]:
    """Returns pairs of what was typed as "c,C"; none of them for "none"."""
    bounds = []
    for text in [] if texts == ["none"] else texts:
        try:
            c, big_c = map(float, text.split(","))
        except ValueError:
            raise InvalidArgumentError(
                "--density-bounds",
                text,
                allowed="it must be two numbers c,C with 0 < c <= 1 <= C, or none",
                fix="For example 0.75,2.",
            ) from None
        bounds.append((c, big_c))
    return bounds


# The table, 80 columns wide at most.


class _Column(NamedTuple):
    """A column: its head, what a row shows in it, and a line below the table."""

    name: str
    cell: Callable[[PlanRow], str]
    meaning: str = ""


def _title(plan: SelectionPlan) -> str:
    if plan.target_epsilon is not None:
        heading = f"The least noise within epsilon {plan.target_epsilon:g}"
        return f"[bold]{heading}[/bold] at delta = {plan.delta:g}."
    one_run = _up(plan.one_run)
    return f"[bold]Epsilon at delta = {plan.delta:g}[/bold]; one run alone costs {one_run}."


def _rows(plan: SelectionPlan, columns: list[_Column]) -> list[list[str]]:
    """Returns the cells of all rows, with an empty row before each new mean."""
    rows: list[list[str]] = []
    mean = plan.rows[0].mean
    for row in plan.rows:
        if row.mean != mean:
            rows.append([])
            mean = row.mean
        rows.append([column.cell(row) for column in columns])
    return rows


def _columns(plan: SelectionPlan, attacks: bool) -> list[_Column]:
    has_target = plan.target_epsilon is not None
    is_short = any(row.law.startswith("negative-binomial") for row in plan.rows)
    columns = [
        _Column(
            "law of T",
            lambda row: row.law.replace("negative-binomial:", "nb:"),
            "nb:s is negative-binomial:s." if is_short else "",
        ),
        _Column("E[T]", lambda row: f"{row.mean:.0f}" if row.mean >= 10 else f"{row.mean:.2g}"),
        _Column("learns", _learns, "- not at all; c-C from earlier runs, within density bounds."),
    ]
    if has_target:
        columns.append(_Column("noise", _noise, "the least noise multiplier of a run."))
    columns.append(
        _Column(
            "eps",
            lambda row: "none" if row.note else _up(row.epsilon),
            "guaranteed for the released choice, the whole search included.",
        )
    )
    if attacks:
        columns.append(
            _Column(
                ">=",
                lambda row: "" if row.attack is None else rounded_down(row.attack),
                "the least that the search costs: a known attack shows it.",
            )
        )
    if not has_target:
        columns.append(
            _Column(
                "naive",
                lambda row: _up(row.naive),
                "E[T] runs composed, the cost of a fixed number of runs.",
            )
        )
    columns += [
        _Column(
            "RDP",
            lambda row: _up(row.rdp),
            "by Rényi accounting; with density bounds by DP-HyPO's Theorem 1.",
        ),
        _Column(
            "T<=3",
            lambda row: _percent(row.few),
            "probability of at most three runs, which leave hardly a choice.",
        ),
        _Column(
            "top 5%",
            _hit,
            "probability that a run is in the best 5% of the prior; with density bounds, from "
            "worst to best policy.",
        ),
    ]
    if any(row.adaptive for row in plan.rows):
        columns.append(
            _Column(
                "price",
                lambda row: "" if row.price is None else f"+{row.price:.2f}",
                "what learning adds to eps.",
            )
        )
    return columns


def _learns(row: PlanRow) -> str:
    if not row.adaptive:
        return "-"
    short, fixed_width = (
        "-".join(f"{bound:{form}}" for bound in row.density_bounds) for form in (".3g", ".2f")
    )
    return short if len(short) <= 9 else fixed_width


def _noise(row: PlanRow) -> str:
    """Returns more noise than was solved for, never less."""
    noise = row.noise_multiplier
    return "" if noise is None else rounded_up(noise, 4 if noise < 100 else 0)


def _up(value: float | None) -> str:
    if value is None:
        return ""
    return "inf" if math.isinf(value) else rounded_up(value, 2 if value < 1000 else 0)


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _hit(row: PlanRow) -> str:
    worst, best = map(_percent, row.hit)
    return f"{worst[:-1]}-{best}" if row.adaptive else best
