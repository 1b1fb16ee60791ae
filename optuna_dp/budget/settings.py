"""What the plan of a study records of pilots in the open and one last run."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, ClassVar

from optuna_dp.budget.plan import BudgetPlan
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record
from optuna_dp.protocol.plan import Design, canonical_json

PROCEDURE = "budget"

_CHOICES = {
    "best": "those of the pilot with the best score on the last rung",
    "model": "those of the pilot of which a model of all pilots' scores expects most",
}


@dataclass(frozen=True)
class BudgetSettings(Record):
    """The settings of a study with a budget.

    Attributes:
        plan: What is paid for.
        first_batch: Pilots of the first rung that see no others.
        pilot_batch_size: Pilots per batch after these; one sees the completed batches before its
            own.
        proposer: Class name of the Optuna sampler that proposes the first rung's pilots.
        choose: How the last run's hyperparameters are chosen: ``"best"``, ``"model"``, or the
            name of the user's function.
        surrogate: The model of ``choose="model"``; None for others.
        search_space: Distributions by parameter name as Optuna's JSON; None is define-by-run.
    """

    described_as: ClassVar[str] = "The record of the settings in the study's plan"

    plan: BudgetPlan
    first_batch: int
    pilot_batch_size: int
    proposer: str
    choose: str
    surrogate: str | None
    search_space: dict[str, Any] | None

    def __post_init__(self) -> None:
        for name, size in (("first", self.first_batch), ("pilot", self.pilot_batch_size)):
            if size < 1:
                raise InvalidArgumentError(f"{name}_batch_size", size, "it must be at least 1")

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
        """How many last runs are paid for."""
        return 1 + self.plan.spare_runs

    @property
    def scores_last_run(self) -> bool:
        """Whether the last run's score may be shown."""
        return self.plan.score is None or self.plan.final.score_noise_multiplier is not None

    def rung_of(self, number: int) -> int:
        """Returns the rung of a trial by its number, from 0; the number of rungs for last runs."""
        return self.plan.fidelity(min(number, self.pilots)).rung

    def begins_at(self, rung: int) -> int:
        """Returns the number of the first pilot of a rung."""
        return sum(self.plan.rung_sizes[:rung])

    def facts(self, sampler: str) -> dict[str, str]:
        """Returns what a privacy statement says of the search, by heading."""
        # Only for the statement: dp-accounting takes a second to load.
        from optuna_dp.accounting.event_words import in_words

        plan = self.plan
        rungs = {}
        for i, (size, rung) in enumerate(zip(plan.rung_sizes, plan.rungs, strict=True), start=1):
            name = "Pilots" if len(plan.rungs) == 1 else f"Pilots, rung {i}"
            each = f"{size} run{'s' if size > 1 else ''}, each {in_words(rung.event)}"
            rungs[name] = f"{each}; {self._origin(i)}; all charged, however they ended"
        spare = plan.spare_runs
        more = (
            f"; {spare} more would have replaced it had it failed, and are charged"
            if spare
            else ""
        )
        space = (
            "found while the study ran"
            if self.search_space is None
            else f"{', '.join(sorted(self.search_space))}: the search space fixed beforehand"
        )
        return {
            "Search": f"{sampler}: {plan.pilots} pilots in the open, then one run. Nothing is "
            "selected in secret: the guarantee is that of showing the outputs of all runs",
            **rungs,
            **({} if plan.sample is None else {"The samples": _SAMPLES.format(plan.sample)}),
            "The last run": f"{in_words(plan.final.event)}{more}. Its hyperparameters: "
            f"{_CHOICES.get(self.choose, f'chosen by {self.choose} from the outputs of pilots')}, "
            "unless a person who saw the pilots' outputs gave others",
            "The score": _SCORES[plan.score]
            + ("" if self.scores_last_run else "; the last run's is neither paid for nor shown"),
            "Parameters": space,
        }

    def _origin(self, rung: int) -> str:
        if rung > 1:
            return f"the best of rung {rung - 1} by their private scores, once more"
        first = min(self.first_batch, self.plan.rung_sizes[0])
        return (
            f"proposed by {self.proposer} from private outputs of the completed batches of "
            f"pilots before its own (a first batch of {first}, then {self.pilot_batch_size} per "
            "batch), or given by a person who saw no more"
        )


@functools.lru_cache(maxsize=8)
def _read(text: str) -> BudgetSettings:
    # A plan's events are judged when it is read, and every trial asks what it may spend.
    return BudgetSettings.from_json(json.loads(text))


_SAMPLES = (
    "each pilot trains and is scored on a secret sample of its own, which a record joins with "
    "probability {:g}, independently of all others; drawn by the objective, not by this package. "
    "The last run has all records"
)
_SCORES: dict[str | None, str] = {
    "training": "computed on the records trained on, with noise, and charged beside the training",
    "disjoint": "computed with noise on private records never trained on; the worse of training "
    "and score is charged",
    None: "computed on public records, at no cost",
}
