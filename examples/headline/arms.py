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
from functools import partial
from pathlib import Path
from typing import Any

import engine
import numpy as np
import optuna
import plans
from engine import Weights, accuracies, one_of
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.distributions import FloatDistribution
from partitions import utilities, utilities_in_batches
from plans import DELTA, NORM, REACH, Plan
from tasks import Size, Split

import optuna_dp as odp

SEARCHED = "noise_per_weight"


@dataclass(frozen=True)
class Outcome:
    """What one search came to.

    Attributes:
        accuracy: Of the released model, on the test records.
        train_accuracy: Of the same model, on the records it was trained on (nobody's to see).
        runs: Private trainings that took place (the curator's knowledge).
        rate: Learning rate of the released model.
    """

    accuracy: float
    train_accuracy: float
    runs: int
    rate: float


@dataclass(frozen=True)
class Bench:
    """One repetition of one data set: what all arms share.

    Attributes:
        size: What is public.
        split: The records.
    """

    size: Size
    split: Split

    def models(self, rates: list[float], plan: Plan) -> Weights:
        """Weights of one DP-SGD training per learning rate; clipping alone without noise."""
        return engine.train(
            self.size.model,
            *self.split.private,
            rates,
            [NORM] * len(rates),
            noise_multiplier=plan.noise,
            sample_rate=plan.batch / self.size.records,
            steps=plan.steps,
            batch=plan.batch,
        )

    def score(self, weights: Weights, noise: float) -> float:
        """Accuracy with noise, on the records of the training."""
        x, y = self.split.private
        correct = engine.predict(weights, x)[0] == y
        return odp.scoring.private_accuracy(
            correct, size=self.size.records, noise_multiplier=noise
        )

    def outcome(self, weights: Weights, runs: int, rate: float) -> Outcome:
        test, train = (
            float(accuracies(weights, *part)[0]) for part in (self.split.test, self.split.private)
        )
        return Outcome(test, train, runs, rate)


def public(plan: Plan) -> dict[str, Any]:
    return {"noise_multiplier": plan.noise, "steps": plan.steps, "batch_size": plan.batch}


def space(plan: Plan) -> dict[str, Any]:
    """The search space: one number around the first guess."""
    assert plan.center is not None
    return {SEARCHED: FloatDistribution(plan.center / REACH, plan.center * REACH, log=True)}


def prior(plan: Plan) -> Any:
    assert plan.center is not None
    return odp.around({SEARCHED: plan.center})


def suggested(trial: optuna.Trial, plan: Plan) -> float:
    ends = space(plan)[SEARCHED]
    return trial.suggest_float(SEARCHED, ends.low, ends.high, log=True)


def one_training(bench: Bench, plan: Plan, rate: float) -> Outcome:
    return bench.outcome(bench.models([rate], plan), 1, rate)


def with_adam(bench: Bench, plan: Plan, rate: float) -> Outcome:
    adam = replace(bench.size.model, optimiser="adam")
    return one_training(replace(bench, size=replace(bench.size, model=adam)), plan, rate)


def save(trial: optuna.Trial, store: FileSystemArtifactStore, file: Path, found: Weights) -> None:
    """Uploads a run's model."""
    with file.open("wb") as handle:
        np.savez(handle, *found)
    upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)


def saved(artifact: bytes) -> Weights:
    with np.load(io.BytesIO(artifact)) as layers:
        return [layers[name] for name in layers.files]


def released(
    bench: Bench,
    plan: Plan,
    sampler: Any,
    objective: Callable[[optuna.Trial], tuple[Weights, float]],
    event: Any = None,
) -> Outcome:
    """A study of (model, score), and the release of its winner or last run with its model."""
    study = optuna.create_study(direction="maximize", sampler=sampler)
    given = [] if event is None else [event]
    with tempfile.TemporaryDirectory() as folder:
        store = FileSystemArtifactStore(folder)

        def scored(trial: optuna.Trial) -> float:
            weights, score = objective(trial)
            save(trial, store, Path(folder) / "model.npz", weights)
            return score

        study.optimize(scored, callbacks=[odp.PrivacyCallback(*given, delta=DELTA)])
        release = odp.release(study, artifact_store=store)
    assert plan.guarantee is not None
    assert plan.guarantee.event == release.guarantee.event
    assert release.params is not None
    assert release.artifact is not None
    runs = sum(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials)
    noise = release.params.get(SEARCHED, plan.center)
    rate = odp.learning_rate(**public(plan), noise_per_weight=noise)
    return bench.outcome(saved(release.artifact), runs, rate)


def search(bench: Bench, plan: Plan, sampler: Any) -> Outcome:
    """The best of a secret number of runs."""
    assert plan.score_noise is not None
    score_noise = plan.score_noise

    def objective(trial: optuna.Trial) -> tuple[Weights, float]:
        rate = odp.learning_rate(**public(plan), noise_per_weight=suggested(trial, plan))
        weights = bench.models([rate], plan)
        return weights, bench.score(weights, score_noise)

    size = replace(
        bench.size, batch=plan.batch, epochs=plan.batch * plan.steps / bench.size.records
    )
    return released(bench, plan, sampler, objective, plans.run(size, plan.noise))


