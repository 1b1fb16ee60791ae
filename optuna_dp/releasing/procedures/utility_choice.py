"""A private choice among candidates whose trainings were not private."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.protocol.plan import Design, Plan
from optuna_dp.protocol.records import score
from optuna_dp.releasing.procedures.base import Procedure
from optuna_dp.samplers.utility_choice import end_of, final_choice, settle
from optuna_dp.samplers.utility_settings import UtilitySettings

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

    from optuna_dp.releasing.run_record import RunRecord
    from optuna_dp.releasing.runs import Evidence


class UtilityChoice(Procedure):
    """See the module's docstring; docs/explanation/propose-test.md has the proof."""

    runs_are_private = False
    checked: tuple[str, ...] = (
        "Every candidate that was planned has a utility in [0, 1] from every partition, and was "
        "drawn by the study's sampler.",
        "The choice was made once, by randomness of the operating system that was not seeded, and "
        "is what is released.",
        "Nothing else was released from this plan in this storage.",
    )
    assumptions: tuple[str, ...] = (
        "Every training record lies in one partition, placed independently of all other records "
        "(optuna_dp.partition does so), and the utility of a partition is computed from that "
        "partition's training records alone.",
        "If replacing a record is what is protected against: the placement is secret, or follows "
        "an identifier that the replacement keeps.",
        "No person is in training and validation data at once. Validation records are protected "
        "too if there are at least as many as optuna_dp.propose_test.validation_records_needed(k) "
        "says and the score is a mean over them of numbers in [0, 1].",
        "The candidates, the number of partitions and the settings of the choice were fixed "
        "without looking at the data; which parameters the objective asks for depends on the "
        "candidate only.",
        "The trainings on different partitions share no randomness that depends on the data; a "
        "training that fails is the worst score of its partition.",
        "The result was released whatever it was; no other choice from the same data was "
        "discarded in its favour, and no copy of this one was continued or released elsewhere "
        "(several releases compose).",
        "Nothing else of the search leaves the curator: no utility, model, table, timings, logs "
        "or dashboard.",
    )

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """See :class:`Procedure`."""
        return Guarantee(self.run(design, None), record.neighboring_relation)

    def run(self, design: Design, run: Any) -> Any:
        """See :class:`Procedure`; the event follows from the plan."""
        if run is not None:
            raise InvalidArgumentError(
                "run",
                run,
                f"the trainings of a {design.sampler} study are not private and only the choice "
                "costs, which the study knows",
                "Leave it out; compose the final training by release(study).with_training(event).",
            )
        return UtilitySettings.from_json(design.settings).plan.event()

    def settle(self, evidence: Evidence) -> None:
        """See :class:`Procedure`."""
        stages = UtilitySettings.from_json(evidence.plan.design.settings).stages
        settle(evidence.study, evidence.plan, stages - 1)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`."""
        choice = final_choice(evidence.study, evidence.plan)
        if choice is None:
            raise ReleaseRefusedError("Its private choice has not been made.")
        if choice.chosen is None:
            return None
        found = [run.trial for run in evidence.runs if run.trial.number == choice.chosen]
        if not found or score(found[0]) is None:
            raise ReleaseRefusedError(
                "The record of the private choice is corrupted: it names no candidate."
            )
        return found[0]

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """See :class:`Description`."""
        return UtilitySettings.from_json(design.settings).facts(design.sampler)


class ProposeTest(UtilityChoice):
    """A choice in stages, whose private answers may end the study before its last slot."""

    def slots(self, study: Study, plan: Plan) -> int:
        """See :class:`Procedure`."""
        return end_of(study, plan)
