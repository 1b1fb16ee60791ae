"""Outcomes of earlier runs in a row that only grows, with what was made of each kept."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.arrays import FloatArray
from optuna_dp.priors.encoding import encode_params
from optuna_dp.priors.scores import RunOutcome
from optuna_dp.priors.space import Space

S = TypeVar("S")


class History(Sequence[RunOutcome]):
    """Outcomes of runs, and their points in the unit cube.

    Args:
        outcomes: In order of their slots.
        space: That the points are encoded for.
        points: The encoded points, shape (n, d).
    """

    def __init__(self, outcomes: Sequence[RunOutcome], space: Space, points: FloatArray) -> None:
        self._outcomes = outcomes
        self._space = space
        self._points = points

    def __len__(self) -> int:
        return len(self._outcomes)

    @overload
    def __getitem__(self, index: int) -> RunOutcome: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RunOutcome]: ...

    def __getitem__(self, index: int | slice) -> RunOutcome | Sequence[RunOutcome]:
        return self._outcomes[index]

    def encoded_in(self, space: Space) -> FloatArray:
        """Returns the points, shape (n, d), as :func:`encode_params` of this space makes them."""
        if space == self._space:
            return self._points
        return points_of(self._outcomes, space)


def points_of(history: Sequence[RunOutcome], space: Space) -> FloatArray:
    """Returns the points of a history in the unit cube of a space, shape (n, d)."""
    if isinstance(history, History):
        return history.encoded_in(space)
    return encode_params(space, [outcome.params for outcome in history])


class GrowingHistory(Generic[S]):
    """The history of one search in this process; a cache that cannot change a result.

    Runs that have ended do not change. So what was made of them for the proposal before is kept,
    and only what is new is read and encoded. Copies and pickles are empty.

    Args:
        outcome_of: Makes the outcome of what a storage has of a run that has ended.
    """

    def __init__(self, outcome_of: Callable[[S], RunOutcome]) -> None:
        self._read = outcome_of
        self._lock = threading.Lock()
        self._forget({})

    def _forget(self, space: Space) -> None:
        self._space = dict(space)
        self._made_of: list[S] = []
        self._outcomes: list[RunOutcome] = []
        self._points = encode_params(self._space, [])

    def of(self, runs: Sequence[S], space: Space) -> History:
        """Returns the history of runs, in order of their slots, all of them ended.

        Args:
            runs: What the storage has of them, the same objects from call to call.
            space: The joint search space.
        """
        with self._lock:
            length = len(self._made_of)
            is_continuation = length <= len(runs) and all(map(operator.is_, self._made_of, runs))
            if not is_continuation or space != self._space:
                self._forget(space)
                length = 0
            if length < len(runs):
                outcomes = [self._read(run) for run in runs[length:]]
                new_points = encode_params(self._space, [outcome.params for outcome in outcomes])
                self._points = np.concatenate([self._points, new_points])
                # Lists that were handed out stay as they are.
                self._outcomes = [*self._outcomes, *outcomes]
                self._made_of.extend(runs[length:])
            return History(self._outcomes, self._space, self._points)

    def __reduce__(self) -> tuple[object, ...]:
        return GrowingHistory, (self._read,)


class SharedSpace:
    """The hyperparameters that all completed trials of one search have; a cache, as above.

    It is what ``optuna.search_space.intersection_search_space`` makes of these trials, without
    reading all of them again for each proposal. Copies and pickles are empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._trials: list[FrozenTrial] = []
        self._space: dict[str, BaseDistribution] | None = None

    def of(self, trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
        """Returns what they share, by name, in the order of names.

        Args:
            trials: Trials that have ended, the same objects from call to call.
        """
        with self._lock:
            count = len(self._trials)
            if count > len(trials) or not all(map(operator.is_, self._trials, trials)):
                self._forget()
                count = 0
            for trial in trials[count:]:
                self._trials.append(trial)
                if trial.state is not TrialState.COMPLETE:
                    continue
                space = trial.distributions if self._space is None else self._space
                self._space = {
                    name: distribution
                    for name, distribution in space.items()
                    if trial.distributions.get(name) == distribution
                }
            return dict(sorted((self._space or {}).items()))

    def __reduce__(self) -> tuple[object, ...]:
        return SharedSpace, ()
