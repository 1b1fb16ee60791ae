"""Studies whose runs note that they began, and objectives in which a worker dies or fails."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from support import RUN, exactly

import optuna_dp as odp

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


@dataclass(frozen=True)
class Diary:
    """A file to which runs, in whatever process, write their numbers."""

    path: Path

    def began(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []


def journal_study(
    folder: Path, sampler: optuna.samplers.BaseSampler | None = None
) -> optuna.Study:
    """The study in a folder's journal; of twelve runs unless a sampler is given."""
    return optuna.create_study(
        study_name="tuning",
        storage=JournalStorage(JournalFileBackend(str(folder / "journal"))),
        direction="maximize",
        sampler=sampler or odp.RandTuneSampler(trials=exactly(12), run=RUN),
        load_if_exists=True,
    )


def objective_of(
    diary: Diary,
    *,
    fatal: Collection[int] = (),
    death: str = "kill",
    raises: Collection[int] = (),
    error: BaseException | None = None,
    seconds: float = 0.0,
) -> Callable[[optuna.Trial], float]:
    """An objective that can be sent anywhere, module or not.

    Args:
        diary: Where runs note their numbers.
        fatal: The numbers of runs whose worker dies in their midst.
        death: "kill", or "thread": see ``engines.threads``.
        raises: The numbers of runs that raise.
        error: What these raise; a ValueError if None.
        seconds: How long a run takes.
    """
    path = str(diary.path)
    error = error or ValueError("the data are not there")

    def objective(trial: optuna.Trial) -> float:
        import os as system
        import signal
        import time
        import types

        import optuna_dp

        budget = isinstance(trial.study.sampler, optuna_dp.BudgetSampler)
        run = optuna_dp.start_run(trial) if budget else None
        x = trial.suggest_float("x", -1.0, 1.0)
        file = system.open(path, system.O_WRONLY | system.O_CREAT | system.O_APPEND)
        system.write(file, f"{trial.number}\n".encode())
        system.close(file)
        time.sleep(seconds)
        if trial.number in fatal and death == "kill":
            system.kill(system.getpid(), signal.SIGKILL)
        if trial.number in fatal:
            from engines.threads import Death

            raise Death
        if trial.number in raises:
            raise error
        if run is None:
            return -((x - 0.3) ** 2)
        # As a library's accountant hands it in.
        run.spent(types.SimpleNamespace(dp_event=optuna_dp.gaussian(run.noise_multiplier)))
        return run.score([1.0 - (x - 0.3) ** 2 / 4] * 100, size=100)

    return objective
