"""What only people know: in the statement, in the digest, and in no other number."""

from __future__ import annotations

import datetime
from typing import Any

import optuna
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError

RUN = odp.gaussian(noise_multiplier=4.0)
ALL = {
    "dataset": "Ward 7, release 2",
    "records": 20_000,
    "owner": "St. Anne's",
    "date": "2026-03-31",
    "unit": "patient",
    "most": 3,
    "sampling": "Poisson, by Opacus",
    "trust": "the hospital's own cluster",
    "purpose": "triage",
}


def study_of(number: int = 2) -> optuna.Study:
    return optuna.create_study(
        sampler=odp.RandTuneSampler(
            trials=odp.Binomial(1, mean=1) if number == 1 else odp.Geometric(mean=3), run=RUN
        )
    )


def released(study: optuna.Study) -> odp.Release:
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, vouched="a test")


@pytest.mark.slow
def test_all_of_it_stands_in_the_statement() -> None:
    study = study_of()
    odp.describe(study, **ALL)  # type: ignore[arg-type]
    text = released(study).statement()
    for said in ("Ward 7, release 2, 20,000 records, as of 2026-03-31", "St. Anne's", "triage"):
        assert said in text
    for said in ("one patient", "nobody has more than 3", "by Opacus", "own cluster"):
        assert said in text


@pytest.mark.parametrize("unit", ["patient", "a patient", "One patient", "each  patient"])
def test_the_statement_has_one_article_before_the_unit(unit: str) -> None:
    study = study_of(1)
    odp.describe(study, unit=unit, most=1)
    assert "| vouched for: one patient |" in released(study).statement()


@pytest.mark.promise("persons")
def test_a_unit_with_several_records_is_told_what_it_has() -> None:
    study = study_of(1)
    odp.describe(study, unit="patient", most=2)
    release = released(study)
    several = release.to_json()["statement"]["unit_with_several_records"]
    # Twice the sensitivity is half the noise; group privacy is a little looser than that.
    exact = odp.Guarantee(odp.gaussian(noise_multiplier=2.0)).epsilon(1e-5)
    assert exact <= several["epsilon"] <= 1.1 * exact
    assert "for all of up to 2 records together" in release.statement()


def test_the_guarantee_is_what_it_is_without() -> None:
    plain, described = study_of(), study_of()
    odp.describe(described, **ALL)  # type: ignore[arg-type]
    one, other = released(plain), released(described)
    assert one.guarantee == other.guarantee
    assert "description" not in one.to_json()


def test_it_can_be_told_in_pieces_until_the_release() -> None:
    study = study_of()
    odp.describe(study, dataset="old", records=5)
    odp.describe(study, dataset="new", date=datetime.date(2026, 3, 31))
    release = released(study)
    assert release.description is not None
    assert (release.description.dataset, release.description.records) == ("new", 5)
    odp.describe(study, dataset="new")  # says nothing new
    with refuses("study"):
        odp.describe(study, dataset="another")
    assert odp.release(study, vouched="a test").to_json() == release.to_json()


@pytest.mark.parametrize(
    "wrong",  # its first argument is the one at fault
    [
        {"dataset": ""},
        {"owner": 3},
        {"records": 0},
        {"records": True},
        {"date": "31.3.2026"},
        {"most": 0, "unit": "patient"},
        {"most": 2},
    ],
    ids=str,
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    study = study_of()
    with refuses(next(iter(wrong))):
        odp.describe(study, **wrong)
    assert released(study).description is None


def test_a_damaged_record_is_refused() -> None:
    study = study_of()
    study._storage.set_study_system_attr(study._study_id, "optuna_dp:description", {"most": 0})
    with pytest.raises(ReleaseRefusedError, match="description"):
        released(study)


def test_a_score_of_zero_is_shown() -> None:
    study = study_of(1)
    study.optimize(lambda trial: 0.0 * trial.suggest_float("x", 0, 1))
    assert "| score | 0.0 |" in odp.release(study, vouched="a test").statement()
