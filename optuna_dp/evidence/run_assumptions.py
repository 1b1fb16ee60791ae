"""The assumptions that runs were what is charged for, by what holds them."""

from __future__ import annotations

from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import Assumption
from optuna_dp.runs.judgement import COMPARED, ENFORCED, NOT_CHECKED

_TRAININGS = {
    ENFORCED: (),
    COMPARED: (
        Assumption(
            "A person who is named here has read the code of the trainings that say *compared*: "
            "it does what its "
            "accountant recorded, and uses the records in no other way.",
            "row *Training*",
            facts=("Training",),
        ),
    ),
    NOT_CHECKED: (
        Assumption(
            "A person who is named here has read the code of the trainings that say *not "
            "checked*: it uses the "
            "records as the table says, with the noise that is charged for, and in no other way.",
            "rows *Training* and *One run*",
            facts=("Training", "One run"),
        ),
    ),
}
_SCORES = {
    ENFORCED: (),
    COMPARED: (
        Assumption(
            "A person who is named here has read the code of the scores that say *compared*: "
            "each record has one "
            "value, which depends on that record and the trained model alone.",
            "row *Score*",
            facts=("Score",),
        ),
    ),
    NOT_CHECKED: (
        Assumption(
            "A person who is named here has read the code of the scores that say *not checked*: "
            "they have the noise "
            "that is charged for.",
            "row *Score*",
            facts=("Score",),
        ),
    ),
}
_NOWHERE_ELSE = Assumption(
    "The script uses the records for the trainings and the scores of the table, and nowhere else, "
    "whatever the hyperparameters are.",
    "the table; row *Script*",
    facts=("Script",),
)


def what_runs_are(spending: JsonObject) -> tuple[Assumption, ...]:
    """Returns the assumptions that each run was what is charged for.

    Args:
        spending: What is known of runs, as releases have it: for the "training" and the "score"
            how many runs each of the three words is true of, or the one word that is true of all.
    """
    trainings, scores = _words(spending, "training"), _words(spending, "score")
    return (
        *(line for word in _TRAININGS if word in trainings for line in _TRAININGS[word]),
        *(line for word in _SCORES if word in scores for line in _SCORES[word]),
        _NOWHERE_ELSE,
    )


def is_enforced(spending: JsonObject) -> bool:
    """Returns whether the software itself took every step of every training."""
    return is_trained_here(spending) and not spending.get("fewer_steps")


def is_trained_here(spending: JsonObject) -> bool:
    """Returns whether the software itself made every training that gave an output."""
    return _words(spending, "training") == {ENFORCED}


def _words(spending: JsonObject, name: str) -> set[str]:
    """Returns which of the three words are true of some run."""
    words = spending.get(name)
    if name == "training" and not words:
        return {NOT_CHECKED}
    return {words} if isinstance(words, str) else set(words or ())
