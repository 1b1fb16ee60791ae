"""One run of an objective under observation, in a study of its own that is in memory only."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import math
import numbers
import secrets
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from optuna_dp.check import randomness
from optuna_dp.check.watched_scores import NoisyScore, watching_scores
from optuna_dp.core.optuna_internals import trial_id_of
from optuna_dp.errors import PlanError
from optuna_dp.runs.judgement import RunJudgement, judge
from optuna_dp.runs.run_endings import finalise
from optuna_dp.runs.run_plan import RunPlan
from optuna_dp.runs.trial_notes import BY_ENGINE, claims, noted
from optuna_dp.samplers.budget.sampler import BudgetSampler
from optuna_dp.samplers.selection.rand_tune import RandTuneSampler
from optuna_dp.selection.laws.negative_binomial import Geometric
from optuna_dp.study.entries import ASKED, TRAININGS
from optuna_dp.training.prepared import AS_GIVEN

if TYPE_CHECKING:
    from optuna_dp.samplers.budget.plan import BudgetPlan

# What a warning says whose category is an ordinary one (InterpretML's DP-EBM). Others speak of
# privacy without harm: Opacus asks for more Renyi orders for "a tighter privacy bound".
_PRIVACY_WARNINGS = ("privacy violation", "privacy leak")


@dataclass
class CheckedRun:
    """What was seen in one run.

    Attributes:
        params: Its hyperparameters.
        distributions: Where they are from.
        value: Its score; None if it was pruned or failed.
        failure: What it raised, or why its score is none; empty if nothing.
        reports: What it reported, by step.
        attributes: Its user attributes.
        reads: How it read other trials.
        states: Where it left the global random generators.
        judgement: What a release would know of it; None without a plan of its runs or a score.
        has_asked: Whether it asked what it may spend.
        is_enforced: Whether :func:`optuna_dp.train` made its training.
        takes_records_as_given: Whether that training's records came without a schema.
        privacy_warnings: What other libraries warned of, where the warning names privacy.
        scores: The noisy scores of this package that it computed.
    """

    params: dict[str, Any] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    value: float | None = None
    failure: str = ""
    reports: dict[int, float] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    judgement: RunJudgement | None = None
    has_asked: bool = False
    is_enforced: bool = False
    takes_records_as_given: bool = False
    privacy_warnings: list[str] = field(default_factory=list)
    scores: list[NoisyScore] = field(default_factory=list)


def checked_run(
    objective: Callable[[Trial], object],
    plan: BudgetPlan | RunPlan | None,
    model_run: CheckedRun | None = None,
) -> CheckedRun:
    """Runs an objective once: the last run of a plan, or a run of a study without one.

    Args:
        objective: Takes a trial.
        plan: What :func:`optuna_dp.start_run` says to it; None for studies without a plan of runs.
        model_run: An earlier run, whose hyperparameters it gets.
    """
    run = CheckedRun()
    with _quiet_optuna():
        trial, storage = _asked(plan, model_run)
        with (
            storage.watching(trial_id_of(trial)) as reads,
            _noting_privacy_warnings(run.privacy_warnings),
            watching_scores(run.scores),
        ):
            randomness.seed_anew()
            run.value, run.failure = _score(lambda: objective(trial))
            run.states = randomness.states()
    frozen = storage.get_trial(trial_id_of(trial))
    run.params, run.distributions = dict(frozen.params), dict(frozen.distributions)
    run.reports, run.reads = dict(frozen.intermediate_values), sorted(reads)
    run.attributes = dict(frozen.user_attrs)
    trainings = [t for t in claims(frozen, TRAININGS).values() if t.get("by") == BY_ENGINE]
    run.is_enforced = bool(trainings)
    run.takes_records_as_given = any(
        training.get("prepared") == {"word": AS_GIVEN} for training in trainings
    )
    run.has_asked = noted(frozen, ASKED) is not None
    if plan is not None and run.value is not None:
        run.judgement = _judged(plan, trial, storage, run.value)
    return run


def _judged(
    plan: BudgetPlan | RunPlan, trial: Trial, storage: WatchedStorage, value: float
) -> RunJudgement | None:
    """Returns what a release would know of a run; see :func:`judge`."""
    # What is found then is written into the trial, and the judgement says it.
    with contextlib.suppress(PlanError):
        finalise(trial.study, storage.get_trial(trial_id_of(trial)))
    ended = copy.copy(storage.get_trial(trial_id_of(trial)))
    ended.state, ended.values = TrialState.COMPLETE, [value]
    return judge(ended, plan.run if isinstance(plan, RunPlan) else plan.run_at(trial.number))


def _sampler(plan: BudgetPlan | RunPlan | None) -> BaseSampler:
    """Returns a sampler whose study has the plan."""
    if plan is None:
        return RandomSampler()
    if isinstance(plan, RunPlan):
        return RandTuneSampler(trials=Geometric(mean=2.0), run=plan)
    # The list of a plan for candidates is the study's own sampler's.
    return BudgetSampler(dataclasses.replace(plan, candidates=None))


def _asked(
    plan: BudgetPlan | RunPlan | None, model_run: CheckedRun | None
) -> tuple[Trial, WatchedStorage]:
    """Returns a new trial in a study with other trials, and the study's storage."""
    storage = WatchedStorage()
    study = optuna.create_study(
        storage=storage,
        direction="maximize",
        pruner=optuna.pruners.NopPruner(),
        sampler=_sampler(plan),
    )
    if plan is None:
        _add_others(study, model_run)
    trial = study.ask()
    pilots = 0 if plan is None or isinstance(plan, RunPlan) else plan.pilots
    while trial.number < pilots:
        # Not told: nothing ran, so the sampler has nothing to say of it.
        storage.set_trial_state_values(trial_id_of(trial), TrialState.COMPLETE, [0.5])
        trial = study.ask()
    # The sampler has begun this trial; its parameters may come from anywhere.
    study.sampler = _giving({} if model_run is None else model_run.params)
    if plan is not None:
        _add_others(study, model_run)
    return trial, storage


