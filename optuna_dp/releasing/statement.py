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
from typing import Any

import numpy as np

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.numbers_shown import SHOWN_ORDERS, finite, rounded_up
from optuna_dp.protocol.plan import Design

RELATIONS = {
    "add_or_remove_one": "adding or removing one record",
    "replace_one": "replacing one record by another",
}
_PACKAGES = ("optuna-dp", "optuna", "dp-accounting", "numpy", "scipy", "opendp")


def statement_data(
    guarantee: Guarantee,
    design: Design,
    *,
    delta: float,
    released: list[str],
    content: Mapping[str, Any],
    assumptions: tuple[str, ...],
    relations: Mapping[str, str] = RELATIONS,
) -> dict[str, Any]:
    """Returns the statement as plain JSON values.

    Args:
        guarantee: The guarantee of the whole procedure.
        design: The public design of the study.
        delta: The delta at which epsilon is stated.
        released: Names of what is released.
        content: What is released, as plain JSON values.
        assumptions: What the guarantee rests on besides the software.
        relations: The neighbouring relations in the procedure's words.
    """
    methods = {name: finite(value) for name, value in guarantee.by_method(delta).items()}
    best = guarantee.epsilon(delta)
    return {
        "format": "optuna-dp privacy statement",
        "version": 1,
        "protected": relations[guarantee.neighboring_relation],
        "neighboring_relation": guarantee.neighboring_relation,
        "epsilon": finite(best),
        "delta": delta,
        "method": guarantee.method(delta),
        "epsilon_by_method": methods,
        # Of these, the ones that are shown for comparison and have no part in epsilon.
        "comparisons": sorted(guarantee.comparisons(delta)),
        "rdp": {
            "orders": list(SHOWN_ORDERS),
            "epsilons": [finite(value) for value in guarantee.rdp(np.array(SHOWN_ORDERS))],
        },
        "design": design.to_json(),
        "guarantee": guarantee.to_json(),
        "released": released,
        "digest": digest(guarantee.to_json(), design.to_json(), content),
        "assumptions": list(assumptions),
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


NOT_COVERED = """\
It does not cover anything but the release: not the table of trials, not how many there were, not
how long they took, not logs, and not the curator's dashboard."""


def statement_markdown(
    data: dict[str, Any], facts: dict[str, str], not_covered: str = NOT_COVERED
) -> str:
    """Returns the statement as Markdown a reviewer can read.

    Args:
        data: What :func:`statement_data` returned.
        facts: Rows of the table, by heading: how the procedure describes itself.
        not_covered: What the guarantee does not cover, a paragraph.
    """
    epsilon = rounded_up(data["epsilon"], 4)
    promise = (
        "has **no finite privacy guarantee**"
        if data["epsilon"] is None
        else f"is **differentially private with epsilon = {epsilon} and "
        f"delta = {data['delta']:g}**"
    )
    rows = {
        "What is protected": f"each record: the output hardly depends on {data['protected']}",
        "Guarantee": f"epsilon = {epsilon} at delta = {data['delta']:g}",
        "Accounting": METHODS.get(data["method"], data["method"]),
        **facts,
        "What is released": ", ".join(data["released"]),
    }
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items())
    assumptions = "\n".join(f"{i}. {text}" for i, text in enumerate(data["assumptions"], start=1))
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    return f"""# Privacy statement

The released output of this hyperparameter search {promise},
with respect to {data["protected"]}. The guarantee is for the whole procedure: every training run,
every score and the choice among them.

| | |
|---|---|
{table}

## It rests on

{assumptions}

## Rényi differential privacy of the release

{_rdp_in_words(data["rdp"])}

{not_covered}

Made with {versions}.

SHA-256 of the guarantee, the design and the released content: `{data["digest"]}`
"""


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
