"""What can go wrong with a vote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna_dp.errors import OptunaDPError

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


class VoteFailedError(OptunaDPError):
    """No sum of votes could be released.

    Attributes:
        reason: Why, in words.
        attempts: How many times clients were asked for their votes: each is spent.
        guarantee: What those attempts cost, a :class:`~optuna_dp.Guarantee`; None if no client
            was asked.
    """

    def __init__(self, reason: str, attempts: int, guarantee: Guarantee | None = None) -> None:
        self.reason = reason
        self.attempts = attempts
        self.guarantee = guarantee
        spent = (
            "No client was asked for its vote, so nothing is spent."
            if attempts == 0
            else f"Votes were asked for {attempts} time(s), which is spent all the same: "
            "VoteFailedError.guarantee says how much; compose it with whatever follows."
        )
        super().__init__(f"The vote failed: {reason} {spent}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.reason, self.attempts, self.guarantee))
