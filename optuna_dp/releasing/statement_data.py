"""The privacy statement as JSON, from which its page is made.

It is made of public things only: the design of the study, the event of one run and what is
released. T, the trials' values, their number and their times never come near it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optuna_dp.accounting.guarantee import MU_TAIL, Guarantee
from optuna_dp.core import validation
from optuna_dp.core.numbers_shown import SHOWN_ORDERS, finite
from optuna_dp.core.value_types import JsonObject
from optuna_dp.evidence.data_description import (
    MOST_ROW,
    OLDER_ROW,
    OLDER_STUDIES,
    SAMPLING_ROW,
    DataDescription,
)
from optuna_dp.evidence.facts import Fact, Part, Status, enforced, last_of_each, stated
from optuna_dp.evidence.persons import person_epsilon
from optuna_dp.evidence.preparation import person_facts, persons
from optuna_dp.evidence.procedures import description_of
from optuna_dp.evidence.run_kinds import RunKind
from optuna_dp.evidence.statement import RELATIONS, Description
from optuna_dp.runs.scripts import package_digest
from optuna_dp.study.plan import Design

if TYPE_CHECKING:
    from dp_accounting import dp_event

FORMAT = "optuna-dp privacy statement"
VERSION = 1
FALSE_POSITIVE_RATES = (0.001, 0.01, 0.05, 0.1)
MODEL_ROW = "Model file"
_RELATIONS_OF_CLIENTS = {
    "add_or_remove_one": "adding or removing one client with all its records",
    "replace_one": "replacing all records of one client by any others",
    "null_client": "taking all records of one client away",
}
# The key of the versions that has the digest of this package's source files.
FILES = "files of optuna-dp"
_PACKAGES = ("optuna-dp", "optuna", "dp-accounting", "numpy", "scipy", "opendp")


def statement_data(
    guarantee: Guarantee,
    design: Design,
    *,
    delta: float,
    content: JsonObject,
    training: dp_event.DpEvent | None = None,
) -> JsonObject:
    """Returns the statement as plain JSON values.

    Args:
        guarantee: The guarantee of the search, and of the final training if there is one.
        design: The design of the search.
        delta: The delta at which epsilon is stated, in (0, 1).
        content: What is released, as ``Release.to_json()`` has it.
        training: The event of a final training composed on top of the search, or None.
    """
    description = description_of(design)
    assumptions = description.all_assumptions(design, content, trained=training is not None)
    methods = {name: finite(value) for name, value in guarantee.by_method(delta).items()}
    attack, best = guarantee.bounds(delta)
    unit, most = persons(content)
    of_person = None if most == 1 else person_epsilon(guarantee, delta, most)
    group = None
    if of_person is not None:
        group = {"unit": unit or "person", "records": most, "epsilon": finite(of_person)}
    planned = description.planned(design)
    counts = description.record_counts(design, content.get("spending", {}))
    described_records = content.get("description", {}).get("records")
    return {
        "format": FORMAT,
        "version": VERSION,
        "protected": protected_by(guarantee, description, content),
        "protected_records": described_records or counts.protected,
        "unit": guarantee.unit,
        "epsilon": finite(best),
        "delta": delta,
        "method": guarantee.method(delta),
        "epsilon_by_method": methods,
        # Of these, the ones that are shown for comparison and have no part in epsilon.
        "comparisons": sorted(guarantee.comparisons(delta)),
        "attack": attack,
        "unit_with_several_records": group,
        "rdp": {
            "orders": list(SHOWN_ORDERS),
            "epsilons": [finite(value) for value in guarantee.rdp(np.array(SHOWN_ORDERS))],
        },
        "attack_risks": {
            "advantage": guarantee.advantage(),
            "false_positive_rates": list(FALSE_POSITIVE_RATES),
            "true_positive_rates": [
                guarantee.true_positive_rate(rate) for rate in FALSE_POSITIVE_RATES
            ],
        },
        "gaussian_dp": {"mu": finite(guarantee.mu()), "tail": MU_TAIL},
        "runs": [
            kind.to_json()
            for kind in run_kinds(guarantee, design, content, delta, training=training)
        ],
        "planned": None if planned is None else {"epsilon": planned[0], "delta": planned[1]},
        "design": design.to_json(),
        "guarantee": guarantee.to_json(),
        "released": _released(content, description, trained=training is not None),
        "content": content,
        "digest": digest(guarantee.to_json(), design.to_json(), content),
        "facts": [
            fact.to_json() for fact in facts_of(guarantee, design, content, training=training)
        ],
        "trust": description.trust,
        "checked": list(description.checked),
        "assumptions": [assumption.to_json() for assumption in assumptions],
        "not_covered": description.not_covered,
        "must_not": list(description.must_not),
        "versions": dict(_versions()),
    }


def run_kinds(
    guarantee: Guarantee,
    design: Design,
    content: JsonObject,
    delta: float,
    *,
    training: dp_event.DpEvent | None,
) -> list[RunKind]:
    """Returns what touched the records, each kind of run with its numbers.

    The arguments are those of :func:`statement_data`.
    """
    search = _search(guarantee, training)
    kinds = description_of(design).run_kinds(design, search, content, delta)
    if training is not None:
        final = RunKind.of_event("Final training", training, guarantee, delta, count=1)
        return [*kinds, final]
    return kinds


def _search(guarantee: Guarantee, training: dp_event.DpEvent | None) -> Guarantee:
    """Returns the guarantee without the final training."""
    if training is None:
        return guarantee
    # As Release.with_training made it: the search first.
    return replace(guarantee, event=guarantee.event.events[0])


def facts_of(
    guarantee: Guarantee,
    design: Design,
    content: JsonObject,
    *,
    training: dp_event.DpEvent | None,
) -> tuple[Fact, ...]:
    """Returns what a statement says of the data, the search, what happened and the model.

    The arguments are those of :func:`statement_data`. Its numbers are no facts of their own: the
    page makes rows of them.
    """
    search, final = _search(guarantee, training), []
    if training is not None:
        cost = "as the table says; counted in the guarantee above"
        final = [stated("Final training", cost, Part.RUNS)]
    description = description_of(design)
    return last_of_each(
        [
            *_facts_of_data(guarantee, content),
            *description.facts(design, search),
            *description.facts_of_release(design, content),
            *final,
            _model_fact(content["artifact_sha256"]),
        ]
    )


def _facts_of_data(guarantee: Guarantee, content: JsonObject) -> list[Fact]:
    """Returns what the curator said of the data, and what the software knows of its persons."""
    described = DataDescription.from_json(content.get("description", DataDescription().to_json()))
    if "description" not in content and guarantee.unit != "record":
        return []  # Of a vote, clients hold the records: nobody describes them.
    facts = last_of_each([*described.facts(), *person_facts(content), *_older_studies(content)])
    # What is charged for may have no batches at all, as in pure_dp(...).
    needless = (
        []
        if _has_batches(guarantee.to_json()["event"])
        else [stated(SAMPLING_ROW, None, Part.RUNS)]
    )
    needless += [] if guarantee.unit == "record" else [stated(MOST_ROW, None)]
    return [fact for fact in facts if fact not in needless]


def _older_studies(content: JsonObject) -> list[Fact]:
    """Returns how many private studies the storage held when this one was made, if any.

    Raises:
        InvalidArgumentError: If the content says what is no number of studies.
    """
    count = content.get("spending", {}).get(OLDER_STUDIES)
    if count is None:
        return []
    number = "1 private study" if validation.whole("older_studies", count, 1) == 1 else ""
    text = (
        f"{number or f'{count:,} private studies'}, not counted in this epsilon. What of them was "
        "shown or used, and is of the same records, adds to it"
    )
    return enforced({OLDER_ROW: f"found at the release: {text}"}, Part.DATA)


def _has_batches(event: object) -> bool:
    """Returns whether an event, as JSON, takes a random sample of the records anywhere."""
    if isinstance(event, list):
        return any(map(_has_batches, event))
    if not isinstance(event, dict):
        return False
    return "Sampled" in str(event.get("type")) or any(map(_has_batches, event.values()))


def _model_fact(sha256: str | None) -> Fact:
    if sha256 is None:
        text = (
            "this page is about no particular file (optuna_dp.release(artifact_store=) names one "
            "by its SHA-256)"
        )
        return Fact(MODEL_ROW, text, Status.NOT_STATED, Part.PUBLICATION)
    text = (
        f"the one whose SHA-256 is {sha256} (`optuna-dp verify FILE --artifact MODEL` compares it)"
    )
    return Fact(MODEL_ROW, text, Status.ENFORCED, Part.PUBLICATION)


def _released(content: JsonObject, description: Description, *, trained: bool) -> list[str]:
    """Returns names of what is released; ``trained`` is whether a final training is composed."""
    names = ["the hyperparameters"]
    if description.score_is_told or content["value"] is not None:
        names.append("the final score" if trained else "the score")
    names += ["the final training's output"] if trained else []
    names += [f"attribute {name!r}" for name in sorted(content["attributes"])]
    return names + (["the model artifact"] if content["artifact_sha256"] is not None else [])


def protected_by(guarantee: Guarantee, description: Description, content: JsonObject) -> str:
    """Returns what the output hardly depends on, in the procedure's words."""
    relations = description.relations
    if guarantee.unit == "client" and relations is RELATIONS:
        relations = _RELATIONS_OF_CLIENTS
    words = relations[guarantee.neighboring_relation]
    person = content.get("spending", {}).get("person")
    if person is None or relations is not RELATIONS:
        return words
    # Of a person with more, one line may take the place of another one that was kept.
    return f"{words}, of a {person['unit']} who has no other"


def digest(guarantee: JsonObject, design: JsonObject, content: JsonObject) -> str:
    """Returns the SHA-256 that ties a statement to what it was computed from.

    Who holds the JSON of a release can compute it again: it is made of the statement's
    guarantee and design and of everything in the release but the statement.
    """
    content_and_design = {"guarantee": guarantee, "design": design, "content": content}
    # Unlike canonical_json: scores and attributes may be infinite or NaN.
    text = json.dumps(content_and_design, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _versions() -> Mapping[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # a source tree that is not installed
            continue
    return versions | {FILES: f"SHA-256 {package_digest()}"}
