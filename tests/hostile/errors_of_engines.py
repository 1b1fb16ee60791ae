"""Ways to go wrong with workers on engines, and without optional packages."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
from engines.studies import journal_study
from engines.threads import Death, Threads
from support import objective, study_of

import optuna_dp as odp
from optuna_dp.distributed.workers import ENGINES as BY_NAME

from .error_case import Case


@contextlib.contextmanager
def _without(package: str) -> Iterator[None]:
    hidden = {name: None for name in sys.modules if name.split(".")[0] == package}
    with mock.patch.dict(sys.modules, {package: None, **hidden}):
        yield


def _no_plotly() -> None:
    from optuna_dp.visualization import theme

    with _without("plotly"):
        theme.graph_objects()


EXTRAS = [Case("Plots without plotly", _no_plotly)]


def _reading(trial: optuna.Trial, lock: Any) -> float:
    with lock:
        return objective(trial)


def _dying(trial: optuna.Trial) -> float:
    trial.suggest_float("x", -1.0, 1.0)
    raise Death


def _in_a_journal(objective: Any = objective, sampler: Any = None, **options: Any) -> None:
    """A call on an engine whose workers are threads."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(BY_NAME, {"threads": Threads}),
    ):
        study = journal_study(Path(folder), sampler)
        odp.distributed.optimize(
            study, objective, **{"workers": 2, "engine": "threads", **options}
        )


def _in_memory() -> None:
    odp.distributed.optimize(study_of(odp.RandTuneSampler()), objective, workers=2)


ENGINES = [
    Case("A study in the memory of one process", _in_memory),
    Case("An engine that is none", lambda: _in_a_journal(engine="spark")),
    Case(
        "An objective that cannot be sent",
        lambda: _in_a_journal(partial(_reading, lock=threading.Lock())),
    ),
    Case(
        "A sampler that never ends", lambda: _in_a_journal(sampler=optuna.samplers.RandomSampler())
    ),
    Case("Workers that all die", lambda: _in_a_journal(_dying)),
]
