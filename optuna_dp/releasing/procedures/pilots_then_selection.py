"""Pilots, published as far as the accounting goes, and a selection from a frozen prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.event_words import in_words
from optuna_dp.accounting.guarantee import Guarantee, pilots_guarantee
from optuna_dp.protocol.plan import Design
from optuna_dp.protocol.records import score
from optuna_dp.releasing.pilot_evidence import check_pilots
from optuna_dp.releasing.procedures.base import Procedure
from optuna_dp.releasing.procedures.private_selection import (
    RUN_ASSUMPTIONS,
    RUN_CHECKS,
    SELECTION_ASSUMPTIONS,
    SELECTION_CHECKS,
)
from optuna_dp.releasing.winner import choose
from optuna_dp.samplers.pilot_settings import PilotSettings

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from optuna_dp.releasing.run_record import RunRecord
    from optuna_dp.releasing.runs import Evidence


class PilotsThenSelection(Procedure):
    """See the module's docstring; docs/explanation/pilots.md has the proof."""

    checked: tuple[str, ...] = (
        "Exactly the stated number of pilots has ended, and no pilot is the winner.",
        *SELECTION_CHECKS,
        *RUN_CHECKS,
    )
    assumptions: tuple[str, ...] = (
        "Each pilot is an algorithm with the stated event of a pilot, and each selection run one "
        "with the stated event of a run, their scores included, whatever hyperparameters they are "
        "given.",
        "The search space, the number of pilots, the law of the number of selection runs and both "
        "events were fixed without looking at the data, and before the first pilot.",
        "The proposer of the pilots uses nothing about the data but what it is given: the "
        "private outputs of earlier pilots.",
        *RUN_ASSUMPTIONS,
        *SELECTION_ASSUMPTIONS,
    )

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        """See :class:`Procedure`."""
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

    def each_run(self, design: Design, record: RunRecord, number: int) -> Any:
        """See :class:`Procedure`."""
        settings = PilotSettings.from_json(design.settings)
        return settings.event if number < settings.pilots else record.event

    def check(self, evidence: Evidence) -> None:
        """See :class:`Procedure`."""
        check_pilots(evidence)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`; a pilot is never the winner."""
        design = evidence.plan.design
        pilots = PilotSettings.from_json(design.settings).pilots
        return choose(evidence.runs[pilots:], maximize=design.direction == "maximize")

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        """See :class:`Procedure`."""
        settings = PilotSettings.from_json(evidence.plan.design.settings)
        if not settings.release_pilots:
            return {}
        pilots = [run.trial for run in evidence.runs[: settings.pilots]]
        return {"pilots": [{"params": dict(t.params), "value": score(t)} for t in pilots]}

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        """See :class:`Description`."""
        settings = PilotSettings.from_json(design.settings)
        return {
            **settings.facts(design.sampler),
            "One pilot": in_words(settings.event),
            "One run": in_words(guarantee.event.events[-1].run),
        }
