"""The assumption that runs were what is charged for, and what holds it."""

from __future__ import annotations

from collections.abc import Mapping

from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.assumptions import Assumption
from optuna_dp.runs.judgement import COMPARED, ENFORCED, NOT_CHECKED, WORDS

# By what a training or a score is held, in words for a reader who does not know the software.
_HELD = {
    ENFORCED: "the software did it itself (*enforced*)",
    COMPARED: "the curator's own code did it, and what its accountant recorded was compared with "
    "the plan (*compared*). That the code did what was recorded is the curator's word",
    NOT_CHECKED: "nothing but the curator's word holds it (*not checked*)",
}
_HELD_SCORE = {
    **_HELD,
    COMPARED: "the software added the noise to one value for each record (*compared*). How the "
    "values were computed is the curator's word",
}
_QUESTIONS = {
    ENFORCED: "Does the script use the records for nothing but the training and the score that "
    "the software itself computed?",
    COMPARED: "Has somebody read the code of the training and the score, and found that it uses "
    "the records as {rows} and as its accountant recorded, and in no other way?",
    NOT_CHECKED: "Nothing shows what the runs did. Has somebody read the code of the training and "
    "the score, and found that it uses the records as {rows}, and in no other way?",
}


def what_a_run_is(spending: JsonObject, rows: tuple[str, ...]) -> Assumption:
    """Returns the assumption that each run was what is charged for, and what holds it.

    Args:
        spending: What is known of runs, as releases have it: for the "training" and the "score"
            how many runs each of the three words is true of, or the one word that is true of all.
        rows: The statement's rows that say what a run is.
    """
    run_count = spending.get("runs")
    trainings, scores = _counts(spending, "training"), _counts(spending, "score")
    rows_say = f"the {'row' if len(rows) == 1 else 'rows'} {_listed(rows)} " + (
        "says" if len(rows) == 1 else "say"
    )
    training_words = _in_words(trainings, _HELD, run_count, "with an output")
    text = (
        f"Each run used the records as {rows_say}, and in no other way, whatever its "
        f"hyperparameters were. Its training: {training_words}."
    )
    if scores:
        scored_count = sum(_numbers(scores)) or None
        text += f" Its score: {_in_words(scores, _HELD_SCORE, scored_count, 'with a score')}."
    words = {*trainings, *scores}
    if words <= {ENFORCED}:
        text += " What is left to the curator: that the script uses the records nowhere else."
    worst = next(word for word in reversed(WORDS) if word in (words or {NOT_CHECKED}))
    places = [*rows, "Training", *(["Score"] if scores else [])]
    return Assumption(
        text,
        _QUESTIONS[worst].format(rows=rows_say),
        f"{'rows' if len(places) > 1 else 'row'} {_listed(places)}",
        facts=tuple(places),
    )


def is_enforced(spending: JsonObject) -> bool:
    """Returns whether the software itself took every step of every training."""
    return is_trained_here(spending) and not spending.get("fewer_steps")


def is_trained_here(spending: JsonObject) -> bool:
    """Returns whether the software itself made every training that gave an output."""
    return set(_counts(spending, "training")) == {ENFORCED}


def _counts(spending: JsonObject, name: str) -> dict[str, int | None]:
    """Returns how many runs a word is true of; None instead of a number that is secret."""
    counts = spending.get(name)
    if name == "training" and not counts:
        return {NOT_CHECKED: None}
    return {counts: None} if isinstance(counts, str) else dict(counts or {})


def _numbers(counts: Mapping[str, int | None]) -> list[int]:
    return [count for count in counts.values() if count is not None]


def _in_words(
    counts: Mapping[str, int | None], held: Mapping[str, str], run_count: int | None, which: str
) -> str:
    """Returns by what runs are held; ``which`` says which runs ``run_count`` counts."""
    parts = []
    for word in WORDS:
        if word not in counts:
            continue
        count = counts[word]
        is_all = count is None or count == run_count
        runs = f"in {'every run' if is_all else f'{count} of {run_count} runs'} {which}"
        parts.append(f"{runs} {held[word]}")
    return "; ".join(parts)


def _listed(rows: tuple[str, ...] | list[str]) -> str:
    names = [f"*{row}*" for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
