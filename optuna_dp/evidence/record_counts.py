"""The numbers of protected records that a plan and its runs name: those trained on, and others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecordCounts:
    """Public numbers of protected records.

    Attributes:
        trained: How many the plan trains on; None if it names no number.
        scored: How many private records that are never trained on are scored; None if there are
            none, or nothing says how many.
        are_disjoint: Whether scores are computed on private records that are never trained on.
            These are protected, too.
    """

    trained: int | None = None
    scored: int | None = None
    are_disjoint: bool = False

    @property
    def protected(self) -> int | None:
        """How many records are protected; None if that is not known."""
        if not self.are_disjoint:
            return self.trained
        if None in (self.trained, self.scored):
            return None
        return (self.trained or 0) + (self.scored or 0)

    @property
    def row(self) -> str:
        """What the statement says, in the row "Planned for"; empty if no number is named."""
        if self.trained is None:
            return ""
        delta = ""
        if self.protected is not None:
            delta = (
                f"; delta should be far below 1 / {self.protected:,} = {1 / self.protected:.2g}"
            )
        if not self.are_disjoint:
            return f"{self.trained:,} records, which is said to be a public number{delta}"
        if self.scored is None:
            return (
                f"{self.trained:,} records to train on, said to be a public number, and others to "
                "score, which are protected too; how many is not recorded"
            )
        return (
            f"{self.trained:,} records to train on + {self.scored:,} others to score = "
            f"{self.protected:,} protected records, said to be public numbers{delta}"
        )

    def contradiction(self, stated: int | None) -> str:
        """Returns why a stated number of records cannot be right; empty if it can."""
        if stated is None or self.trained is None:
            return ""
        if self.protected is not None:
            if stated == self.protected:
                return ""
            if self.are_disjoint:
                return (
                    f"{self.trained:,} records are trained on and {self.scored:,} others are "
                    f"scored, so {self.protected:,} records are protected"
                )
            return f"the study's plan was made for {self.trained:,} records"
        if stated > self.trained:
            return ""
        return (
            f"the study's plan trains on {self.trained:,} records and scores others, which are "
            "protected too"
        )
