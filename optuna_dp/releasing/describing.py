"""Recording what only people know of a study; nothing but the words of its statement needs it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.data_description import DataDescription, read_description
from optuna_dp.evidence.procedures import description_of
from optuna_dp.evidence.reading import opened_from
from optuna_dp.study.entries import DESCRIPTION, RELEASED
from optuna_dp.study.snapshot import StudySnapshot
from optuna_dp.study.trials import checked_study

if TYPE_CHECKING:
    from optuna.study import Study


def describe(
    study: Study,
    *,
    dataset: str | None = None,
    records: int | None = None,
    owner: str | None = None,
    date: str | datetime.date | None = None,
    unit: str | None = None,
    most: int | None = None,
    sampling: str | None = None,
    trust: str | None = None,
    purpose: str | None = None,
    earlier_releases: int | None = None,
) -> None:
    """Records what only people know of a study's data, for the statement of its release.

    Optional, and possible at any time before the release, by any worker. A second call replaces
    what it names and leaves the rest. The statement marks all of it as vouched for by the curator:
    the software cannot check it.

    Args:
        study: A study of a sampler of optuna-dp.
        dataset: Name and version of the data set. Public, as all of this is.
        records: How many records are protected: those that are trained on and, where other
            private ones are scored, these too. Leave it out where it is secret.
        owner: Who answers for the data.
        date: The day of which the data are, as ISO text ("2026-03-31") or a date.
        unit: Whose record one record is, in the singular: "patient", "hospital stay". An article
            before it ("a patient", "one image") is left out.
        most: The most records that one unit has. If above 1, the statement adds what the guarantee
            is for a unit as a whole, which is weaker.
        sampling: How batches were really drawn, for example "Poisson, by Opacus' data loader".
        trust: Who sees what, where that differs from the statement's own words.
        purpose: What the model is for.
        earlier_releases: How many results that depend on these records were released before, by
            anybody: models, tables, other searches. Their costs add to that of this one.

    Raises:
        InvalidArgumentError: If an argument is not allowed, ``records`` contradicts the study's
            plan, or the study has been released.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> run = odp.gaussian(noise_multiplier=4)
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(run=run))
        >>> odp.describe(study, dataset="Ward 7", records=2_000, unit="patient", most=1)
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, vouched="why")
        >>> "Ward 7, 2,000 records" in release.statement()
        True
    """
    snapshot = StudySnapshot.of(checked_study(study))
    facts = {
        "dataset": dataset,
        "records": records,
        "owner": owner,
        "date": date.isoformat() if isinstance(date, datetime.date) else date,
        "unit": _without_article(unit) if isinstance(unit, str) else unit,
        "most": most,
        "sampling": sampling,
        "trust": trust,
        "purpose": purpose,
        "earlier_releases": earlier_releases,
    }
    stored_description = read_description(snapshot.attributes)
    stored_facts = {} if stored_description is None else stored_description.to_json()
    description = DataDescription(
        **{**stored_facts, **{k: v for k, v in facts.items() if v is not None}}
    )
    if description == stored_description:
        return
    opened_study = opened_from(snapshot)
    if opened_study is not None:
        design = opened_study.procedure.design
        counts = description_of(design).record_counts(design, {})
        if reason := counts.contradiction(description.records):
            raise InvalidArgumentError(
                "records",
                description.records,
                problem=reason,
                fix="Give the number of all protected records, those that are scored included, or "
                "make a new plan.",
            )
    if RELEASED.of(snapshot.attributes) is not None:
        raise InvalidArgumentError(
            "study",
            snapshot.name,
            allowed="it must not have been released: the statement of that release stands",
            fix="Describe a study before its release. For new data make a study of another name: "
            "the costs of both add up for whoever is in both.",
        )
    DESCRIPTION.write(study, description.to_json())


def _without_article(unit: str) -> str:
    """Returns a noun without "a", "an", "one" or "each": the statement puts its own before it."""
    first_word, _, noun = unit.strip().partition(" ")
    return noun.strip() if noun and first_word.lower() in ("a", "an", "one", "each") else unit
