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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
import plans
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.distributions import FloatDistribution
from plans import CEILING_GRID, DEFAULT, DELTA, GRID, PILOT_RATIO, SPACE, Plan
from tasks import Size, Split
from training import accuracies, train, utilities

import optuna_dp as odp

DISTRIBUTIONS = {name: FloatDistribution(*ends, log=True) for name, ends in SPACE.items()}


@dataclass(frozen=True)
class Outcome:
    """What one search came to.

    Attributes:
        accuracy: Of the released model, on the test records.
        runs: Private trainings that took place (the curator's knowledge).
        params: The chosen hyperparameters.
    """

    accuracy: float
    runs: int
    params: dict[str, float]


@dataclass(frozen=True)
class Bench:
    """One repetition of one data set at one total epsilon: what all arms share.

    Attributes:
        size: What is public.
        split: The records.
        noise: Of one training on training and validation records at the whole epsilon; the
            candidates on the partitions are judged under it.
    """

    size: Size
    split: Split
    noise: float

    @cached_property
    def utilities(self) -> npt.NDArray[np.float64]:
        """Of the grid on the partitions, (candidates, partitions); NaN where one is empty."""
        k = self.size.partitions
        x, y = self.split.train
        return utilities(
            x,
            y,
            np.asarray(odp.partition(len(x), k)),
            self.split.valid,
            self.size.classes,
            [s["learning_rate"] for s in GRID],
            [s["clipping_norm"] for s in GRID],
            partitions=k,
            noise=self.noise / self.size.batch,
            steps=self.size.sampling(everything=True)[1],
        )

    def models(
        self, settings: list[dict[str, float]], noise: float, everything: bool = False
    ) -> Any:
        """Weights of one DP-SGD training per setting; clipping alone if ``noise`` is 0."""
        x, y = self.split.everything if everything else self.split.train
        rate, steps = self.size.sampling(everything)
        return train(
            x,
            y,
            self.size.classes,
            [s["learning_rate"] for s in settings],
            [s["clipping_norm"] for s in settings],
            noise_multiplier=noise,
            sample_rate=rate,
            steps=steps,
            batch=self.size.batch,
        )

    def score(self, weights: Any, noise: float) -> float:
        """Accuracy on the validation records, with noise."""
        x, y = self.split.valid
        correct = np.argmax(x @ weights, axis=1) == y
        return odp.scoring.private_accuracy(correct, size=self.size.valid, noise_multiplier=noise)

    def outcome(self, weights: Any, runs: int, params: dict[str, float]) -> Outcome:
        return Outcome(float(accuracies(weights[None], *self.split.test)[0]), runs, params)


def one_training(bench: Bench, plan: Plan, params: dict[str, float], everything: bool) -> Outcome:
    return bench.outcome(bench.models([params], plan.noise, everything)[0], 1, params)


def grid(bench: Bench, plan: Plan) -> Outcome:
    assert plan.score_noise is not None
    weights = bench.models(GRID, plan.noise)
    scores = [bench.score(w, plan.score_noise) for w in weights]
    best = int(np.argmax(scores))
    return bench.outcome(weights[best], len(GRID), GRID[best])


def search(bench: Bench, plan: Plan, sampler: Any) -> Outcome:
    """A study with a secret number of runs, and the release of its winner with its model."""
    assert plan.score_noise is not None
    score_noise = plan.score_noise
    event = plans.run(bench.size, plan.noise)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    with tempfile.TemporaryDirectory() as folder:
        store = FileSystemArtifactStore(folder)
        model = Path(folder) / "model.npy"

        def objective(trial: optuna.Trial) -> float:
            ratio = PILOT_RATIO if odp.is_pilot(trial) else 1.0
            params = {
                name: trial.suggest_float(name, *ends, log=True) for name, ends in SPACE.items()
            }
            weights = bench.models([params], ratio * plan.noise)[0]
            np.save(model, weights)
            upload_artifact(artifact_store=store, file_path=str(model), study_or_trial=trial)
            return bench.score(weights, ratio * score_noise)

        study.optimize(objective, callbacks=[odp.PrivacyCallback(event, delta=DELTA)])
        release = odp.release(study, artifact_store=store)
    assert plan.guarantee is not None
    assert plan.guarantee.event == release.guarantee.event
    assert release.params is not None
    assert release.artifact is not None
    runs = sum(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials)
    return bench.outcome(np.load(io.BytesIO(release.artifact)), runs, release.params)


def rand_tune(bench: Bench, plan: Plan, mean: int) -> Outcome:
    return search(bench, plan, odp.RandTuneSampler(DISTRIBUTIONS, trials=odp.Geometric(mean)))


def dp_hypo(bench: Bench, plan: Plan) -> Outcome:
    sampler = odp.DPHyPOSampler(
        DISTRIBUTIONS,
        trials=odp.Geometric(plans.MEAN),
        density_bounds=plans.DENSITY_BOUNDS,
    )
    return search(bench, plan, sampler)


def pilots(bench: Bench, plan: Plan) -> Outcome:
    sampler = odp.PilotSampler(
        DISTRIBUTIONS,
        pilots=plans.PILOTS,
        pilot_run=plans.run(bench.size, PILOT_RATIO * plan.noise),
        trials=odp.Geometric(plans.MEAN),
    )
    return search(bench, plan, sampler)


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
    weights = bench.models([params], plan.noise, everything=True)[0]
    whole = release.with_training(
        plans.training(size, plan.noise, everything=True), artifact=weights.tobytes()
    )
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
    return choice(bench, plan, lambda **given: odp.NoisyMaxSampler(epsilon=epsilon, **given))


def ceiling(bench: Bench, plan: Plan) -> Outcome:
    """The best of the candidates by exact validation accuracy: not private."""
    weights = bench.models(CEILING_GRID, plan.noise)
    best = int(np.argmax(accuracies(weights, *bench.split.valid)))
    return bench.outcome(weights[best], len(CEILING_GRID), CEILING_GRID[best])


def run_arm(
    arm: str, bench: Bench, plan: Plan, target: float, earlier: dict[str, dict[str, float]]
) -> Outcome:
    """Runs one arm once; ``earlier`` has what arms before it chose."""
    if arm in plans.SAME_CHOICE:
        found = earlier[plans.SAME_CHOICE[arm]]
        # Files have three digits.
        params = min(GRID, key=lambda s: sum(abs(np.log(s[name] / found[name])) for name in s))
        return one_training(bench, plan, params, everything=False)
    if arm.startswith("no tuning"):
        return one_training(bench, plan, DEFAULT, everything=arm == "no tuning, all records")
    if arm in plans.CEILINGS:
        return ceiling(bench, plan)
    arms: dict[str, Callable[[], Outcome]] = {
        "grid, composed": lambda: grid(bench, plan),
        "RandTune, RDP": lambda: rand_tune(bench, plan, plans.MEAN),
        "RandTune": lambda: rand_tune(bench, plan, plans.MEAN),
        "RandTune, 30 runs": lambda: rand_tune(bench, plan, plans.MEAN_MANY),
        "DP-HyPO": lambda: dp_hypo(bench, plan),
        "pilots": lambda: pilots(bench, plan),
        "propose-test, all records": lambda: propose_test(bench, plan, target),
        "noisy max, all records": lambda: noisy_max(bench, plan, target),
    }
    return arms[arm]()
