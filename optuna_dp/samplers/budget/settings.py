"""The settings of a budget in a study's plan."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.runs.run import Run
from optuna_dp.samplers.budget.plan import BudgetPlan
from optuna_dp.study.plan import Design, canonical_json

PROCEDURE = "budget"


@dataclass(frozen=True)
class BudgetSettings(Entry):
    """The settings of a study with a budget.

    Attributes:
        plan: What is charged for.
        first_batch: Pilots of the first rung that see no others.
        pilot_batch_size: Pilots per batch after these; one sees the completed batches before its
            own.
        proposer: Class name of the Optuna sampler that proposes the first rung's pilots.
        choose: How the last run's hyperparameters are chosen: ``"evidence"``, ``"best"``, or the
            name of the user's function.
        search_space: Distributions by parameter name as Optuna's JSON; None is define-by-run.
        candidates: The short list that the sampler was given, pilot by pilot; None without one.
        output_attributes: User attributes of a trial that are part of a run's private output.
    """

    described_as: ClassVar[str] = "The entry of the settings in the study's plan"

    plan: BudgetPlan
    first_batch: int
    pilot_batch_size: int
    proposer: str
    choose: str
    search_space: dict[str, Any] | None
    candidates: tuple[dict[str, Any], ...] | None = field(
        default=None, metadata=stored(optional=True)
    )
    output_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, size in (("first", self.first_batch), ("pilot", self.pilot_batch_size)):
            if size < 1:
                raise InvalidArgumentError(
                    f"{name}_batch_size", size, allowed="it must be at least 1"
                )

    @staticmethod
    def of(design: Design) -> BudgetSettings:
        """Returns the settings in a design; the same object for equal ones.

        Raises:
            PlanError: If they are corrupted.
        """
        return _read(canonical_json(design.settings))

    @property
    def pilots(self) -> int:
        """B, the number of pilots: trials 0 to B - 1."""
        return self.plan.pilots

    @property
    def paid(self) -> int:
        """How many last runs are charged for."""
        return 1 + self.plan.spare_runs

    @property
    def scores_last_run(self) -> bool:
        """Returns whether the last run's score may be shown."""
        return self.plan.score is None or self.plan.final.score_noise_multiplier is not None

    def run_of(self, number: int) -> Run:
        """Returns what a trial may spend, by its number."""
        return self.plan.run_at(min(number, self.pilots))

    def begins_at(self, rung: int) -> int:
        """Returns the number of the first pilot of a rung."""
        return sum(self.plan.rung_sizes[:rung])


@functools.lru_cache(maxsize=8)
def _read(text: str) -> BudgetSettings:
    # A plan's events are judged when it is read, and every trial asks what it may spend.
    return BudgetSettings.from_json(json.loads(text))
