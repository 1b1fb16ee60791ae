"""The privacy statement: what is promised, in words and as JSON.

It is made of public things only: the design of the study and the event of one run. T, the trials'
values, their number and their times never come near it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.numbers_shown import SHOWN_ORDERS, finite, rounded_down, rounded_up
from optuna_dp.protocol.plan import Design

if TYPE_CHECKING:
    from optuna_dp.releasing.procedures.base import Description

FORMAT = "optuna-dp privacy statement"
# Version 1, of optuna-dp 0.1.0, had no content, attack, trust or list of what was checked.
VERSION = 2
RELATIONS = {
    "add_or_remove_one": "adding or removing one record",
    "replace_one": "replacing one record by another",
}
_RELATIONS_OF_CLIENTS = {
    "add_or_remove_one": "adding or removing one client with all its records",
    "replace_one": "replacing all records of one client by any others",
    "null_client": "taking all records of one client away",
}
_PROTECTED = {"record": "each record", "client": "each client as a whole"}
_PACKAGES = ("optuna-dp", "optuna", "dp-accounting", "numpy", "scipy", "opendp")


def statement_data(
    guarantee: Guarantee,
    design: Design,
    *,
    delta: float,
    released: list[str],
    content: Mapping[str, Any],
    described: Description,
    cap: int | None = None,
) -> dict[str, Any]:
    """Returns the statement as plain JSON values.

    Args:
        guarantee: The guarantee of the whole procedure.
        design: The public design of the study.
        delta: The delta at which epsilon is stated.
        released: Names of what is released.
        content: What is released, as plain JSON values.
        described: What is to be said of the procedure.
        cap: The most records that one unit has, if the curator has said.
    """
    relations = described.relations
    if guarantee.unit == "client" and relations is RELATIONS:
        relations = _RELATIONS_OF_CLIENTS
    methods = {name: finite(value) for name, value in guarantee.by_method(delta).items()}
    attack, best = guarantee.bounds(delta)
    several = None
    if cap is not None and cap > 1 and guarantee.unit == "record":
        several = {"records": cap, "epsilon": finite(group_epsilon(guarantee, delta, cap))}
    return {
        "format": FORMAT,
        "version": VERSION,
        "protected": relations[guarantee.neighboring_relation],
        "neighboring_relation": guarantee.neighboring_relation,
        "unit": guarantee.unit,
        "epsilon": finite(best),
        "delta": delta,
        "method": guarantee.method(delta),
        "epsilon_by_method": methods,
        # Of these, the ones that are shown for comparison and have no part in epsilon.
        "comparisons": sorted(guarantee.comparisons(delta)),
        "attack": attack,
        "unit_with_several_records": several,
        "rdp": {
            "orders": list(SHOWN_ORDERS),
            "epsilons": [finite(value) for value in guarantee.rdp(np.array(SHOWN_ORDERS))],
        },
        "design": design.to_json(),
        "guarantee": guarantee.to_json(),
        "released": released,
        "content": content,
        "digest": digest(guarantee.to_json(), design.to_json(), content),
        "trust": described.trust,
        "checked": list(described.checked),
        "assumptions": list(described.assumptions),
        "not_covered": described.not_covered,
        "versions": _versions(),
    }


def digest(
    guarantee: Mapping[str, Any], design: Mapping[str, Any], content: Mapping[str, Any]
) -> str:
    """Returns the SHA-256 that ties a statement to what it was computed from.

    Whoever holds the JSON of a release can compute it again: it is made of the statement's
    guarantee and design and of everything in the release but the statement.

    Args:
        guarantee: ``Guarantee.to_json()``.
        design: ``Design.to_json()``.
        content: What is released.
    """
    whole = {"guarantee": guarantee, "design": design, "content": content}
    # Unlike canonical_json: scores and attributes may be infinite or NaN.
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def statement_markdown(data: dict[str, Any], facts: dict[str, str]) -> str:
    """Returns the statement as Markdown a reviewer can read.

    Args:
        data: What :func:`statement_data` returned.
        facts: Rows of the table, by heading: how the procedure describes itself, and what the
            curator says of the data.
    """
    epsilon = rounded_up(data["epsilon"], 4)
    promise = (
        "has **no finite privacy guarantee**"
        if data["epsilon"] is None
        else f"is **differentially private with epsilon = {epsilon} and "
        f"delta = {data['delta']:g}**"
    )
    rows = {
        "What is protected": f"{_PROTECTED[data['unit']]}: the output hardly depends on "
        f"{data['protected']}",
        "Guarantee": f"epsilon = {epsilon} at delta = {data['delta']:g}",
        "Accounting": METHODS.get(data["method"], data["method"]),
        "How tight it is": _beside_the_attack(data),
        **_several_records(data),
        "Trust": data["trust"],
        **facts,
        "Ranges of the parameters": _ranges(data["content"]["distributions"]),
        "What is released": ", ".join(data["released"]),
    }
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items() if value)
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    return f"""# Privacy statement

