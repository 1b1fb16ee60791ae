"""Ways to go wrong with budgets."""

from __future__ import annotations

import math
from typing import Any

import optuna
from support import RUN, objective, study_of

import optuna_dp as odp

from .error_case import Case


def _budget(**given: Any) -> odp.BudgetPlan:
    sizes = {"epsilon": 3.0, "records": 1348, "batch_size": 64, "epochs": 10}
    return odp.plan_budget(**(sizes | given))


def _with_budget(**given: Any) -> optuna.Study:
    """A study of two pilots and one run, none of which has begun."""
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=2
    )
    return study_of(odp.BudgetSampler(plan=plan, **given))


def _last_run_before_pilots() -> None:
    study = _with_budget()
    study.optimize(objective, n_trials=1)
    odp.release(study)


def _no_pilot_with_a_score() -> None:
    def fails(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0.0, 1.0)
        return math.nan

    _with_budget().optimize(fails)


def _several_objectives() -> None:
    plan = odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=2
    )
    study = optuna.create_study(directions=["maximize"] * 2, sampler=odp.BudgetSampler(plan))
    study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 1.0), 0.0), n_trials=1)


def _choice_of_something_else() -> None:
    _with_budget(choose=lambda pilots: {"y": 1.0}).optimize(objective)


def _ended() -> optuna.Study:
    study = _with_budget()
    study.optimize(objective)
    return study


def _callback(**given: Any) -> None:
    _with_budget().optimize(objective, callbacks=[odp.PrivacyCallback(**given)])


def _enqueued_after_the_end() -> None:
    study = _ended()
    study.enqueue_trial({"x": 0.25})
    study.optimize(objective)


def _begun_in_a_public_storage() -> None:
    public = optuna.storages.InMemoryStorage()
    odp.publish(odp.release(_ended()), public, "release")
    plan = _with_budget().sampler
    study_of(plan, storage=public).optimize(objective)


BUDGETS = [
    Case("An epsilon that no noise reaches", lambda: _budget(epsilon=1e-9)),
    Case("A batch larger than the data", lambda: _budget(batch_size=2000)),
    Case("Lengths missing", lambda: _budget(epochs=None)),
    Case(
        "Both ways to say what a training is",
        lambda: _budget(run=lambda noise, steps: odp.gaussian(noise)),
    ),
    Case("Pilots longer than the last run", lambda: _budget(pilot_epochs=20)),
    Case("A rung larger than the one below", lambda: _budget(pilots=(4, 16))),
    Case(
        "More pilots than make sense",
        lambda: _budget(pilots=5000, noise_increase=1.01),
    ),
    Case("Nothing left for pilots", lambda: _budget(noise_increase=1.0)),
    Case(
        "Disjoint validation records where records are replaced",
        lambda: _budget(score="disjoint", neighboring_relation="replace_one"),
    ),
    Case("A record of a plan that is none", lambda: odp.BudgetPlan.from_json({"epsilon": 1.0})),
    Case(
        "What a trial may spend, of a study without a budget",
        lambda: odp.start_run(study_of(odp.RandTuneSampler(run=RUN)).ask()),
    ),
    Case("Several objectives and nobody who chooses", _several_objectives),
    Case("A choice of what no pilot has", _choice_of_something_else),
    Case("No pilot that ended with a score", _no_pilot_with_a_score),
    Case("A cost given to the callback", lambda: _callback(run=RUN)),
    Case(
        "Another relation given to the callback",
        lambda: _callback(neighboring_relation="replace_one"),
    ),
    Case("A trial enqueued after the last run", _enqueued_after_the_end),
    Case("A study in a storage that holds a release", _begun_in_a_public_storage),
    Case("Releasing before the pilots have ended", _last_run_before_pilots),
]
