"""What an arm has to work with: runs that train, or that are looked up on a landscape.

An arm is a file with two functions::

    def plan(task, epsilon): ...      # what is paid for; anything with a ``guarantee``
    def search(bench, plan): ...      # returns bench.outcome(...)

``arms/budget.py`` is a short one.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import optuna
from landscape import DELTA, MEASURES, Landscape, bare_run, measured
from optuna.artifacts import upload_artifact
from task import Array, Params, Task

import optuna_dp as odp
from optuna_dp.budget.fidelity import Fidelity

TEST = MEASURES.index("test")


@dataclass(frozen=True)
class Outcome:
    """What one search came to.

    Attributes:
        test: Score of the released model on the test records.
        runs: Private trainings that took place (the curator's knowledge).
        work: Their steps, over those of one run.
        params: Of the released model.
    """

    test: float
    runs: int
    work: float
    params: Params


@dataclass
class Bench:
    """One repetition of one task at one total epsilon: what all arms share.

    Attributes:
        task: What is searched.
        epsilon: What the search may cost.
        repetition: Its split is that of all arms.
        landscape: Where runs are looked up; None trains.
        rng: Source of noise.
        models: What every run came to; ``(params, steps, measures)``.
    """

    task: Task
    epsilon: float
    repetition: int
    landscape: Landscape | None
    rng: np.random.Generator
    models: list[tuple[Params, int, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.landscape is None:
            self._private, self._test = self.task.split(self.repetition)

    def run(self, params: Params, run: Fidelity) -> int:
        """Trains, or looks up; returns the number of the model."""
        self.models.append((params, run.steps, self._measures(params, run)))
        return len(self.models) - 1

    def _measures(self, params: Params, run: Fidelity) -> Array:
        task, land = self.task, self.landscape
        if land is None:
            x, y = task.x[self._private], task.y[self._private]
            predict = task.train(x, y, params, run, self.rng)
            return np.array(measured(task, predict, self._private, self._test))
        drawn = int(self.rng.integers(land.repetitions))
        return land.run(params, run.noise_multiplier, run.steps, drawn)

    def exact(self, model: int, measure: str) -> float:
        """A measure of a model without noise; nobody's to see, unless it is of the test."""
        return float(self.models[model][2][MEASURES.index(measure)])

    def score(self, model: int, noise_multiplier: float) -> float:
        """What a search is shown: the score with the noise of a private mean.

        That is :func:`odp.scoring.private_mean` of one number per record, from 0 to the weight of
        the rarest class. Its discrete noise is the normal one for all that can be measured here.
        """
        spread = noise_multiplier * self.task.weights.max() / (2 * self.task.records)
        return self.exact(model, "score") + spread * float(self.rng.standard_normal())

    def objective(self, run: Fidelity | None = None) -> Any:
        """An objective for Optuna; every trial spends ``run``, or what its budget says."""

        store = self._store = Models()

        def objective(trial: optuna.Trial) -> float:
            paid = odp.fidelity(trial) if run is None else run
            model = self.run(self.task.suggest(trial), paid)
            store.newest = model
            upload_artifact(artifact_store=store, file_path=__file__, study_or_trial=trial)
            assert paid.score_noise_multiplier is not None
            return self.score(model, paid.score_noise_multiplier)

        return objective

    def released(self, study: optuna.Study, guarantee: odp.Guarantee) -> Outcome:
        """The outcome of a study; what it cost must be what was planned."""
        release = odp.release(study, artifact_store=self._store)
        assert release.guarantee.event == guarantee.event
        assert release.artifact is not None
        return self.outcome(int(release.artifact))

    def outcome(self, model: int) -> Outcome:
        params, _, measures = self.models[model]
        work = sum(steps for _, steps, _ in self.models) / self.task.steps
        return Outcome(float(measures[TEST]), len(self.models), work, params)


class Models:
    """An artifact store that keeps the numbers of models, in memory."""

    def __init__(self) -> None:
        self.newest = -1
        self._kept: dict[str, int] = {}

    def open_reader(self, artifact_id: str) -> io.BytesIO:
        return io.BytesIO(str(self._kept[artifact_id]).encode())

    def write(self, artifact_id: str, content_body: object) -> None:
        self._kept[artifact_id] = self.newest

    def remove(self, artifact_id: str) -> None:
        del self._kept[artifact_id]


def public(task: Task, epsilon: float) -> dict[str, Any]:
    """What a plan is made of."""
    return {
        "epsilon": epsilon,
        "delta": DELTA,
        "records": task.records,
        "batch_size": task.batch,
        "epochs": task.steps * task.batch / task.records,
    }


@dataclass(frozen=True)
class Selection:
    """The best of a secret number of runs.

    Attributes:
        run: What every run spends.
        trials: The law of the number of runs.
        guarantee: Of what is released.
    """

    run: Fidelity
    trials: Any
    guarantee: odp.Guarantee

    @classmethod
    def planned(
        cls, task: Task, epsilon: float, trials: Any, bounds: tuple[float, float]
    ) -> Selection:
        """Runs of as little noise as epsilon allows; the score takes a fifth of their budget."""

        def paid(noise: float) -> Fidelity:
            training = bare_run(task, noise, task.steps)
            score = 2.0 * noise * task.records / (task.batch * math.sqrt(task.steps))
            event = odp.compose(training.event, odp.scoring.score_event(score))
            return replace(training, score_noise_multiplier=score, event=event)

        found = odp.calibrate(
            target_epsilon=epsilon,
            delta=DELTA,
            run=lambda noise: paid(noise).event,
            trials=trials,
            density_bounds=bounds,
        )
        return cls(paid(found.value), trials, found.guarantee)