def rand_tune(bench: Bench, plan: Plan) -> Outcome:
    trials = odp.Geometric(plan.runs)
    return search(bench, plan, odp.RandTuneSampler(space(plan), trials=trials, prior=prior(plan)))


def dp_hypo(bench: Bench, plan: Plan) -> Outcome:
    sampler = odp.DPHyPOSampler(
        space(plan),
        trials=odp.Geometric(plan.runs),
        density_bounds=plans.DENSITY_BOUNDS,
        prior=prior(plan),
    )
    return search(bench, plan, sampler)


def budget(bench: Bench, plan: Plan) -> Outcome:
    """One run, or pilots that are public and then one run."""
    made = odp.BudgetPlan.from_json(plan.budget)
    sampler = odp.BudgetSampler(made)
    if made.pilots:
        sampler = odp.BudgetSampler(made, search_space=space(plan), proposer=prior(plan))
    x, y = bench.split.private

    def objective(trial: optuna.Trial) -> tuple[Weights, float]:
        run = odp.fidelity(trial)
        noise = suggested(trial, plan) if made.pilots else plan.center
        assert noise is not None
        assert run.sample_rate is not None
        assert run.batch_size is not None
        assert run.score_noise_multiplier is not None
        weights = engine.train(
            bench.size.model,
            x,
            y,
            [run.learning_rate(noise_per_weight=noise)],
            [NORM],
            noise_multiplier=run.noise_multiplier,
            sample_rate=run.sample_rate,
            steps=run.steps,
            batch=run.batch_size,
        )
        return weights, bench.score(weights, run.score_noise_multiplier)

    found = released(bench, plan, sampler, objective)
    assert found.runs == made.runs
    return found


def noisy_max(bench: Bench, plan: Plan, target: float) -> Outcome:
    """Trainings without privacy on partitions, a private choice, one private training."""
    size, (x, y) = bench.size, bench.split.train
    assert plan.center is not None
    candidates = [{SEARCHED: c} for c in plans.candidates(plan.center)]
    rates = [odp.learning_rate(**public(plan), noise_per_weight=c[SEARCHED]) for c in candidates]
    k = size.partitions
    how: dict[str, Any] = {
        "part_of": np.asarray(odp.partition(len(x), k)),
        "valid": bench.split.valid,
        "rates": rates,
        "norms": [NORM] * len(rates),
        "partitions": k,
        "noise": plan.noise / size.batch,
        "steps": size.partition_steps,
    }
    if size.partition_batch is None:
        known = utilities(x, y, classes=size.model.classes, **how)
    else:
        known = utilities_in_batches(size.model, x, y, batch=size.partition_batch, **how)
    private = plans.training(size, plan.noise)
    with warnings.catch_warnings():
        # That the noise hides differences is known; it is what is measured here.
        warnings.simplefilter("ignore")
        sampler = odp.NoisyMaxSampler(
            candidates=candidates,
            n_partitions=k,
            epsilon=plans.CHOICE_SHARE * target,
            training=private,
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        found = known[candidates.index({SEARCHED: suggested(trial, plan)})]
        return odp.report_utilities(trial, [None if np.isnan(u) else float(u) for u in found])

    study.optimize(objective)
    release = odp.release(study)
    assert release.params is not None
    rate = rates[candidates.index(release.params)]
    weights = bench.models([rate], plan)
    whole = release.with_training(private, artifact=weights[0].tobytes())
    assert plan.guarantee is not None
    assert plan.guarantee.event == whole.guarantee.event
    return bench.outcome(weights, 1, rate)


def ceiling(bench: Bench, plan: Plan, rates: list[float]) -> Outcome:
    """The best of the rates by exact accuracy on the training's own records: not private."""
    found = bench.models(rates, plan)
    best = int(np.argmax(accuracies(found, *bench.split.private)))
    return bench.outcome(one_of(found, best), len(rates), rates[best])


def free_choice(bench: Bench, plan: Plan) -> Outcome:
    assert plan.center is not None
    noises = [plan.center * times for times in plans.CEILING_GRID]
    return ceiling(bench, plan, [plans.rate_at(c, public(plan)) for c in noises])


RUNS: dict[str, Callable[[Bench, Plan], Outcome]] = {
    "usual defaults, SGD": partial(one_training, rate=plans.DEFAULT),
    "usual defaults, Adam": partial(with_adam, rate=plans.DEFAULT_ADAM),
    "one run": budget,
    "RandTune": rand_tune,
    "DP-HyPO": dp_hypo,
    "budget": budget,
    "free choice": free_choice,
    "no privacy": partial(ceiling, rates=list(plans.RATES_WITHOUT_NOISE)),
}


def run_arm(arm: str, bench: Bench, plan: Plan, target: float) -> Outcome:
    """Runs one arm once."""
    if arm == "noisy max":
        return noisy_max(bench, plan, target)
    return next(run for name, run in RUNS.items() if arm.startswith(name))(bench, plan)
