"""The text of the statement of a choice by averaged utilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.evidence.statement import Description
from optuna_dp.protocol.plan import Design
from optuna_dp.utilities.settings import UtilitySettings

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


class UtilityDescription(Description):
    """See the module's docstring."""

    score_is_told = False
    checked: tuple[str, ...] = (
        "Every planned candidate was drawn by the study's sampler and has a utility in [0, 1] "
        "from every partition.",
        "The choice was made once, with randomness of the operating system and without a seed. "
        "This choice is what is released.",
        "Nothing else was released from this plan in this storage.",
    )

    assumptions: tuple[str, ...] = (
        "Every training record lies in one partition, placed independently of all other records "
        "(optuna_dp.partition does so). The utility of a partition is computed from that "
        "partition's training records alone.",
        "If the relation is replacing a record: the placement is secret, or follows an identifier "
        "that the replacement keeps.",
        "No person is in both training and validation data. Validation records are protected too, "
        "if there are at least optuna_dp.utilities.validation_records_needed(k) of them and the "
        "score is a mean over them of numbers in [0, 1].",
        "The candidates, the number of partitions and the settings of the choice were fixed "
        "without looking at the data. Which parameters the objective asks for depends only on the "
        "candidate.",
        "The trainings on different partitions share no randomness that depends on the data. A "
        "training that fails counts as the worst score of its partition.",
        "The result would have been released whatever it was. No other choice from the same data "
        "was discarded in its favour, and no copy of this study was continued or released "
        "elsewhere. (The costs of several releases add up.)",
        "Nothing else of the search leaves the curator: no utility, model, table, timings, logs "
        "or dashboard.",
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        return UtilitySettings.from_json(design.settings).facts(design.sampler)
