"""The comparison of a statement with what follows from its own events, design and values.

The statement is made a second time, from the guarantee, the design and the released values that
it holds itself (:func:`optuna_dp.releasing.statement_data.statement_data`), and compared key by
key, its facts one by one. So a key or a fact that is added to statements is compared from then
on, and one that no statement has is a difference.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeGuard

from dp_accounting import dp_event
from optuna.distributions import json_to_distribution

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.core import validation
from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.core.optuna_internals import contains
from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.procedures import (
    description_of,
    guarantee_without_study,
    procedure_of,
    releases_all_runs,
)
from optuna_dp.releasing.markdown import range_in_words
from optuna_dp.releasing.statement_data import FILES, statement_data
from optuna_dp.releasing.statement_file import check_keys
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from optuna_dp.evidence.record_counts import RecordCounts

# Bounds: a stated number may be larger than what is found. None stands for infinity.
_BOUNDS = {
    "epsilon",
    "epsilon_by_method",
    "unit_with_several_records",
    "rdp",
    "gaussian_dp",
    "attack_risks",
}
# Parts of bounds that are none themselves.
_EXACT = {"records", "orders", "tail", "unit", "false_positive_rates"}
# By how large a share of it a stated bound may be smaller than what is found. Other versions of
# numpy, scipy and dp-accounting round on other grids: all of these bounds are true.
_ROUNDING, _OTHER_GRIDS = 1e-6, 1e-3
_LIBRARIES_OF_GRIDS = ("numpy", "scipy", "dp-accounting")
# What depends on the version of optuna-dp, and is compared with the same version only.
_WORDS = ("facts", "assumptions", "trust", "checked", "not_covered", "must_not")
_OF_A_VERSION = (*_WORDS, "runs", "method", "epsilon_by_method", "comparisons")

_OF_TRAINING = "the cost of a final training"
_OF_EVENTS = "noise and steps of a plan whose runs are known by their events only"
# What stands in a file once, so that nothing else in it shows whether it was changed: places in
# the statement, by the words for them. A star stands for any text.
# ``tests/releasing/test_fields_of_files.py`` changes every field of each kind of release: where a
# change is not found, the place is in this table.
NOT_COMPARED: Mapping[str, tuple[str, ...]] = {
    "hyperparameters within their ranges, scores within their noise, and other released values": (
        "content.params.*",
        "content.value",
        "content.attributes*",
        "content.artifact_sha256",
    ),
    "what pilots returned, and pilots left out as if they had not begun": (
        "content.attributes.pilots*",
    ),
    "the ranges of hyperparameters, where the plan does not say them": (
        "content.distributions.*",
    ),
    "names of samplers, the direction, and settings of the search that cost nothing": (
        "design.sampler",
        "design.direction",
        "design.seeded",
        "design.settings.first_batch",
        "design.settings.pilot_batch_size",
        "design.settings.batch_size",
        "design.settings.proposer",
        "design.settings.choose",
        "design.settings.prior*",
        "design.settings.search*",
        "design.settings.candidates*",
        "design.settings.n_partitions",
        "design.settings.mechanism.granularity",
        "design.settings.mechanism.lower_bound",
    ),
    "a planned epsilon that is larger than what the runs cost": (
        "design.settings.plan.epsilon",
        "design.settings.plan.delta",
    ),
    "the number of records in a batch, beside its share of all records": (
        "design.settings.plan.batch_size",
    ),
    _OF_EVENTS: (
        "design.settings.plan.rungs.*.noise_multiplier",
        "design.settings.plan.rungs.*.steps",
        "design.settings.plan.final.noise_multiplier",
        "design.settings.plan.final.steps",
    ),
    _OF_TRAINING: ("guarantee.event.events.1*",),
    "what the curator described and vouched for": (
        "content.description.*",
        "content.spending.vouched*",
    ),
    "the public ranges and lists of a schema, and what a function that prepared rows holds": (
        "content.spending.prepared.schema*",
        "content.spending.prepared.then*",
        "content.spending.prepared.function",
        "content.spending.prepared.outside*",
    ),
    "how many runs asked what they may spend, or took fewer steps": (
        "content.spending.asked",
        "content.spending.fewer_steps",
    ),
    "how many older studies the storage held": ("content.spending.older_studies",),
    "which kind of score was computed": ("content.spending.measure",),
    "how many disjoint records were scored": ("content.spending.scored_records",),
    "the most records of a person that the plan names, if the runs used no more": (
        "design.settings.plan.most",
        "design.settings.plan.person_epsilon",
    ),
    "for how many records and columns the drawing of ranges was planned": (
        "design.settings.plan.ranges.records",
        "design.settings.plan.ranges.columns",
    ),
    "the names and digests of the script's files": ("content.spending.script.*",),
    "the clipping norm, the physical batch, the processes, and whether bits are reproducible": (
        "content.spending.step.clipping_norm",
        "content.spending.step.physical_batch",
        "content.spending.step.ranks",
        "content.spending.step.reproducible",
    ),
}


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
        guarantee: The guarantee that the statement holds.
        statement: The statement, with the facts and words of this version.
        of_another_version: What another version of optuna-dp made otherwise, and was not compared.
    """

    checks: tuple[Check, ...]
    unchecked: tuple[str, ...]
    guarantee: Guarantee
    statement: JsonObject
    of_another_version: tuple[str, ...] = ()


