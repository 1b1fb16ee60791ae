"""Assumptions of statements: what a guarantee depends on and only a person can confirm.

Each is said twice. The statement says what holds. The sheet of questions asks the owner of the
data whether it does, and names the place in the statement that the question is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optuna_dp.core.json_entries import Entry


@dataclass(frozen=True)
class Assumption(Entry):
    """One thing that the guarantee depends on and no software can check.

    Attributes:
        text: What holds, in one or more sentences.
        question: The same as a question to the owner of the data. "Yes" confirms the assumption.
        place: The rows or the part of the statement that it is about; empty if no row is.
        facts: Names of facts that nothing has checked and that its question asks about.
    """

    described_as: ClassVar[str] = "An assumption of the statement"

    text: str
    question: str
    place: str = ""
    facts: tuple[str, ...] = ()


# Of several procedures.

PUBLIC_NUMBERS = Assumption(
    "The numbers of records that the plan was made for are public. With one person more or less "
    "in the data the plan would have named the same numbers (rounded ones, or ones announced "
    "before).",
    "Is the number of records in the plan public, and would it be the same with one person more "
    "or less in the data?",
    "row *Planned for*",
)
PUBLIC_SCORES = Assumption(
    "The records that scores were computed on are public, and no part that was split off from the "
    "protected ones.",
    "Are the records that scores were computed on public, and none of them split off from the "
    "protected ones?",
    "row *The score*",
)
TOLD_APART = Assumption(
    "Which records are scored and which are trained on was told by a rule that looks at nothing "
    "but the record itself (its identifier and a key, or a coin of its own).",
    "Were the records to be scored told apart by a rule that looks at one record at a time, and "
    "not by their places in a file or a list?",
    "rows *The score* and *Planned for*",
)
NO_EXACT_SCORE_DECIDED = Assumption(
    "No score without noise decided when a training stopped, or which of its checkpoints is the "
    "model.",
    "Did every training run to its planned end, and is the model the one of that end (or did "
    "nothing but noisy, charged scores decide otherwise)?",
    "row *Training*",
)
PUBLIC_SETTINGS = Assumption(
    "If code other than odp.train trained: every bound, norm, weight and scale that it was given "
    "is a public number, and was not computed from the records. The model file holds no count or "
    "statistic of the records, unless it is public or charged for.",
    "If code other than odp.train trained: were all bounds, norms, weights and scales that it was "
    "given fixed without looking at these records, and were all counts of records that are not "
    "public removed from the model file?",
    "row *Model file*",
)
FINAL_TRAINING = Assumption(
    "The final training used the records as the row *Final training* says, and in no other way. "
    "Every bound, norm, weight and scale that it was given is a public number, and was not "
    "computed from the records. Its output holds no count or statistic of the records, unless it "
    "is public or charged for.",
    "Has somebody read the code of the final training, and found that it uses the records as the "
    "row *Final training* says, with bounds, norms, weights and scales that were fixed without "
    "looking at these records, and that its output holds no count of them that is not public?",
    "row *Final training*",
)
BEFORE_THE_RUNS = Assumption(
    "What was done with a record before the runs (scaling, filling gaps, selecting it, splitting "
    "it off) depends on that record and on public numbers alone, or was charged for. Nothing was "
    "pretrained on private records otherwise.",
    "Was each record prepared by itself, with public numbers only: no means, ranges, vocabulary "
    "or feature choice computed from all records, and no model pretrained on them?",
    facts=("Preparation",),
)
PRIVATE_FAILURES = Assumption(
    "Whether a run fails or is pruned depends on the records only through what is charged for, "
    "such as its noisy score.",
    "Is it certain that no single record can make a run fail or stop early (by a broken value, "
    "say), unless a noisy, charged score decided it?",
)
