"""The registry of parts: what each of them adds to a core that knows none.

A part is a folder of this package that can be deleted. Its file ``part.py`` calls
:func:`register` once, and says there all that the rest of the package has to know of it: public
names, procedures, events, commands. The package's front door imports the ``part.py`` of every
folder on its own list that is present. Nothing else is ever registered or loaded: a record that
comes from outside names a procedure, an event or a law by a word, and a word that is in no table
is refused.

What a part adds is written as an entry point, ``"optuna_dp.voting.plan:VotePlan"``, and loaded
when it is first used. So importing the package loads none of the parts' code, and a guarantee
depends on the code of its own procedure only.

Four entries are shown beside a guarantee and are no part of it: attacks, the bounds of others,
pages for notebooks and dashboards, and the remark on a plan. Nothing that they return, and no
exception, changes an epsilon.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Entry = str
"""An object by its module and its name: ``"optuna_dp.voting.plan:VotePlan"``."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ProcedureEntry(NamedTuple):
    """A private procedure: how its studies are judged, and what statements say of it.

    Attributes:
        description: The :class:`~optuna_dp.evidence.statement.Description`.
        procedure: The :class:`~optuna_dp.evidence.procedure.Procedure`; None if the procedure
            takes place without a study.
        guarantee: For a procedure without a study: a function of its design that returns the
            guarantee.
    """

    description: Entry
    procedure: Entry | None = None
    guarantee: Entry | None = None


class CommandEntry(NamedTuple):
    """A command of ``optuna-dp``.

    Attributes:
        function: The function; the command has its name.
        group: The heading that it stands under.
        summary: What it does, in a line.
    """

    function: Entry
    group: str
    summary: str


class Part(NamedTuple):
    """What a part adds to the package.

    Attributes:
        name: The name of the part, for people.
        modules: Modules that are public as ``optuna_dp.NAME``, by that name.
        names: Names that are public as ``optuna_dp.NAME``, separated by spaces, by their module.
        procedures: Procedures, by the name that plans and designs have for them.
        events: Modules of event classes, by the name of the class.
        laws: Modules of laws of the number of runs, by the name that records have for them.
        commands: Commands of ``optuna-dp``.
        history_bound: The bound of a selection whose runs learn from private outputs.
        attack: A function of event, relation and delta: an epsilon that an attack attains.
        comparisons: A function of the same: bounds that others have published.
        notebook_page: A function that returns HTML of a guarantee, a plan or a release.
        published_page: A function of a published study and its release, which adds to the study.
        remark_on_plan: A function that returns what a better plan would gain, in words.
    """

    name: str
    modules: Mapping[str, str] = _NOTHING
    names: Mapping[str, str] = _NOTHING
    procedures: Mapping[str, ProcedureEntry] = _NOTHING
    events: Mapping[str, str] = _NOTHING
    laws: Mapping[str, str] = _NOTHING
    commands: tuple[CommandEntry, ...] = ()
    history_bound: Entry | None = None
    attack: Entry | None = None
    comparisons: Entry | None = None
    notebook_page: Entry | None = None
    published_page: Entry | None = None
    remark_on_plan: Entry | None = None


_registered: dict[str, Part] = {}


def register(part: Part) -> None:
    """Adds a part. Called once by its ``part.py``.

    Raises:
        ValueError: If another part has the same name, or adds something of the same name.
    """
    for registered in _registered.values():
        for table in ("modules", "procedures", "events", "laws"):
            duplicates = getattr(part, table).keys() & getattr(registered, table).keys()
            if duplicates:
                raise ValueError(
                    f"{part.name} and {registered.name} both add {sorted(duplicates)}"
                )
    if part.name in _registered:
        raise ValueError(f"{part.name} is registered twice")
    _registered[part.name] = part


def registered() -> Iterator[Part]:
    """Returns the parts that are present."""
    yield from _registered.values()


def table(name: str) -> dict[str, Any]:
    """Returns what all parts add to one table: "modules", "procedures", "events" or "laws"."""
    return {key: value for part in registered() for key, value in getattr(part, name).items()}


@functools.cache
def load(entry: Entry) -> Any:
    """Returns the object of an entry point."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


# What is shown beside a guarantee.


def attack(event: Any, relation: str, delta: float) -> float:
    """Returns the largest epsilon that a known attack attains; 0 if no part has attacks."""
    function = _function("attack")
    return 0.0 if function is None else float(function(event, relation, delta))


def comparisons(event: Any, relation: str, delta: float) -> Any:
    """Returns epsilon by the bounds of others and why it is infinite, by the bound's name."""
    function = _function("comparisons")
    return _NOTHING if function is None else function(event, relation, delta)


def notebook_page(result: Any) -> str | None:
    """Returns a page of HTML, or None: a notebook then shows the ``repr``."""
    function = _function("notebook_page")
    return None if function is None else str(function(result))


def add_published_page(study: Any, release: Any) -> None:
    """Adds to a published study what dashboards show of it."""
    function = _function("published_page")
    if function is not None:
        function(study, release)


def remark_on_plan(plan: Any) -> str:
    """Returns what a better plan would gain, in words; empty if there is nothing to say."""
    function = _function("remark_on_plan")
    return "" if function is None else str(function(plan))


# What a guarantee may depend on.


def history_bound() -> Callable[..., Any] | None:
    """Returns the bound of a selection whose runs learn from private outputs; None if missing."""
    return _function("history_bound")


def _function(field_name: str) -> Callable[..., Any] | None:
    entries = (getattr(part, field_name) for part in registered())
    entry = next((entry for entry in entries if entry is not None), None)
    return None if entry is None else load(entry)
