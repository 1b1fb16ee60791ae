"""What a figure is about: a guarantee, a release or a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import optuna

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.releasing.procedures import procedure_of
from optuna_dp.releasing.release import Release
from optuna_dp.releasing.run_record import RunRecord, read_run_record
from optuna_dp.samplers.plan import Plan
from optuna_dp.samplers.records import read_plan


@dataclass(frozen=True)
class Target:
    """A guarantee and the delta at which it is shown."""

    guarantee: Guarantee
    delta: float


def plan_of(study: Any) -> Plan:
    """Returns the plan of a study; for the curator only."""
    if not isinstance(study, optuna.Study):
        raise InvalidArgumentError("study", type(study).__name__, "it must be an Optuna study")
    plan, _ = read_plan(study._storage, study._study_id)
    if plan is None:
        raise PlanError(
            "This study has no plan: it has no trials yet, or another sampler made it. Use a "
            "sampler of optuna-dp from the first trial."
        )
    return plan


def record_of(study: optuna.Study) -> RunRecord:
    """Returns what one run of a study costs, as the callback or a release recorded it."""
    record = read_run_record(study._storage, study._study_id)
    if record is None:
        raise PlanError(
            "What one run of this study costs is not recorded. Give study.optimize a "
            "PrivacyCallback(run)."
        )
    return record


def target_of(target: Any, delta: float | None) -> Target:
    """Returns the guarantee that a guarantee, a release or a study stands for.

    Nothing but the public design of a study is read.
    """
    if isinstance(target, Guarantee):
        return Target(target, 1e-5 if delta is None else delta)
    if isinstance(target, Release):
        return Target(target.guarantee, target.delta if delta is None else delta)
    if isinstance(target, optuna.Study):
        design, record = plan_of(target).design, record_of(target)
        guarantee = procedure_of(design).guarantee(design, record)
        return Target(guarantee, record.delta if delta is None else delta)
    raise InvalidArgumentError(
        "target", type(target).__name__, "it must be a Guarantee, a Release or a study"
    )
