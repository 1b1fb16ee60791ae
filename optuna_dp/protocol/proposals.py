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
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.pruners import NopPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.search_space import intersection_search_space
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.protocol import entropy
from optuna_dp.protocol.records import PROPOSER_KEY, output

_LONG_AGO = datetime.datetime(2000, 1, 1)
_NAME = "pilots"


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
            raise InvalidArgumentError("proposer", sampler, "it must be None or an Optuna sampler")
        self._sampler = sampler
        self.startup = max(1, pilots // 2) if sampler is None else 0
        self._seed = seed

    @property
    def name(self) -> str:
        """Class name of the sampler."""
        return (TPESampler if self._sampler is None else type(self._sampler)).__name__

    def ask(
        self,
        directions: Sequence[StudyDirection],
        visible: Sequence[FrozenTrial | None],
        number: int,
        space: Mapping[str, BaseDistribution],
    ) -> Trial:
        """Returns a trial of the sampler's own study that has every parameter of ``space``.

        Args:
            directions: Of the study.
            visible: The pilots of the completed batches before this one, by slot; None for a
                trial that never began, of which the sampler learns that it failed, no more.
            number: The pilot's slot. Its predecessors within its batch are unknown; the sampler
                has proposed something for each, still running, so that it can spread out.
            space: The joint search space; empty if it is found while the study runs.
        """
        # A storage that is copied does not log "a new study" for every pilot.
        storage = copy.deepcopy(_empty_storage(tuple(directions)))
        study = Study(_NAME, storage, sampler=self._fresh_sampler(number), pruner=NopPruner())
        for trial in visible:
            if trial is None:
                study.add_trial(timeless_trial(state=TrialState.FAIL))
                continue
            remembered = trial.system_attrs.get(PROPOSER_KEY, {"trial": {}, "study": {}})
            for key, value in remembered["study"].items():
                storage.set_study_system_attr(study._study_id, key, value)
            study.add_trial(_as_output(trial, remembered["trial"]))
        # Without a joint space, what earlier pilots share: a running trial that has no parameters
        # would keep nobody away from where it is.
        shared = dict(space) or intersection_search_space(study.get_trials(deepcopy=False))
        for _ in range(number - len(visible)):
            study.ask(shared)
        return study.ask(dict(space))

    def _fresh_sampler(self, number: int) -> BaseSampler:
        if self._sampler is None:
            seed = None
            if self._seed is not None:
                seed = entropy.bits(self._seed, "proposer", number)(32)
            return TPESampler(n_startup_trials=self.startup, seed=seed)
        sampler = copy.deepcopy(self._sampler)
        sampler.reseed_rng()
        return sampler


def remember(study: Study, trial_id: int, asked: Trial) -> None:
    """Keeps beside a trial what the sampler wants to remember of :meth:`Proposer.ask`'s answer."""
    storage, study_id = asked.study._storage, asked.study._study_id
    found = {
        "trial": dict(storage.get_trial(asked._trial_id).system_attrs),
        "study": dict(storage.get_study_system_attrs(study_id)),
    }
    if any(found.values()):
        study._storage.set_trial_system_attr(trial_id, PROPOSER_KEY, found)


def _as_output(trial: FrozenTrial, remembered: dict[str, Any]) -> FrozenTrial:
    """Returns what is private and charged for of a pilot, and what the sampler wrote beside it."""
    values = output(trial)
    unscored = TrialState.PRUNED if trial.state == TrialState.PRUNED else TrialState.FAIL
    state = unscored if values is None else TrialState.COMPLETE
    return timeless_trial(
        state=state,
        values=values,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs=remembered,
    )


def timeless_trial(**fields: Any) -> FrozenTrial:
    """Returns an ended trial of these fields, as of :func:`optuna.trial.create_trial`.

    Its times are the same as those of all others.
    """
    trial = create_trial(**fields)
    trial.datetime_start = trial.datetime_complete = _LONG_AGO
    return trial


@functools.lru_cache(maxsize=2)
def _empty_storage(directions: tuple[StudyDirection, ...]) -> InMemoryStorage:
    storage = InMemoryStorage()
    storage.create_new_study(directions, study_name=_NAME)
    return storage
