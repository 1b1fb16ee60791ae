"""The settings of a study with averaged utilities in its plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.validation import whole
from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms.choice_plan import ChoicePlan
from optuna_dp.mechanisms.doubling import DoublingPlan
from optuna_dp.mechanisms.report_noisy_max import NoisyMaxPlan
from optuna_dp.samplers.choice.candidates import CandidateSource

PROPOSE_TEST = "propose_test"
NOISY_MAX = "noisy_max"


def _plan(entry: JsonObject) -> ChoicePlan:
    """Reads the entry of the mechanism: that of a loop has an epsilon per iteration."""
    return NoisyMaxPlan.from_json(entry) if "epsilon" in entry else DoublingPlan.from_json(entry)


@dataclass(frozen=True)
class UtilitySettings(Entry):
    """The settings of a choice by averaged utilities.

    Attributes:
        plan: The mechanism that chooses; the guarantee follows from it alone.
        n_partitions: ``k``, at least 2.
        candidates: Where the candidates come from.
        search_space: Distributions by parameter name as Optuna's JSON; None is define-by-run.
        neighboring_relation: The relation under which the guarantee holds.
    """

    described_as: ClassVar[str] = "The entry of settings in the study's plan"

    plan: ChoicePlan = field(metadata=stored(key="mechanism", read=_plan))
    n_partitions: int
    candidates: CandidateSource
    search_space: dict[str, Any] | None = None
    neighboring_relation: str = "add_or_remove_one"

    def __post_init__(self) -> None:
        whole("n_partitions", self.n_partitions, 2)
        if self.neighboring_relation not in ("add_or_remove_one", "replace_one"):
            raise InvalidArgumentError(
                "neighboring_relation",
                self.neighboring_relation,
                allowed="it must be 'add_or_remove_one' or 'replace_one'",
            )

    def facts(self, sampler: str) -> dict[str, str]:
        """Returns what a privacy statement says of the choice, by heading."""
        k = self.n_partitions
        return {
            "Search": f"planned: {sampler}: utilities without noise on disjoint partitions of the "
            "data, then a private choice",
            "Candidates": f"planned: {self.candidates.words()}",
            "Utility": f"the mean over {k} partitions of scores in [0, 1]; one "
            f"record moves it by at most 1/{k}",
            "Choice": f"planned: {self.plan.words()}",
            "Noise": "checked: added by this package: OpenDP's exact noise on whole numbers",
        }
