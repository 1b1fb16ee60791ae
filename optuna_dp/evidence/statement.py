"""Base of the texts that statements have about a procedure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optuna_dp.evidence.markdown import escaped
from optuna_dp.evidence.promises import FINAL_TRAINING, Promise
from optuna_dp.evidence.record_counts import RecordCounts
from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee

# Where every training is enforced, the statement knows how records were sampled.
SAMPLING_ENFORCED = (
    "enforced: each record joined each step independently, with the planned chance (Poisson "
    "sampling)"
)
SAMPLING_ROW = "Sampling as performed"
RELATIONS = {
    "add_or_remove_one": "adding or removing one record",
    "replace_one": "replacing one record by another",
}
NOT_COVERED = """\
The guarantee covers only the release. It does not cover the table of trials, their number, how
long they took, logs, and the curator's dashboard."""
TRUST = (
    "one trusted curator, who sees the data and the whole study. Everybody else may see the "
    "release and nothing else"
)


class Description(ABC):
    """What a statement says of a procedure. It is made of public things only.

    Attributes:
        checked: What the software made sure of, and refuses to release otherwise.
        trust: Who sees what.
        relations: The neighbouring relations in the procedure's words.
        score_is_told: Whether there is a score in every release, if only None for no result.
        not_covered: What the guarantee does not cover, a paragraph.
    """

    checked: tuple[str, ...]
    trust: str = TRUST
    relations: Mapping[str, str] = RELATIONS
    score_is_told: bool = True
    not_covered: str = NOT_COVERED

    @abstractmethod
    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """Returns what the statement says of the procedure, by heading."""

    @abstractmethod
    def promises(self, design: Design, content: Mapping[str, Any]) -> tuple[Promise, ...]:
        """Returns what the guarantee depends on besides the software.

        Args:
            design: The design of the study.
            content: What is released, with what is known of the runs ("spending").
        """

    def all_promises(
        self, design: Design, content: Mapping[str, Any], *, trained: bool
    ) -> tuple[Promise, ...]:
        """Returns the promises, and that of a final training where one is composed on top."""
        return self.promises(design, content) + ((FINAL_TRAINING,) if trained else ())

    def record_counts(self, design: Design, spending: Mapping[str, Any]) -> RecordCounts:
        """Returns how many records are protected, as far as the plan and the runs say it.

        Args:
            design: The design of the study.
            spending: What is known of the runs; empty before they have ended.
        """
        return RecordCounts()

    def contradiction(self, design: Design, content: Mapping[str, Any]) -> str:
        """Returns where a release says what no study of this design can be; empty if nowhere.

        Args:
            design: The design of the study.
            content: What is released, with what is known of the runs ("spending").
        """
        return ""

    def facts_of_release(self, design: Design, content: Mapping[str, Any]) -> dict[str, str]:
        """Returns what it says of what happened, from what is released, by heading."""
        return {}


def sampling_row(content: Mapping[str, Any], is_enforced: bool) -> dict[str, str]:
    """Returns the row on how records were sampled, where the software drew every batch.

    Args:
        content: What is released, with what the curator said of the sampling.
        is_enforced: Whether the software drew the batches of every run.
    """
    if not is_enforced:
        return {}
    own_words = content.get("description", {}).get("sampling")
    remark = f". In the curator's words: {escaped(own_words)}" if own_words else ""
    return {SAMPLING_ROW: SAMPLING_ENFORCED + remark}
