"""The privacy statement as JSON, from which its page is made.

It is made of public things only: the design of the study and the event of one run. T, the trials'
values, their number and their times never come near it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.accounting.guarantee import MU_TAIL, Guarantee
from optuna_dp.evidence.statement import RELATIONS, Description
from optuna_dp.numbers_shown import SHOWN_ORDERS, finite
from optuna_dp.protocol.plan import Design

FORMAT = "optuna-dp privacy statement"
# Version 1, of optuna-dp 0.1.0, had no content, attack, trust or list of what was checked.
VERSION = 1
_RELATIONS_OF_CLIENTS = {
    "add_or_remove_one": "adding or removing one client with all its records",
    "replace_one": "replacing all records of one client by any others",
    "null_client": "taking all records of one client away",
}
_PACKAGES = ("optuna-dp", "optuna", "dp-accounting", "numpy", "scipy", "opendp")


def statement_data(
    guarantee: Guarantee,
    design: Design,
    *,
    delta: float,
    content: Mapping[str, Any],
    procedure_words: Description,
    trained: bool,
    unit: str | None = None,
    cap: int | None = None,
) -> dict[str, Any]:
    """Returns the statement as plain JSON values.

    ``trained`` is whether a final training is composed on top; ``unit`` is whose record a record
    is, and ``cap`` the most records that one of these has.
    """
    promises = procedure_words.all_promises(design, content, trained=trained)
    methods = {name: finite(value) for name, value in guarantee.by_method(delta).items()}
    attack, best = guarantee.bounds(delta)
    group = None
    if cap is not None and cap > 1 and guarantee.unit == "record":
        group = {
            "unit": unit or "person",
            "records": cap,
            "epsilon": finite(group_epsilon(guarantee, delta, cap)),
        }
    return {
        "format": FORMAT,
        "version": VERSION,
        "protected": protected_by(guarantee, procedure_words),
        "neighboring_relation": guarantee.neighboring_relation,
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
        "gaussian_dp": {"mu": finite(guarantee.mu()), "tail": MU_TAIL},
        "design": design.to_json(),
        "guarantee": guarantee.to_json(),
        "released": _released_words(content, procedure_words, trained=trained),
        "content": content,
        "digest": digest(guarantee.to_json(), design.to_json(), content),
        "trust": procedure_words.trust,
        "checked": list(procedure_words.checked),
        "assumptions": [promise.text for promise in promises],
        "not_covered": procedure_words.not_covered,
        "versions": dict(_versions()),
    }


def _released_words(
    content: Mapping[str, Any], procedure_words: Description, *, trained: bool
) -> list[str]:
    """Returns names of what is released; ``trained`` is whether a final training is composed."""
    words = ["the hyperparameters"]
    if procedure_words.score_is_told or content["value"] is not None:
        words.append("the final score" if trained else "the score")
    words += ["the final training's output"] if trained else []
    words += [f"attribute {name!r}" for name in sorted(content["attributes"])]
    return words + (["the model artifact"] if content["artifact_sha256"] is not None else [])


def protected_by(guarantee: Guarantee, procedure_words: Description) -> str:
    """Returns what the output hardly depends on, in the procedure's words."""
    relations = procedure_words.relations
    if guarantee.unit == "client" and relations is RELATIONS:
        relations = _RELATIONS_OF_CLIENTS
    return relations[guarantee.neighboring_relation]


def digest(
    guarantee: Mapping[str, Any], design: Mapping[str, Any], content: Mapping[str, Any]
) -> str:
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
    return versions
