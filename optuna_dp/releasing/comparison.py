"""The comparison of a statement with what follows from its own events, design and values.

The statement is made a second time, from the guarantee, the design and the released values that
it holds itself (:func:`optuna_dp.evidence.statement_data.statement_data`), and compared key by
key. All has to be the same, except for what the constants name here and in
:mod:`optuna_dp.releasing.json_differences`. So a key that is added to statements is compared from
then on, and a key that no statement has is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dp_accounting import dp_event
from optuna.distributions import json_to_distribution

from optuna_dp import validation
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.evidence.earlier_words import is_earlier
from optuna_dp.evidence.markdown import Page, range_in_words
from optuna_dp.evidence.preparation import persons
from optuna_dp.evidence.procedures import (
    description_of,
    guarantee_without_study,
    procedure_of,
)
from optuna_dp.evidence.record_counts import RecordCounts
from optuna_dp.evidence.run_record import RunRecord
from optuna_dp.evidence.statement_data import statement_data
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.optuna_internals import contains
from optuna_dp.protocol.plan import Design
from optuna_dp.releasing.data_description import DataDescription
from optuna_dp.releasing.json_differences import (
    BOUNDS,
    difference,
    difference_in,
    differs_much,
    shown,
)
from optuna_dp.releasing.release import statement_page
from optuna_dp.releasing.statement_file import check_keys

# Grids of bounds depend on how numpy and scipy round. All of them are true. One by other versions
# cannot be computed again: smaller by no more than this share, it is said to be unchecked.
_OTHER_GRIDS = 1e-3
_LIBRARIES_OF_GRIDS = ("numpy", "scipy", "dp-accounting")
# Words and methods that depend on the version of optuna-dp; those of another one are unknown here.
_OF_A_VERSION = {
    "trust",
    "checked",
    "assumptions",
    "not_covered",
    "method",
    "epsilon_by_method",
    "comparisons",
}
# Of these the page shows this version's, whatever the JSON has.
_WORDS = ("protected", "trust", "checked", "assumptions", "not_covered")


@dataclass(frozen=True)
class Check:
    """One thing that was computed again.

    Attributes:
        what: What it is about.
        holds: Whether the statement says the same.
        found: What was found, in words.
        reason: Of what differs, what that means; empty of what agrees.
    """

    what: str
    holds: bool
    found: str
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """What was compared.

    Attributes:
        checks: What was computed again.
        unchecked: What was not there to be compared, each with what is missing.
        promises: What no software can check, in the words of this version.
        guarantee: The guarantee that the statement holds.
        page: What the statement says, in the words of this version, since a statement may leave
            some out; None if anything differs.
        of_another_version: Parts that another version of optuna-dp, or of a library that it
            computes with, has made otherwise, and that were not compared.
    """

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    promises: tuple[str, ...]
    guarantee: Guarantee
    page: Page | None
    of_another_version: tuple[str, ...]


def compared(statement: Mapping[str, Any]) -> Comparison:
    """Compares every key of a statement with what follows from its own events and values.

    Args:
        statement: The statement, plain JSON values with the keys of one.

    Raises:
        Exception: Of any kind, if the statement holds what none can hold.
    """
    guarantee = Guarantee.from_json(statement["guarantee"])
    design = Design.from_json(statement["design"])
    fits, has_training = _design_and_guarantee(design, guarantee)
    procedure_words, content = description_of(design), statement["content"]
    described_records = None
    if "description" in content:
        described_records = DataDescription.from_json(content["description"]).records
    unit, cap, _ = persons(content)
    made_anew = statement_data(
        guarantee,
        design,
        delta=validation.open_unit("delta", statement["delta"]),
        content=content,
        procedure_words=procedure_words,
        trained=has_training,
        unit=unit,
        cap=cap,
    )
    check_keys(statement, set(made_anew))
    recomputed = json.loads(json.dumps(made_anew))
    versions = statement["versions"]
    if not _texts(list(versions.values())) or not _texts(statement["assumptions"]):
        raise ValueError("its versions or its assumptions are no texts")
    software = ", ".join(
        f"{name} {version}"[:60] for name, version in sorted(versions.items())[:20]
    )
    unchecked = [
        f"The versions of the software that computed it, said to be {software or 'unknown'}."
    ]
    own_versions = recomputed.pop("versions")
    own_version = own_versions.get("optuna-dp")
    other_libraries = [
        f"{name} {own_versions.get(name)}"
        for name in _LIBRARIES_OF_GRIDS
        if own_versions.get(name) != versions.get(name)
    ]
    of_another_version = own_version is not None and own_version != versions.get("optuna-dp")
    counts = procedure_words.record_counts(design, content.get("spending", {}))
    checks = [fits]
    contradiction = procedure_words.contradiction(design, content)
    if contradiction:
        checks.append(difference_check("counts of runs", contradiction))
    checks.append(_check_of_hyperparameters(content))
    parts_of_another_version = []
    if described_records is not None and counts.protected is not None:
        checks.append(_check_of_records(counts, described_records))
    elif described_records is not None and counts.trained is not None:
        unchecked.append(
            f"The number of records: {described_records:,} are described. The plan trains on "
            f"{counts.trained:,} and scores others, which are protected too; how many is not "
            "recorded."
        )
    for key, value in recomputed.items():
        heading = "SHA-256" if key == "digest" else key.replace("_", " ")
        differs = difference_in(key, statement, value)
        if differs and is_earlier(key, design.procedure, statement[key]):
            unchecked.append(
                f"{heading.capitalize()}: in an earlier wording of optuna-dp {own_version}. "
                "--statement prints them as they are worded now."
            )
        elif (
            differs
            and other_libraries
            and key in BOUNDS
            and not difference(statement[key], value, bound=True, share=_OTHER_GRIDS)
        ):
            parts_of_another_version.append(heading)
            unchecked.append(
                f"{heading.capitalize()}: smaller by less than {100 * _OTHER_GRIDS:g} % than what "
                f"follows with {', '.join(other_libraries)}, which check here. Verify it with the "
                "versions that are said to have computed it."
            )
        elif differs and of_another_version and key in _OF_A_VERSION:
            parts_of_another_version.append(heading)
            stated_version = str(versions.get("optuna-dp", "another version"))[:40]
            unchecked.append(
                f"{heading.capitalize()}: not as in optuna-dp {own_version}, which checks here. "
                f"Verify it with the version that is said to have made it: {stated_version}."
            )
        else:
            recomputed_text = shown(value) or "as computed again"
            if key == "epsilon" and value is not None:
                recomputed_text = rounded_up(value, 4)
            if key in ("epsilon", "attack") and differs_much(statement[key], value):
                recomputed_text += (
                    f"; the statement says {shown(statement[key]) or 'none'}, which claims less"
                )
            checks.append(
                difference_check(heading, differs)
                if differs
                else Check(heading, True, recomputed_text)
            )
    page = None
    if all(check.holds for check in checks):
        words = {key: made_anew[key] for key in _WORDS}
        page = _page({**statement, **words}, design, guarantee, has_training)
    return Comparison(
        checks=tuple(checks),
        unchecked=tuple(unchecked),
        promises=tuple(recomputed["assumptions"]),
        guarantee=guarantee,
        page=page,
        of_another_version=tuple(parts_of_another_version),
    )


def _check_of_records(counts: RecordCounts, described_records: int) -> Check:
    """Compares the described number of records with the planned one."""
    reason = counts.contradiction(described_records)
    if reason:
        return difference_check("records", f"{described_records:,} are described, but {reason}")
    return Check("records", True, f"{described_records:,} are described, and planned for")


def _check_of_hyperparameters(content: Mapping[str, Any]) -> Check:
    """Compares every released hyperparameter with its stated range or choices."""
    pilots = enumerate(content["attributes"].get("pilots") or (), start=1)
    runs = [("", content["params"]), *((f" of pilot {i}", pilot["params"]) for i, pilot in pilots)]
    for owner, params in runs:
        for name, value in (params or {}).items():
            record = content["distributions"].get(name)
            if record is None or not _is_within(value, record):
                stated = "no range" if record is None else range_in_words(record)[:120]
                return difference_check(
                    "hyperparameters",
                    f"{str(name)[:40]}{owner} is {str(value)[:40]}, and {stated} is stated",
                )
    return Check("hyperparameters", True, "in their stated ranges")


def _is_within(value: Any, record: Mapping[str, Any]) -> bool:
    """Returns whether a value is one of a range or of choices, both as JSON has them."""
    choices = record["attributes"].get("choices")
    if choices is not None:
        return any(not difference(choice, value, bound=False) for choice in choices)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    distribution = json_to_distribution(json.dumps(record))
    try:
        internal = distribution.to_internal_repr(value)
    except ValueError:  # Optuna's way with a logarithm of zero.
        return False
    return contains(distribution, internal)


def difference_check(what: str, found: str) -> Check:
    """Returns the check of something that differs, with what that means."""
    is_text = what.replace(" ", "_") in _WORDS
    return Check(what, False, found, _REASONS.get(what, _OF_WORDS if is_text else _OTHERWISE))


_REASONS = {
    "epsilon": "A smaller epsilon is stated than the runs in the file cost: the statement claims "
    "more privacy than there is.",
    "attack": "The attack is that of other runs: the runs in the file, or the attack, were "
    "changed after the release was made.",
    "counts of runs": "No study can have that: runs were left out of the file, or a number was "
    "changed.",
    "unit with several records": "Whoever has several records is protected less than stated, or "
    "the stated cap is not that of the description.",
    "rdp": "A smaller bound is stated than the runs cost.",
    "gaussian dp": "A smaller bound is stated than the runs cost.",
    "hyperparameters": "No run of the stated search can have such a value: it was changed, or its "
    "range was.",
    "epsilon by method": "A smaller bound is stated than the runs cost.",
    "SHA-256": "The guarantee, the design or the released values were changed after the digest "
    "was made, or the digest was.",
    "guarantee of the stated design": "A study of the stated design costs something else: one of "
    "the two was changed.",
    "records": "The curator's description and the plan count other records. Ask which number is "
    "right: batches, delta and scores depend on it.",
    "released values": "The values beside the statement are not those that it was made for.",
    "artifact": "The file is not the released model, or was changed since.",
    "protected": "Something else is said to be protected than the guarantee protects.",
    "neighboring relation": "Something else is said to be protected than the guarantee protects.",
    "unit": "Something else is said to be protected than the guarantee protects.",
}
_OF_WORDS = (
    "These are not the words of this version of optuna-dp for such a release: somebody has "
    "changed them."
)
_OTHERWISE = "Somebody has changed the file, or another version of optuna-dp made it."


def _page(
    data: Mapping[str, Any], design: Design, guarantee: Guarantee, has_training: bool
) -> Page:
    """Returns what the statement says, in the words of this version."""
    search, training = guarantee, None
    if has_training:  # Release.with_training puts the search first.
        search_event, *training_events = guarantee.event.events
        search = replace(guarantee, event=search_event)
        training = (
            training_events[0]
            if len(training_events) == 1
            else dp_event.ComposedDpEvent(training_events)
        )
    law = design.settings.get("trials")
    constant = law.get("n") if isinstance(law, dict) and law.get("n") == law.get("mean") else None
    number = (
        None
        if constant is None
        else (
            f"{constant} runs could be chosen from. The number is no secret, and the guarantee is "
            "that of the best of exactly so many"
        )
    )
    return statement_page(data, design, search, training=training, number_of_runs=number)


def _design_and_guarantee(design: Design, guarantee: Guarantee) -> tuple[Check, bool]:
    """Whether the event is the one that this design has, and has a final training besides."""
    subject = "guarantee of the stated design"
    searches = [guarantee]
    if isinstance(guarantee.event, dp_event.ComposedDpEvent) and guarantee.event.events:
        # Release.with_training puts the search first.
        searches.append(replace(guarantee, event=guarantee.event.events[0]))
    for search in searches:
        if _implied(design, search).to_json() == search.to_json():
            return Check(subject, True, "the same"), search is not guarantee
    return difference_check(subject, "another one"), False


def _implied(design: Design, search: Guarantee) -> Guarantee:
    """The guarantee of a study of this design, whose runs cost what they do in this one."""
    guarantee = guarantee_without_study(design)
    if guarantee is not None:
        return guarantee
    # One run, where the design leaves it open: in a selection, which pilots may stand before.
    last_event = getattr(search.event, "events", [search.event])[-1]
    run = getattr(last_event, "run", search.event)
    record = RunRecord(run, neighboring_relation=search.neighboring_relation)
    return procedure_of(design).guarantee(record)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
