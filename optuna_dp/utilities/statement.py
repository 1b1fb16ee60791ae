"""What a statement says of a choice by averaged utilities."""

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
        "Every candidate that was planned has a utility in [0, 1] from every partition, and was "
        "drawn by the study's sampler.",
        "The choice was made once, by randomness of the operating system that was not seeded, and "
        "is what is released.",
        "Nothing else was released from this plan in this storage.",
    )

    assumptions: tuple[str, ...] = (
        "Every training record lies in one partition, placed independently of all other records "
        "(optuna_dp.partition does so), and the utility of a partition is computed from that "
        "partition's training records alone.",
        "If replacing a record is what is protected against: the placement is secret, or follows "
        "an identifier that the replacement keeps.",
        "No person is in training and validation data at once. Validation records are protected "
        "too if there are at least as many as optuna_dp.utilities.validation_records_needed(k) "
        "says and the score is a mean over them of numbers in [0, 1].",
        "The candidates, the number of partitions and the settings of the choice were fixed "
        "without looking at the data; which parameters the objective asks for depends on the "
        "candidate only.",
        "The trainings on different partitions share no randomness that depends on the data; a "
        "training that fails is the worst score of its partition.",
        "The result was released whatever it was; no other choice from the same data was "
        "discarded in its favour, and no copy of this one was continued or released elsewhere "
        "(several releases compose).",
        "Nothing else of the search leaves the curator: no utility, model, table, timings, logs "
        "or dashboard.",
    )

    def facts(self, design: Design, guarantee: Guarantee) -> dict[str, str]:
        return UtilitySettings.from_json(design.settings).facts(design.sampler)
