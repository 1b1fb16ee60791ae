"""Worker processes: kept alive over many studies, or made to be killed."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import no_disk
import optuna
from optuna.storages import BaseStorage
from optuna.trial import TrialState
from support import RUN, ask, tell

import optuna_dp as odp
from optuna_dp.samplers.budget.plan import BudgetPlan, PaidRuns

from .storages import open_storage, opened

no_disk.install()  # Workers are other processes, which pytest did not prepare.

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
# Three pilots, the best two of them again, the last run, and one to spare.
BUDGET = BudgetPlan(
    epsilon=8.0,
    delta=1e-5,
    neighboring_relation="add_or_remove_one",
    sample_rate=None,
    batch_size=None,
    score="training",
    paid_pilots=(
        PaidRuns(3, 32.0, 10, 8.0, odp.gaussian(32.0)),
        PaidRuns(2, 16.0, 10, 8.0, odp.gaussian(16.0)),
    ),
    paid_last=PaidRuns(2, 2.0, 10, 4.0, odp.gaussian(2.0)),
)
# By the law of their number of runs, and by what a run costs where it is one of secretly many.
SAMPLERS: dict[str, Callable[..., optuna.samplers.BaseSampler]] = {
    "rand_tune": lambda law, run=RUN: odp.RandTuneSampler(trials=law, run=run),
    "dp_hypo_batch": lambda law, run=RUN: odp.DPHyPOSampler(
        X, trials=law, candidates=16, batch_size=2, run=run
    ),
    "dp_hypo_any": lambda law, run=RUN: odp.DPHyPOSampler(
        X, trials=law, candidates=16, schedule="any", run=run
    ),
    "budget": lambda law, run=RUN: odp.BudgetSampler(BUDGET, search_space=X, pilot_batch_size=2),
}


# Utilities cost nothing, and no candidate may be evaluated twice either.
PROCEDURES: dict[str, Callable[..., optuna.samplers.BaseSampler]] = {
    **SAMPLERS,
    "noisy_max": lambda law, run=RUN: odp.NoisyMaxSampler(
        X, candidates=6, n_partitions=1000, epsilon=8.0, resolve=0.5
    ),
    "propose_test": lambda law, run=RUN: odp.ProposeTestSampler(
        X, candidates=6, n_partitions=20_000, epsilon=0.5, granularity=0.5, resolve=0.6
    ),
}

# Of every call of an objective the trial's number, and the noise that it was given: None where
# the plan does not say what a run costs.
Ledger = list[tuple[int, float | None]]


def started_by(trial: optuna.Trial) -> float | None:
    """The noise that a run is started; None where the plan does not say what a run costs."""
    if not isinstance(trial.study.sampler, odp.BudgetSampler):
        return None
    ask(trial)
    return float(odp.start_run(trial).noise_multiplier)


def noting(ledger: Ledger) -> Callable[[optuna.Trial], float]:
    """An objective that notes each of its calls; its score lies in [0, 1]."""

    def objective(trial: optuna.Trial) -> float:
        started = started_by(trial)
        x = trial.suggest_float("x", -1.0, 1.0)
        ledger.append((trial.number, started))
        score: float = tell(trial, 1.0 - (x - 0.3) ** 2 / 2)
        return score

    return objective


@dataclass(frozen=True)
class Job:
    """One worker's part in one study."""

    url: str
    study: str
    sampler: str
    law: odp.TrialCount
    n_jobs: int = 1


def serve(connection: Connection, stacks: str) -> None:
    """Works off jobs until the connection is closed; answers with the ledger of its runs.

    On SIGUSR1 it writes to the file ``stacks`` where all its threads are.
    """
    told = open(stacks, "a")  # noqa: SIM115 - open for as long as the process lives
    faulthandler.register(signal.SIGUSR1, told, all_threads=True)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # One at a time: a small PostgreSQL server has no connections for pools that nobody uses.
    still_open, url, storage = contextlib.ExitStack(), None, None
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return
        ledger: Ledger = []
        try:
            if job.url != url:
                still_open.close()
                storage, url = still_open.enter_context(opened(job.url)), job.url
            study = optuna.load_study(
                study_name=job.study,
                storage=storage,
                sampler=PROCEDURES[job.sampler](job.law),
            )
            study.optimize(noting(ledger), n_jobs=job.n_jobs)
            connection.send(("done", ledger))
        except BaseException:  # The test is to see whatever went wrong here.
            connection.send(("failed", traceback.format_exc()))


