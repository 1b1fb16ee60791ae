"""Pilots' hyperparameters from any Optuna sampler, which sees private outputs and nothing else.

The sampler is given a study of its own, in memory, made for one pilot and thrown away: it holds
hyperparameters, scores and states of the pilots that this one may know of, by slot. Durations,
times, reported values, attributes, the order in which pilots ended, the number of runs and the
real storage cannot be reached from it. What the sampler itself wants to remember (CMA-ES keeps
its state in trial attributes, quasi-random samplers their position in study attributes) is kept
beside the pilot it belongs to and handed on by slot.
"""

from __future__ import annotations

import copy
import datetime
import functools
import logging
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from optuna.distributions import BaseDistribution
from optuna.pruners import NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.search_space import IntersectionSearchSpace, intersection_search_space
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from optuna_dp.core.optuna_internals import (
    copy_in_memory,
    give_search_space,
    has_constraints_function,
    storage_of,
    study_id_of,
    suggest,
    trial_id_of,
)
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.priors.given_points import to_internal
from optuna_dp.study import entropy
from optuna_dp.study.draws import stored_form
from optuna_dp.study.entries import PROPOSER
from optuna_dp.study.trials import INSTEAD_OF_CONSTRAINTS, output

_logger = logging.getLogger("optuna_dp")
T = TypeVar("T")
_LONG_AGO = datetime.datetime(2000, 1, 1)
_NAME = "a copy for the proposer"  # Optuna's log shows it


