"""What a lower package uses of a higher one: it is loaded by its name, from this closed table.

Imports go one way. Six things that a guarantee, a plan, a run or a release has on offer stand
above it: known attacks, the bounds of others, pages for notebooks and for dashboards, and remarks
on a plan and on persons with several records. Each is loaded when it is first used.

They are shown beside a guarantee and are no part of it. Nothing that they return changes an
epsilon.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.study import Study

Target = str
"""An object by its module and its name: ``"optuna_dp.voting.plan:VotePlan"``."""

SHOWN_BESIDE: Mapping[str, Target] = MappingProxyType(
    {
        "attack": "optuna_dp.attacks.strongest:strongest_known_attack",
        "comparisons": "optuna_dp.attacks.comparisons:comparisons_of",
        "notebook page": "optuna_dp.visualization.notebook:to_html",
        "published page": "optuna_dp.dashboard.study_pages:annotate_published",
        "remark on a plan": "optuna_dp.planning.guidance:remark_on_plan",
        "remark on persons": "optuna_dp.evidence.persons:remark_on_persons",
    }
)


@functools.cache
def load(target: Target) -> Any:
    """Returns an object by its module and its name."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def attack(event: dp_event.DpEvent, relation: str, delta: float) -> float:
    """Returns the largest epsilon that a known attack attains."""
    return float(load(SHOWN_BESIDE["attack"])(event, relation, delta))


def comparisons(
    event: dp_event.DpEvent, relation: str, delta: float
) -> Mapping[str, tuple[float, str]]:
    """Returns epsilon by the bounds of others and why it is infinite, by the bound's name."""
    bounds: Mapping[str, tuple[float, str]] = load(SHOWN_BESIDE["comparisons"])(
        event, relation, delta
    )
    return bounds


def notebook_page(result: object) -> str | None:
    """Returns a page of HTML, or None: a notebook then shows the ``repr``."""
    page: str | None = load(SHOWN_BESIDE["notebook page"])(result)
    return page


def add_published_page(study: Study, release: object) -> None:
    """Adds to a published study what dashboards show of it."""
    load(SHOWN_BESIDE["published page"])(study, release)


def remark_on_plan(plan: object) -> str:
    """Returns what a better plan would gain, in words; empty if there is nothing to say."""
    return str(load(SHOWN_BESIDE["remark on a plan"])(plan))


def remark_on_persons(study: Study, schema: Mapping[str, Any]) -> str:
    """Returns what to know of persons with several records; empty if there is nothing to say."""
    return str(load(SHOWN_BESIDE["remark on persons"])(study, schema))
