"""Assumptions of statements: what a guarantee depends on and only a person can confirm.

Each is one statement that a person can say "yes" to. The page has a line for each to tick, and the
sheet of questions asks the owner of the data about the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optuna_dp.core.json_entries import Entry


@dataclass(frozen=True)
class Assumption(Entry):
    """One thing that the guarantee depends on and no software can check.

    Attributes:
        text: What holds, as a rule in one sentence.
        place: The rows or the part of the statement that it is about; empty if no row is.
        facts: Names of facts that nothing has checked and that it asks about.
    """

    described_as: ClassVar[str] = "An assumption of the statement"

    text: str
    place: str = ""
    facts: tuple[str, ...] = ()


# Of several procedures.

PUBLIC_NUMBERS = Assumption(
    "The numbers of records in the plan are public: with one person more or less in the data the "
    "plan would have named the same ones (rounded numbers, or numbers announced before).",
    "row *Planned for*",
)
PUBLIC_SCORES = Assumption(
    "The records that scores were computed on are public, and none was split off from the "
    "protected ones.",
    "row *The score*",
)
TOLD_APART = Assumption(
    "No record is both trained on and scored. Which of the two happens to it was told by a rule "
    "that looks at one record at a time (its identifier and a key, or a coin of its own), not at "
    "places in a file or a list.",
    "rows *The score* and *Planned for*",
)
NO_EXACT_SCORE_DECIDED = Assumption(
    "No score without noise decided when a training stopped, or which of its checkpoints is the "
    "model.",
    "row *Training*",
)
PUBLIC_SETTINGS = (
    Assumption(
        "If code other than odp.train trained: every bound, norm, weight and scale that it was "
        "given is a public number, not computed from the records.",
        "row *Training*",
    ),
    Assumption(
        "If code other than odp.train trained: the model file holds no count or statistic of the "
        "records that is neither public nor charged for.",
        "row *Model file*",
    ),
)
FINAL_TRAINING = (
    Assumption(
        "A person who is named here has read the code of the final training: it uses the "
        "records as the column "
        "*Final training* says, and in no other way.",
        "row *Final training*",
    ),
    Assumption(
        "Every bound, norm, weight and scale of the final training is a public number, not "
        "computed from the records.",
        "row *Final training*",
    ),
    Assumption(
        "The output of the final training holds no count or statistic of the records that is "
        "neither public nor charged for.",
        "row *Final training*",
    ),
)
BEFORE_THE_RUNS = (
    Assumption(
        "Each record was prepared by itself, with public numbers only: nothing that was done with "
        "it before the runs (scaling, filling gaps, selecting, splitting off) was computed from "
        "other records.",
        facts=("Preparation",),
    ),
    Assumption("No model or map that the script uses was trained on private records before."),
)
PRIVATE_FAILURES = Assumption(
    "No single record can make a run fail or be pruned (by a broken value, say), but through a "
    "noisy score that is charged for."
)
FRESH_RANDOMNESS = Assumption(
    "Every run drew fresh randomness: no random seed was fixed, or shared by runs."
)
RELEASED_ANYHOW = Assumption("The result would have been released whatever it was.")
NO_OTHER_SEARCH = Assumption(
    "No other search or choice from these records was thrown away in favour of this one."
)
NO_COPY = Assumption("No copy of this study was continued or released elsewhere.")
EARLIER_COSTS = Assumption(
    "All earlier releases of these records are known, and what they cost together with this one "
    "is small enough. This epsilon is that of this release alone.",
    "row *Earlier releases of these records*",
)
