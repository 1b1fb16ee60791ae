"""Pilots, published as far as the accounting goes, and a selection from a frozen prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.pilots import pilots_guarantee
from optuna_dp.protocol.plan import Design
from optuna_dp.protocol.records import score
from optuna_dp.releasing.pilot_evidence import check_pilots
from optuna_dp.releasing.procedures.base import Procedure
from optuna_dp.releasing.winner import choose
from optuna_dp.samplers.pilot_settings import PilotSettings

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from optuna_dp.releasing.run_record import RunRecord
    from optuna_dp.releasing.runs import Evidence


class PilotsThenSelection(Procedure):
    """See the module's docstring; docs/explanation/pilots.md has the proof."""

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
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
        settings = PilotSettings.from_json(design.settings)
        return settings.event if number < settings.pilots else record.event

    def check(self, evidence: Evidence) -> None:
        check_pilots(evidence)

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        """See :class:`Procedure`; a pilot is never the winner."""
        design = evidence.plan.design
        pilots = PilotSettings.from_json(design.settings).pilots
        return choose(evidence.runs[pilots:], maximize=design.direction == "maximize")

    def attributes(self, evidence: Evidence) -> dict[str, Any]:
        settings = PilotSettings.from_json(evidence.plan.design.settings)
        if not settings.release_pilots:
            return {}
        pilots = [run.trial for run in evidence.runs[: settings.pilots]]
        return {"pilots": [{"params": dict(t.params), "value": score(t)} for t in pilots]}
