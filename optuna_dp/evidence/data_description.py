"""Facts that only people know, for the statement: whose data, how many, protected as what.

None of it can be checked by the software, and the statement says so. It has no part in any number
but one: a person with several records is protected less, and ``most`` says how many.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import ClassVar

from optuna_dp.core import validation
from optuna_dp.core.json_entries import Entry
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, ReleaseRefusedError
from optuna_dp.evidence.facts import Fact, Part, stated
from optuna_dp.evidence.layout import escaped, one_line
from optuna_dp.study.entries import DESCRIPTION

# No sentence can hide in a unit, which stands within one of the statement's own.
_NOUN = re.compile(r"[\w '’-]+")

# Names of facts that other code refers to.
UNIT_ROW = "A record belongs to"
MOST_ROW = "Records of one person"
SAMPLING_ROW = "Sampling as performed"
EARLIER_ROW = "Earlier releases of these records"
OLDER_ROW = "Older studies in the storage"
# The key of their number among what is known of a study's runs. Later studies change no release.
OLDER_STUDIES = "older_studies"


@dataclass(frozen=True, kw_only=True)
class DataDescription(Entry):
    """What the curator vouches for; see :func:`optuna_dp.describe` for the fields.

    Raises:
        InvalidArgumentError: If a field is not allowed.
    """

    dataset: str | None = None
    records: int | None = None
    owner: str | None = None
    date: str | None = None
    unit: str | None = None
    most: int | None = None
    sampling: str | None = None
    trust: str | None = None
    purpose: str | None = None
    earlier_releases: int | None = None
    described_as: ClassVar[str] = "The study's description"

    def __post_init__(self) -> None:
        for name in ("dataset", "owner", "date", "unit", "sampling", "trust", "purpose"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text.strip()):
                raise InvalidArgumentError(name, text, allowed="it must be a text")
        for name, least in (("records", 1), ("most", 1), ("earlier_releases", 0)):
            if getattr(self, name) is not None:
                validation.whole(name, getattr(self, name), least)
        if self.unit is not None and not _NOUN.fullmatch(self.unit):
            raise InvalidArgumentError(
                "unit",
                self.unit,
                allowed="it must be a noun: letters, digits, spaces, hyphens and apostrophes only",
                fix="For example unit='hospital stay'.",
            )
        if self.date is not None:
            try:
                datetime.date.fromisoformat(self.date)
            except ValueError:
                raise InvalidArgumentError(
                    "date", self.date, allowed="it must be a day", fix="For example '2026-03-31'."
                ) from None
        if self.most is not None and self.unit is None:
            raise InvalidArgumentError(
                "most",
                self.most,
                problem="it is the largest number of records of one unit, so it needs the unit",
                fix="For example unit='patient'.",
            )

    def facts(self) -> list[Fact]:
        """Returns what a statement says of the data, in the order of its rows."""
        size = None if self.records is None else f"{self.records:,} records"
        date = None if self.date is None else f"as of {self.date}"
        facts = [
            stated("Data", ", ".join(text for text in (_shown(self.dataset), size, date) if text)),
            stated("Owner of the data", _shown(self.owner)),
            stated("Purpose", _shown(self.purpose)),
            stated(UNIT_ROW, None if self.unit is None else f"one {self.unit}"),
            stated(MOST_ROW, None if self.most is None else f"nobody has more than {self.most:,}"),
            stated(SAMPLING_ROW, _shown(self.sampling), Part.RUNS),
            stated(EARLIER_ROW, _earlier(self.earlier_releases)),
        ]
        if self.trust is not None:
            words = _shown(self.trust)
            facts.append(stated("Trust, in the curator's words", words, Part.PUBLICATION))
        return facts


def _earlier(count: int | None) -> str | None:
    """Returns how often something was released from the records before."""
    if not count:
        return None if count is None else "none"
    return f"{count}, and this epsilon counts none of them"


def _shown(text: str | None) -> str | None:
    """Returns the curator's words as the page shows them."""
    return None if text is None else escaped(one_line(text))


def read_description(attributes: JsonObject) -> DataDescription | None:
    """Returns what :func:`optuna_dp.describe` has stored, or None; refuses a damaged entry.

    ``attributes`` are the system attributes of the study.
    """
    entry = DESCRIPTION.of(attributes)
    if entry is None:
        return None
    try:
        return DataDescription.from_json(entry)
    except OptunaDPError as error:
        raise ReleaseRefusedError(str(error), fix="") from error
