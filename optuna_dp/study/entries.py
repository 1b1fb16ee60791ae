"""All that optuna-dp stores in a study: the entries beside its trials, and those of the study.

Nothing outside of ``study`` touches Optuna's system attributes, and no other file names an
entry (``tests/test_architecture.py`` looks). So this list is complete, and each row says who
writes it. An entry holds plain JSON; the class that it is read by stands beside it.

Optuna has no compare-and-set, so nothing here relies on one. An entry is written by one trial
only, or under a key that has a random token or the digest of its content, or it says the same
whoever writes it. Of a ``DESCRIPTION`` the last one stands, and of ``RELEASED`` the first:
``release`` looks again before it writes, and refuses what differs.

===================  ==========================================  ==================================
beside a trial       what it holds                               who writes it
===================  ==========================================  ==================================
``PLAN``             ``StudyPlan``                               trial 0, before any run begins
``SLOT``             ``SlotEntry``                              a run, when it begins
``CLAIMS``           a worker's word on whose trial it is        each worker that was given it
``BEYOND``           mark: after the last run                    the trial itself
``DRAW``             what was drawn jointly, its ranges, notes   the run, once
``SINGLE_DRAWS``     a draw of one parameter, by its name        the run, once each
``NOT_PROPOSED``     mark: drawn from the prior after all        the run
``PROPOSER``         what a proposer of the user remembers       the run
``ASKED``            that the run asked what it may spend        the run
``TRAININGS``        what a training is to do, and has done      the training, before step one
``SCORES``           the same of a score                         the score, before it is computed
``SPENT``            what a loop of one's own spent              the run
``INVALID``          why the run is no sound one                 the run
``JUDGEMENT``        ``RunJudgement``, and of what it is one     the sampler, when the run ends
``RANGES``           ranges drawn with noise                     the first trial that draws them
``TOTAL_UTILITY``    the sum of a candidate's utilities          the candidate
``CHOICE``           ``Choice`` among utilities                  the trial that is the choice
``UNSTARTED``        mark: failed before its run began           who failed it
``PRUNED_BY``        the pruner that looked at this trial alone  the pruner
``WAS_PRUNED``       mark: pruned, and has a value               the run
``WORKER``           which worker of an engine made the trial    that worker
``GIVEN_BACK``       whether its run waits, given back           who gave it back, or begins it
===================  ==========================================  ==================================

===================  ==========================================  ==================================
of the study         what it holds                               who writes it
===================  ==========================================  ==================================
``RUN_COSTS``        a run's cost, if the plan does not say it   the callback
``CONFIRMED``        failed trials that never began, by number   ``recover``
``DESCRIPTION``      ``DataDescription``                         ``describe``
``RELEASED``         which plan was released                     ``release``
``PUBLISHED``        mark: holds a published release             ``publish``
===================  ==========================================  ==================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.optuna_internals import storage_of, study_id_of, trial_id_of
from optuna_dp.core.value_types import JsonObject

_PREFIX = "optuna_dp:"
# What an entry holds: plain JSON. Whoever reads it checks it, by the class beside the entry.
StoredValue: TypeAlias = Any


@dataclass(frozen=True)
class TrialEntry:
    """An entry beside a trial.

    Attributes:
        name: Its name, without the prefix that all of ours have.
    """

    name: str

    @property
    def key(self) -> str:
        """The key of the system attribute."""
        return _PREFIX + self.name

    def of(self, trial: FrozenTrial, default: object = None) -> StoredValue:
        """Returns what a trial that was read has; ``default`` if it has no such entry."""
        return trial.system_attrs.get(self.key, default)

    def is_in(self, trial: FrozenTrial) -> bool:
        """Returns whether a trial that was read has such an entry."""
        return self.key in trial.system_attrs

    def write(self, study: Study, trial: FrozenTrial | Trial, value: StoredValue = True) -> None:
        """Writes the entry beside a trial; a mark has no value.

        Raises:
            optuna.exceptions.UpdateFinishedTrialError: If the trial has ended.
        """
        storage_of(study).set_trial_system_attr(trial_id_of(trial), self.key, value)


@dataclass(frozen=True)
class TrialEntries:
    """Entries of one kind beside a trial, each under a name of its own.

    Attributes:
        name: The name of the kind.
    """

    name: str

    @property
    def prefix(self) -> str:
        """What the keys of the system attributes begin with."""
        return f"{_PREFIX}{self.name}:"

    def named(self, name: object) -> TrialEntry:
        """Returns the entry of one name."""
        return TrialEntry(f"{self.name}:{name}")

    def of(self, trial: FrozenTrial) -> dict[str, StoredValue]:
        """Returns what a trial that was read has, by name."""
        return _by_name(self.name, trial.system_attrs)


@dataclass(frozen=True)
class StudyEntry:
    """An entry of a study.

    Attributes:
        name: Its name, without the prefix that all of ours have.
    """

    name: str

    @property
    def key(self) -> str:
        """The key of the system attribute."""
        return _PREFIX + self.name

    def of(self, attributes: JsonObject) -> StoredValue:
        """Returns what the attributes of a study hold; None if there is no such entry."""
        return attributes.get(self.key)

    def read(self, study: Study) -> StoredValue:
        """Returns what the storage holds now; None if there is no such entry."""
        return self.of(study_attributes(study))

    def write(self, study: Study, value: StoredValue = True) -> None:
        """Writes the entry of a study; a mark has no value."""
        storage_of(study).set_study_system_attr(study_id_of(study), self.key, value)


@dataclass(frozen=True)
class StudyEntries:
    """Entries of one kind of a study, each under a name of its own.

    Attributes:
        name: The name of the kind.
    """

    name: str

    def named(self, name: object) -> StudyEntry:
        """Returns the entry of one name."""
        return StudyEntry(f"{self.name}:{name}")

    def of(self, attributes: JsonObject) -> dict[str, StoredValue]:
        """Returns what the attributes of a study hold, by name."""
        return _by_name(self.name, attributes)


def _by_name(kind: str, attributes: JsonObject) -> dict[str, StoredValue]:
    prefix = f"{_PREFIX}{kind}:"
    return {k.removeprefix(prefix): v for k, v in attributes.items() if k.startswith(prefix)}


PLAN = TrialEntry("plan")
SLOT = TrialEntry("slot")
CLAIMS = TrialEntries("claim")
BEYOND = TrialEntry("beyond_the_last_run")
DRAW = TrialEntry("draw")
SINGLE_DRAWS = TrialEntries("independent")
NOT_PROPOSED = TrialEntry("not_proposed")
PROPOSER = TrialEntry("proposer")
ASKED = TrialEntry("asked")
TRAININGS = TrialEntries("training")
SCORES = TrialEntries("score")
SPENT = TrialEntry("spent")
INVALID = TrialEntry("invalid")
JUDGEMENT = TrialEntry("judgement")
RANGES = TrialEntry("ranges")
TOTAL_UTILITY = TrialEntry("total_utility")
CHOICE = TrialEntry("choice")
UNSTARTED = TrialEntry("failed_before_it_started")
PRUNED_BY = TrialEntry("pruned_by")
WAS_PRUNED = TrialEntry("was_pruned")
WORKER = TrialEntry("worker")
GIVEN_BACK = TrialEntry("given_back")

RUN_COSTS = StudyEntries("run")
CONFIRMED = StudyEntries("failed_before_it_started")
DESCRIPTION = StudyEntry("description")
RELEASED = StudyEntry("released")
PUBLISHED = StudyEntry("published")


def study_attributes(study: Study) -> JsonObject:
    """Returns what a study's storage holds of it now, for the ``of`` of its entries."""
    # A copy: a storage in memory gives away its own dictionary.
    return dict(storage_of(study).get_study_system_attrs(study_id_of(study)))


def own_entries(attributes: Mapping[str, StoredValue]) -> dict[str, StoredValue]:
    """Returns the entries of this package among the system attributes of a study or a trial."""
    return {name: value for name, value in attributes.items() if name.startswith(_PREFIX)}


def stored_trial(study: Study, trial: FrozenTrial | Trial) -> FrozenTrial:
    """Returns a trial as its storage has it now."""
    return storage_of(study).get_trial(trial_id_of(trial))


def trial_with(state: TrialState, entries: Mapping[TrialEntry, StoredValue]) -> FrozenTrial:
    """Returns a trial without parameters that holds these entries, to be made in a study."""
    attributes = {entry.key: value for entry, value in entries.items()}
    return optuna.trial.create_trial(state=state, system_attrs=attributes)


def add_trial(study: Study, trial: FrozenTrial) -> None:
    """Makes a trial in a study, whatever its sampler says of it."""
    storage_of(study).create_new_trial(study_id_of(study), template_trial=trial)


def is_published(storage: BaseStorage) -> bool:
    """Returns whether a storage holds a published release."""
    return any(PUBLISHED.of(study.system_attrs) for study in storage.get_all_studies())
