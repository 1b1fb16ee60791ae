"""What a statement says of pilots in the open and one last run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.budget.settings import BudgetSettings
from optuna_dp.evidence.statement import Description
from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


class BudgetDescription(Description):
    """See the module's docstring."""

    score_is_told = False
    checked: tuple[str, ...] = (
        "No more pilots and last runs began than the plan pays for, each at the cost that the "
        "plan states for it; a run that failed is counted like any other.",
        "Every run is of this study and of this plan, which is as it was written.",
    )

    trust = (
        "one trusted curator: whoever trains sees the data; the hyperparameters and scores of "
        "all runs, the pilots' too, may be seen by anybody, also while the study runs"
    )

    not_covered = """\
It covers the hyperparameters and scores of all runs, how each of them ended, and the last run's
model, also while they are shown as the study runs. It does not cover how long runs took, when they
ended, logs, or attributes and reported values that are no part of the stated outputs."""

    assumptions: tuple[str, ...] = (
        "Each run is an algorithm with the stated event, its score and whatever it reports to a "
        "pruner included, whatever hyperparameters it is given.",
        "How many runs there are and what each costs was fixed without looking at the data; the "
        "search space too, or in view of outputs that are paid for.",
        "Whatever proposed, pruned or chose hyperparameters (a sampler, a pruner, a function, a "
        "person) knew nothing of the data but the private outputs of earlier runs.",
        "A run depends on the data, its own hyperparameters and fresh randomness only: not on "
        "shared random seeds.",
        "If pilots run on samples (the search above says so), each drew its own, afresh from "
        "randomness that nobody knows, touched no other private record, and told nobody which.",
        "Whether a run fails or is pruned is part of its private output.",
        "The result was released whatever it was; no other search on the same data was discarded "
        "in its favour (several releases compose).",
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        return BudgetSettings.of(design).facts(design.sampler)
