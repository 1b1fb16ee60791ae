"""Base of the procedures, which check studies and compute their guarantees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.ended_runs import Evidence
from optuna_dp.evidence.run_checks import check_at_once
from optuna_dp.preparation.range_query import RangeQuery
from optuna_dp.runs.judgement import RunJudgement, has_output, judgement_of
from optuna_dp.study.plan import Design, StudyPlan
from optuna_dp.study.snapshot import StudySnapshot
from optuna_dp.study.trials import SlotEntry, ended

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.core.optuna_internals import ArtifactStore
    from optuna_dp.evidence.stated_run import RunCost
    from optuna_dp.runs.run import Run


@dataclass(frozen=True)
class ReleaseRequest:
    """What the curator asked of a release, as :func:`optuna_dp.release` describes it."""

    failures: str | None = None
    vouched: str | None = None
    give_up_last_run: bool = False


@dataclass(frozen=True)
class Outcome:
    """What is released of a study, and under which design.

    Attributes:
        trial: The trial whose output is released, or None.
        value: The score that is released with it, or None.
        distributions: The ranges of the parameters that are released.
        design: The design whose guarantee holds.
        attributes: What is released besides, by name.
        disclosed_runs: How many runs could be chosen, where that is revealed.
        spending: What is known of what runs spent, as JSON.
    """

    trial: FrozenTrial | None
    value: float | None
    distributions: dict[str, BaseDistribution]
    design: Design
    attributes: dict[str, JsonValue] = field(default_factory=dict)
    disclosed_runs: int | None = None
    spending: dict[str, JsonValue] = field(default_factory=dict)


class Procedure(ABC):
    """How studies of one design are checked: functions of what was read. It writes nothing.

    Nothing is drawn but by :meth:`new_choice`.

    Args:
        design: The design in the study's plan.

    Attributes:
        runs_are_private: Whether each run is private by itself, so that a score may be released.
        releases_all_runs: Whether every run's output is charged for, so that nothing is secret.
    """

    runs_are_private: bool = True
    releases_all_runs: bool = False

    def __init__(self, design: Design) -> None:
        self.design = design

    # What it costs.

    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Returns the guarantee of the whole procedure, a function of its design."""

    @property
    def knows_cost(self) -> bool:
        """Whether the design says what a run costs, so that nobody else has to."""
        return True

    @abstractmethod
    def own_cost(self) -> RunCost:
        """Returns what the design charges for, as one event; only if it :attr:`knows_cost`."""

    def told(self, cost: RunCost) -> Procedure:
        """Returns this procedure, with a run's cost where its design leaves it open."""
        return self

    @property
    def output_attributes(self) -> tuple[str, ...]:
        """User attributes of a trial that are part of what is charged for."""
        return ()

    @property
    def delta(self) -> float:
        """The delta at which epsilon is shown, unless somebody asks for another."""
        return 1e-5

    @property
    def ranges(self) -> RangeQuery | None:
        """How ranges of columns are drawn with noise; None if the plan does not pay for it."""
        return None

    def run_of(self, number: int) -> Run | None:
        """Returns what the run of a trial may spend; None if the plan does not say it."""
        return None

    def name_of(self, number: int) -> str:
        """Returns what a run is in the words of its plan; empty if their number is secret."""
        return ""

    # What its studies have to show.

    def slots(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> int:
        """Returns how many of the plan's slots the study has; fewer if it was to end early.

        ``trials`` are all of the study's, by number.
        """
        return plan.slots

    def check_plan(self, snapshot: StudySnapshot) -> None:
        """Refuses a study for its plan, before its runs are looked at."""
        return

    def runs_among(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> list[FrozenTrial]:
        """Returns the trials that are runs of the study, by number; no release depends on others.

        ``plan`` has as many slots as the study.
        """
        return [trial for trial in trials if trial.number < plan.slots]

    def check_origin(self, runs: Sequence[FrozenTrial]) -> None:
        """Refuses runs whose hyperparameters came from where this procedure does not allow."""
        return

    def check_run(self, trial: FrozenTrial, entry: SlotEntry | None) -> None:
        """Refuses a study for what one run shows, beyond what every run has to show."""
        return

    def check_beside(self, trial: FrozenTrial, runs: Sequence[FrozenTrial]) -> None:
        """Refuses, as soon as a run has ended, what :meth:`check_together` would refuse later."""
        return

    def check_together(self, runs: Sequence[FrozenTrial]) -> None:
        """Refuses a study for what its runs show together."""
        return

    def judgement(self, trial: FrozenTrial) -> RunJudgement | None:
        """Returns what is known of a run that has ended.

        None if it shows nothing, or the plan does not say what runs may spend.
        """
        run = self.run_of(trial.number)
        if run is None or not has_output(trial):
            return None
        return judgement_of(trial, run, self.output_attributes)

    def check_spending(self, trial: FrozenTrial) -> None:
        """Refuses, as soon as a run has ended, what the release would refuse of it later."""
        judgement = self.judgement(trial)
        if judgement is not None:
            check_at_once(trial, judgement)

    def unfinished(self, trials: Sequence[FrozenTrial], plan: StudyPlan) -> str:
        """Returns what is still to end, in words that keep secrets; empty if the study is over."""
        runs = self.runs_among(trials, plan)
        if len(runs) < plan.slots or not all(map(ended, runs)):
            return "Some of its runs have not ended."  # How many is a way to learn T.
        return ""

    def warning(self, runs: Sequence[FrozenTrial]) -> str:
        """Returns what the curator should know of the runs so far; empty if there is nothing."""
        return ""

    def check_outputs(self, store: ArtifactStore | None) -> None:
        """Refuses an artifact of the winner that may not be released; ``store`` is release's."""
        return

    # What is released.

    def new_choice(self, evidence: Evidence) -> FrozenTrial | None:
        """Draws a private choice that the study has not made yet; None if there is none to make.

        Whoever calls it adds the trial that it returns to the study, reads the study again, and
        takes what is recorded then: another worker may have been first. So a choice is made once,
        whoever dies meanwhile.
        """
        return None

    @abstractmethod
    def outcome(self, evidence: Evidence, request: ReleaseRequest) -> Outcome:
        """Returns what is released; refuses what nothing and nobody vouches for.

        Args:
            evidence: The study. A choice that it needs has been made (:meth:`new_choice`).
            request: What the curator asked for; it was checked (:meth:`check_request`).
        """

    def check_request(self, request: ReleaseRequest) -> None:
        """Refuses what a curator cannot ask of such a study, before anything is drawn.

        The base refuses to reveal the number of runs, where it is no secret.
        """
        if request.failures == "lost":
            raise InvalidArgumentError(
                "failures",
                request.failures,
                problem=f"the number of runs of {self.design.sampler} is not secret, so none is "
                "revealed",
                fix="Leave it out.",
            )
