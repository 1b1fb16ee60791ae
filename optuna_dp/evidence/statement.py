"""What statements say of a procedure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

RELATIONS = {
    "add_or_remove_one": "adding or removing one record",
    "replace_one": "replacing one record by another",
}
NOT_COVERED = """\
It does not cover anything but the release: not the table of trials, not how many there were, not
how long they took, not logs, and not the curator's dashboard."""
TRUST = (
    "one trusted curator: whoever runs the search sees the data and the whole study; those who "
    "get the release, and they may be anybody, see nothing else"
)


class Description(ABC):
    """What a statement says of a procedure. It is made of public things only.

    Attributes:
        assumptions: What the guarantee rests on besides the software.
        checked: What the software made sure of, and refuses to release otherwise.
        trust: Who sees what.
        relations: The neighbouring relations in the procedure's words.
        score_is_told: Whether there is a score in every release, if only None for no result.
        not_covered: What the guarantee does not cover, a paragraph.
    """

    assumptions: tuple[str, ...]
    checked: tuple[str, ...]
    trust: str = TRUST
    relations: Mapping[str, str] = RELATIONS
    score_is_told: bool = True
    not_covered: str = NOT_COVERED

    @abstractmethod
    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """Returns what the statement says of the procedure, by heading."""

    def facts_of_spending(self, design: Design, spending: Mapping[str, Any]) -> dict[str, str]:
        """Returns what it says of what runs spent (:meth:`Procedure.spending`), by heading."""
        return {}
