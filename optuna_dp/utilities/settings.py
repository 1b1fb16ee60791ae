"""The settings of a study with averaged utilities in its plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from optuna_dp.json_records import Record, stored
from optuna_dp.utilities.doubling import DoublingPlan
from optuna_dp.utilities.report_noisy_max import NoisyMaxPlan
from optuna_dp.validation import whole

PROPOSE_TEST = "propose_test"
NOISY_MAX = "noisy_max"

_KINDS = {
    "grid": "every point of a finite search space",
    "list": "a list fixed beforehand",
    "drawn": "independent draws from the search space",
}


@dataclass(frozen=True)
class CandidateSource(Record):
    """Where the candidates come from.

    Attributes:
        kind: ``"grid"``, ``"list"``, ``"drawn"``, or ``"proposed"`` in batches that depend on
            earlier answers.
        count: Number of candidates, at least 1; of one batch where they are proposed.
        digest: SHA-256 of the list of candidates, if there is one.
    """

    described_as: ClassVar[str] = "The record of candidates in the study's plan"

    kind: str
    count: int
    digest: str | None = field(default=None, metadata=stored(key="sha256"))

    def __post_init__(self) -> None:
        if self.kind not in (*_KINDS, "proposed"):
            raise ValueError(f"there is no kind {self.kind!r} of candidates")
        whole("count", self.count, 1)


def _plan(record: Any) -> DoublingPlan | NoisyMaxPlan:
    """Reads the record of the mechanism: that of a loop has an epsilon per iteration."""
    kind = NoisyMaxPlan if "epsilon" in record else DoublingPlan
    return kind.from_json(record)


@dataclass(frozen=True)
class UtilitySettings(Record):
    """The settings of a choice by averaged utilities.

    Attributes:
        plan: The mechanism that chooses; the guarantee follows from it alone.
        n_partitions: ``k``, at least 2.
        candidates: Where the candidates come from.
        proposer: Class name of the sampler that proposes, if one does.
        search_space: Distributions by parameter name as Optuna's JSON; None is define-by-run.
    """

    described_as: ClassVar[str] = "The record of settings in the study's plan"

    plan: DoublingPlan | NoisyMaxPlan = field(metadata=stored(key="mechanism", read=_plan))
    n_partitions: int
    candidates: CandidateSource
    proposer: str | None = None
    search_space: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        whole("n_partitions", self.n_partitions, 2)

    @property
    def kind(self) -> str:
        """Where the candidates come from, in a word."""
        return self.candidates.kind

    @property
    def count(self) -> int:
        """Number of candidates; of one batch where they are proposed."""
        return self.candidates.count

    @property
    def stages(self) -> int:
        """How many times candidates are collected and then tested, at most."""
        if self.kind == "proposed":
            assert isinstance(self.plan, DoublingPlan)
            return self.plan.iteration_bound
        return 1

    def first(self, stage: int) -> int:
        """The number of the first trial of a stage, from 0; ``first(stages)`` is the end.

        A stage after the first is one trial longer: the answer to the stage before it is kept in
        a trial of its own (:mod:`optuna_dp.utilities.choice`), which takes a number.
        """
        return 0 if stage == 0 else self.count + (stage - 1) * (self.count + 1)

    def stage_of(self, number: int) -> int:
        """The stage to which a trial belongs by its number."""
        return 0 if number < self.count else 1 + (number - self.count) // (self.count + 1)

    def facts(self, sampler: str) -> dict[str, str]:
        """Returns what a privacy statement says of the choice, by heading."""
        k = self.n_partitions
        if self.kind == "proposed":
            candidates = (
                f"{self.count} in every iteration, proposed by {self.proposer}, which sees the "
                "private answers (an index or none) and nothing else"
            )
        else:
            candidates = f"{self.count}: {_KINDS[self.kind]}"
            candidates += f", SHA-256 {self.candidates.digest}" if self.candidates.digest else ""
        if isinstance(self.plan, NoisyMaxPlan):
            choice = f"report-noisy-max, once: {self.plan.epsilon:g}-DP"
            if self.plan.noise == "gumbel":
                choice += (
                    f", with Gumbel noise: an exponential mechanism of range "
                    f"{self.plan.epsilon:g}, which costs less together with a training"
                )
        else:
            choice = (
                f"the doubling loop ({self.plan.variant}) of at most {self.plan.iteration_bound} "
                f"iterations of AboveThreshold, each {self.plan.epsilon:g}-DP. That epsilon is "
                "PER ITERATION, as in the papers on this method. The guarantee above covers all "
                "iterations, whatever their number"
            )
        return {
            "Search": f"planned: {sampler}: utilities without noise on disjoint partitions of the "
            "data, then a private choice",
            "Candidates": f"planned: {candidates}",
            "Utility": f"vouched for: the mean over {k} partitions of scores in [0, 1]; one "
            f"record moves it by at most 1/{k}",
            "Choice": f"planned: {choice}",
            "Noise": "checked: added by this package: OpenDP's exact noise on whole numbers",
        }
