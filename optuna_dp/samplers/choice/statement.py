"""The text of the statement of a choice by averaged utilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import (
    EARLIER_COSTS,
    NO_COPY,
    NO_OTHER_SEARCH,
    RELEASED_ANYHOW,
    Assumption,
)
from optuna_dp.evidence.facts import Fact, Part, Status, stated
from optuna_dp.evidence.layout import escaped
from optuna_dp.evidence.statement import Description
from optuna_dp.samplers.choice.settings import UtilitySettings
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from optuna_dp.accounting.guarantee import Guarantee


_ASSUMPTIONS = (
    Assumption(
        "Each record was placed in one partition by a rule that looks at no other record "
        "(optuna_dp.partition does so).",
        "row *Utility*",
    ),
    Assumption(
        "The utility of a partition was computed from that partition's training records alone.",
        "row *Utility*",
    ),
    Assumption(
        "If the statement is about replacing a record: the placement is secret, or by an "
        "identifier that the replacement keeps.",
        "row *What is protected*",
    ),
    Assumption("No person is in both training and validation data.", "row *Utility*"),
    Assumption(
        "If validation records are to be protected too: there are at least "
        "optuna_dp.mechanisms.validation_records_needed(k) of them, and the score is a mean over "
        "them of numbers in [0, 1].",
        "row *Utility*",
    ),
    Assumption(
        "The candidates, the number of partitions and the settings of the choice were fixed "
        "without looking at the records.",
        "rows *Candidates*, *Utility* and *Choice*",
    ),
    Assumption(
        "Which parameters the objective asks for depends only on the candidate.",
        "row *Candidates*",
    ),
    Assumption(
        "The trainings on different partitions share nothing that depends on records.",
        "row *Utility*",
    ),
    Assumption(
        "A training that failed counts as the worst score of its partition.", "row *Utility*"
    ),
    Assumption(
        "Nobody but the curator sees utilities, models, the table of trials, times, logs and the "
        "dashboard, before and after the publication.",
        "row *Trust*; What may be published",
    ),
    RELEASED_ANYHOW,
    NO_OTHER_SEARCH,
    NO_COPY,
    EARLIER_COSTS,
)


class UtilityDescription(Description):
    """See the module's docstring."""

    score_is_told = False
    must_not = (
        "utilities and scores of candidates, and the models of partitions",
        "how long trainings took, when they began and ended",
        "logs, the curator's dashboard and storage, seeds and random states",
    )
    checked: tuple[str, ...] = (
        "Every planned candidate was drawn by the study's sampler and has a utility in [0, 1] "
        "from every partition.",
        "The choice was made once, with randomness of the operating system and without a seed. "
        "This choice is what is released.",
        "Nothing else was released from this plan in this storage.",
    )

    def assumptions(self, design: Design, content: JsonObject) -> tuple[Assumption, ...]:
        """See :class:`Description`; the same for every choice."""
        return _ASSUMPTIONS

    def facts(self, design: Design, guarantee: Guarantee) -> list[Fact]:
        """See :class:`Description`."""
        rows = UtilitySettings.from_json(design.settings).facts(escaped(design.sampler))
        return [
            stated(name, text, Part.RUNS)
            if name == "Utility"
            else Fact(name, text, Status.ENFORCED)
            for name, text in rows.items()
        ]
