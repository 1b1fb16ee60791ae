"""The table of ``optuna-dp plan``, 80 columns wide at most."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from optuna_dp.numbers_shown import rounded_up

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optuna_dp.planning.selection_plan import SelectionPlan
    from optuna_dp.planning.selection_plan_rows import PlanRow


class RowsAsTheyCome:
    """Shows, on a terminal, which rows are ready and how long the others may take.

    It leaves nothing behind: the table is printed when all are ready. Elsewhere it shows nothing.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live  # start-up time

        self._live = Live(console=console, transient=True, refresh_per_second=4)
        self._begun = time.monotonic()
        self._rows: dict[int, PlanRow] = {}
        self._live.update("Accounting ...")

    def __enter__(self) -> RowsAsTheyCome:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def add(self, place: int, of: int, row: PlanRow) -> None:
        """Shows one row more: its place in the table, from 0, of how many, and the row."""
        self._rows[place] = row
        done = len(self._rows)
        left = (time.monotonic() - self._begun) / done * (of - done)
        last = [self._rows[key] for key in sorted(self._rows)][-12:]
        lines = [f"  {each.name}, {_mean(each)}: {_found(each)}" for each in last]
        lines.append(f"{done} of {of} rows, about {math.ceil(left)} s to go")
        self._live.update("\n".join(lines))


def _mean(row: PlanRow) -> str:
    return "no mean" if row.mean is None else f"mean {row.mean:.3g}"


def _found(row: PlanRow) -> str:
    if row.trials is None:
        return row.note
    noise = "" if row.noise_multiplier is None else f"noise {_noise(row.noise_multiplier)}, "
    return f"{noise}epsilon {_epsilon(row.epsilon)}"


def print_plan(console: Console, plan: SelectionPlan) -> None:
    """Prints the table with a title above and a legend below."""
    console.print(_title(plan), highlight=False)
    console.print(_table(plan))
    for line in _legend(plan):
        console.print(line, style="dim", highlight=False)


def _title(plan: SelectionPlan) -> str:
    if plan.target_epsilon is None:
        what = f"[bold]Epsilon at delta = {plan.delta:g}[/bold]"
    else:
        unknown = {
            "noise_multiplier": "The least noise",
            "mean": "The largest mean number of runs",
            "density_bounds": "The widest density bounds",
        }[plan.solved_for or "mean"]
        what = f"[bold]{unknown} within epsilon {plan.target_epsilon:g}[/bold]"
        what += f" at delta = {plan.delta:g}"
    if plan.one_run is not None:
        what += f"; one run alone costs {_epsilon(plan.one_run)}"
    return what + "."


def _table(plan: SelectionPlan) -> Table:
    # Start-up time: --help and refusals come at once.
    from rich import box
    from rich.table import Table

    solved = plan.solved_for == "noise_multiplier"
    with_attacks = any(row.attack is not None for row in plan.rows)
    with_naive = any(row.naive is not None for row in plan.rows)
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("law of T", no_wrap=True)
    table.add_column("E[T]", justify="right", no_wrap=True)
    table.add_column("learns", no_wrap=True)
    if solved:
        table.add_column("noise", justify="right", style="bold", no_wrap=True)
    table.add_column("eps", justify="right", style="bold", no_wrap=True)
    for shown, name in ((with_attacks, ">="), (with_naive, "naive"), (True, "RDP")):
        if shown:
            table.add_column(name, justify="right", style="dim", no_wrap=True)
    for name in ("T<=3", f"top {100 * plan.fraction:g}%", "price", "rival"):
        table.add_column(name, justify="right", no_wrap=True)
    last: float | None = None
    for row in plan.rows:
        if plan.solved_for != "mean" and last is not None and row.mean != last:
            table.add_section()
        last = row.mean
        table.add_row(*_cells(row, solved, with_attacks, with_naive))
    return table


