"""The score of a run in words: what was computed for each record."""

from __future__ import annotations

from optuna_dp.core.value_types import JsonObject
from optuna_dp.runs.trial_notes import BY_FUNCTION
from optuna_dp.training.prepared import BY_ROW

_IN_WORDS = {
    "accuracy": "It is the accuracy: the share of records about which the model was right",
    "closeness": "It is the closeness: one minus the mean distance of prediction and target, in "
    "widths of the target's range",
    BY_FUNCTION: "It is the mean of one number in [0, 1] for each record, by a function of the "
    "script",
}


def measure_in_words(content: JsonObject) -> str:
    """Returns a sentence on what the score is, to follow another one; empty if it is not known.

    Args:
        content: What is released, with what is known of the runs ("spending").
    """
    spending, value = content.get("spending", {}), content["value"]
    measure = spending.get("measure")
    if measure is None:
        return ""
    text = f". {_IN_WORDS[measure]}"
    width = _width_of_target(spending.get("prepared") or {}) if measure == "closeness" else None
    if width is None or not isinstance(value, float) or not value < 1.0:
        return text
    distance = (1.0 - value) * width
    return f"{text}, {width:g}. So {value:.4g} is a mean distance of {distance:.3g}"


def impossible_measure(spending: JsonObject) -> str:
    """Returns why no run can have the stated kind of score; empty if one can."""
    measure = spending.get("measure")
    return "" if measure is None or measure in _IN_WORDS else "a score is of no known kind"


def _width_of_target(prepared: JsonObject) -> float | None:
    """Returns how wide the range of the target is; None if it is not known which target it is."""
    # Targets that a function made may be of either schema.
    schema = None if prepared.get("word") == BY_ROW else prepared.get("schema")
    if schema is None or schema.get("target") is None:
        return None
    _, column = schema["target"]
    return float(column["high"] - column["low"])