def _add_others(study: optuna.Study, model_run: CheckedRun | None) -> None:
    params = {} if model_run is None else model_run.params
    distributions = {} if model_run is None else model_run.distributions
    for value in (0.5, 1e6):
        study.add_trial(create_trial(value=value, params=params, distributions=distributions))


def _giving(params: dict[str, object]) -> BaseSampler:
    """Returns a sampler that gives these parameters, and draws others at random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        # Seeded, so that it draws nothing of what the run draws from.
        return PartialFixedSampler(params, RandomSampler(seed=secrets.randbits(32)))


def _score(run: Callable[[], object]) -> tuple[float | None, str]:
    """Returns the score, or what went wrong."""
    try:
        value: Any = run()  # Whatever it is: float says whether it is a number.
    except optuna.TrialPruned:
        return None, ""
    except (Exception, SystemExit) as error:  # Whatever a run raises is an outcome of it.
        return None, f"{type(error).__name__}: {error}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        try:
            value = float(value)
        except (TypeError, ValueError):
            return None, f"its score is {type(value).__name__}, not a number"
    if math.isnan(value):
        return None, "its score is NaN"
    return float(value), ""


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Keeps Optuna's lines about trials of the check away, and its notes on experiments."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


@contextlib.contextmanager
def _noting_privacy_warnings(texts: list[str]) -> Iterator[None]:
    """Notes warnings that a privacy guarantee does not hold, whatever filter was set before.

    Their category names privacy, as diffprivlib's ``PrivacyLeakWarning`` does, or their text says
    so, as InterpretML's "Possible privacy violation". No warning is shown meanwhile.

    Args:
        texts: Each warning is put in here once, as "Category: text".
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for warning in caught:
                name = warning.category.__name__
                text = f"{name}: {warning.message}"
                is_of_privacy = "privacy" in name.lower() or any(
                    phrase in text.lower() for phrase in _PRIVACY_WARNINGS
                )
                if is_of_privacy and text not in texts:
                    texts.append(text)


class WatchedStorage(InMemoryStorage):
    """Notes which trials are read."""

    def __init__(self) -> None:
        super().__init__()
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
        own_trial_id, self._own = self._own, None  # It reads trials in its turn.
        try:
            return super().get_best_trial(study_id)
        finally:
            self._own = own_trial_id

    def get_n_trials(self, *args: Any, **kwargs: Any) -> int:
        self._note("get_n_trials")
        return super().get_n_trials(*args, **kwargs)


def _asked_by_this_package() -> bool:
    """Returns whether this package asked Optuna: ``start_run`` reads the plan at trial 0."""
    for frame, _ in traceback.walk_stack(sys._getframe(2)):
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.split(".")[0] != "optuna":
            return module.split(".")[0] == "optuna_dp"
    return False
