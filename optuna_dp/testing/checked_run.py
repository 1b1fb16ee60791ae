"""One run of an objective under observation, in a study of its own that is in memory only."""

from __future__ import annotations

import functools
import logging
import math
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, PartialFixedSampler, RandomSampler
from optuna.trial import Trial, create_trial

from optuna_dp.budget.sampler import BudgetSampler
from optuna_dp.testing.random_states import RandomStates
from optuna_dp.testing.replaying import WatchedStorage
from optuna_dp.testing.watched_files import WatchedFiles
from optuna_dp.testing.watched_opacus import OpacusRun, opacus_is_loaded, watching_opacus

if TYPE_CHECKING:
    from optuna_dp.budget.plan import BudgetPlan


@dataclass
class CheckedRun:
    """What was seen in one run.

    Attributes:
        value: Its score; None if it was pruned or failed.
        failure: What it raised, or why its score is none; empty if nothing.
        reports: What it reported, by step.
        reads: How it read other trials.
        states: Where it left the global random generators.
    """

    params: dict[str, Any] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)
    value: float | None = None
    failure: str = ""
    reports: dict[int, float] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    opacus: OpacusRun = field(default_factory=OpacusRun)


@dataclass(frozen=True)
class Stage:
    """A kind of run of a study.

    Attributes:
        name: How a person calls it.
        number: The number of its trial.
        event: What it costs; None if not stated.
    """

    name: str
    number: int
    event: Any


class Bench:
    """Runs an objective as often as it is asked to.

    Args:
        objective: Takes a trial.
        plan: What :func:`optuna_dp.fidelity` says to it; None for studies without a budget.
        files: Watches files over all runs.
        direction: Of the study, "maximize" or "minimize".

    Attributes:
        runs: How often the objective was run.
    """

    def __init__(
        self,
        objective: Callable[[Trial], Any],
        plan: BudgetPlan | None,
        files: WatchedFiles,
        direction: Literal["maximize", "minimize"],
    ) -> None:
        self.objective = objective
        self._plan, self._files, self._direction = plan, files, direction
        self.runs = 0

    def run(
        self,
        stage: Stage,
        like: CheckedRun | None = None,
        *,
        objective: Callable[[Trial], Any] | None = None,
        seed: int | None = None,
        at_step: Callable[[int], None] = lambda step: None,
    ) -> CheckedRun:
        """Runs once.

        Args:
            stage: Which run of the study it is.
            like: An earlier run, whose hyperparameters it gets.
            seed: For the global random generators; None draws fresh states.
            at_step: Called after each step of an Opacus optimizer.
        """
        self.runs += 1
        found, watched = CheckedRun(opacus=OpacusRun(at_step)), opacus_is_loaded()
        with quiet_optuna():
            trial, storage = self._ask(stage, like)
            RandomStates.seed(seed)
            with (
                self._files.run(),
                watching_opacus(found.opacus),
                storage.watching(trial._trial_id) as reads,
            ):
                found.value, found.failure = _score((objective or self.objective), trial)
        if opacus_is_loaded() and not watched:
            # The objective itself has imported Opacus, which was not watched then.
            return self.run(stage, like, objective=objective, seed=seed, at_step=at_step)
        frozen = storage.get_trial(trial._trial_id)
        found.states = RandomStates.read()
        found.params, found.distributions = dict(frozen.params), dict(frozen.distributions)
        found.reports, found.reads = dict(frozen.intermediate_values), sorted(reads)
        return found

    def _ask(self, stage: Stage, like: CheckedRun | None) -> tuple[Trial, WatchedStorage]:
        storage = WatchedStorage()
        create = functools.partial(
            optuna.create_study,
            storage=storage,
            direction=self._direction,
            pruner=optuna.pruners.NopPruner(),
        )
        if self._plan is None:
            study = create(sampler=RandomSampler())
            self._add_others(study, like)
        else:
            study = create(sampler=BudgetSampler(self._plan))
        trial = study.ask()
        # The plan is written. Parameters may come from anywhere now, and nothing needs to wait.
        study.sampler = _giving({} if like is None else like.params)
        if self._plan is not None:
            while trial.number < stage.number:
                trial = study.ask()
            self._add_others(study, like)
        return trial, storage

    @staticmethod
    def _add_others(study: optuna.Study, like: CheckedRun | None) -> None:
        params = {} if like is None else like.params
        distributions = {} if like is None else like.distributions
        for value in (0.5, 1e6):
            study.add_trial(create_trial(value=value, params=params, distributions=distributions))


def _giving(params: dict[str, Any]) -> BaseSampler:
    """Returns a sampler that gives these parameters, and draws others at random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return PartialFixedSampler(params, RandomSampler())


def _score(objective: Callable[[Trial], Any], trial: Trial) -> tuple[float | None, str]:
    try:
        value = objective(trial)
    except optuna.TrialPruned:
        return None, ""
    except Exception as error:  # Whatever a run raises is an outcome of it.
        return None, f"{type(error).__name__}: {error}"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        try:
            value = float(value)
        except (TypeError, ValueError):
            return None, f"its score is {type(value).__name__}, not a number"
    if math.isnan(value):
        return None, "its score is NaN"
    return float(value), ""


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Keeps Optuna's lines about trials of the check away, and its notes on experiments."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)
