"""What only people know of a study, for the statement: whose data, how many, protected as what.

None of it can be checked by the software, and the statement says so. It has no part in any number
but one: a person with several records is protected less, and the cap says how many.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, ReleaseRefusedError
from optuna_dp.json_records import Record
from optuna_dp.protocol.records import RELEASED_KEY, checked_study

if TYPE_CHECKING:
    from optuna.study import Study

_KEY = "optuna_dp:description"


@dataclass(frozen=True, kw_only=True)
class DataDescription(Record):
    """What the curator vouches for; see :func:`describe` for the fields.

    Raises:
        InvalidArgumentError: If a field is not allowed.
    """

    dataset: str | None = None
    records: int | None = None
    owner: str | None = None
    date: str | None = None
    unit: str | None = None
    cap: int | None = None
    sampling: str | None = None
    trust: str | None = None
    purpose: str | None = None
    described_as: ClassVar[str] = "The study's description"

    def __post_init__(self) -> None:
        for name in ("dataset", "owner", "date", "unit", "sampling", "trust", "purpose"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text.strip()):
                raise InvalidArgumentError(name, text, "it must be a text")
        for name in ("records", "cap"):
            if getattr(self, name) is not None:
                validation.whole(name, getattr(self, name), 1)
        if self.date is not None:
            try:
                datetime.date.fromisoformat(self.date)
            except ValueError:
                raise InvalidArgumentError(
                    "date", self.date, "it must be a day", "For example '2026-03-31'."
                ) from None
        if self.cap is not None and self.unit is None:
            raise InvalidArgumentError(
                "cap",
                self.cap,
                "it is the largest number of records that one unit has, and no unit is named",
                "For example unit='patient'.",
            )

    def facts(self) -> dict[str, str]:
        """Returns rows of the statement, by heading."""
        held = None if self.records is None else f"{self.records:,} records"
        dated = None if self.date is None else f"as of {self.date}"
        of = ", ".join(text for text in (self.dataset, held, dated) if text)
        cap = "" if self.cap is None else f"; nobody has more than {self.cap}"
        rows = {
            "Data": of,
            "Owner of the data": self.owner,
            "Purpose": self.purpose,
            "A record belongs to": None if self.unit is None else f"one {self.unit}{cap}",
            "Sampling as performed": self.sampling,
            "Trust, in the curator's words": self.trust,
        }
        return {heading: text for heading, text in rows.items() if text}


def describe(
    study: Study,
    *,
    dataset: str | None = None,
    records: int | None = None,
    owner: str | None = None,
    date: str | datetime.date | None = None,
    unit: str | None = None,
    cap: int | None = None,
    sampling: str | None = None,
    trust: str | None = None,
    purpose: str | None = None,
) -> None:
    """Records what only people know of a study's data, for the statement of its release.

    Optional, and possible at any time before the release, by any worker. A second call replaces
    what it names and leaves the rest. The statement marks all of it as vouched for by the curator:
    the software cannot check it.

    Args:
        study: A study of a sampler of optuna-dp.
        dataset: Name and version of the data set. Public, as all of this is.
        records: How many records are trained on; leave it out where it is secret.
        owner: Who answers for the data.
        date: The day of which the data are, as ISO text ("2026-03-31") or a date.
        unit: Whose record one record is, in the singular: "patient", "hospital stay".
        cap: The most records that one unit has. If above 1, the statement adds what the guarantee
            is for a unit as a whole, which is weaker.
        sampling: How batches were really drawn, for example "Poisson, by Opacus' data loader".
        trust: Who sees what, where that differs from the statement's own words.
        purpose: What the model is for.

    Raises:
        InvalidArgumentError: If an argument is not allowed, or the study has been released.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Once()))
        >>> odp.describe(study, dataset="Ward 7, release 2", records=20_000, unit="patient", cap=1)
        >>> study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
        >>> release = odp.release(study, odp.gaussian(noise_multiplier=4))
        >>> "Ward 7, release 2, 20,000 records" in release.statement()
        True
    """
    storage, study_id = checked_study(study)._storage, study._study_id
    given = {
        "dataset": dataset,
        "records": records,
        "owner": owner,
        "date": date.isoformat() if isinstance(date, datetime.date) else date,
        "unit": unit,
        "cap": cap,
        "sampling": sampling,
        "trust": trust,
        "purpose": purpose,
    }
    before = read_description(study)
    known = {} if before is None else before.to_json()
    new = DataDescription(**{**known, **{k: v for k, v in given.items() if v is not None}})
    if new == before:
        return
    if RELEASED_KEY in storage.get_study_system_attrs(study_id):
        raise InvalidArgumentError(
            "study",
            study.study_name,
            "it must not have been released: the statement of that release stands",
            "Describe a study before its release.",
        )
    storage.set_study_system_attr(study_id, _KEY, new.to_json())


def read_description(study: Study) -> DataDescription | None:
    """Returns what :func:`describe` has recorded, or None; refuses a damaged record."""
    record: Any = study._storage.get_study_system_attrs(study._study_id).get(_KEY)
    if record is None:
        return None
    try:
        return DataDescription.from_json(record)
    except OptunaDPError as error:
        raise ReleaseRefusedError(str(error), fix="") from error