def compared(statement: JsonObject) -> Comparison:
    """Compares every key of a statement with what follows from its own events and values.

    Args:
        statement: The statement, plain JSON values with the keys of one.

    Raises:
        Exception: Of any kind, if the statement holds what none can hold.
    """
    guarantee = Guarantee.from_json(statement["guarantee"])
    design = Design.from_json(statement["design"])
    has_design, training = _design_and_training(design, guarantee)
    if not has_design.holds:  # Nothing else follows from an event that is not the design's.
        return Comparison((has_design,), (), guarantee, statement)
    content = statement["content"]
    delta = validation.open_unit("delta", statement["delta"])
    made_again = json.loads(
        json.dumps(
            statement_data(guarantee, design, delta=delta, content=content, training=training)
        )
    )
    check_keys(statement, set(made_again))
    stated_versions, own_versions = statement["versions"], made_again["versions"]
    if not all(isinstance(text, str) for text in stated_versions.values()):
        raise ValueError("its versions are no texts")
    share, unchecked = _ROUNDING, [_versions_in_words(stated_versions, own_versions)]
    others = [
        f"{name} {stated_versions.get(name)}"
        for name in _LIBRARIES_OF_GRIDS
        if stated_versions.get(name) != own_versions.get(name)
    ]
    if others:
        share = _OTHER_GRIDS
        unchecked.append(
            f"Bounds were compared to {100 * _OTHER_GRIDS:g} % only: {', '.join(others)} is said "
            "to have computed them, and another version checks them here."
        )
    is_own_version = stated_versions.get("optuna-dp") == own_versions.get("optuna-dp")
    description = description_of(design)
    checks = [has_design]
    if design.seeded and not releases_all_runs(design):
        checks.append(differing("seed", "the design has one, and no such study is released"))
    planned = description.planned(design)
    if planned is not None:
        checks.append(_check_of_plan(guarantee, training, *planned))
    contradiction = description.contradiction(design, content)
    if contradiction:
        checks.append(differing("runs and scores", contradiction))
    checks.append(_check_of_hyperparameters(content))
    counts = description.record_counts(design, content.get("spending", {}))
    described_records = content.get("description", {}).get("records")
    if described_records is not None and counts.protected is not None:
        checks.append(_check_of_records(counts, described_records))
    elif described_records is not None and counts.trained is not None:
        unchecked.append(
            f"The number of records: {described_records:,} are described. The plan trains on "
            f"{counts.trained:,} and scores others, which are protected too; how many is not "
            "recorded."
        )
    of_another_version = []
    for key, value in made_again.items():
        if key == "versions":
            continue
        difference = _difference_in(key, statement, value, share)
        if difference and key in _OF_A_VERSION and not is_own_version:
            of_another_version.append(_heading(key))
        elif difference:
            checks.append(differing(_heading(key), difference))
        else:
            checks.append(Check(_heading(key), True, _agreeing(key, statement[key], value)))
    unchecked.append(_not_compared_in_words(statement))
    return Comparison(
        checks=tuple(checks),
        unchecked=tuple(unchecked),
        guarantee=guarantee,
        statement={**statement, **{key: made_again[key] for key in _WORDS}},
        of_another_version=tuple(of_another_version),
    )


def places_not_compared(statement: JsonObject) -> dict[str, str]:
    """Returns the places in a statement that nothing else in it is compared with.

    Returns:
        The words of :data:`NOT_COMPARED` by the place, its keys joined by points.
    """
    plan = statement["design"]["settings"].get("plan") or {}
    # In a DP-SGD plan the events are made of these numbers, and without a final training the event
    # of the design is the whole.
    tied = {_OF_EVENTS} if plan.get("sample_rate") is not None else set()
    if not any(fact["name"] == "Final training" for fact in statement["facts"]):
        tied.add(_OF_TRAINING)
    found = {}
    for words, patterns in NOT_COMPARED.items():
        if words in tied:
            continue
        for place in map(".".join, _places(statement)):
            if any(fnmatchcase(place, pattern) for pattern in patterns):
                found[place] = words
    return found


