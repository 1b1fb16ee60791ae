"""Writes small studies of every sampler, as the optuna-dp that runs this would store them.

Run once per released version, with that version installed::

    python tests/stored/make.py tests/stored/0.1.0

It uses public names only, so that it also runs with later versions. What it has written is never
written again: the studies are drawn at random, and the point is that they are old.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import optuna_dp as odp
from optuna_dp.accounting.pilots import pilots_guarantee
from optuna_dp.voting.plan import VotePlan

DELTAS = (1e-3, 1e-5, 1e-8)
TRAINING = odp.dp_sgd(noise_multiplier=1.1, sample_rate=64 / 1347, steps=210)
SCORED = odp.compose(TRAINING, odp.gaussian(noise_multiplier=20.0))
RUN = odp.gaussian(noise_multiplier=4.0)
SPACE = {
    "rate": FloatDistribution(1e-3, 1.0, log=True),
    "width": IntDistribution(4, 64, step=4),
    "unit": CategoricalDistribution(["relu", "tanh"]),
}
GRID = [{"x": 0.25 * i} for i in range(5)]


def score(trial: optuna.Trial) -> float:
    rate = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    width = trial.suggest_int("width", 4, 64, step=4)
    unit = trial.suggest_categorical("unit", ["relu", "tanh"])
    trial.set_user_attr("loss", round(rate + 1.0 / width, 6))
    return 1.0 - abs(rate - 0.1) - 0.01 * (unit == "tanh") + 1e-3 * width


def unreliable(trial: optuna.Trial) -> float:
    """Conditional, and every third run fails."""
    kind = trial.suggest_categorical("kind", ["linear", "kernel"])
    cost = trial.suggest_float("ridge", 0.0, 1.0) if kind == "linear" else trial.number / 10
    if trial.number % 3 == 2:
        raise RuntimeError("out of memory")
    return cost


def mean_utility(trial: optuna.Trial) -> float:
    return 1.0 - abs(trial.suggest_float("x", 0.0, 1.0, step=0.25) - 0.5)


def partitions(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", 0.0, 1.0, step=0.25)
    return odp.report_utilities(trial, [None, *[1.0 - abs(x - 0.5)] * 39])


def always_fails(trial: optuna.Trial) -> float:
    trial.suggest_float("x", 0.0, 1.0)
    raise RuntimeError("broken")


def about(count: int) -> odp.TrialCount:
    """A law under which T is mostly ``count``, and cheap to account for."""
    return odp.Geometric(mean=100).capped(count)


STUDIES: dict[str, dict[str, Any]] = {
    "rand-tune": {
        "sampler": lambda: odp.RandTuneSampler(trials=odp.Geometric(mean=4)),
        "objective": score,
        "run": SCORED,
        "callback": {"output_attributes": ["loss"]},
    },
    "rand-tune-capped": {
        "sampler": lambda: odp.RandTuneSampler(SPACE, trials=odp.Geometric(mean=4).capped(6)),
        "objective": score,
        "callback": {"delta": 1e-6, "neighboring_relation": "replace_one"},
    },
    "rand-tune-failures": {
        "sampler": lambda: odp.RandTuneSampler(
            trials=odp.NegativeBinomial(shape=0.5, mean=9).capped(12)
        ),
        "objective": unreliable,
        "direction": "minimize",
    },
    "rand-tune-no-result": {
        "sampler": lambda: odp.RandTuneSampler(trials=odp.Binomial(4, mean=2)),
        "objective": always_fails,
        "run": odp.rdp([2.0, 4.0, 8.0], [0.1, 0.2, 0.4]),
        "least": 1,
    },
    "rand-tune-dead-leader": {
        "sampler": lambda: odp.RandTuneSampler(trials=about(4)),
        "objective": score,
        "dead_leader": True,
    },
    "dp-hypo": {
        "sampler": lambda: odp.DPHyPOSampler(
            SPACE, trials=odp.Geometric(mean=5).capped(8), density_bounds=(0.75, 1.5), candidates=8
        ),
        "objective": score,
    },
    "dp-hypo-any": {
        "sampler": lambda: odp.DPHyPOSampler(
            SPACE,
            trials=odp.Logarithmic(mean=4),
            density_bounds=(0.9, 1.1),
            schedule="any",
            candidates=8,
        ),
        "objective": score,
    },
    "dp-hypo-dead-leader": {
        "sampler": lambda: odp.DPHyPOSampler(
            trials=about(5), density_bounds=(0.8, 1.25), batch_size=2, candidates=8
        ),
        "objective": score,
        "dead_leader": True,
    },
    "pilots": {
        "sampler": lambda: odp.PilotSampler(
            SPACE,
            pilots=3,
            pilot_run=odp.gaussian(16.0),
            trials=odp.Geometric(mean=3).capped(5),
            candidates=8,
            release_pilots=True,
        ),
        "objective": score,
    },
    "pilots-adaptive": {
        "sampler": lambda: odp.PilotSampler(
            pilots=2,
            pilot_run=odp.zcdp(0.01),
            pilot_batch_size=2,
            trials=odp.Poisson(mean=3).capped(6),
            candidates=8,
            density_bounds=(0.8, 1.25),
        ),
        "objective": score,
    },
    "pilots-dead-leader": {
        "sampler": lambda: odp.PilotSampler(
            pilots=2, pilot_run=odp.gaussian(16.0), trials=about(3), candidates=8
        ),
        "objective": score,
        "dead_leader": True,
    },
    "propose-test": {
        "sampler": lambda: odp.ProposeTestSampler(
            candidates=GRID, n_partitions=20_000, epsilon=0.2, granularity=0.1
        ),
        "objective": mean_utility,
        "run": None,
    },
    "propose-test-proposer": {
        "sampler": lambda: odp.ProposeTestSampler(
            {"x": FloatDistribution(0.0, 1.0, step=0.25)},
            n_partitions=20_000,
            epsilon=0.3,
            granularity=0.25,
            variant="capped",
            max_iterations=4,
            proposer=optuna.samplers.TPESampler(),
            batch_size=2,
        ),
        "objective": mean_utility,
        "run": None,
    },
    "noisy-max": {
        "sampler": lambda: odp.NoisyMaxSampler(candidates=GRID, n_partitions=40, epsilon=1.0),
        "objective": partitions,
        "run": None,
    },
    "noisy-max-training": {
        "sampler": lambda: odp.NoisyMaxSampler(
            {"x": FloatDistribution(0.0, 1.0, step=0.25)}, n_partitions=500, epsilon=0.5
        ),
        "objective": mean_utility,
        "run": None,
        "training": TRAINING,
    },
    "noisy-max-dead-worker": {
        "sampler": lambda: odp.NoisyMaxSampler(candidates=GRID, n_partitions=500, epsilon=1.0),
        "objective": mean_utility,
        "run": None,
        "dead_leader": True,
    },
}

# What guarantees are made of, each kind once; judged under both relations.
EVENTS: dict[str, Callable[[], Any]] = {
    "dp_sgd": lambda: TRAINING,
    "gaussian": lambda: odp.gaussian(4.0),
    "laplace": lambda: odp.laplace(3.0),
    "pure_dp": lambda: odp.pure_dp(0.5),
    "approximate_dp": lambda: odp.approximate_dp(0.5, 1e-9),
    "zcdp": lambda: odp.zcdp(0.02),
    "rdp": lambda: odp.rdp([2.0, 4.0, 8.0], [0.1, 0.2, 0.4]),
    "compose": lambda: SCORED,
    "worst_case": lambda: odp.worst_case(odp.gaussian(4.0), odp.laplace(3.0)),
    "dp_accounting": lambda: dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0)), 10
    ),
    "selection": lambda: odp.selection_guarantee(SCORED, odp.Geometric(mean=10)).event,
    "selection_rdp_run": lambda: (
        odp.selection_guarantee(
            odp.rdp([2.0, 4.0, 8.0], [0.01, 0.02, 0.04]), odp.NegativeBinomial(shape=0.5, mean=10)
        ).event
    ),
    "selection_history": lambda: (
        odp.selection_guarantee(
            odp.gaussian(4.0), odp.Geometric(mean=5).capped(10), density_bounds=(0.75, 1.5)
        ).event
    ),
    "selection_data": lambda: (
        odp.selection_guarantee(
            odp.gaussian(4.0), odp.Poisson(mean=10), density_bounds=(0.5, 2.0), policy="data"
        ).event
    ),
    "pilots": lambda: (
        pilots_guarantee(odp.gaussian(16.0), 10, odp.gaussian(4.0), odp.Logarithmic(mean=10)).event
    ),
}
VOTE = VotePlan(
    clients=10,
    candidates=20,
    votes=3,
    max_dropout=1,
    max_colluding=1,
    adjacency="replace_one",
    epsilon=2.0,
    delta=1e-5,
    share_units=20 * 2**20,
    attempts=2,
)


def finished(recipe: dict[str, Any], storage: JournalStorage, name: str) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        direction=recipe.get("direction", "maximize"),
        sampler=recipe["sampler"](),
    )
    run = recipe.get("run", RUN)
    if recipe.get("dead_leader"):
        storage.create_new_trial(study._study_id)
        odp.recover(study, fail=[0])
    recorded = [] if run is None else [odp.PrivacyCallback(run, **recipe.get("callback", {}))]
    study.optimize(recipe["objective"], catch=(Exception,), callbacks=recorded)
    return study


def write_unfinished(folder: Path) -> None:
    """Two of five runs done, and a third whose worker has died."""
    storage = JournalStorage(JournalFileBackend(str(folder / "unfinished.journal")))
    study = optuna.create_study(
        storage=storage,
        study_name="unfinished",
        direction="maximize",
        sampler=odp.RandTuneSampler(SPACE, trials=about(5)),
    )
    study.optimize(score, n_trials=2, callbacks=[odp.PrivacyCallback(RUN)])
    study.ask(SPACE)


def write_study(name: str, recipe: dict[str, Any], folder: Path) -> None:
    path = folder / f"{name}.journal"
    trials = 0
    while trials < recipe.get("least", 4):  # Runs enough to have something to read.
        path.unlink(missing_ok=True)
        study = finished(recipe, JournalStorage(JournalFileBackend(str(path))), name)
        trials = len(study.trials)
    release = odp.release(study)
    if "training" in recipe:
        release = release.with_training(recipe["training"], value=0.75)
    found = release.to_json()
    found["epsilons"] = {str(delta): release.guarantee.epsilon(delta) for delta in DELTAS}
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    (folder / f"{name}.md").write_text(release.statement())


def write_events(folder: Path) -> None:
    guarantees = [
        (f"{name}, {relation}", odp.Guarantee(make(), relation))
        for name, make in EVENTS.items()
        for relation in ("add_or_remove_one", "replace_one")
        if (name, relation) not in {("laplace", "replace_one"), ("worst_case", "replace_one")}
    ]
    guarantees.append(("vote", VOTE.guarantee(attempts=2)))
    found = {
        name: {
            "guarantee": guarantee.to_json(),
            "epsilons": {str(delta): guarantee.epsilon(delta) for delta in DELTAS},
        }
        for name, guarantee in guarantees
    }
    (folder / "events.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    (folder / "vote-plan.json").write_text(json.dumps(VOTE.to_json(), indent=1) + "\n")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    # With Optuna Dashboard the callback would store figures, a hundred times the rest.
    sys.modules["optuna_dashboard"] = None  # type: ignore[assignment]
    for name, recipe in STUDIES.items():
        write_study(name, recipe, folder)
    write_unfinished(folder)
    write_events(folder)


if __name__ == "__main__":
    main()
