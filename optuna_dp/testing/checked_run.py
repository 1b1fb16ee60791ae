"""One run of an objective under observation, in a study of its own that is in memory only."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import numbers
import secrets
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from optuna_dp.budget.sampler import BudgetSampler
from optuna_dp.errors import PlanError
from optuna_dp.optuna_internals import trial_id_of
from optuna_dp.testing import randomness
from optuna_dp.testing.privacy_warnings import noting_privacy_warnings
from optuna_dp.testing.watched_scores import NoisyScore, watching_scores
from optuna_dp.training.judgement import RunJudgement, judge
from optuna_dp.training.prepared import AS_GIVEN
from optuna_dp.training.run_endings import settle
from optuna_dp.training.trial_notes import BY_ENGINE, TRAINING, claims

if TYPE_CHECKING:
    from optuna_dp.budget.plan import BudgetPlan


@dataclass
class CheckedRun:
    """What was seen in one run.

    Attributes:
        params: Its hyperparameters.
        distributions: Where they are from.
        value: Its score; None if it was pruned or failed.
        failure: What it raised, or why its score is none; empty if nothing.
        kind: "failure", "exit" or "time limit", if it failed.
        reports: What it reported, by step.
        attributes: Its user attributes.
        reads: How it read other trials.
        states: Where it left the global random generators.
        asked: Whether it asked for its fidelity.
        judgement: What a release would know of it; None without a budget or a score.
        seconds: How long it took.
        is_enforced: Whether :func:`optuna_dp.train` made its training.
        takes_records_as_given: Whether that training's records came without a schema.
        privacy_warnings: What other libraries warned of, where the warning names privacy.
        scores: The noisy scores of this package that it computed.
    """

    params: dict[str, Any] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    value: float | None = None
    failure: str = ""
    kind: str = ""
    reports: dict[int, float] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    asked: bool = False
    judgement: RunJudgement | None = None
    seconds: float = 0.0
    is_enforced: bool = False
    takes_records_as_given: bool = False
    privacy_warnings: list[str] = field(default_factory=list)
    scores: list[NoisyScore] = field(default_factory=list)


class Bench:
    """Runs an objective as often as it is asked to.

    Args:
        plan: What :func:`optuna_dp.fidelity` says to it; None for studies without a budget.
        direction: Of the study, "maximize" or "minimize".
        time_limit: Seconds that one run may take; None for any time.
        progress: Told in words what is done next.

    Attributes:
        runs: How often an objective was run.
    """

    def __init__(
        self,
        plan: BudgetPlan | None,
        direction: Literal["maximize", "minimize"],
        time_limit: float | None,
        progress: Callable[[str], None],
    ) -> None:
        self._plan, self._direction = plan, direction
        self._limit, self._progress = time_limit, progress
        self.runs = 0

    def run(
        self,
        words: str,
        objective: Callable[[Trial], Any],
        model_run: CheckedRun | None = None,
    ) -> CheckedRun:
        """Runs an objective once: the last run of a plan, or a run of a study without one.

        Args:
            words: What this run is for.
            objective: Takes a trial.
            model_run: An earlier run, whose hyperparameters it gets.
        """
        self.runs += 1
        self._progress(f"run {self.runs}: {words}")
        run = CheckedRun()
        with _quiet_optuna():
            trial, storage = self._ask(model_run)
            start = time.monotonic()
            with (
                storage.watching(trial_id_of(trial)) as reads,
                noting_privacy_warnings(run.privacy_warnings),
                watching_scores(run.scores),
                _limited(self._limit),
            ):
                randomness.seed_anew()
                run.value, run.failure, run.kind = _score(lambda: objective(trial))
                run.states = randomness.states()
            run.seconds = time.monotonic() - start
        frozen = storage.get_trial(trial_id_of(trial))
        run.params, run.distributions = dict(frozen.params), dict(frozen.distributions)
        run.reports, run.reads = dict(frozen.intermediate_values), sorted(reads)
        run.attributes = dict(frozen.user_attrs)
        run.asked = storage.asked
        trainings = [t for t in claims(frozen, TRAINING).values() if t.get("by") == BY_ENGINE]
        run.is_enforced = bool(trainings)
        run.takes_records_as_given = any(
            training.get("prepared") == {"word": AS_GIVEN} for training in trainings
        )
        run.judgement = self._judged(trial, storage, run.value)
        return run

    def _judged(
        self, trial: Trial, storage: WatchedStorage, value: float | None
    ) -> RunJudgement | None:
        """Returns what a release would know of a run; see :func:`judge`."""
        if self._plan is None or value is None:
            return None
        # What is found then is written into the trial, and the judgement says it.
        with contextlib.suppress(PlanError):
            settle(trial.study, storage.get_trial(trial_id_of(trial)))
        ended = copy.copy(storage.get_trial(trial_id_of(trial)))
        ended.state, ended.values = TrialState.COMPLETE, [value]
        return judge(ended, self._plan.fidelity(trial.number))

    def _ask(self, model_run: CheckedRun | None) -> tuple[Trial, WatchedStorage]:
        storage = WatchedStorage()
        study = optuna.create_study(
            storage=storage,
            direction=self._direction,
            pruner=optuna.pruners.NopPruner(),
            sampler=RandomSampler() if self._plan is None else BudgetSampler(self._plan),
        )
        if self._plan is None:
            self._add_others(study, model_run)
        trial = study.ask()
        while self._plan is not None and trial.number < self._plan.pilots:
            # Not told: nothing ran, so the sampler has nothing to say of it.
            storage.set_trial_state_values(trial_id_of(trial), TrialState.COMPLETE, [0.5])
            trial = study.ask()
        # The sampler has begun this trial; its parameters may come from anywhere.
        study.sampler = _giving({} if model_run is None else model_run.params)
        if self._plan is not None:
            self._add_others(study, model_run)
        return trial, storage

    @staticmethod
    def _add_others(study: optuna.Study, model_run: CheckedRun | None) -> None:
        params = {} if model_run is None else model_run.params
        distributions = {} if model_run is None else model_run.distributions
        for value in (0.5, 1e6):
            study.add_trial(create_trial(value=value, params=params, distributions=distributions))


def _giving(params: dict[str, Any]) -> BaseSampler:
    """Returns a sampler that gives these parameters, and draws others at random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # Seeded, so that it draws nothing of what the run draws from.
        return PartialFixedSampler(params, RandomSampler(seed=secrets.randbits(32)))


