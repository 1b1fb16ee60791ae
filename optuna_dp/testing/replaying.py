"""Replay: does a procedure touch the data only through its mechanisms, as sensitively as it says?

A procedure that is private by composition reads the data through mechanisms (a noisy answer to a
query of stated sensitivity) and computes everything else from their answers. So with the answers
frozen, a rerun on a neighbouring data set must make the same calls, with queries that differ by at
most their sensitivity, and must return the same.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from optuna_dp import validation
from optuna_dp.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError

Norm = Literal["l1", "l2", "linf"]
Data = TypeVar("Data")

_ORDERS: dict[str, float] = {"l1": 1.0, "l2": 2.0, "linf": np.inf}
# Queries are sums of floating-point numbers; their difference is exact up to rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Call:
    """One use of a mechanism.

    Attributes:
        query: The exact answer, before noise.
        sensitivity: How far the query may move between neighbours.
        settings: What else the mechanism was told (its noise, say); must not depend on the data.
    """

    name: str
    query: FloatArray
    sensitivity: float
    norm: str
    settings: dict[str, Any]
    answer: Any


class Mechanisms:
    """Hands queries to mechanisms and writes the calls down, or answers from an earlier record.

    Args:
        frozen: Calls whose answers are given again, in order; None calls the mechanisms.

    Attributes:
        calls: What was asked so far, in order.
    """

    def __init__(self, frozen: list[Call] | None = None) -> None:
        self._frozen = frozen
        self.calls: list[Call] = []

    def ask(
        self,
        name: str,
        mechanism: Callable[[Any], Any],
        query: npt.ArrayLike,
        *,
        sensitivity: float,
        norm: Norm = "l2",
        **settings: Any,
    ) -> Any:
        """Returns ``mechanism(query)``, or what was answered at this point of the first run.

        Args:
            name: Names the mechanism in the report.
            mechanism: Takes the query and adds its noise.
            query: The exact answer.
            sensitivity: How far the query may move between neighbouring data sets; at least 0.
            norm: The norm of that: "l1", "l2" or "linf".
            settings: Whatever decides the mechanism's cost, to be compared.

        Returns:
            What the mechanism answered, of whatever type that is.

        Raises:
            InvalidArgumentError: If ``sensitivity`` or ``norm`` is not allowed.
        """
        if norm not in _ORDERS:
            raise InvalidArgumentError("norm", norm, 'it must be "l1", "l2" or "linf"')
        moved = validation.non_negative("sensitivity", sensitivity)
        value = np.atleast_1d(np.asarray(query, dtype=np.float64)).copy()
        if self._frozen is None:
            answer = mechanism(query)
        elif len(self.calls) < len(self._frozen):
            answer = self._frozen[len(self.calls)].answer
        else:
            raise _OneTooManyError
        self.calls.append(Call(name, value, moved, norm, settings, answer))
        return answer


class _OneTooManyError(Exception):
    """The rerun asks more than the first run did."""


@dataclass(frozen=True)
class Replay(Generic[Data]):
    """What a replay found.

    Attributes:
        problems: One sentence each; empty if the two runs cannot be told apart.
        calls: Uses of mechanisms in the first run.
    """

    problems: tuple[str, ...]
    calls: int

    def check(self) -> None:
        """Raises ``AssertionError`` with the problems if there are any."""
        if self.problems:
            raise AssertionError("; ".join(self.problems))


def replay(
    procedure: Callable[[Data, Mechanisms], Any], data: Data, neighbour: Data
) -> Replay[Data]:
    """Runs a procedure on ``data``, then on ``neighbour`` with the same answers, and compares.

    Guarantees:
        * A procedure that reads the data outside its mechanisms in a way that changes its calls,
          their settings or its result between these two inputs is reported.
        * A query that moves by more than its sensitivity between these two inputs is reported.

    Args:
        procedure: Takes the data and a :class:`Mechanisms`. Its randomness must all be in the
            mechanisms, or come from a fixed seed.
        data: One data set.
        neighbour: A neighbouring one.

    Example:
        >>> import random
        >>> from optuna_dp.testing import Mechanisms, replay
        >>> def mean(data: list[float], mechanisms: Mechanisms) -> float:
        ...     noisy = lambda value: value + random.gauss(0, 1)
        ...     return mechanisms.ask("mean", noisy, sum(data) / 10, sensitivity=0.1)
        >>> replay(mean, [0.0] * 10, [0.0] * 9 + [1.0]).problems
        ()
    """
    first = Mechanisms()
    result = procedure(data, first)
    second = Mechanisms(first.calls)
    problems = []
    try:
        other = procedure(neighbour, second)
    except _OneTooManyError:
        problems.append(f"the rerun makes more than the {len(first.calls)} calls of the first run")
    else:
        if len(second.calls) < len(first.calls):
            problems.append(f"the rerun makes {len(second.calls)} calls, not {len(first.calls)}")
        elif not _equal(result, other):
            problems.append(f"with the same answers the results differ: {result!r}, {other!r}")
    for i, (a, b) in enumerate(zip(first.calls, second.calls, strict=False)):
        problems += _differences(f"call {i} ({a.name!r})", a, b)
    return Replay(tuple(problems), len(first.calls))


def _differences(where: str, a: Call, b: Call) -> list[str]:
    for name in ("name", "sensitivity", "norm", "settings"):
        if getattr(a, name) != getattr(b, name):
            return [f"{where}: its {name} is {getattr(a, name)!r}, then {getattr(b, name)!r}"]
    if a.query.shape != b.query.shape:
        return [f"{where}: its query has shape {a.query.shape}, then {b.query.shape}"]
    moved = float(np.linalg.norm((a.query - b.query).ravel(), _ORDERS[a.norm]))
    if not moved <= a.sensitivity * (1.0 + _ROUNDING) + _ROUNDING**2:
        return [
            f"{where}: its query moves by {moved:.6g} ({a.norm}), more than the sensitivity "
            f"{a.sensitivity:.6g}"
        ]
    return []


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(np.array_equal(a, b))
    except (TypeError, ValueError):
        return bool(a == b)


# An objective alone with its trial.


def other_trials_read(
    objective: Callable[[Trial], Any],
    *,
    params: dict[str, Any] | None = None,
    distributions: dict[str, BaseDistribution] | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
) -> list[str]:
    """Returns what an objective reads of trials that are not its own; empty is as it should be.

    The objective is run once, in a study in memory that holds other trials. A run that depends on
    them (a warm start from the best so far, an early stop against it) is not a draw from the law
    that the accounting assumes. Reading files or globals that other runs wrote is not seen.

    Args:
        objective: The objective, called once; whatever it raises is not caught, except pruning.
        params: Parameters of the other trials, if the objective looks for some.
        distributions: Their distributions.
        pruner: The pruner to run with; None never prunes.

    Example:
        >>> from optuna_dp.testing import other_trials_read
        >>> other_trials_read(lambda trial: trial.suggest_float("x", 0, 1))
        []
        >>> other_trials_read(lambda trial: trial.study.best_value)
        ['get_best_trial']
    """
    storage = WatchedStorage()
    study = optuna.create_study(
        storage=storage,
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.NopPruner() if pruner is None else pruner,
    )
    for value in (0.5, 1e6):
        study.add_trial(
            create_trial(value=value, params=params or {}, distributions=distributions or {})
        )
    study.add_trial(create_trial(state=TrialState.FAIL))
    trial = study.ask()
    with storage.watching(trial._trial_id) as seen, suppress(optuna.TrialPruned):
        objective(trial)
    return sorted(seen)


class WatchedStorage(InMemoryStorage):
    """Notes which trials are read."""

    def __init__(self) -> None:
        super().__init__()
        self._own: int | None = None
        self._seen: set[str] = set()

    @contextmanager
    def watching(self, own: int) -> Iterator[set[str]]:
        """Yields the names of methods by which trials other than ``own`` are read meanwhile."""
        self._own, self._seen = own, set()
        try:
            yield self._seen
        finally:
            self._own = None

    def _note(self, name: str, trial_id: int | None = None) -> None:
        if self._own is not None and trial_id != self._own and not _asked_by_this_package():
            self._seen.add(name)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        self._note("get_trial", trial_id)
        return super().get_trial(trial_id)

    def get_all_trials(self, *args: Any, **kwargs: Any) -> list[FrozenTrial]:
        self._note("get_all_trials")
        return super().get_all_trials(*args, **kwargs)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        self._note("get_best_trial")
        own, self._own = self._own, None  # It reads trials in its turn.
        try:
            return super().get_best_trial(study_id)
        finally:
            self._own = own

    def get_n_trials(self, *args: Any, **kwargs: Any) -> int:
        self._note("get_n_trials")
        return super().get_n_trials(*args, **kwargs)


def _asked_by_this_package() -> bool:
    """Whether the code that asked Optuna is ours: ``fidelity`` reads the plan at trial 0."""
    for frame, _ in traceback.walk_stack(sys._getframe(2)):
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and name.split(".")[0] != "optuna":
            return name.split(".")[0] == "optuna_dp"
    return False
