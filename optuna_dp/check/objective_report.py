"""The report of :func:`optuna_dp.check_objective`, and what it is made of."""

from __future__ import annotations

import json
from dataclasses import dataclass

UNSEEN = (
    "Not seen: how a training of your own clips, samples and adds noise, and what was done to the "
    "records before the objective. See docs/how-to/audit.md."
)
AS_GIVEN_NOTE = "The records are as given, without a schema; the statement will say so."


@dataclass(frozen=True)
class Finding:
    """Something that an objective does and should not.

    Attributes:
        name: Of the kind of fault, two or three words.
        what: What was seen.
        change: What to write instead.
        certain: Whether it has to be changed; otherwise it is a hint to look at.
        about: What it is about, where there may be several of a kind.
    """

    name: str
    what: str
    change: str
    certain: bool = True
    about: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.what}\n      Instead: {self.change}"


@dataclass(frozen=True)
class ObjectiveReport:
    """What :func:`check_objective` found.

    Attributes:
        findings: What is wrong, or may be, the certain ones first; empty if nothing was found,
            which proves nothing.
        runs: How often the objective was run.
        note: What a statement will say and nobody has to change; empty if nothing.
    """

    findings: tuple[Finding, ...]
    runs: int
    note: str = ""

    def __post_init__(self) -> None:
        in_order = sorted(self.findings, key=lambda finding: not finding.certain)
        object.__setattr__(self, "findings", tuple(in_order))

    @property
    def ok(self) -> bool:
        """Returns whether nothing was found that has to be changed; hints do not count."""
        return not self.fails()

    def fails(self, *, strict: bool = False) -> bool:
        """Returns whether something was found that has to be changed.

        Args:
            strict: Whether a hint counts as well. A hint may be wrong.
        """
        return any(finding.certain or strict for finding in self.findings)

    def check(self, *, strict: bool = False) -> None:
        """Raises ``AssertionError`` with the report if something has to be changed.

        Args:
            strict: Whether a hint counts as well.
        """
        if self.fails(strict=strict):
            raise AssertionError(str(self))

    @property
    def verdict(self) -> str:
        """How many faults and hints were found."""
        faults = sum(finding.certain for finding in self.findings)
        hints = len(self.findings) - faults
        counts = [_count(faults, "fault")] * (faults > 0) + [_count(hints, "hint")] * (hints > 0)
        result = " and ".join(counts) or "Nothing found"
        return f"{result} in {_count(self.runs, 'run')} of the objective and in its source."

    def __str__(self) -> str:
        notes = [self.note] if self.note else []
        if not self.findings:
            return "\n".join([self.verdict, *notes, UNSEEN])
        lines = [f"{'FAULT' if f.certain else 'hint '} {f}" for f in self.findings]
        return "\n".join([*lines, self.verdict, *notes])

    def to_json(self) -> str:
        """Returns the report as JSON, for programs."""
        return json.dumps(
            {
                "ok": self.ok,
                "verdict": self.verdict,
                "findings": [
                    {"name": f.name, "certain": f.certain, "what": f.what, "change": f.change}
                    for f in self.findings
                ],
                "runs": self.runs,
                "note": self.note,
            },
            indent=2,
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
