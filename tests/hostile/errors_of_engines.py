"""Ways to go wrong with workers on engines, and without optional packages."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import joblib
import optuna
from engines.crew import Crew
from optuna.exceptions import StorageInternalError
from support import exactly, objective, study_of

import optuna_dp as odp

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


def _on_an_engine(objective: Any = objective, sampler: Any = None) -> None:
    """A call on an engine whose workers are threads."""
    crew = Crew()
    crew.name = "dask"
    with mock.patch("optuna_dp.distributed.call.engine_here", return_value=crew):
        odp.distributed.optimize(
            lambda: study_of(sampler or odp.RandTuneSampler(trials=exactly(3))),
            objective,
            workers=2,
        )


def _out_of_reach() -> None:
    told = ConnectionError("connection to db.cluster, port 5432 failed: Connection refused")
    with mock.patch("optuna.load_study", side_effect=told):
        _on_an_engine()


def _dying(trial: optuna.Trial) -> float:
    raise StorageInternalError("connection to db.cluster, port 5432 was lost")


def _storage_dies() -> None:
    with joblib.parallel_config("threading"):
        odp.distributed.optimize(
            lambda: study_of(odp.RandTuneSampler(trials=exactly(3))), _dying, workers=1
        )


def _limited_threads() -> None:
    with joblib.parallel_config("threading"):
        odp.distributed.optimize(
            lambda: study_of(odp.RandTuneSampler()), objective, workers=2, run_timeout=60
        )


def _on_multiprocessing() -> None:
    with joblib.parallel_config("multiprocessing"):
        odp.distributed.optimize(lambda: study_of(odp.RandTuneSampler()), objective, workers=2)


ENGINES = [
    Case("An engine on which nobody notices a death", _on_multiprocessing),
    Case(
        "An objective that cannot be sent",
        lambda: _on_an_engine(partial(_reading, lock=threading.Lock())),
    ),
    Case(
        "A sampler that never ends", lambda: _on_an_engine(sampler=optuna.samplers.RandomSampler())
    ),
    Case(
        "Candidates, of which a dead worker's cannot be settled",
        lambda: _on_an_engine(
            sampler=odp.NoisyMaxSampler(candidates=[{"x": 1.0}], n_partitions=400, epsilon=1.0)
        ),
    ),
    Case("A storage out of the workers' reach", _out_of_reach),
    Case("A storage that has died", _storage_dies),
    Case("A limit where workers are threads", _limited_threads),
]