class Proposer:
    """An ordinary Optuna sampler behind a wall.

    Args:
        sampler: The sampler; None is TPE, random for the first half of the pilots. Each pilot is
            proposed by a copy of its own with new randomness, so that nothing that a worker has
            seen, and not even which worker it is, reaches the proposal.
        pilots: How many pilots there are.
        seed: Seeds the default sampler; one that is given gets new randomness in any case.

    Attributes:
        startup: How many pilots, from the first on, are drawn at random whatever is known: half of
            them by the default sampler; of a given one nothing is known, so 0.
    """

    def __init__(self, sampler: BaseSampler | None, pilots: int, seed: int | None) -> None:
        if sampler is not None and not isinstance(sampler, BaseSampler):
            raise InvalidArgumentError(
                "proposer", sampler, allowed="it must be None or an Optuna sampler"
            )
        if sampler is not None and has_constraints_function(sampler):
            raise InvalidArgumentError(
                "proposer",
                sampler,
                problem="it has a constraints_func, which would be called for no pilot",
                fix=f"Take it out. {INSTEAD_OF_CONSTRAINTS}",
            )
        self._sampler = sampler
        self.startup = max(1, pilots // 2) if sampler is None else 0
        self._seed = seed
        self._lock = threading.Lock()
        self._kept: _Shown | None = None

    @property
    def name(self) -> str:
        """Class name of the sampler."""
        return (TPESampler if self._sampler is None else type(self._sampler)).__name__

    def ask(
        self,
        directions: Sequence[StudyDirection],
        visible: Sequence[FrozenTrial],
        number: int,
        space: Mapping[str, BaseDistribution],
        *,
        is_shown: Callable[[FrozenTrial], bool] = lambda trial: True,
    ) -> Trial:
        """Returns a trial of the sampler's own study that has every parameter of ``space``.

        If the sampler raises an error, the parameters are drawn uniformly. Its answer is a
        function of what it is shown, and so is that it has none. What this package raises about
        arguments is passed on.

        Args:
            directions: Of the study.
            visible: The pilots of the completed batches before this one, by slot.
            number: The pilot's slot. Its predecessors within its batch are unknown; the sampler
                has proposed something for each, still running, so that it can spread out. Pilots
                that the default sampler draws at random need no predecessors.
            space: The joint search space; empty if it is found while the study runs.
            is_shown: Whether a trial of ``visible`` was a run. Of any other the sampler learns
                that it failed, no more. The answer for a trial must not change.
        """
        storage, shared_space = self._shown_to(tuple(directions), visible, is_shown)
        try:
            return self._asked(storage, shared_space, visible, number, dict(space))
        except OptunaDPError:
            raise
        except Exception as error:
            self._say_that_it_failed(error)
            sampler = RandomSampler(seed=self._seed_of("uniform", number))
            study = Study(_NAME, _fork(storage), sampler=sampler, pruner=NopPruner())
            return study.ask(dict(space))

    def suggest(self, proposal: Trial, name: str, distribution: BaseDistribution) -> object:
        """Returns the sampler's value of one parameter in the trial that :meth:`ask` returned.

        As there, it is drawn uniformly if the sampler raises an error.
        """
        try:
            return suggest(proposal, name, distribution)
        except OptunaDPError:
            raise
        except Exception as error:
            self._say_that_it_failed(error)
            uniform = RandomSampler(seed=self._seed_of("uniform", proposal.number, name))
            entry = storage_of(proposal.study).get_trial(trial_id_of(proposal))
            return uniform.sample_independent(proposal.study, entry, name, distribution)

    def _asked(
        self,
        storage: InMemoryStorage,
        shared_space: IntersectionSearchSpace,
        visible: Sequence[FrozenTrial],
        number: int,
        space: dict[str, BaseDistribution],
    ) -> Trial:
        sampler = self._fresh_sampler(number)
        if isinstance(sampler, TPESampler):
            # A new sampler would compare the ranges of all pilots again, at each proposal.
            give_search_space(sampler, shared_space)
        study = Study(_NAME, _fork(storage), sampler=sampler, pruner=NopPruner())
        unknown = number - len(visible) if number >= self.startup else 0
        if unknown:
            # Without a joint space, what earlier pilots share: a running trial that has no
            # parameters would keep nobody away from where it is.
            common_space = space or intersection_search_space(study.get_trials(deepcopy=False))
            for _ in range(unknown):
                study.ask(common_space)
        return study.ask(space)

    def _shown_to(
        self,
        directions: tuple[StudyDirection, ...],
        visible: Sequence[FrozenTrial],
        is_shown: Callable[[FrozenTrial], bool],
    ) -> tuple[InMemoryStorage, IntersectionSearchSpace]:
        """Returns a storage with what the sampler may see, and the space that its trials share.

        Both are copies, which the sampler may change. Trials that have ended do not change, so
        what was made of them for the pilot before is kept, and only later ones are added.
        """
        with self._lock:
            cache = self._kept
            goes_on = (
                cache is not None
                and cache.directions == directions
                and len(cache.made_of) <= len(visible)
                and all(map(operator.is_, cache.made_of, visible))
            )
            if cache is None or not goes_on:
                cache = self._kept = _Shown(directions)
            for trial in visible[len(cache.made_of) :]:
                cache.add(trial, is_shown(trial))
            study = Study(_NAME, cache.storage, sampler=RandomSampler(), pruner=NopPruner())
            cache.shared_space.calculate(study)
            return _fork(cache.storage), copy.copy(cache.shared_space)

    def _say_that_it_failed(self, error: Exception) -> None:
        _logger.warning(
            "The proposer, %s, raised an error, so hyperparameters are drawn at random instead "
            "(%s: %s).",
            self.name,
            type(error).__name__,
            error,
        )

    def _seed_of(self, *path: str | int) -> int | None:
        if self._seed is None:
            return None
        return entropy.bits(self._seed, "proposer", *path)(32)

    def __getstate__(self) -> dict[str, object]:
        return {name: v for name, v in self.__dict__.items() if name not in ("_lock", "_kept")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock, self._kept = threading.Lock(), None

    def _fresh_sampler(self, number: int) -> BaseSampler:
        if self._sampler is None:
            return TPESampler(n_startup_trials=self.startup, seed=self._seed_of(number))
        sampler = copy.deepcopy(self._sampler)
        sampler.reseed_rng()
        return sampler


def remember(study: Study, trial: FrozenTrial, proposal: Trial) -> None:
    """Keeps beside a trial what the sampler wants to remember of :meth:`Proposer.ask`'s answer."""
    storage, study_id = storage_of(proposal.study), study_id_of(proposal.study)
    attributes = {
        "trial": dict(storage.get_trial(trial_id_of(proposal)).system_attrs),
        "study": dict(storage.get_study_system_attrs(study_id)),
    }
    if any(attributes.values()):
        PROPOSER.write(study, trial, attributes)


def _as_output(trial: FrozenTrial, remembered: dict[str, object]) -> FrozenTrial:
    """Returns what is private and charged for of a pilot, and what the sampler wrote beside it."""
    values = output(trial)
    unscored = TrialState.PRUNED if trial.state == TrialState.PRUNED else TrialState.FAIL
    state = unscored if values is None else TrialState.COMPLETE
    params, space = stored_form(trial)
    # A value that was enqueued may lie outside the range that the objective asks for. Samplers
    # learn from what lies within.
    params_in_range = {n: v for n, v in params.items() if to_internal(space[n], v) is not None}
    return timeless_trial(
        state=state,
        values=values,
        params=params_in_range,
        distributions={name: space[name] for name in params_in_range},
        system_attrs=remembered,
    )


def timeless_trial(
    *,
    state: TrialState,
    values: Sequence[float] | None = None,
    params: dict[str, object] | None = None,
    distributions: dict[str, BaseDistribution] | None = None,
    system_attrs: dict[str, object] | None = None,
) -> FrozenTrial:
    """Returns an ended trial of these fields, as of :func:`optuna.trial.create_trial`.

    Its times are the same as those of all others.
    """
    trial = create_trial(
        state=state,
        values=values,
        params=params,
        distributions=distributions,
        system_attrs=system_attrs,
    )
    trial.datetime_start = trial.datetime_complete = _LONG_AGO
    return trial


class _Shown:
    """What a sampler has been shown, in the order of slots.

    Attributes:
        directions: Of the study.
        storage: The sampler's own storage, with a trial for each of ``made_of``.
        made_of: The trials of the real study.
        shared_space: What all trials have in common; it reads each of them once.
    """

    def __init__(self, directions: tuple[StudyDirection, ...]) -> None:
        self.directions = directions
        # A storage that is copied does not log "a new study" for every pilot.
        self.storage = copy.deepcopy(_empty_storage(directions))
        self.made_of: list[FrozenTrial] = []
        # As TPESampler's own.
        self.shared_space = IntersectionSearchSpace(include_pruned=True)

    def add(self, trial: FrozenTrial, is_shown: bool) -> None:
        """Shows one trial more: its output, or only that it failed."""
        study_id = self.storage.get_study_id_from_name(_NAME)
        self.made_of.append(trial)
        if not is_shown:
            failed_trial = timeless_trial(state=TrialState.FAIL)
            self.storage.create_new_trial(study_id, template_trial=failed_trial)
            return
        remembered = PROPOSER.of(trial, {"trial": {}, "study": {}})
        for key, value in remembered["study"].items():
            self.storage.set_study_system_attr(study_id, key, value)
        output_of = _as_output(trial, remembered["trial"])
        self.storage.create_new_trial(study_id, template_trial=output_of)


def _fork(storage: InMemoryStorage) -> InMemoryStorage:
    """Returns a storage of its own with the same trials, which have ended and do not change.

    Only containers are copied: a deep copy takes as long as all trials are large.
    """
    return copy_in_memory(storage, _with_own_containers)


def _with_own_containers(original: T) -> T:
    duplicate = copy.copy(original)
    for name, value in list(vars(duplicate).items()):
        if isinstance(value, dict | list | set):
            setattr(duplicate, name, copy.copy(value))
    return duplicate


@functools.lru_cache(maxsize=2)
def _empty_storage(directions: tuple[StudyDirection, ...]) -> InMemoryStorage:
    storage = InMemoryStorage()
    with _unsaid():
        storage.create_new_study(directions, study_name=_NAME)
    return storage


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keeps Optuna's line about a new study out of the log: nobody asked for this one."""
    logger, thread = logging.getLogger(InMemoryStorage.__module__), threading.get_ident()

    def is_of_another(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_of_another)
    try:
        yield
    finally:
        logger.removeFilter(is_of_another)