def _not_compared_in_words(statement: JsonObject) -> str:
    """Returns what stands in a statement once, as one sentence."""
    words = dict.fromkeys(places_not_compared(statement).values())
    return f"What stands in the file once, so that nothing shows a change: {'; '.join(words)}."


def _places(value: object, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields where single values are in JSON; an empty list or object is one."""
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from _places(part, (*place, str(key)))
    elif isinstance(value, list) and value:
        for i, part in enumerate(value):
            yield from _places(part, (*place, str(i)))
    else:
        yield place


def difference(
    stated: object, recomputed: object, *, is_bound: bool = False, share: float = 0.0
) -> str:
    """Says where a stated JSON value is not the computed one; empty if nowhere. 1 is not true.

    Args:
        stated: The stated value.
        recomputed: The one that was computed again.
        is_bound: Whether numbers are upper bounds, so that a larger one is true, too.
        share: By how large a share of it a stated bound may be smaller.
    """
    if isinstance(stated, list) and isinstance(recomputed, list):
        stated, recomputed = _by_name(stated), _by_name(recomputed)
    if isinstance(stated, dict) and isinstance(recomputed, dict):
        for key in stated.keys() ^ recomputed.keys():
            return f"{str(key)[:40]} is {'unknown' if key in stated else 'missing'}"
        for key in recomputed:
            part = difference(
                stated[key], recomputed[key], is_bound=is_bound and key not in _EXACT, share=share
            )
            if part:
                return f"{str(key)[:40]}: {part}"
        return ""
    agrees = stated == recomputed and isinstance(stated, bool) == isinstance(recomputed, bool)
    if is_bound and _is_bound(stated) and _is_bound(recomputed):
        limit = math.inf if recomputed is None else recomputed
        agrees = stated is None or limit <= stated * (1 + share)
    return "" if agrees else f"{_shown(recomputed) or 'another'}, stated {str(stated)[:40]}"


def _by_name(values: list[object]) -> dict[int, object] | dict[str, object]:
    """Returns the values of a list by their names, such as facts; by their places otherwise."""
    names = [value.get("name") if isinstance(value, dict) else None for value in values]
    if None in names or len(set(map(str, names))) < len(names):
        return dict(enumerate(values))
    return dict(zip(map(str, names), values, strict=True))


def _difference_in(key: str, statement: JsonObject, value: object, share: float) -> str:
    """Says where a key of a statement is not what was found; empty if nowhere."""
    stated = statement[key]
    if key == "attack" and (
        stated is None or not difference(value, stated, is_bound=True, share=share)
    ):
        return ""  # A bound from below, which may say less.
    if key == "method" and stated not in statement["comparisons"]:
        # Of two methods with the same epsilon, rounding may choose either.
        methods = statement["epsilon_by_method"]
        value = stated if methods.get(stated) == statement["epsilon"] else value
    return difference(stated, value, is_bound=key in _BOUNDS, share=share)


def _is_bound(value: object) -> TypeGuard[float | None]:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _heading(key: str) -> str:
    return "SHA-256" if key == "digest" else key.replace("_", " ")


def _agreeing(key: str, stated: Any, value: Any) -> str:
    """Returns what was found, where the statement says the same or less.

    ``stated`` and ``value`` are what the JSON has under this key; of an epsilon or an attack they
    are numbers or None.
    """
    text = rounded_up(value, 4) if key == "epsilon" and value is not None else _shown(value)
    if key in ("epsilon", "attack") and difference(stated, value):
        is_close = None not in (stated, value) and math.isclose(stated, value, rel_tol=1e-3)
        claims = f"; the statement says {_shown(stated) or 'none'}, which claims less"
        return text + ("" if is_close else claims)
    return text or "as computed again"


def _shown(value: object) -> str:
    """Returns what was found in words, where it is short; else nothing."""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return "" if isinstance(value, dict | list) or len(text) > 70 else text


def _versions_in_words(versions: Mapping[str, str], own: Mapping[str, str]) -> str:
    software = ", ".join(f"{name} {text}"[:100] for name, text in sorted(versions.items())[:20])
    words = f"The versions of the software that computed it, said to be {software or 'unknown'}."
    if versions.get("optuna-dp") == own.get("optuna-dp") and versions.get(FILES) != own[FILES]:
        words += f" The files of optuna-dp here are others: {own[FILES]}."
    return words


def _check_of_plan(
    guarantee: Guarantee, training: dp_event.DpEvent | None, epsilon: float, delta: float
) -> Check:
    """Compares what the runs cost with what was planned."""
    search = guarantee
    if training is not None:
        search = replace(guarantee, event=guarantee.event.events[0])
    found = search.epsilon(delta)
    words = f"{rounded_up(found, 4)} at delta = {delta:g}, planned at most {epsilon:g}"
    if found <= epsilon * (1 + _OTHER_GRIDS):
        return Check("planned epsilon", True, words)
    return differing("planned epsilon", words)


def _check_of_records(counts: RecordCounts, described_records: int) -> Check:
    """Compares the described number of records with the planned one."""
    reason = counts.contradiction(described_records)
    if reason:
        return differing("records", f"{described_records:,} are described, but {reason}")
    return Check("records", True, f"{described_records:,} are described, and planned for")


def _check_of_hyperparameters(content: JsonObject) -> Check:
    """Compares every released hyperparameter with its stated range or choices."""
    pilots = enumerate(content["attributes"].get("pilots") or (), start=1)
    runs = [("", content["params"]), *((f" of pilot {i}", pilot["params"]) for i, pilot in pilots)]
    for owner, params in runs:
        for name, value in (params or {}).items():
            record = content["distributions"].get(name)
            if record is None or not _is_within(value, record):
                stated = "no range" if record is None else range_in_words(record)[:120]
                return differing(
                    "hyperparameters",
                    f"{str(name)[:40]}{owner} is {str(value)[:40]}, and {stated} is stated",
                )
    return Check("hyperparameters", True, "in their stated ranges")


def _is_within(value: object, record: JsonObject) -> bool:
    """Returns whether a value is one of a range or of choices, both as JSON has them."""
    choices = record["attributes"].get("choices")
    if choices is not None:
        return any(not difference(choice, value) for choice in choices)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    distribution = json_to_distribution(json.dumps(record))
    try:
        internal = distribution.to_internal_repr(value)
    except ValueError:  # Optuna's way with a logarithm of zero.
        return False
    return contains(distribution, internal)


def differing(what: str, found: str) -> Check:
    """Returns the check of something that differs, with what that means."""
    return Check(what, False, found, _REASONS.get(what, _OTHERWISE))


_SMALLER = "A smaller bound is stated than the runs in the file cost: it claims more privacy."
_PROTECTED = "Something else is said to be protected than the guarantee protects."
_REASONS = {
    **dict.fromkeys(
        ("epsilon", "rdp", "gaussian dp", "attack risks", "epsilon by method"), _SMALLER
    ),
    **dict.fromkeys(("protected", "unit"), _PROTECTED),
    "attack": "The attack is that of other runs: the runs in the file, or the attack, were "
    "changed after the release was made.",
    "runs and scores": "No study can have that: runs were left out of the file, or a number was "
    "changed.",
    "facts": "The events, the design and the released values in the file say something else.",
    "unit with several records": "Whoever has several records is protected less than stated, or "
    "the stated number of one person's records is not that of the description.",
    "hyperparameters": "No run of the stated search can have such a value: it was changed, or its "
    "range was.",
    "planned epsilon": "The runs cost more than the plan allows, or the plan was changed.",
    "SHA-256": "The guarantee, the design or the released values were changed after the digest "
    "was made, or the digest was.",
    "guarantee of the stated design": "A study of the stated design costs something else: one of "
    "the two was changed.",
    "seed": "The secret number of runs follows from a seed, so nothing of the guarantee holds.",
    "records": "The curator's description and the plan count other records. Ask which number is "
    "right: batches, delta and scores depend on it.",
    "released values": "The values beside the statement are not those that it was made for.",
    "artifact": "The file is not the released model, or was changed since.",
    "signature": "Somebody else signed this file, or it was changed since it was signed.",
}
_OTHERWISE = "Somebody has changed the file: optuna-dp says something else of such a release."


def _design_and_training(
    design: Design, guarantee: Guarantee
) -> tuple[Check, dp_event.DpEvent | None]:
    """Returns whether the event is the one that this design has, and the final training."""
    subject = "guarantee of the stated design"
    implied = _implied(design)
    if implied.to_json() == guarantee.to_json():
        return Check(subject, True, "the same"), None
    if isinstance(guarantee.event, dp_event.ComposedDpEvent) and guarantee.event.events:
        # Release.with_training puts the search first.
        search_event, *trainings = guarantee.event.events
        search = replace(guarantee, event=search_event)
        if implied.to_json() == search.to_json():
            is_one = len(trainings) == 1
            training = trainings[0] if is_one else dp_event.ComposedDpEvent(trainings)
            return Check(subject, True, "the same"), training
    return differing(subject, "another one"), None


def _implied(design: Design) -> Guarantee:
    """Returns the guarantee of a study of this design."""
    guarantee = guarantee_without_study(design)
    return procedure_of(design).guarantee() if guarantee is None else guarantee
