"""A study as its storage had it at one moment.

A release reads the storage once and judges what it has read. So its plan, its runs and its entries
are those of one moment, and a large study is not read three times. A snapshot holds no study: what
is made of it is a function of it. It does not know what another worker has done since. What a
release writes, a choice or its mark, is therefore looked for in the storage again.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from optuna.distributions import distribution_to_json
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.optuna_internals import place_of, storage_of, study_id_of
from optuna_dp.core.value_types import JsonObject
from optuna_dp.study.entries import CONFIRMED, PLAN, RELEASED, own_entries, study_attributes
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import leading_trial, trials_of


@dataclass(frozen=True)
class StudySnapshot:
    """A study's trials and system attributes. For the curator only, and not to be written to.

    Attributes:
        name: The name of the study.
        directions: "maximize" or "minimize", one per objective.
        trials: All its trials, by number.
        attributes: The system attributes of the study.
        place: How a command names its storage; None if no command can open it. It may hold a
            password.
    """

    name: str
    directions: tuple[str, ...]
    trials: tuple[FrozenTrial, ...] = field(repr=False)
    attributes: JsonObject = field(repr=False)
    place: str | None = field(repr=False)

    @classmethod
    def of(cls, study: Study) -> StudySnapshot:
        """Reads a study: its trials first, then its attributes, each once."""
        trials = tuple(trials_of(study))
        return cls(
            name=study.study_name,
            directions=tuple(direction.name.lower() for direction in study.directions),
            trials=trials,
            attributes=study_attributes(study),
            place=place_of(storage_of(study)),
        )

    @functools.cached_property
    def plan(self) -> StudyPlan | None:
        """The plan beside trial 0; None if none is there.

        Raises:
            PlanError: If its entry is damaged.
        """
        leader = self.trials[0] if self.trials and self.trials[0].number == 0 else None
        entry = None if leader is None else PLAN.of(leader)
        return None if entry is None else StudyPlan.from_json(entry)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the runs and the entries that a release is made of, in hexadecimal.

        Two snapshots have the same if their trials and the entries of this package are the same. A
        release does not change it, nor do notes of Optuna Dashboard. The mark of each run holds
        128 secret random bits, so nothing of the runs can be found out by trying.
        """
        entries = own_entries(self.attributes)
        entries.pop(RELEASED.key, None)
        content = {
            "directions": self.directions,
            "entries": entries,
            "trials": [_content(trial) for trial in self.trials],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def confirmed(self) -> set[int]:
        """The failed trials of which the curator confirmed that they never began, by number.

        See :func:`optuna_dp.recover`.
        """
        confirmed = CONFIRMED.of(self.attributes)
        nonce = None if self.plan is None else self.plan.nonce
        return {
            int(number) for number, of in confirmed.items() if number.isdecimal() and of == nonce
        }


def _content(trial: FrozenTrial) -> JsonObject:
    """Returns what a trial says and no tool that merely shows it changes."""
    return {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "params": {
            name: [json.loads(distribution_to_json(trial.distributions[name])), value]
            for name, value in trial.params.items()
        },
        "user_attrs": trial.user_attrs,
        "reported": {str(step): value for step, value in trial.intermediate_values.items()},
        "entries": own_entries(trial.system_attrs),
    }


@dataclass(frozen=True)
class OtherStudy:
    """Another study of the same storage. For the curator only.

    Attributes:
        name: Its name.
        is_older: Whether it was made before the study in question.
        attributes: Its system attributes.
    """

    name: str
    is_older: bool
    attributes: JsonObject = field(repr=False)
    _storage: BaseStorage = field(repr=False)
    _study_id: int = field(repr=False)

    @property
    def is_ours(self) -> bool:
        """Whether a sampler of optuna-dp began it."""
        leader = leading_trial(self._storage, self._study_id)
        return leader is not None and PLAN.is_in(leader)

    def trials(self) -> Sequence[FrozenTrial]:
        """Returns its trials, as the storage has them now."""
        return self._storage.get_all_trials(self._study_id, deepcopy=False)


def other_studies(study: Study) -> list[OtherStudy]:
    """Returns the other studies of a study's storage."""
    storage, own_id = storage_of(study), study_id_of(study)
    return [
        OtherStudy(
            other.study_name,
            study_id_of(other) < own_id,
            other.system_attrs,
            storage,
            study_id_of(other),
        )
        for other in storage.get_all_studies()
        if study_id_of(other) != own_id
    ]