def _cells(row: PlanRow, solved: bool, with_attacks: bool, with_naive: bool) -> list[str]:
    name = row.law
    for family, short in (("negative-binomial", "nb"), ("binomial", "bin")):
        if name.startswith(f"{family}:"):
            name = f"{short}({name.partition(':')[2]})"
    mean = "" if row.mean is None else f"{row.mean:.0f}" if row.mean >= 10 else f"{row.mean:.2g}"
    cells = [name, mean, _learns(row)]
    if row.trials is None:
        return [*cells, f"[not bold dim]{row.note}[/]"] if solved else [*cells, "[dim]none[/]"]
    if solved:
        cells.append(_noise(row.noise_multiplier or 0.0))
    cells.append(_epsilon(row.epsilon))
    if with_attacks:
        cells.append("" if row.attack is None else _epsilon(row.attack, down=True))
    if with_naive:
        cells.append(_epsilon(row.naive))
    cells.append(_epsilon(row.theorem_1 if row.adaptive else row.rdp))
    cells.append(_percent(row.few))
    cells.append(_hit(row))
    cells.append("" if row.price is None else f"+{row.price:.2f}")
    cells.append("" if row.rival_mean is None else _runs(row.rival_mean))
    return cells


def _hit(row: PlanRow) -> str:
    if row.hit is None:
        return "?"
    if not row.adaptive:
        return _percent(row.hit)
    return f"{_percent(row.hit_worst)[:-1]}-{_percent(row.hit_best)}"


def _learns(row: PlanRow) -> str:
    if row.pilots:
        return f"{row.pilots}@{row.noise_ratio:.3g}x"
    if row.density_bounds is None:
        return "?"
    if not row.adaptive:
        return "-"
    c, big_c = row.density_bounds
    short = f"{c:.3g}-{big_c:.3g}"
    return short if len(short) <= 9 else f"{c:.2f}-{big_c:.2f}"


def _epsilon(value: float | None, *, down: bool = False) -> str:
    """Two decimals, away from what would claim too much."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "inf"
    places = 2 if value < 1000 else 0
    scaled = value * 10**places
    whole = math.floor(scaled + 1e-9) if down else math.ceil(scaled - 1e-9)
    return f"{whole / 10**places:.{places}f}"


def _noise(noise: float) -> str:
    """Four decimals, upward: more noise than was solved for, never less."""
    return rounded_up(noise, 4 if noise < 100 else 0)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}%"


def _runs(mean: float) -> str:
    return f"{mean:.0f}" if mean < 9999 else ">9999"


def _legend(plan: SelectionPlan) -> list[str]:
    adaptive = any(row.adaptive for row in plan.rows)
    pilots = any(row.pilots for row in plan.rows)
    best = f"top {100 * plan.fraction:g}%"
    lines = ["eps: guaranteed for the released choice, the whole search included."]
    if adaptive or pilots:
        ways = ["- not at all"]
        ways += ["c-C from earlier runs, within density bounds"] * adaptive
        ways += ["B@rx from B pilots at r times the noise, run before the E[T] runs"] * pilots
        lines.insert(0, f"learns: {'; '.join(ways)}.")
    if any(row.law.startswith("negative-binomial") for row in plan.rows):
        lines.insert(0, "nb(s): negative binomial of shape s.")
    if any(row.attack is not None for row in plan.rows):
        lines.append(">=: what the search costs at least; an explicit attack shows it.")
    if any(row.naive is not None for row in plan.rows):
        lines.append("naive: E[T] runs composed, what a fixed number of runs would be charged.")
    lines.append("RDP: dp-accounting's figure; with density bounds DP-HyPO's Theorem 1.")
    lines.append("T<=3: chance of so few runs that there is hardly a choice.")
    hit = f"{best}: chance that a run lands in the best {100 * plan.fraction:g}% of the prior"
    hit += "; with density bounds, from worst to best policy" * adaptive
    hit += "; after pilots it depends on what they teach" * pilots
    lines.append(f"{hit}.")
    if adaptive or pilots:
        lines.append("price: what learning adds to eps.")
        lines.append(
            "rival: mean of the same law that plain random search could have for the same eps. "
            "Learning pays only where so many runs are not to be had."
        )
    if any(row.trials is None for row in plan.rows):
        lines.append("none: out of reach; use fewer runs, more noise or a larger target.")
    return lines
