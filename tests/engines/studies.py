"""Studies whose runs note that they began, and workers that die at a given moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from support import exactly

import optuna_dp as odp

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


@dataclass(frozen=True)
class Diary:
    """A file to which runs, in whatever process, write their numbers."""

    path: Path

    def began(self) -> list[int]:
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []


def objective_of(
    diary: Diary,
    *,
    fatal: int | None = None,
    raises: int | None = None,
    kills: tuple[int, int] | None = None,
) -> Callable[[optuna.Trial], float]:
    """An objective that can be sent anywhere, module or not.

    Args:
        diary: Where runs note their numbers.
        fatal: The number of a run whose worker is killed in its midst.
        raises: The number of a run that raises.
        kills: The number of a run that kills another process, and the process.
    """
    path = str(diary.path)

    def objective(trial: optuna.Trial) -> float:
        import os as system
        import signal

        import optuna_dp

        budget = isinstance(trial.study.sampler, optuna_dp.BudgetSampler)
        run = optuna_dp.fidelity(trial) if budget else None
        x = trial.suggest_float("x", -1.0, 1.0)
        file = system.open(path, system.O_WRONLY | system.O_CREAT | system.O_APPEND)
        system.write(file, f"{trial.number}\n".encode())
        system.close(file)
        if trial.number == fatal:
            system.kill(system.getpid(), signal.SIGKILL)
        if kills is not None and trial.number == kills[0]:
            system.kill(kills[1], signal.SIGKILL)
        if trial.number == raises:
            raise ValueError("the data are not there")
        if run is None:
            return -((x - 0.3) ** 2)
        run.spent(optuna_dp.gaussian(run.noise_multiplier))
        return run.score([1.0 - (x - 0.3) ** 2 / 4] * 100, size=100)

    return objective


def study_maker(
    sampler: optuna.samplers.BaseSampler | None = None, storage: Any = None
) -> Callable[[], optuna.Study]:
    """Returns what makes a study; of twelve runs unless a sampler is given."""

    def make_study() -> optuna.Study:
        return optuna.create_study(
            study_name="tuning",
            storage=storage,
            direction="maximize",
            sampler=sampler or odp.RandTuneSampler(trials=exactly(12)),
            load_if_exists=True,
        )

    return make_study


def law(least: int = 8, most: int = 24) -> odp.TrialCount:
    """A law of T between two numbers, nearly always; for tests only."""
    return odp.Poisson(mean=(least + most) / 2).capped(most)