class _TimeLimitReached(BaseException):
    """Not an Exception, so that an objective which catches those ends as well."""


@contextlib.contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    if seconds is None or not _can_be_limited():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise _TimeLimitReached

    previous_handler = signal.signal(signal.SIGALRM, stop)
    previous_timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous_handler)
        signal.setitimer(signal.ITIMER_REAL, *previous_timer)  # whose it was: a test runner's


def _can_be_limited() -> bool:
    """Returns whether a run can be ended from here: on POSIX, in the main thread."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def _score(run: Callable[[], Any]) -> tuple[float | None, str, str]:
    """Returns the score, or what went wrong and of which kind that is."""
    try:
        value = run()
    except optuna.TrialPruned:
        return None, "", ""
    except _TimeLimitReached:
        return None, "it had not ended", "time limit"
    except SystemExit as error:
        return None, f"SystemExit: {error}", "exit"
    except Exception as error:  # Whatever a run raises is an outcome of it.
        return None, f"{type(error).__name__}: {error}", "failure"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        try:
            value = float(value)
        except (TypeError, ValueError):
            return None, f"its score is {type(value).__name__}, not a number", "failure"
    if math.isnan(value):
        return None, "its score is NaN", "failure"
    return float(value), "", ""


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Keeps Optuna's lines about trials of the check away, and its notes on experiments."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


class WatchedStorage(InMemoryStorage):
    """Notes which trials are read.

    Attributes:
        asked: Whether :func:`optuna_dp.fidelity` was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = False
        self._own: int | None = None
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def watching(self, own_id: int) -> Iterator[set[str]]:
        """Yields the names of methods by which trials other than ``own_id`` are read meanwhile."""
        self._own, self._seen = own_id, set()
        try:
            yield self._seen
        finally:
            self._own = None

    def _note(self, name: str, trial_id: int | None = None) -> None:
        if self._own is None:
            return
        own_callers = _functions_of_this_package()
        self.asked |= "fidelity" in own_callers
        if not own_callers and trial_id != self._own:
            self._seen.add(name)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        self._note("get_trial", trial_id)
        return super().get_trial(trial_id)

    def get_all_trials(self, *args: Any, **kwargs: Any) -> list[FrozenTrial]:
        self._note("get_all_trials")
        return super().get_all_trials(*args, **kwargs)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        self._note("get_best_trial")
        own_trial_id, self._own = self._own, None  # It reads trials in its turn.
        try:
            return super().get_best_trial(study_id)
        finally:
            self._own = own_trial_id

    def get_n_trials(self, *args: Any, **kwargs: Any) -> int:
        self._note("get_n_trials")
        return super().get_n_trials(*args, **kwargs)


def _functions_of_this_package() -> list[str]:
    """Returns which of our functions asked Optuna: ``fidelity`` reads the plan at trial 0."""
    callers = []
    for frame, _ in traceback.walk_stack(sys._getframe(2)):
        package = str(frame.f_globals.get("__name__", "")).split(".")[0]
        if frame.f_globals.get("__name__") == __name__ or package == "optuna":
            continue
        if package != "optuna_dp":
            break
        callers.append(frame.f_code.co_name)
    return callers
