"""Pages of a guarantee, a budget and a release for notebooks.

Plain tables without colours of their own: they take those of the notebook, light or dark.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from optuna_dp.core import by_name
from optuna_dp.core.numbers_shown import rounded_down, rounded_up
from optuna_dp.planning.guidance import PLAN_HEADS, plan_rows

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.releasing.release import Release
    from optuna_dp.samplers.budget.plan import BudgetPlan

_DELTAS = (1e-4, 1e-5, 1e-6, 1e-8)
_LEFT = 'style="text-align: left"'


def to_html(result: Guarantee | BudgetPlan | Release) -> str:
    """Returns the page of a guarantee, a budget plan or a release, by its class's name."""
    return _PAGES[type(result).__name__](result)


def _of_guarantee(guarantee: Guarantee) -> str:
    rows = []
    for delta in _DELTAS:
        attack, bound = guarantee.bounds(delta)
        attained = rounded_down(attack, 3) if attack else "none known"
        rows.append((f"{delta:g}", rounded_up(bound, 3), attained))
    words = html.escape(repr(guarantee).removeprefix("Guarantee(<").split(">, ")[0])
    relation = guarantee.neighboring_relation.replace("_", " ")
    return f"<p><b>Guarantee</b> ({relation}) of: {words}</p>" + _table(
        ("delta", "epsilon", "an attack attains"), rows
    )


def _of_budget(plan: BudgetPlan) -> str:
    epsilon = rounded_up(plan.guarantee.epsilon(plan.delta), 3)
    heading = f"all of it together costs epsilon = {epsilon} at delta = {plan.delta:g}"
    remark = html.escape(by_name.remark_on_plan(plan))
    text = f"<p><b>Budget</b>: {heading}</p>" + _table(PLAN_HEADS, plan_rows(plan))
    return text + (remark and f"<p>{remark}</p>")


def _of_release(release: Release) -> str:
    epsilon = rounded_up(release.guarantee.epsilon(release.delta), 3)
    rows = [] if release.value is None else [("score", f"{release.value:.6g}")]
    rows += [(name, repr(value)) for name, value in (release.params or {}).items()]
    table = _table(("released", "value"), rows)
    if release.params is None:
        table = "<p>No run succeeded, so nothing was chosen.</p>"
    pilots = f"<p>With it {len(release.pilots)} pilots.</p>" if release.pilots else ""
    return (
        f"<p><b>Release</b>, epsilon = {epsilon} at delta = {release.delta:g}</p>{table}{pilots}"
        "<p><code>print(release.statement())</code> has the privacy statement.</p>"
    )


_PAGES: dict[str, Callable[[Any], str]] = {
    "Guarantee": _of_guarantee,
    "BudgetPlan": _of_budget,
    "Release": _of_release,
}


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th {_LEFT}>{html.escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td {_LEFT}>{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
