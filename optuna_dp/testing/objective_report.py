"""The report of :func:`optuna_dp.check_objective`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from optuna_dp.testing.finding import Finding

NO_EVENT = (
    "no event and no plan was given (event= or plan=, --event or --plan), so what a run spends "
    "was not checked: its noise, steps, batches, clipping, early stops, and the noise of its score"
)


@dataclass(frozen=True)
class ObjectiveReport:
    """What :func:`check_objective` found.

    Attributes:
        findings: What is wrong, or may be, the certain ones first; empty if nothing was found,
            which proves nothing.
        not_checked: What could not be looked at, and why, one sentence each.
        runs: How often the objective was run.
        incomplete: Why the check is not a whole one; empty if it is. It is not whole if neither
            an event nor a plan was given, and if it was interrupted.
    """

    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    runs: int
    incomplete: tuple[str, ...] = ()

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
            strict: Whether a hint counts as well. A hint may be wrong, and its chance has no
                bound.
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
        """How many faults and hints were found, and whether the check is a whole one."""
        faults = sum(finding.certain for finding in self.findings)
        hints = len(self.findings) - faults
        counts = f"{_count(faults, 'fault')} to mend and {_count(hints, 'hint')} to look at"
        result = counts if self.findings else "nothing found, which proves nothing"
        verdict = f"{result}; {_count(self.runs, 'run')} of the objective."
        return "".join(f"incomplete: {reason}. " for reason in self.incomplete) + verdict

    def __str__(self) -> str:
        lines = [f"{'FAULT' if f.certain else 'hint '} {f}" for f in self.findings]
        lines += [f"not checked: {sentence}" for sentence in self.not_checked]
        return "\n".join([self.verdict, *lines])

    def to_json(self) -> str:
        """Returns the report as JSON, for programs."""
        return json.dumps(
            {
                "ok": self.ok,
                "verdict": self.verdict,
                "incomplete": list(self.incomplete),
                "findings": [
                    {"name": f.name, "certain": f.certain, "what": f.what, "change": f.change}
                    for f in self.findings
                ],
                "not_checked": list(self.not_checked),
                "runs": self.runs,
            },
            indent=2,
        )


class CheckInterrupted(KeyboardInterrupt):
    """A check was interrupted, as by Ctrl-C.

    Attributes:
        report: What was found before.
    """

    def __init__(self, report: ObjectiveReport) -> None:
        super().__init__(str(report))
        self.report = report


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'s' * (number != 1)}"
