"""Events in words, for statements that people read."""

from __future__ import annotations

import re
from typing import Protocol

from dp_accounting import dp_event, privacy_accountant
from dp_accounting.pld import PLDAccountant

from optuna_dp.accounting import events
from optuna_dp.accounting.kinds.foreign import kind_of


class _Run(Protocol):
    @property
    def event(self) -> dp_event.DpEvent: ...
    @property
    def neighboring_relation(self) -> str: ...


class _RunCost(Protocol):
    @property
    def run(self) -> _Run: ...
    @property
    def output_attributes(self) -> tuple[str, ...]: ...


def in_words(event: dp_event.DpEvent) -> str:
    """Returns what was done to the data, as one line of text."""
    return kind_of(event).words(in_words)


def differences_of_runs(left: _RunCost, right: _RunCost) -> str:
    """Says where two records of a run's cost differ, argument by argument; empty if nowhere.

    Args:
        left: What one run costs, and which attributes of a trial are outputs.
        right: The like.
    """
    differences = []
    if left.run.event != right.run.event:
        left_value, right_value = in_words(left.run.event), in_words(right.run.event)
        if left_value == right_value:  # They differ in what the words leave out.
            left_value, right_value = repr(left.run.event), repr(right.run.event)
        differences.append(f"run is {left_value} here and {right_value} there")
    relations = (left.run.neighboring_relation, right.run.neighboring_relation)
    names = (left.output_attributes, right.output_attributes)
    for name, (here, there) in (
        ("neighboring_relation", relations),
        ("output_attributes", names),
    ):
        if here != there:
            differences.append(f"{name} is {here!r} here and {there!r} there")
    return "; ".join(differences)


def why_unsupported(event: dp_event.DpEvent, relation: str) -> str:
    """Says why no accountant of dp-accounting supports an event, and what to do about it."""
    try:
        PLDAccountant(events.neighboring_relation(relation)).compose(event)
    except privacy_accountant.UnsupportedEventError as error:
        reason = str(error)
    else:
        reason = "its RDP is not known for this relation"
    message = f"under the relation {relation!r}, dp-accounting says: {reason}"
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return f"{message} On a sample, most events need 'add_or_remove_one'."
    if re.search(r"\bLaplaceDpEvent", repr(event)) and relation == "replace_one":
        return f"{message} Describe it as pure_dp(2 / noise_multiplier)."
    return f"{message} Describe it by a bound that you know: rdp(...), approximate_dp(...)."
