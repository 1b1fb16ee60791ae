"""Small studies that many tests use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.trial import Trial

import optuna_dp as odp

RUN = odp.gaussian(noise_multiplier=4.0)
KNOWN_COUNT = 4


def objective(trial: Trial) -> float:
    return -((trial.suggest_float("x", -1.0, 1.0) - 0.3) ** 2)


def study_of(sampler: Any, **kwargs: Any) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=sampler, **kwargs)


def exactly(count: int) -> odp.TrialCount:
    """A law under which T = ``count`` always (a Poisson law capped far below its mean)."""
    return odp.Poisson(mean=count + 2000.0).capped(count)


def finished_study(
    sampler: Any = None, function: Callable[[Trial], float] = objective, **kwargs: Any
) -> optuna.Study:
    study = study_of(sampler or odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)), **kwargs)
    study.optimize(function, catch=(Exception,))
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
