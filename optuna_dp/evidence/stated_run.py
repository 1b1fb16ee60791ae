"""What one run costs, where somebody stated it as an event.

The event is stored, not an epsilon, so that a better accountant can compute its cost later. It
belongs into the study's plan, where the sampler puts it (``run=``). Of a study whose sampler was
not told, :class:`optuna_dp.PrivacyCallback` stores it beside the plan, under the digest of what it
says: workers that agree write the same key, workers that do not leave two entries, and the
release sees both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.value_types import JsonObject, JsonValue
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, ReleaseRefusedError
from optuna_dp.study.entries import RUN_COSTS
from optuna_dp.study.plan import canonical_json

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from optuna.study import Study

ONE_COST = (
    "Give the sampler of every worker the same run=. If the cost of runs differs on purpose, "
    "state optuna_dp.worst_case(...) of all costs."
)


def _written(event: dp_event.DpEvent) -> dict[str, JsonValue]:
    # Start-up time: samplers and refusals do without an accountant.
    from optuna_dp.accounting.event_json import event_to_json

    return event_to_json(event)


def _read(data: object) -> dp_event.DpEvent:
    # Start-up time: samplers and refusals do without an accountant.
    from optuna_dp.accounting.event_json import event_from_json

    return event_from_json(data)


# Metadata of a dataclass field that holds an event.
STORED_EVENT = stored(write=_written, read=_read)


@dataclass(frozen=True, repr=False)
class StatedRun(Entry):
    """One run of which nothing is known but what it costs.

    Attributes:
        event: The event of one whole run, scoring included.
        neighboring_relation: The relation under which the whole tree of events is read.

    Raises:
        InvalidArgumentError: If ``event`` is no event, or the relation none of its kind.
        UnsupportedEventError: If no accountant supports the event.
    """

    described_as: ClassVar[str] = "The entry of the run's event"

    event: Any = field(metadata=STORED_EVENT)
    neighboring_relation: str = "add_or_remove_one"

    @classmethod
    def told(cls, run: object, neighboring_relation: str | None) -> StatedRun:
        """Returns what somebody said of a run; None is the usual relation."""
        return cls(run) if neighboring_relation is None else cls(run, neighboring_relation)

    def __post_init__(self) -> None:
        # Start-up time: samplers and refusals do without an accountant.
        from dp_accounting.dp_event import DpEvent

        from optuna_dp.accounting.guarantee import Guarantee
        from optuna_dp.accounting.units import check_relation

        if not isinstance(self.event, DpEvent):
            raise InvalidArgumentError(
                "run",
                self.event,
                allowed="it must say what one run costs: a DpEvent, or for a sampler a RunPlan",
                fix="Give the sampler optuna_dp.RunPlan(...), or give an event of "
                "optuna_dp.dp_sgd(...), optuna_dp.gaussian(...), optuna_dp.compose(...) or "
                "dp_accounting.",
            )
        Guarantee(self.event, self.neighboring_relation)  # Refuses what no accountant supports.
        check_relation(self.event, self.neighboring_relation)

    def __repr__(self) -> str:
        # Start-up time: samplers and refusals do without an accountant.
        from optuna_dp.accounting.event_words import in_words

        return f"<{in_words(self.event)}, {self.neighboring_relation}>"


@dataclass(frozen=True)
class RunCost(Entry):
    """What one run costs and what it outputs, as a callback states it.

    Attributes:
        run: What it costs.
        output_attributes: User attributes of a trial that are part of the run's private output.
    """

    described_as: ClassVar[str] = "The entry of the run's event"

    run: StatedRun
    output_attributes: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """What two entries share only if they say the same, word for word."""
        return _digest(self.to_json())


def attribute_names(output_attributes: object) -> tuple[str, ...]:
    """Returns the names of user attributes in one order, each once; refuses what is no name."""
    if (
        isinstance(output_attributes, str)
        or not isinstance(output_attributes, Iterable)
        or not all(isinstance(name, str) for name in output_attributes)
    ):
        raise InvalidArgumentError(
            "output_attributes", output_attributes, allowed="it must be a sequence of names"
        )
    return tuple(sorted(set(output_attributes)))


def write_run_cost(study: Study, entry: RunCost) -> None:
    """Writes an entry; writing the same one again changes nothing."""
    RUN_COSTS.named(entry.digest).write(study, entry.to_json())


def run_costs(attributes: JsonObject) -> list[RunCost]:
    """Returns every entry among the attributes of a study; several if its workers disagree.

    Raises:
        ReleaseRefusedError: If an entry is corrupted.
    """
    entries = dict(sorted(RUN_COSTS.of(attributes).items()))
    if any(digest != _digest(value) for digest, value in entries.items()):
        raise ReleaseRefusedError(
            "The entry of the run's event is corrupted: it is not what was written.",
            fix="Start a new study.",
        )
    try:
        return [_parsed(canonical_json(value)) for value in entries.values()]
    except OptunaDPError as error:
        raise ReleaseRefusedError(str(error), fix="Start a new study.") from error


@lru_cache(maxsize=16)
def _parsed(text: str) -> RunCost:
    """What an entry says. Kept, because the callback reads it after every run."""
    return RunCost.from_json(json.loads(text))


def _digest(data: object) -> str:
    try:
        return hashlib.sha256(canonical_json(data).encode()).hexdigest()
    except (TypeError, ValueError):
        return ""  # Not JSON, or not ours: no entry has this digest.
