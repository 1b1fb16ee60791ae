"""Entries of OpenDP's registry: names and words that its schema allows."""

from __future__ import annotations

import datetime
from typing import Any

import optuna
import pytest
import yaml

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

# What the registry's schema demands (opendp/deployments-registry-data, commit 057e5d8), in our
# words: a name has a type, the words it may have, or its own names; "!" is what must be there.
SCHEMA: dict[str, Any] = {
    "!url_slug": str,
    "!deployment": {
        "!basic": {
            "!name": str,
            "!data_curators": [
                {
                    "!data_curator_name": str,
                    "!data_curator_type": ("Government", "Industry", "Nonprofit"),
                }
            ],
            "!description": str,
            "!intended_use": str,
            "!data_product_type": ("Summary statistics", "Machine learning model", "Dataset"),
            "!data_product_region": str,
            "data_product_sector": ("Technology", "Healthcare", "Education", "Government"),
            "!publication_date": datetime.date,
        },
        "dp_variant": {
            "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP"),
            "data_domain": str,
            "unprotected_quantities": str,
        },
        "privacy_loss": {
            "privacy_unit": str,
            "privacy_unit_details": str,
            "number_of_privacy_units": int,
            "privacy_parameters": {"epsilon": float, "delta": float, "rho": float},
            "privacy_parameters_details": str,
        },
        "deployment_model": {
            "model_name": ("Local", "Central", "Shuffle", "Federated"),
            "model_name_details": str,
            "trust_assumptions": str,
            "actors": str,
            "release_type": ("One release", "Many releases"),
            "release_type_details": str,
            "data_source_type": ("Static", "Dynamic"),
            "data_source_type_details": str,
            "access_type": ("Interactive", "Non-interactive"),
            "access_type_details": str,
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": str,
            "mechanisms": str,
            "composition": str,
            "post_processing": str,
            "justification": str,
            "utility": str,
            "additional_information": str,
        },
        "!administrative": {
            "!status": ("Draft",),
            "!registry_authors": [str],
            "!tier": (1, 2, 3),
        },
    },
}
ENTRY: dict[str, Any] = {
    "name": "Triage model",
    "curator_type": "Nonprofit",
    "region": "Austria",
    "sector": "Healthcare",
    "published": "2026-04-01",
    "authors": ["A. Reviewer"],
}


def objections(schema: Any, value: Any, where: str = "") -> list[str]:
    if isinstance(schema, dict):
        names = {name.lstrip("!"): kind for name, kind in schema.items()}
        missing = [n[1:] for n in schema if n.startswith("!") and n[1:] not in value]
        found = [f"{where}/{name} is missing" for name in missing]
        found += [f"{where}/{name} is unknown" for name in value.keys() - names.keys()]
        for name in value.keys() & names.keys():
            found += objections(names[name], value[name], f"{where}/{name}")
        return found
    if isinstance(schema, list):
        if not value:
            return [f"{where} is empty"]
        return [text for item in value for text in objections(schema[0], item, where)]
    if isinstance(schema, tuple):
        return [] if value in schema else [f"{where}: {value!r}"]
    if schema is datetime.date:
        # The registry wants text, which YAML would otherwise read as a date.
        return [] if isinstance(value, str) and datetime.date.fromisoformat(value) else [where]
    return [] if type(value) is schema else [f"{where}: {value!r}"]


def released(**about: Any) -> odp.Release:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3)))
    odp.describe(study, **about)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, odp.gaussian(noise_multiplier=4.0), vouched="a test")


DESCRIBED = {
    "owner": "St. Anne's",
    "purpose": "triage",
    "unit": "patient",
    "records": 900,
    "cap": 1,
}


def test_an_entry_is_what_the_schema_asks_for() -> None:
    release = released(**DESCRIBED)
    entry = yaml.safe_load(release.to_registry(**ENTRY))
    assert objections(SCHEMA, entry) == []
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == release.guarantee.epsilon(1e-5)
    assert loss["number_of_privacy_units"] == 900
    tuned = entry["deployment"]["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "Geometric(mean=3.0)" in tuned


def test_the_check_of_the_schema_can_fail() -> None:
    entry = yaml.safe_load(released(**DESCRIBED).to_registry(**ENTRY))
    entry["deployment"]["surprise"] = 1
    del entry["url_slug"]
    entry["deployment"]["basic"]["publication_date"] = datetime.date(2026, 4, 1)
    assert len(objections(SCHEMA, entry)) == 3


@pytest.mark.parametrize(
    ("cap", "unit", "said"),
    [
        (1, "patient", "at most one record"),
        (2, "record", "up to 2"),
        (None, "record", "any number"),
    ],
)
def test_a_person_is_the_unit_only_if_everybody_has_one_record(
    cap: int | None, unit: str, said: str
) -> None:
    about = (
        {**DESCRIBED, "cap": cap} if cap else {k: DESCRIBED[k] for k in DESCRIBED if k != "cap"}
    )
    loss = yaml.safe_load(released(**about).to_registry(**ENTRY))["deployment"]["privacy_loss"]
    assert loss["privacy_unit"] == unit
    assert said in loss["privacy_unit_details"]
    assert loss["number_of_privacy_units"] == 900


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="curator, curator_type, intended_use, region"):
        released().to_registry(name="Triage model")


@pytest.mark.parametrize(
    "wrong", [{"curator_type": "Bank"}, {"sector": "Sport"}, {"published": "?"}]
)
def test_words_that_the_schema_does_not_have_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        released(**DESCRIBED).to_registry(**{**ENTRY, **wrong})
