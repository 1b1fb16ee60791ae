"""Small studies that many tests use."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, Trial

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.core.optuna_internals import storage_of, study_id_of
from optuna_dp.errors import OptunaDPError, ReleaseRefusedError
from optuna_dp.evidence.procedures import procedure_of
from optuna_dp.runs.trial_notes import BY_RUN_SCORE, claim, claims, noted, stored_trial
from optuna_dp.samplers.selection.procedure import PrivateSelection
from optuna_dp.study.entries import SCORES, SPENT
from optuna_dp.study.trials import read_plan

RUN = odp.gaussian(noise_multiplier=4.0)
KNOWN_COUNT = 4


def simulated(run: odp.Run) -> Any:
    """What the accountant of a training that spends just what it may would have recorded."""
    return event_from_json(event_to_json(run.training))


class recorded:
    """An event as a library's own object hands it in, such as a plan of JAX Privacy's."""

    def __init__(self, event: Any) -> None:
        self.dp_event = event


def ask(trial: Trial) -> None:
    """Does what an objective has to do in a study with a budget; nothing in other studies.

    It asks what its run may spend, and hands in what a simulated training spent.
    """
    if not isinstance(trial.study.sampler, odp.BudgetSampler):
        return
    run = odp.start_run(trial)
    if noted(stored_trial(trial), SPENT) is None:
        run.spent(recorded(simulated(run)))


def tell(trial: Trial, value: Any) -> Any:
    """Returns a value that is recorded as a score with noise, as ``run.score`` records its own."""
    budget = isinstance(trial.study.sampler, odp.BudgetSampler)
    if budget and isinstance(value, float) and not claims(stored_trial(trial), SCORES):
        claim(trial, SCORES, by=BY_RUN_SCORE).finish(value=value)
    return value


def asking(function: Callable[[Trial], Any]) -> Callable[[Trial], Any]:
    """An objective as honest studies with a budget have it, made of any function of a trial."""

    @functools.wraps(function)
    def asks(trial: Trial) -> Any:
        ask(trial)
        return tell(trial, function(trial))

    return asks


def objective(trial: Trial) -> float:
    ask(trial)
    score: float = tell(trial, -((trial.suggest_float("x", -1.0, 1.0) - 0.3) ** 2))
    return score


def study_of(sampler: Any, **kwargs: Any) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=sampler, **kwargs)


def budget_sampler(plan: odp.BudgetPlan, **kwargs: Any) -> odp.BudgetSampler:
    """The sampler of a study with a budget."""
    return odp.BudgetSampler(plan, **kwargs)


def exactly(count: int) -> odp.TrialCount:
    """A law under which T = ``count`` always (a Poisson law capped far below its mean)."""
    return odp.Poisson(mean=count + 2000.0).capped(count)


def finished_study(
    sampler: Any = None, function: Callable[[Trial], float] = objective, **kwargs: Any
) -> optuna.Study:
    study = study_of(
        sampler or odp.RandTuneSampler(trials=exactly(KNOWN_COUNT), run=RUN), **kwargs
    )
    study.optimize(asking(function), catch=(Exception,))
    return study


@contextmanager
def logged(name: str = "optuna_dp") -> Iterator[list[str]]:
    """Collects what a logger says at any level."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname}: {record.getMessage()}")

    logger = logging.getLogger(name)
    handler, level = Collect(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def everything(study: optuna.Study) -> str:
    storage = study._storage
    return repr(
        (
            [copy.deepcopy(t.__dict__) for t in study.trials],
            storage.get_study_system_attrs(study._study_id),
            study.user_attrs,
        )
    )


def release(study: optuna.Study, **options: Any) -> odp.Release:
    """``odp.release``, with the curator's word for the cost of a run where it is only stated."""
    try:
        stored_plan = read_plan(study)
    except OptunaDPError:
        stored_plan = None  # A damaged entry: the release says so.
    if stored_plan is not None:
        procedure = procedure_of(stored_plan.design)
        if isinstance(procedure, PrivateSelection) and procedure.run_of(0) is None:
            options.setdefault("vouched", "a test")
    return odp.release(study, **options)


def refused(study: optuna.Study, match: str | None = None) -> ReleaseRefusedError:
    """Release refuses, with this word if one is given, and leaves the study as it was."""
    before = everything(study)
    with pytest.raises(ReleaseRefusedError, match=match) as caught:
        release(study)
    assert everything(study) == before
    assert f" {KNOWN_COUNT} " not in str(caught.value)
    return caught.value


def add_behind(study: optuna.Study, trial: FrozenTrial) -> None:
    """Adds a trial to the storage, as a process that knows nothing of the study's sampler."""
    storage_of(study).create_new_trial(study_id_of(study), template_trial=trial)


def rewrite(study: optuna.Study, number: int, key: str, value: Any) -> None:
    """Changes an entry behind everybody's back, as a corrupted storage would."""
    study._storage._get_trial(study.trials[number]._trial_id).system_attrs[key] = value  # type: ignore[attr-defined]