# Workers that die.


@dataclass
class Fate:
    """When a worker dies: before or after its n-th step (a storage call or a line of the run).

    Or at the first event of a kind: "created" (a trial), "began" (a run).
    """

    step: int | None
    before: bool = True
    at: str | None = None
    seen: int = field(default=0)

    def tick(self, before: bool) -> None:
        if before:
            self.seen += 1
        if self.seen == self.step and before == self.before:
            os.kill(os.getpid(), signal.SIGKILL)

    def meet(self, event: str) -> None:
        if event == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


_STEPS = (
    "create_new_trial",
    "get_trial",
    "get_all_trials",
    "get_trial_id_from_study_id_trial_number",
    "set_trial_param",
    "set_trial_state_values",
    "set_trial_system_attr",
)


def make_mortal(storage: BaseStorage, fate: Fate, note: Callable[[str], Any]) -> None:
    """Lets a storage's calls be moments of death, and notes whose a trial is.

    Before and after it is created, and before and after one that somebody enqueued is taken.
    """

    def mortal(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            fate.tick(before=True)
            if name == "create_new_trial" or kwargs.get("state") == TrialState.RUNNING:
                result = noted(name, call, *args, **kwargs)
            else:
                result = call(*args, **kwargs)
            fate.tick(before=False)
            return result

        return run

    def noted(name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        note("taking -")
        try:
            result = call(*args, **kwargs)
        except BaseException:
            note("missed -")
            raise
        if name == "create_new_trial":
            note(f"took {result}")
            fate.meet("created")
        else:  # False: another worker was faster.
            note(f"took {args[0]}" if result else "missed -")
        return result

    for name in _STEPS:
        setattr(storage, name, mortal(name, getattr(storage, name)))


def live_and_die(job: Job, fate: Fate, diary: str, longest_run: float, seed: int) -> None:
    """One mortal worker.

    Its diary: trials it took (ids), numbers of runs that began, and what they were given.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    note = lambda text: os.write(file, f"{os.getpid()} {text}\n".encode())  # noqa: E731
    rng = random.Random(seed)
    try:
        storage = open_storage(job.url)
        make_mortal(storage, fate, note)
        study = optuna.load_study(
            study_name=job.study, storage=storage, sampler=SAMPLERS[job.sampler](job.law)
        )

        def objective(trial: optuna.Trial) -> float:
            started = started_by(trial)
            if started is not None:
                note(f"started {started}")
            fate.tick(before=True)
            x = trial.suggest_float("x", -1.0, 1.0)
            note(f"began {trial.number}")
            fate.meet("began")
            time.sleep(rng.uniform(0, longest_run))
            fate.tick(before=False)
            score: float = tell(trial, -((x - 0.3) ** 2))
            return score

        study.optimize(objective)
    except BaseException as error:
        note(f"raised {type(error).__name__}: {error}".replace("\n", " "))
        os._exit(1)
    os._exit(0)


@dataclass
class Diary:
    """What the workers of a study wrote down."""

    takers: dict[int, int] = field(default_factory=dict)  # trial id -> process id
    taking: set[int] = field(default_factory=set)  # process ids: in the middle of it
    began: list[int] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Diary:
        diary = cls()
        if path.exists():
            for line in path.read_text().splitlines():
                pid, what, value = line.split(" ", 2)
                if what == "taking":
                    diary.taking.add(int(pid))
                elif what in ("took", "missed"):
                    diary.taking.discard(int(pid))
                    if what == "took":
                        diary.takers[int(value)] = int(pid)
                elif what == "began":
                    diary.began.append(int(value))
                elif what == "started":
                    diary.started.append(float(value))
                else:
                    diary.raised.append(value)
        return diary
