"""Whether the first runs of a study were drawn from the prior, as its plan says."""

from __future__ import annotations

from optuna.trial import FrozenTrial

from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.records import DRAW_KEY
from optuna_dp.protocol.visible_runs import slot_behind


def check_startup(trial: FrozenTrial, plan: StudyPlan) -> None:
    """A start-up run is drawn from the prior: a uniform one parameter by parameter.

    Those draws are made again from the slot's record; joint ones are within density bounds.
    """
    runs = plan.design.settings.get("startup_runs")
    draw = trial.system_attrs.get(DRAW_KEY)
    if runs is None or draw is None or trial.number >= slot_behind(plan, runs):
        return
    if plan.design.settings.get("prior") == {"prior": "uniform"} or "density_ratio" in draw:
        raise ReleaseRefusedError(
            "it is one of the first runs, which the plan says are drawn from the prior, and it "
            "was drawn in view of others.",
            trial_number=trial.number,
            fix="Start a new study. Give every worker the same version of optuna-dp.",
        )
