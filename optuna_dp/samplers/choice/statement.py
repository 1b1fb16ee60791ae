"""The text of the statement of a choice by averaged utilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import Assumption
from optuna_dp.evidence.facts import Fact, Status, stated
from optuna_dp.evidence.layout import escaped
from optuna_dp.evidence.statement import Description
from optuna_dp.samplers.choice.settings import UtilitySettings
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


_PROMISES = (
    Assumption(
        "Every training record lies in one partition, placed independently of all other records "
        "(optuna_dp.partition does so). The utility of a partition is computed from that "
        "partition's training records alone.",
        "Was each record placed in its partition by a rule that looks at no other record, and "
        "each utility computed from one partition's records alone?",
        "row *Utility*",
    ),
    Assumption(
        "If the relation is replacing a record: the placement is secret, or follows an identifier "
        "that the replacement keeps.",
        "If the statement is about replacing a record: is the placement secret, or by an "
        "identifier?",
        "row *What is protected*",
    ),
    Assumption(
        "No person is in both training and validation data. Validation records are protected too, "
        "if there are at least optuna_dp.mechanisms.validation_records_needed(k) of them and the "
        "score is a mean over them of numbers in [0, 1].",
        "Is nobody in both the training and the validation data, and are there enough validation "
        "records, if they are to be protected?",
        "row *Utility*",
    ),
    Assumption(
        "The candidates, the number of partitions and the settings of the choice were fixed "
        "without looking at the data. Which parameters the objective asks for depends only on the "
        "candidate.",
        "Were the candidates, the number of partitions and the settings of the choice fixed "
        "before anybody had looked at these data?",
        "rows *Candidates*, *Utility* and *Choice*",
    ),
    Assumption(
        "The trainings on different partitions share no randomness that depends on the data. A "
        "training that fails counts as the worst score of its partition.",
        "Do the trainings on different partitions share nothing that depends on records, and does "
        "a failed training count as the worst score?",
        "row *Utility*",
    ),
    Assumption(
        "The result would have been released whatever it was. No other choice from the same data "
        "was discarded in its favour, and no copy of this study was continued or released "
        "elsewhere. (The costs of several releases add up.)",
        "Would this result have been published whatever it was, was no other choice from these "
        "data thrown away for its result, and was no copy of this study used? (Other releases "
        "from these data are not in this number: their costs add up.)",
    ),
    Assumption(
        "Nothing else of the search leaves the curator: no utility, model, table, timings, logs "
        "or dashboard.",
        "Does nobody but the curator see utilities, models, the table of trials, times, logs and "
        "the dashboard, before and after the publication?",
        "row *Trust*; What is covered, and what is not",
    ),
)


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

    def assumptions(self, design: Design, content: JsonObject) -> tuple[Assumption, ...]:
        """See :class:`Description`; the same for every choice."""
        return _PROMISES

    def facts(self, design: Design, guarantee: Guarantee) -> list[Fact]:
        """See :class:`Description`."""
        rows = UtilitySettings.from_json(design.settings).facts(escaped(design.sampler))
        return [
            stated(name, text) if name == "Utility" else Fact(name, text, Status.ENFORCED)
            for name, text in rows.items()
        ]
