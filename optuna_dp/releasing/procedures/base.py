"""How studies of a procedure are judged: what each of them supplies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from optuna_dp.protocol.plan import Design, StudyPlan
from optuna_dp.protocol.records import score

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.releasing.run_record import RunRecord
    from optuna_dp.releasing.runs import Evidence


class Procedure(ABC):
    """How studies of one kind are judged. Only :meth:`settle` draws or writes anything.

    Attributes:
        runs_are_private: Whether each run is private by itself, so that a score may be released.
        in_the_open: Whether every run's output is paid for, so that nothing about it is secret.
    """

    runs_are_private: bool = True
    in_the_open: bool = False

    @abstractmethod
    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """Returns the guarantee of the whole procedure, a function of public things."""

    def run(self, design: Design, run: Any) -> Any:
        """Returns the event from which the guarantee is made; ``run`` is what the caller gave."""
        return run

    def own_record(self, design: Design) -> RunRecord | None:
        """Returns what runs cost, where the plan says it; None where the caller has to."""
        return None

    def value(self, evidence: Evidence, winner: FrozenTrial | None) -> float | None:
        """Returns the score that is released with the winner, or None."""
        return score(winner) if winner is not None and self.runs_are_private else None

    def distributions(
        self, evidence: Evidence, winner: FrozenTrial | None
    ) -> dict[str, BaseDistribution]:
        """Returns the ranges of the parameters that are released."""
        return {} if winner is None else dict(winner.distributions)

    def each_run(self, design: Design, record: RunRecord, number: int) -> Any:
        """Returns the event of the run in one slot, if it were published."""
        return record.event

    def slots(self, study: Study, plan: StudyPlan) -> int:
        """Returns how many of the plan's slots the study has; fewer if it was to end early."""
        return plan.slots

    def read(self, study: Study, plan: StudyPlan) -> Evidence:
        """Returns the runs of a study in the open; the others are all read in one way."""
        raise NotImplementedError

    def check(self, evidence: Evidence) -> None:
        """Refuses a study that lacks what this procedure needs beyond sound runs."""
        return

    def check_outputs(self, attributes: Any, store: Any) -> None:
        """Refuses outputs of the winner that may not be released; both are what release() got."""
        return

    def settle(self, evidence: Evidence) -> None:
        """Makes and records a private choice that has not been made; once, whoever makes it."""
        return

    @abstractmethod
    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """Returns the trial whose output is released, or None; the study is settled."""

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        """Returns what is released besides the winner, by name."""
        return {}
