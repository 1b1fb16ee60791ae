"""The table of ``optuna-dp plan``, 80 columns wide at most."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from optuna_dp.numbers_shown import rounded_down, rounded_up

if TYPE_CHECKING:
    from optuna_dp.selection_planner.selection_plan import PlanRow, SelectionPlan


class _Column(NamedTuple):
    """A column: its head, what a row shows in it, a line below the table, and its looks."""

    name: str
    cell: Callable[[PlanRow], str]
    meaning: str = ""
    style: str = ""
    shown: bool = True


def print_plan(plan: SelectionPlan, *, attacks: bool) -> None:
    """Prints the table with a title above and a legend below; rows are computed meanwhile.

    On a terminal stderr shows which part of them is ready and how long the others may take.
    """
    # Lazy: --help and refusals come at once without them.
    from rich import box
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    columns = _columns(plan, attacks)
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    for column in columns:
        table.add_column(
            column.name,
            justify="left" if column.name in ("law of T", "learns") else "right",
            style=column.style,
            no_wrap=True,
        )
    stderr = Console(stderr=True)
    quiet = not stderr.is_terminal
    previous = plan.rows[0]
    for row in track(plan.rows, "Accounting", console=stderr, transient=True, disable=quiet):
        if row.mean != previous.mean:
            table.add_section()
        table.add_row(*(column.cell(row) for column in columns))
        previous = row
    console = Console()
    console.print(_title(plan), highlight=False)
    console.print(table)
    for column in columns:
        if column.meaning:
            console.print(f"{column.name}: {column.meaning}", style="dim", highlight=False)
    if any(row.note for row in plan.rows):
        console.print(
            "none: out of reach; use fewer runs, more noise or a larger target.", style="dim"
        )


def _title(plan: SelectionPlan) -> str:
    title = f"[bold]Epsilon at delta = {plan.delta:g}[/bold]"
    if plan.target_epsilon is not None:
        heading = f"The least noise within epsilon {plan.target_epsilon:g}"
        title = f"[bold]{heading}[/bold] at delta = {plan.delta:g}"
    return title + (f"; one run alone costs {_up(plan.one_run)}." if plan.one_run else ".")


def _columns(plan: SelectionPlan, attacks: bool) -> list[_Column]:
    has_target = plan.target_epsilon is not None
    adaptive = any(row.adaptive for row in plan.rows)
    short = any(row.law.startswith("negative-binomial") for row in plan.rows)
    columns = [
        _Column("law of T", _law, "nb:s is negative-binomial:s." if short else ""),
        _Column("E[T]", _mean),
        _Column("learns", _learns, "- not at all; c-C from earlier runs, within density bounds."),
        _Column("noise", _noise, "the least noise multiplier of a run.", "bold", shown=has_target),
        _Column(
            "eps",
            lambda row: "none" if row.note else _up(row.epsilon),
            "guaranteed for the released choice, the whole search included.",
            "bold",
        ),
        _Column(
            ">=",
            lambda row: "" if row.attack is None else rounded_down(row.attack),
            "the least that the search costs: a known attack shows it.",
            "dim",
            shown=attacks,
        ),
        _Column(
            "naive",
            lambda row: _up(row.naive),
            "E[T] runs composed, the cost of a fixed number of runs.",
            "dim",
            shown=not has_target,
        ),
        _Column(
            "RDP",
            lambda row: _up(row.rdp),
            "by Rényi accounting; with density bounds by DP-HyPO's Theorem 1.",
            "dim",
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
        _Column(
            "price",
            lambda row: "" if row.price is None else f"+{row.price:.2f}",
            "what learning adds to eps.",
            shown=adaptive,
        ),
    ]
    return [column for column in columns if column.shown]


def _law(row: PlanRow) -> str:
    return row.law.replace("negative-binomial:", "nb:")


def _mean(row: PlanRow) -> str:
    return f"{row.mean:.0f}" if row.mean >= 10 else f"{row.mean:.2g}"


def _learns(row: PlanRow) -> str:
    short, fixed_width = (
        "-".join(f"{b:{form}}" for b in row.density_bounds) for form in (".3g", ".2f")
    )
    return "-" if not row.adaptive else short if len(short) <= 9 else fixed_width


def _noise(row: PlanRow) -> str:
    """More noise than was solved for, never less."""
    noise = row.noise_multiplier
    return "" if noise is None else rounded_up(noise, 4 if noise < 100 else 0)


def _up(value: float | None) -> str:
    if value is None or math.isinf(value):
        return "" if value is None else "inf"
    return rounded_up(value, 2 if value < 1000 else 0)


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def _hit(row: PlanRow) -> str:
    worst, best = map(_percent, row.hit)
    return f"{worst[:-1]}-{best}" if row.adaptive else best
