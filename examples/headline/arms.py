"""The arms, as a user would run them: Optuna, a sampler, the callback, ``release``.

Each function takes the split of a repetition and the plan of its arm, and returns the
:class:`Outcome`: the test accuracy of the model that is released. The test records are used for
nothing else.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import engine
import numpy as np
import numpy.typing as npt
import optuna
import plans
from engine import Weights, accuracies, one_of
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.distributions import FloatDistribution
from partitions import utilities, utilities_in_batches
from plans import DEFAULT, DEFAULT_ADAM, DELTA, GRID, SPACE, Plan, ceiling_grid
from tasks import Size, Split

import optuna_dp as odp

DISTRIBUTIONS = {name: FloatDistribution(*ends, log=True) for name, ends in SPACE.items()}


@dataclass(frozen=True)
class Outcome:
    """What one search came to.

    Attributes:
        accuracy: Of the released model, on the test records.
        train_accuracy: Of the same model, on the records it was trained on (nobody's to see).
        runs: Private trainings that took place (the curator's knowledge).
        params: The chosen hyperparameters.
    """

    accuracy: float
    train_accuracy: float
    runs: int
    params: dict[str, float]


@dataclass(frozen=True)
class Bench:
    """One repetition of one data set at one total epsilon: what all arms share.

    Attributes:
        size: What is public.
        split: The records.
        noise: Of one training on all private records at the whole epsilon; the candidates on the
            partitions are judged under it.
    """

    size: Size
    split: Split
    noise: float

    @cached_property
    def utilities(self) -> npt.NDArray[np.float64]:
        """Of the grid on the partitions, (candidates, partitions); NaN where one is empty."""
        size, (x, y) = self.size, self.split.train
        k = size.partitions
        how: dict[str, Any] = {
            "part_of": np.asarray(odp.partition(len(x), k)),
            "valid": self.split.valid,
            "rates": [s["learning_rate"] for s in GRID],
            "norms": [s["clipping_norm"] for s in GRID],
            "partitions": k,
            "noise": self.noise / size.batch,
            "steps": size.partition_steps,
        }
        if size.partition_batch is None:
            return utilities(x, y, classes=size.model.classes, **how)
        return utilities_in_batches(size.model, x, y, batch=size.partition_batch, **how)

    def models(
        self, settings: list[dict[str, float]], noise: float, held_out: bool = False
    ) -> Weights:
        """Weights of one DP-SGD training per setting; clipping alone if ``noise`` is 0."""
        x, y = self.split.train if held_out else self.split.private
        rate, steps = self.size.sampling(held_out)
        return engine.train(
            self.size.model,
            x,
            y,
            [s["learning_rate"] for s in settings],
            [s["clipping_norm"] for s in settings],
            noise_multiplier=noise,
            sample_rate=rate,
            steps=steps,
            batch=self.size.batch,
        )

    def score(self, weights: Weights, noise: float, held_out: bool = False) -> float:
        """Accuracy with noise, on the records of the training or on the validation records."""
        x, y = self.split.valid if held_out else self.split.private
        n = self.size.valid if held_out else self.size.records
        correct = engine.predict(weights, x)[0] == y
        return odp.scoring.private_accuracy(correct, size=n, noise_multiplier=noise)

    def outcome(
        self, weights: Weights, runs: int, params: dict[str, float], held_out: bool = False
    ) -> Outcome:
        used = self.split.train if held_out else self.split.private
        test, train = (float(accuracies(weights, *part)[0]) for part in (self.split.test, used))
        return Outcome(test, train, runs, params)


def one_training(bench: Bench, plan: Plan, params: dict[str, float]) -> Outcome:
    return bench.outcome(bench.models([params], plan.noise), 1, params)


def with_adam(bench: Bench, plan: Plan, params: dict[str, float]) -> Outcome:
    adam = replace(bench.size.model, optimiser="adam")
    return one_training(replace(bench, size=replace(bench.size, model=adam)), plan, params)


def grid(bench: Bench, plan: Plan) -> Outcome:
    assert plan.score_noise is not None
    weights = bench.models(GRID, plan.noise)
    scores = [bench.score(one_of(weights, i), plan.score_noise) for i in range(len(GRID))]
    best = int(np.argmax(scores))
    return bench.outcome(one_of(weights, best), len(GRID), GRID[best])


def save(trial: optuna.Trial, store: FileSystemArtifactStore, file: Path, found: Weights) -> None:
    """Uploads a run's model."""
    with file.open("wb") as handle:
        np.savez(handle, *found)
    upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)


def saved(artifact: bytes) -> Weights:
    with np.load(io.BytesIO(artifact)) as layers:
        return [layers[name] for name in layers.files]


def search(
    bench: Bench, plan: Plan, sampler: Any, event: Any = None, held_out: bool = False
) -> Outcome:
    """A study with a secret number of runs, and the release of its winner with its model."""
    assert plan.score_noise is not None
    score_noise = plan.score_noise
    if event is None:
        event = plans.run(bench.size, plan.noise, held_out)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    with tempfile.TemporaryDirectory() as folder:
        store = FileSystemArtifactStore(folder)

        def objective(trial: optuna.Trial) -> float:
            params = {
                name: trial.suggest_float(name, *ends, log=True) for name, ends in SPACE.items()
            }
            weights = bench.models([params], plan.noise, held_out)
            save(trial, store, Path(folder) / "model.npz", weights)
            return bench.score(weights, score_noise, held_out)

        study.optimize(objective, callbacks=[odp.PrivacyCallback(event, delta=DELTA)])
        release = odp.release(study, artifact_store=store)
    assert plan.guarantee is not None
    assert plan.guarantee.event == release.guarantee.event
    assert release.params is not None
    assert release.artifact is not None
    runs = sum(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials)
    return bench.outcome(saved(release.artifact), runs, release.params, held_out)


def rand_tune(bench: Bench, plan: Plan, mean: int, held_out: bool = False) -> Outcome:
    sampler = odp.RandTuneSampler(DISTRIBUTIONS, trials=odp.Geometric(mean))
    return search(bench, plan, sampler, held_out=held_out)


def rand_tune_disjoint(bench: Bench, plan: Plan) -> Outcome:
    event = plans.disjoint_run(bench.size, plan.noise)
    sampler = odp.RandTuneSampler(DISTRIBUTIONS, trials=odp.Geometric(plans.MEAN))
    return search(bench, plan, sampler, event, held_out=True)


def dp_hypo(bench: Bench, plan: Plan) -> Outcome:
    sampler = odp.DPHyPOSampler(
        DISTRIBUTIONS,
        trials=odp.Geometric(plans.MEAN),
        density_bounds=plans.DENSITY_BOUNDS,
        startup_runs=0,  # as it was planned, before start-up runs were charged for
    )
    return search(bench, plan, sampler)


def budget(bench: Bench, plan: Plan) -> Outcome:
    """A study with a budget: its pilots are public, and its last run is the release."""
    made = odp.BudgetPlan.from_json(plan.budget)
    # None is TPE.
    proposer = optuna.samplers.RandomSampler() if made.epsilon < plans.TIGHT else None
    study = optuna.create_study(
        direction="maximize",
        sampler=odp.BudgetSampler(made, search_space=DISTRIBUTIONS, proposer=proposer),
    )
    x, y = bench.split.private
    with tempfile.TemporaryDirectory() as folder:
        store = FileSystemArtifactStore(folder)

        def objective(trial: optuna.Trial) -> float:
            run = odp.fidelity(trial)
            params = {
                name: trial.suggest_float(name, *ends, log=True) for name, ends in SPACE.items()
            }
            assert run.sample_rate is not None
            assert run.score_noise_multiplier is not None
            weights = engine.train(
                bench.size.model,
                x,
                y,
                # The space is that of the last run; a pilot has the rate of the same noise.
                [params["learning_rate"] * run.learning_rate() / made.final.learning_rate()],
                [params["clipping_norm"]],
                noise_multiplier=run.noise_multiplier,
                sample_rate=run.sample_rate,
                steps=run.steps,
                batch=bench.size.batch,
            )
            save(trial, store, Path(folder) / "model.npz", weights)
            return bench.score(weights, run.score_noise_multiplier)

        study.optimize(objective, callbacks=[odp.PrivacyCallback(delta=DELTA)])
        release = odp.release(study, artifact_store=store)
    assert plan.guarantee is not None
    assert plan.guarantee.event == release.guarantee.event
    assert release.params is not None
    assert release.artifact is not None
    runs = sum(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials)
    assert runs == made.runs
    return bench.outcome(saved(release.artifact), runs, release.params)


def choice(bench: Bench, plan: Plan, make: Callable[..., Any]) -> Outcome:
    """Trainings without privacy on partitions, a private choice, one private training."""
    size = bench.size
    with warnings.catch_warnings():
        # That the noise hides differences is known; it is what is measured here.
        warnings.simplefilter("ignore")
        sampler = make(candidates=GRID, n_partitions=size.partitions)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        params = {name: trial.suggest_float(name, *ends, log=True) for name, ends in SPACE.items()}
        found = bench.utilities[GRID.index(params)]
        return odp.report_utilities(trial, [None if np.isnan(u) else float(u) for u in found])

    study.optimize(objective)
    release = odp.release(study)
    params = DEFAULT if release.params is None else release.params
    weights = bench.models([params], plan.noise)
    whole = release.with_training(plans.training(size, plan.noise), artifact=weights[0].tobytes())
    assert plan.guarantee is not None
    assert plan.guarantee.event == whole.guarantee.event
    return bench.outcome(weights, 1, params)


def propose_test(bench: Bench, plan: Plan, target: float) -> Outcome:
    loop = plans.loop(bench.size, target)

    def make(**given: Any) -> Any:
        return odp.ProposeTestSampler(
            epsilon=loop.epsilon,
            granularity=loop.granularity,
            lower_bound=loop.lower_bound,
            **given,
        )

    return choice(bench, plan, make)


def noisy_max(bench: Bench, plan: Plan, target: float) -> Outcome:
    epsilon = plans.CHOICE_SHARE * target
    training = plans.training(bench.size, plan.noise)

    def make(**given: Any) -> Any:
        return odp.NoisyMaxSampler(epsilon=epsilon, training=training, **given)

    return choice(bench, plan, make)


def ceiling(bench: Bench, plan: Plan) -> Outcome:
    """The best of the candidates by exact accuracy on its own records: not private."""
    settings = ceiling_grid(bench.size)
    found = bench.models(settings, plan.noise)
    best = int(np.argmax(accuracies(found, *bench.split.private)))
    return bench.outcome(one_of(found, best), len(settings), settings[best])


def run_arm(arm: str, bench: Bench, plan: Plan, target: float) -> Outcome:
    """Runs one arm once."""
    arms: dict[str, Callable[[], Outcome]] = {
        "no tuning, SGD": lambda: one_training(bench, plan, DEFAULT),
        "no tuning, Adam": lambda: with_adam(bench, plan, DEFAULT_ADAM),
        "grid, composed": lambda: grid(bench, plan),
        "RandTune, RDP, held out": lambda: rand_tune(bench, plan, plans.MEAN, held_out=True),
        "RandTune, RDP": lambda: rand_tune(bench, plan, plans.MEAN),
        "RandTune, held out": lambda: rand_tune_disjoint(bench, plan),
        "RandTune": lambda: rand_tune(bench, plan, plans.MEAN),
        "RandTune, 30 runs": lambda: rand_tune(bench, plan, plans.MEAN_MANY),
        "DP-HyPO": lambda: dp_hypo(bench, plan),
        "propose-test": lambda: propose_test(bench, plan, target),
        "noisy max": lambda: noisy_max(bench, plan, target),
        "budget": lambda: budget(bench, plan),
        "budget, short pilots": lambda: budget(bench, plan),
        "free choice": lambda: ceiling(bench, plan),
        "no privacy": lambda: ceiling(bench, plan),
    }
    return arms[arm]()
