"""A private choice among candidates whose trainings were not private."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.evidence.drawn_runs import DrawnRuns
from optuna_dp.evidence.stated_run import RunCost, StatedRun
from optuna_dp.samplers.choice.choice import drawn_choice, recorded_choices
from optuna_dp.samplers.choice.settings import UtilitySettings
from optuna_dp.study.trials import score

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from optuna_dp.evidence.ended_runs import Evidence
    from optuna_dp.evidence.procedure import ReleaseRequest


class UtilityChoice(DrawnRuns):
    """A choice among candidates; docs/explanation/propose-test.md has the proof."""

    runs_are_private = False

    @functools.cached_property
    def settings(self) -> UtilitySettings:
        """What the study's plan records."""
        return UtilitySettings.from_json(self.design.settings)

    def own_cost(self) -> RunCost:
        """See :class:`Procedure`; of the whole choice."""
        settings = self.settings
        return RunCost(StatedRun(settings.plan.event(), settings.neighboring_relation))

    def guarantee(self) -> Guarantee:
        """See :class:`Procedure`."""
        return Guarantee(self.settings.plan.event(), self.settings.neighboring_relation)

    def check_outputs(self, store: object) -> None:
        """See :class:`Procedure`."""
        if store is not None:
            raise InvalidArgumentError(
                "artifact_store",
                store,
                problem="the candidates' trainings are not private, so nothing of them may be "
                "released",
                fix="Leave it out. Give the final model to release(study).with_training.",
            )

    def check_request(self, request: ReleaseRequest) -> None:
        """See :class:`Procedure`; nobody vouches for a candidate."""
        super().check_request(request)
        self.refuse_needless(request, "vouched", "give_up_last_run")

    def new_choice(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`."""
        trials = evidence.snapshot.trials
        if recorded_choices(trials, evidence.plan):
            return None
        return drawn_choice(trials, evidence.plan)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        # Of two workers that chose, both take the choice recorded first.
        choice = recorded_choices(evidence.snapshot.trials, evidence.plan)[0]
        if choice.chosen is None:
            return None
        winners = [run.trial for run in evidence.runs if run.trial.number == choice.chosen]
        if not winners or score(winners[0]) is None:
            raise ReleaseRefusedError(
                "The entry of the private choice is corrupted: it names no candidate."
            )
        return winners[0]
