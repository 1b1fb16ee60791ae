"""The best of a random number of runs, drawn within bounds of a prior (DP-HyPO, RandTune)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.accounting.guarantee import Guarantee, selection_guarantee
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.procedures.base import Procedure
from optuna_dp.releasing.winner import choose
from optuna_dp.samplers.selection import SelectionSettings

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from optuna_dp.releasing.run_record import RunRecord
    from optuna_dp.releasing.runs import Evidence


class PrivateSelection(Procedure):
    """See the module's docstring."""

    def guarantee(self, design: Design, record: RunRecord) -> Guarantee:
        settings = SelectionSettings.from_json(design.settings)
        return selection_guarantee(
            record.event,
            settings.trials,
            density_bounds=settings.density_bounds,
            policy=settings.policy,
            startup_runs=settings.startup_runs or 0,
            neighboring_relation=record.neighboring_relation,
        )

    def winner(self, evidence: Evidence) -> FrozenTrial | None:
        return choose(evidence.runs, maximize=evidence.plan.design.direction == "maximize")
