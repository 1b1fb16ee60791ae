"""What an arm has to work with: runs that train, or that are looked up on a landscape.

An arm is a file with two functions::

    def plan(task, epsilon): ...      # what is paid for; anything with a ``guarantee``
    def search(bench, plan): ...      # returns bench.outcome(...)

``plan`` may return None where the arm does not apply. ``arms/budget.py`` is a short one;
``arms/successive_halving.py`` is one that the package does not have.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from candidates import FILE, parts, utilities
from dp_accounting import ExplicitBracketInterval, calibrate_dp_mechanism
from dp_accounting.rdp import RdpAccountant
from landscape import DELTA, MEASURES, Landscape, bare_run, measured
from optuna.artifacts import upload_artifact
from task import Array, Params, Task

import optuna_dp as odp
from optuna_dp.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "upstream"))
from selection_accountant import SelectionAccountant

TEST = MEASURES.index("test")
# Releases of replays are verified once in so many repetitions, those of real trainings always.
VERIFIED = 20
# What nobody trains hands nothing in.
REPLAY = "A replay: runs are looked up among some that were made with the noise of the plan."


class Tried(NamedTuple):
    """A run and its private score."""

    score: float
    model: int
    params: Params


@dataclass(frozen=True)
class Outcome:
    """What one search came to.

    Attributes:
        test: Score of the released model on the test records.
        runs: Private trainings that took place (the curator's knowledge).
        work: Their gradients of examples, over those of one run.
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
        models: What every run came to; ``(params, gradients of examples, measures)``.
        values: Of trainings that took place: what each private record adds to the score.
    """

    task: Task
    epsilon: float
    repetition: int
    landscape: Landscape | None
    rng: np.random.Generator
    models: list[tuple[Params, float, Array]] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.landscape is None:
            self._private, self._test = self.task.split(self.repetition)

    def run(self, params: Params, run: Run) -> int:
        """Trains, or looks up; returns the number of the model."""
        assert run.batch_size is not None
        work = run.steps * run.batch_size
        self.models.append((params, work, self._measures(params, run)))
        return len(self.models) - 1

    def _measures(self, params: Params, run: Run) -> Array:
        task, land = self.task, self.landscape
        if land is None:
            x, y = task.x[self._private], task.y[self._private]
            predict = task.train(x, y, params, run, self.rng)
            self.values.append(task.values(predict(x).astype(np.float64), self._private))
            return np.array(measured(task, predict, self._private, self._test))
        drawn = int(self.rng.integers(land.repetitions))
        return land.run(params, run.noise_multiplier, run.steps, drawn)

    def exact(self, model: int, measure: str) -> float:
        """A measure of a model without noise; nobody's to see, unless it is of the test."""
        return float(self.models[model][2][MEASURES.index(measure)])

    def score(self, model: int, noise_multiplier: float) -> float:
        """What a search is shown: the private mean of one number per record.

        On a landscape the normal noise of that mean in place of the discrete one, which is the
        same for all that can be measured here.
        """
        if self.landscape is None:
            return odp.scoring.private_mean(
                self.values[model],
                lower=0.0,
                upper=self.task.reach,
                size=self.task.records,
                noise_multiplier=noise_multiplier,
            )
        spread = noise_multiplier * self.task.reach / (2 * self.task.records)
        return self.exact(model, "score") + spread * float(self.rng.standard_normal())

    def draw(self, count: int) -> list[Params]:
        """Configurations at random, different ones as long as there are."""
        every = self.task.configurations()
        drawn = self.rng.choice(len(every), count, replace=count > len(every))
        return [every[i] for i in drawn]

    def tried(self, params: Params, run: Run) -> Tried:
        """Trains, or looks up, and scores as the run pays for."""
        assert run.score_noise_multiplier is not None
        model = self.run(params, run)
        return Tried(self.score(model, run.score_noise_multiplier), model, params)

    def utilities(self, run: Run) -> Array:
        """Scores of all candidates on parts of the records, without privacy, (candidates, parts).

        On a landscape each candidate's mean in place of its scores: no more is used of them.
        """
        if self.landscape is None:
            return utilities(self.task, self._private, run)
        known = json.loads(FILE.read_text())
        if self.task.name not in known:
            raise ValueError(
                f"First: python candidates.py {self.task.name}, or search with --real"
            )
        means = np.array(known[self.task.name])
        drawn = means[int(self.rng.integers(len(means)))]
        return np.repeat(drawn[:, None], parts(self.task), axis=1)

    def objective(self, run: Run | None = None) -> Any:
        """An objective for Optuna; every trial spends ``run``, or what its budget says."""

        store = self._store = Models()

        def objective(trial: optuna.Trial) -> float:
            paid = odp.start_run(trial) if run is None else run
            model = self.run(self.task.suggest(trial), paid)
            store.newest = model
            upload_artifact(artifact_store=store, file_path=__file__, study_or_trial=trial)
            if run is None and self.landscape is None:
                about = {"sample_rate": paid.sample_rate, "steps": paid.steps}
                training = odp.dp_sgd(noise_multiplier=paid.noise_multiplier, **about)
                paid.spent(RdpAccountant().compose(training))
                return paid.score(self.values[model] / self.task.reach)
            assert paid.score_noise_multiplier is not None
            return self.score(model, paid.score_noise_multiplier)

        return objective

    def released(self, study: optuna.Study, guarantee: odp.Guarantee) -> Outcome:
        """The outcome of a study; what it cost must be what was planned."""
        vouched = None
        if self.landscape is not None:
            vouched = REPLAY
        elif not isinstance(study.sampler, odp.BudgetSampler):
            vouched = "the training is the package's own, with the noise of the plan"
        release = odp.release(study, artifact_store=self._store, vouched=vouched)
        self.check(release, guarantee)
        assert release.artifact is not None
        return self.outcome(int(release.artifact))

    def check(self, release: odp.Release, guarantee: odp.Guarantee) -> None:
        """Verifies a release from its JSON, and that it costs what was planned."""
        assert release.guarantee.event == guarantee.event
        if self.landscape is None or self.repetition % VERIFIED == 0:
            record = release.to_json()
            found = odp.verify(record)
            spent = odp.Guarantee.from_json(record["statement"]["guarantee"]).epsilon(DELTA)
            if not (found.ok and spent <= self.epsilon):
                raise ValueError(f"A release costs epsilon {spent}, not {self.epsilon}.\n{found}")

    def outcome(self, model: int) -> Outcome:
        params, _, measures = self.models[model]
        one = self.task.steps * self.task.batch
        work = sum(work for _, work, _ in self.models) / one
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

    run: Run
    trials: Any
    guarantee: odp.Guarantee

    @classmethod
    def planned(
        cls,
        task: Task,
        epsilon: float,
        trials: Any,
        bounds: tuple[float, float],
        startup_runs: int = 0,
    ) -> Selection:
        """Runs of as little noise as epsilon allows; the score takes a fifth of their budget."""

        def paid(noise: float) -> Run:
            score = 2.0 * noise * task.records / (task.batch * math.sqrt(task.steps))
            return scored(task, noise, task.steps, score)

        found = odp.calibrate(
            target_epsilon=epsilon,
            delta=DELTA,
            run=lambda noise: paid(noise).event,
            trials=trials,
            density_bounds=bounds,
            startup_runs=startup_runs,
        )
        return cls(paid(found.value), trials, found.guarantee)


@dataclass(frozen=True)
class Composed:
    """Runs that are all charged for, whatever is shown of them.

    Attributes:
        runs: What each of them spends.
        guarantee: Of everything.
    """

    runs: list[Run]
    guarantee: odp.Guarantee

    @classmethod
    def planned(cls, epsilon: float, runs: Callable[[float], list[Run]], *before: Any) -> Composed:
        """Runs of as little noise as epsilon allows, beside events that come before them."""

        def whole(noise: float) -> Any:
            return odp.compose(*before, *(run.event for run in runs(noise)))

        between = ExplicitBracketInterval(0.1, 1000.0)
        noise = calibrate_dp_mechanism(
            SelectionAccountant, whole, epsilon, DELTA, between, tol=1e-3
        )
        return cls(runs(noise), odp.Guarantee(whole(noise)))


def scored(task: Task, noise: float, steps: int, score_noise: float) -> Run:
    """A run with a private score, and the event of both."""
    run = bare_run(task, noise, steps)
    event = odp.compose(run.event, odp.scoring.score_event(score_noise))
    return replace(run, score_noise_multiplier=score_noise, event=event)
