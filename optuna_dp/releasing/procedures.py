"""What each private procedure promises: its guarantee, its winner, its own words.

A procedure is named in the plan of a study. Adding a sampler that selects in a new way means
adding its procedure here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import InvalidArgumentError, ReleaseRefusedError
from optuna_dp.protocol.plan import Design
from optuna_dp.protocol.records import score
from optuna_dp.releasing.evidence import Evidence
from optuna_dp.releasing.statement import RELATIONS
from optuna_dp.releasing.winner import choose

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.releasing.run_record import RunRecord

_COMMON_ASSUMPTIONS = (
    "Each run is an algorithm with the stated privacy event, its score included, whatever "
    "hyperparameters it is given.",
    "The search space, the prior, the law of the number of runs and the event were fixed without "
    "looking at the data.",
    "A run depends on the data, its own hyperparameters and fresh randomness only: not on other "
    "runs, shared checkpoints or shared random seeds.",
    "Whether a run fails or is pruned is part of its private output.",
    "The result was released whatever it was; no other search on the same data was discarded in "
    "its favour (several releases compose).",
    "Nothing else of the search leaves the curator: no trial table, number of runs, timings, logs "
    "or dashboard.",
)


# The law of the number of runs is that of the runs that had a chance to succeed. If all fail from
# some run on, that is the law of min(T, s), which may cost more: see check_same_design.
_SELECTION_ASSUMPTIONS = (
    "A surrogate or prior of the user's own is a function of what it is given, and of nothing "
    "else: not of the data, durations or the order in which runs ended.",
    "No run was started and then told to have failed for any reason but that its worker died, and "
    "workers died by chance, in one run as likely as in another: not in every run from some run "
    "on.",
)


class Procedure(ABC):
    """How studies of one kind are judged and described."""

    assumptions: tuple[str, ...] = _COMMON_ASSUMPTIONS
    relations: Mapping[str, str] = RELATIONS
    runs_are_private: bool = True

    @abstractmethod
    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """Returns the guarantee of the whole procedure."""

    def run(self, design: Design, run: Any) -> Any:
        """Returns the event from which the guarantee is made; ``run`` is what the caller gave."""
        return run

    @abstractmethod
    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """Returns the trial whose output is released, or None."""

    @abstractmethod
    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """Returns what the statement says of the procedure, by heading."""

    def check(self, evidence: Evidence) -> None:
        """Refuses a study that lacks what this procedure needs beyond sound runs."""
        return

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        """Returns what is released besides the winner, by name."""
        return {}

    def each_run(self, design: Design, record: RunRecord, number: int) -> Any:
        """Returns the event of the run in one slot, if it were published."""
        return record.event


class PrivateSelection(Procedure):
    """The best of a random number of runs, drawn within bounds of a prior (DP-HyPO, RandTune)."""

    assumptions: tuple[str, ...] = (
        *_COMMON_ASSUMPTIONS,
        *_SELECTION_ASSUMPTIONS,
    )

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """See :class:`Procedure`."""
        from optuna_dp.accounting.guarantee import selection_guarantee
        from optuna_dp.samplers.selection import SelectionSettings

        settings = SelectionSettings.from_json(design.settings)
        return selection_guarantee(
            record.event,
            settings.trials,
            density_bounds=settings.density_bounds,
            policy=settings.policy,
            neighboring_relation=record.neighboring_relation,
        )

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`."""
        return choose(evidence.runs, maximize=evidence.plan.design.direction == "maximize")

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """See :class:`Procedure`."""
        from optuna_dp.accounting.event_words import in_words
        from optuna_dp.samplers.selection import SelectionSettings

        return {
            **SelectionSettings.from_json(design.settings).facts(design.sampler),
            "One run": in_words(guarantee.event.run),
        }