The released output of this hyperparameter search {promise},
with respect to {data["protected"]}. The guarantee is for the whole procedure: every training run,
every score and the choice among them.

| | |
|---|---|
{table}

## It rests on

What the software checked, and refuses to release otherwise:

{_numbered(data["checked"])}

What no software can see, and whoever signs this vouches for:

{_numbered(data["assumptions"])}

## What is not covered

{data["not_covered"]}

## Rényi differential privacy of the release

{_rdp_in_words(data["rdp"])}

## What was released, and how to check this page

{_values(data["content"])}

Everything here is made from the release's JSON. `optuna-dp verify FILE` (or
`optuna_dp.verify`) computes epsilon, the tables and the digest from it again, without the data
and without the study, and says what remains to be believed.

SHA-256 of the guarantee, the design and the released content: `{data["digest"]}`

Made with {versions}.
"""


def _numbered(sentences: list[str]) -> str:
    return "\n".join(f"{i}. {text}" for i, text in enumerate(sentences, start=1))


def _beside_the_attack(data: dict[str, Any]) -> str:
    attack, epsilon = data["attack"], data["epsilon"]
    if not attack:
        return ""
    return (
        f"no analysis of this procedure can state less than {rounded_down(attack, 4)}, where runs "
        "and scores may be any that cost what is stated: an explicit attack attains that"
        + ("" if epsilon is None else f" (the guarantee is {epsilon / attack - 1:.1%} above it)")
    )


def _several_records(data: dict[str, Any]) -> dict[str, str]:
    several = data["unit_with_several_records"]
    if several is None:
        return {}
    epsilon = several["epsilon"]
    stated = "no finite epsilon is known" if epsilon is None else f"epsilon {rounded_up(epsilon)}"
    return {
        "Who has several records": f"{stated} at delta = {data['delta']:g} for all of up to "
        f"{several['records']} records together (group privacy)"
    }


def _ranges(distributions: Mapping[str, Any]) -> str:
    """The search space as far as it is released: the ranges of the released parameters."""
    words = []
    for name, record in distributions.items():
        about = record["attributes"]
        if "choices" in about:
            words.append(f"{name}: one of {', '.join(map(repr, about['choices']))}")
            continue
        step = f", in steps of {about['step']:g}" if about.get("step") not in (None, 1) else ""
        scale = ", on a logarithmic scale" if about.get("log") else ""
        kind = "whole numbers " if record["name"] == "IntDistribution" else ""
        words.append(f"{name}: {kind}{about['low']:g} to {about['high']:g}{step}{scale}")
    return "; ".join(words)


def _values(content: Mapping[str, Any]) -> str:
    if content["params"] is None:
        return "No run succeeded, so there is nothing to choose: an outcome like any other."
    rows = {**content["params"], **({"score": content["value"]} if content["value"] else {})}
    table = "\n".join(f"| {_cell(str(name))} | {_cell(repr(v))} |" for name, v in rows.items())
    return f"| released | value |\n|---|---|\n{table}"


def _rdp_in_words(rdp: dict[str, Any]) -> str:
    if not any(value is not None for value in rdp["epsilons"]):
        return (
            "No bound in these terms is known for this search and this law of the number of\n"
            "runs. To compose this release with others, use `Guarantee.compose`."
        )
    rows = "\n".join(
        f"| {order:g} | {rounded_up(value, 4)} |"
        for order, value in zip(rdp["orders"], rdp["epsilons"], strict=True)
    )
    return f"""\
For reviewers who account in these terms. Converted to epsilon and delta it is looser than the
guarantee above; to compose this release with others, use `Guarantee.compose`.

| order | epsilon |
|---|---|
{rows}"""


METHODS = {
    "data_profile": "privacy-profile bound of selection",
    "history_profile": "privacy-profile bound for policies that see private outputs only",
    "rdp": "Rényi differential privacy of selection",
    "pure": "pure differential privacy",
    "profile": "privacy loss distributions",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # a source tree that is not installed
            continue
    return found
