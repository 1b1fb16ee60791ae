"""The cost of one run, as the study records it.

The event is stored, not an epsilon, so that a better accountant can compute its cost later. Each
record stands under a key made of its own digest: workers that agree write the same key, workers
that do not leave two records, and the release sees both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from optuna_dp.errors import InvalidArgumentError, OptunaDPError, ReleaseRefusedError
from optuna_dp.json_records import Record, stored
from optuna_dp.protocol.entries import RUN_COSTS
from optuna_dp.protocol.plan import canonical_json
from optuna_dp.validation import open_unit

if TYPE_CHECKING:
    from optuna.study import Study

ONE_COST = (
    "Give every worker the same PrivacyCallback. If the cost of runs differs on purpose, state "
    "optuna_dp.worst_case(...) of all costs."
)


def _written(event: Any) -> Any:
    # Start-up time: samplers and refusals do without an accountant.
    from optuna_dp.accounting.event_json import event_to_json

    return event_to_json(event)


def _read(data: Any) -> Any:
    # Start-up time: samplers and refusals do without an accountant.
    from optuna_dp.accounting.event_json import event_from_json

    return event_from_json(data)


# Metadata of a dataclass field that holds an event.
STORED_EVENT = stored(write=_written, read=_read)


@dataclass(frozen=True)
class RunRecord(Record):
    """What one run costs and what it outputs.

    Attributes:
        event: The event of one whole run, scoring included.
        delta: The delta at which epsilon is shown.
        neighboring_relation: The relation under which the whole tree of events is read.
        output_attributes: User attributes of a trial that are part of the run's private output.
    """

    described_as: ClassVar[str] = "The record of the run's event"

    event: Any = field(metadata=STORED_EVENT)
    delta: float = 1e-5
    neighboring_relation: str = "add_or_remove_one"
    output_attributes: tuple[str, ...] = ()

    @classmethod
    def checked(
        cls,
        event: Any,
        delta: float,
        neighboring_relation: str,
        output_attributes: Sequence[str],
    ) -> RunRecord:
        """Returns a record whose event some accountant supports; refuses anything else."""
        # Start-up time: samplers and refusals do without an accountant.
        from dp_accounting.dp_event import DpEvent

        from optuna_dp.accounting.guarantee import Guarantee
        from optuna_dp.accounting.units import check_relation

        if not isinstance(event, DpEvent):
            raise InvalidArgumentError(
                "run",
                event,
                "it must be a DpEvent, the cost of one run",
                "Make one with optuna_dp.dp_sgd(...), optuna_dp.gaussian(...), "
                "optuna_dp.compose(...) or dp_accounting.",
            )
        if (
            isinstance(output_attributes, str)
            or not isinstance(output_attributes, Iterable)
            or not all(isinstance(name, str) for name in output_attributes)
        ):
            raise InvalidArgumentError(
                "output_attributes", output_attributes, "it must be a sequence of names"
            )
        Guarantee(event, neighboring_relation)  # Refuses what no accountant supports.
        check_relation(event, neighboring_relation)
        return cls(
            # As it will be read again: a composition of a tuple is one of a list by then.
            _read(_written(event)),
            open_unit("delta", delta),
            neighboring_relation,
            tuple(sorted(set(output_attributes))),
        )

    def same_cost(self, record: RunRecord) -> bool:
        """Returns whether two records say the same of what a run costs.

        The delta is for display, and attributes that are named as output are part of what the
        event charges for. Two ways to write down the same applications, such as an event and a
        composition of it alone, cost the same.
        """
        if self.neighboring_relation != record.neighboring_relation:
            return False
        return bool(self.event == record.event) or self._applications() == record._applications()

    def says_the_same(self, record: RunRecord) -> bool:
        """Returns whether two records differ in the delta at most."""
        return self.same_cost(record) and self.output_attributes == record.output_attributes

    def _applications(self) -> dict[str, int]:
        """How often the run applies what, whatever the composition that says so."""
        # Start-up time: workers that agree word for word do without an accountant.
        from optuna_dp.accounting.run_profile import counted

        parts = counted(self.event, self.neighboring_relation)
        return {key: part.times for key, part in parts.items()}

    @classmethod
    def from_json(cls, data: Any) -> RunRecord:
        """Reads what :meth:`to_json` wrote; raises :class:`OptunaDPError` on anything else."""
        record = super().from_json(data)
        return cls.checked(
            record.event,
            record.delta,
            record.neighboring_relation,
            record.output_attributes,
        )


def write_run_record(study: Study, record: RunRecord) -> None:
    """Writes a record; writing the same one again changes nothing."""
    data = record.to_json()
    RUN_COSTS.named(_digest(data)).write(study, data)


def run_records(attrs: Mapping[str, Any]) -> list[RunRecord]:
    """Returns every record among the attributes of a study; several if its workers disagree.

    Raises:
        ReleaseRefusedError: If a record is corrupted.
    """
    records = dict(sorted(RUN_COSTS.of(attrs).items()))
    if any(digest != _digest(value) for digest, value in records.items()):
        raise ReleaseRefusedError(
            "The record of the run's event is corrupted: it is not what was written.",
            fix="Start a new study.",
        )
    try:
        return [_parsed(canonical_json(value)) for value in records.values()]
    except OptunaDPError as error:
        raise ReleaseRefusedError(str(error), fix="Start a new study.") from error


@lru_cache(maxsize=16)
def _parsed(text: str) -> RunRecord:
    """What a record says. Kept, because the callback reads it after every run."""
    return RunRecord.from_json(json.loads(text))


def read_run_record(attributes: Mapping[str, Any]) -> RunRecord | None:
    """Returns the record among the system attributes of a study, None if there is none.

    Raises:
        ReleaseRefusedError: If workers have recorded different ones, or a record is corrupted.
    """
    records = run_records(attributes)
    different = next((record for record in records if not record.same_cost(records[0])), None)
    if different is not None:
        # Lazy: only the words of a refusal need it.
        from optuna_dp.accounting.event_words import differences_of_runs

        raise ReleaseRefusedError(
            f"Its workers recorded different costs of a run: "
            f"{differences_of_runs(records[0], different)}.",
            fix=f"Start a new study. {ONE_COST}",
        )
    if not records:
        return None
    # What one worker names as output, all runs may have as output: the event charges for it.
    outputs = {name for record in records for name in record.output_attributes}
    return replace(records[0], output_attributes=tuple(sorted(outputs)))


def _digest(data: Any) -> str:
    try:
        return hashlib.sha256(canonical_json(data).encode()).hexdigest()
    except (TypeError, ValueError):
        return ""  # Not JSON, or not ours: no record has this digest.