class PilotsThenSelection(PrivateSelection):
    """Pilots, published as far as the accounting goes, and a selection from a frozen prior."""

    assumptions: tuple[str, ...] = (
        "Each pilot is an algorithm with the stated event of a pilot, and each selection run one "
        "with the stated event of a run, their scores included, whatever hyperparameters they are "
        "given.",
        "The search space, the number of pilots, the law of the number of selection runs and both "
        "events were fixed without looking at the data, and before the first pilot.",
        "The proposer of the pilots uses nothing about the data but what it is given: the "
        "private outputs of earlier pilots.",
        *_COMMON_ASSUMPTIONS[2:],
        *_SELECTION_ASSUMPTIONS,
    )

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """See :class:`Procedure`; docs/explanation/pilots.md."""
        from optuna_dp.accounting.guarantee import pilots_guarantee
        from optuna_dp.samplers.pilot_settings import PilotSettings

        settings = PilotSettings.from_json(design.settings)
        return pilots_guarantee(
            settings.event,
            settings.pilots,
            record.event,
            settings.selection.trials,
            density_bounds=settings.selection.density_bounds,
            policy=settings.selection.policy,
            neighboring_relation=record.neighboring_relation,
        )

    def check(self, evidence: Evidence) -> None:
        """See :class:`Procedure`."""
        from optuna_dp.releasing.pilot_evidence import check_pilots

        check_pilots(evidence)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`; a pilot is never the winner."""
        design = evidence.plan.design
        selection = evidence.runs[design.settings["pilots"] :]
        return choose(selection, maximize=design.direction == "maximize")

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        """See :class:`Procedure`."""
        settings = evidence.plan.design.settings
        if not settings["release_pilots"]:
            return {}
        pilots = [run.trial for run in evidence.runs[: settings["pilots"]]]
        return {"pilots": [{"params": dict(t.params), "value": score(t)} for t in pilots]}

    def each_run(self, design: Design, record: RunRecord, number: int) -> Any:
        """See :class:`Procedure`."""
        from optuna_dp.samplers.pilot_settings import PilotSettings

        settings = PilotSettings.from_json(design.settings)
        return settings.event if number < settings.pilots else record.event

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """See :class:`Procedure`."""
        from optuna_dp.accounting.event_words import in_words
        from optuna_dp.samplers.pilot_settings import PilotSettings

        settings = PilotSettings.from_json(design.settings)
        return {
            **settings.facts(design.sampler),
            "One pilot": in_words(settings.event),
            "One run": in_words(guarantee.event.events[-1].run),
        }


class UtilityChoice(Procedure):
    """A private choice among candidates whose trainings were not private."""

    runs_are_private = False
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
        "discarded in its favour (several releases compose).",
        "Nothing else of the search leaves the curator: no utility, model, table, timings, logs "
        "or dashboard.",
    )

    def run(self, design: Design, run: Any) -> Any:
        """See :class:`Procedure`; the event follows from the plan."""
        from optuna_dp.samplers.utility_settings import UtilitySettings

        if run is not None:
            raise InvalidArgumentError(
                "run",
                run,
                f"the trainings of a {design.sampler} study are not private and only the choice "
                "costs, which the study knows",
                "Leave it out; compose the final training by release(study).with_training(event).",
            )
        return UtilitySettings.from_json(design.settings).plan.event()

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """See :class:`Procedure`; docs/explanation/propose-test.md."""
        from optuna_dp.accounting.guarantee import Guarantee

        return Guarantee(self.run(design, None), record.neighboring_relation)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`; the choice is made now if it has not been made."""
        from optuna_dp.samplers.utility_choice import final_choice, settle
        from optuna_dp.samplers.utility_settings import UtilitySettings

        study, plan = evidence.study, evidence.plan
        stages = UtilitySettings.from_json(plan.design.settings).stages
        choice = final_choice(study, plan) or settle(study, plan, stages - 1)
        if choice.chosen is None:
            return None
        found = [run.trial for run in evidence.runs if run.trial.number == choice.chosen]
        if not found or score(found[0]) is None:
            raise ReleaseRefusedError(
                "The record of the private choice is corrupted: it names no candidate."
            )
        return found[0]

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """See :class:`Procedure`."""
        from optuna_dp.samplers.utility_settings import UtilitySettings

        return UtilitySettings.from_json(design.settings).facts(design.sampler)


class Vote(Procedure):
    """The noisy sum of clients' votes and its largest entry (DP-HYPE). There is no study."""

    relations: Mapping[str, str] = {
        "replace_one": "replacing all data of one client by any other data",
        "null_client": "taking all data of one client away, while the client takes part with its "
        "share of the noise alone",
    }
    assumptions: tuple[str, ...] = (
        "Each client's data are its own: no person's records are held by several clients, or they "
        "are protected less.",
        "The candidates, the number of votes and the noise were fixed before looking at data.",
        "At most the stated number of clients told others their share of the noise, and every "
        "other client added its share as the protocol says.",
        "Whether a client takes part, drops out, and how long it takes, does not depend on its "
        "data.",
        "Under secure aggregation the server follows the protocol and runs it once for each "
        "attempt that is counted here; without it, the server is trusted with every noisy vote.",
        "Whatever is trained afterwards with the chosen hyperparameters is not covered; its "
        "guarantee composes with this one.",
    )

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """See :class:`Procedure`; a vote says itself what it cost."""
        raise ReleaseRefusedError("A vote is released by FederatedVote.start, not from a study.")

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`."""
        raise ReleaseRefusedError("A vote is released by FederatedVote.start, not from a study.")

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """See :class:`Procedure`."""
        from optuna_dp.accounting.event_words import in_words
        from optuna_dp.voting.plan import VotePlan

        plan = VotePlan.from_json(design.settings["plan"])
        attempts = design.settings["attempts"]
        protected = self.relations[plan.adjacency]
        secure = design.settings["sum"] != "plain"
        return {
            "What is protected": "each client as a whole: the output hardly depends on "
            f"{protected}",
            "Search": f"{design.sampler}: each client votes for its {plan.votes} best of "
            f"{plan.candidates} candidates; the sum of votes is released, and its largest entry",
            "Clients": f"{plan.clients} asked; the guarantee holds with {plan.max_dropout} lost "
            f"and {plan.max_colluding} others telling what they know",
            "Noise": f"exact Skellam noise on whole numbers, a share of variance "
            f"{float(plan.share_variance):.6g} drawn by each client",
            "Cost": in_words(guarantee.event)
            + (f" ({attempts} attempts, all counted)" if attempts > 1 else ""),
            "Sum": f"SecAgg+ with {design.settings['masks']} masks: the server, if it follows the "
            "protocol, sees nothing but the sum"
            if secure
            else "plain: THE SERVER IS TRUSTED, it has seen every client's noisy vote",
            "The score": "the noisy number of votes of the chosen candidate",
        }


_PROCEDURES: dict[str, Procedure] = {
    "private_selection": PrivateSelection(),
    "pilots_then_selection": PilotsThenSelection(),
    "vote": Vote(),
    "propose_test": UtilityChoice(),
    "noisy_max": UtilityChoice(),
}


def procedure_of(design: Design) -> Procedure:
    """Returns how a study of this design is judged; refuses an unknown one."""
    try:
        return _PROCEDURES[design.procedure]
    except KeyError:
        raise ReleaseRefusedError(
            f"Its plan names the procedure {design.procedure!r}, which this version of optuna-dp "
            "does not know.",
            fix="Use the version of optuna-dp that made the study.",
        ) from None
