"""A release as an entry of OpenDP's registry of deployments.

The names are those of the registry's schema (opendp/deployments-registry-data,
``schemas/deployments-schema.yaml``, commit 057e5d8): tier 3, as a draft for its owner to finish.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

import yaml

from optuna_dp.accounting.event_words import in_words
from optuna_dp.accounting.units import CLIENT
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.markdown import METHODS
from optuna_dp.evidence.procedures import description_of
from optuna_dp.numbers_shown import rounded_up
from optuna_dp.releasing.data_description import DataDescription

CURATORS = ("Government", "Industry", "Nonprofit")
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")


def to_registry(
    release: Any,  # A Release, which imports this file.
    *,
    name: str | None = None,
    curator: str | None = None,
    curator_type: str | None = None,
    intended_use: str | None = None,
    region: str | None = None,
    sector: str | None = None,
    published: str | datetime.date | None = None,
    authors: tuple[str, ...] | list[str] = (),
) -> str:
    """Returns the YAML; see :meth:`optuna_dp.Release.to_registry`."""
    about = release.description or DataDescription()
    day = None if published is None else str(published)
    facts = {
        "name": name,
        "curator": curator or about.owner,
        "curator_type": curator_type,
        "intended_use": intended_use or about.purpose,
        "region": region,
        "published": day,
        "authors": list(authors) or None,
    }
    gaps = [key for key, value in facts.items() if not value]
    if gaps:
        raise InvalidArgumentError(
            gaps[0],
            None,
            f"the registry asks for it, and only people know (missing: {', '.join(gaps)})",
            "The curator may also be the owner, and the intended use the purpose, of "
            "optuna_dp.describe.",
        )
    for key, value, options in (
        ("curator_type", curator_type, CURATORS),
        ("sector", sector, (None, *SECTORS)),
    ):
        if value not in options:
            raise InvalidArgumentError(key, value, f"it must be one of {', '.join(options[-6:])}")
    try:
        datetime.date.fromisoformat(str(published))
    except ValueError:
        raise InvalidArgumentError("published", day, "it must be a day: '2026-03-31'") from None
    basic = {
        "name": name,
        "data_curators": [
            {"data_curator_name": facts["curator"], "data_curator_type": curator_type}
        ],
        "description": "Model with hyperparameters chosen by a differentially private search",
        "intended_use": facts["intended_use"],
        "data_product_type": "Machine learning model",
        "data_product_region": region,
        "data_product_sector": sector,
        "publication_date": day,
    }
    entry = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", f"{name} {facts['curator']}".lower()).strip("-"),
        "deployment": {
            "basic": _without_none(basic),
            **_of_the_release(release, about),
            "administrative": {
                "status": "Draft",
                "registry_authors": facts["authors"],
                "tier": 3,
            },
        },
    }
    text: str = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=99)
    return text


def _of_the_release(release: Any, about: DataDescription) -> dict[str, Any]:
    """What the software knows, and what was said by describe()."""
    procedure_words = description_of(release.design)
    data = release.to_json()["statement"]
    epsilon = data["epsilon"]
    unit, details = _unit(release, about)
    epsilon_text = f"epsilon = {rounded_up(epsilon, 4)} at delta = {release.delta:g}"
    facts = procedure_words.facts(release.design, release.search_guarantee)
    search_facts = "; ".join(f"{heading}: {text}" for heading, text in facts.items())
    versions = ", ".join(f"{package} {v}" for package, v in data["versions"].items())
    return {
        "dp_variant": {
            "variant_name": "Approximate DP",
            "data_domain": about.dataset or "Not stated",
            "unprotected_quantities": procedure_words.not_covered.replace("\n", " "),
        },
        "privacy_loss": _without_none(
            {
                "privacy_unit": unit,
                "privacy_unit_details": f"Adjacent data sets differ by {data['protected']}."
                + details,
                "number_of_privacy_units": None if unit == CLIENT else about.records,
                "privacy_parameters": _without_none({"epsilon": epsilon, "delta": release.delta}),
                "privacy_parameters_details": f"{epsilon_text}; for other deltas see the "
                "statement named under additional information.",
            }
        ),
        "deployment_model": {
            "model_name": "Federated" if release.design.procedure == "vote" else "Central",
            "trust_assumptions": f"{procedure_words.trust}. {about.trust or ''}".strip(),
            "release_type": "One release",
            "data_source_type": "Static",
            "access_type": "Non-interactive",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": "The privacy loss of hyperparameter tuning "
            f"is part of the stated one: {search_facts}.",
            "mechanisms": f"{in_words(release.guarantee.event)}. Made with {versions}. Sampling "
            f"as performed: {about.sampling or 'not stated'}.",
            "composition": METHODS.get(data["method"], data["method"]),
            "additional_information": "The privacy statement can be checked with `optuna-dp "
            f"verify`. SHA-256 of the guarantee, design and released values: {data['digest']}",
        },
    }


def _unit(release: Any, about: DataDescription) -> tuple[str, str]:
    """What one unit of the stated guarantee is, and what is to be said of it.

    A person is one only where everybody has at most one record; else the unit is the record.
    """
    if release.guarantee.unit == CLIENT:
        return CLIENT, ""
    if about.unit is None:
        return "record", ""
    if about.cap == 1:
        return about.unit, f" Each {about.unit} has at most one record."
    limit = "any number of" if about.cap is None else f"up to {about.cap}"
    return "record", f" One {about.unit} may have {limit} records and is protected less."


def _without_none(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}
