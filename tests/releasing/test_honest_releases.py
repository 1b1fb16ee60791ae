"""Whatever an honest study has been through, ``verify`` agrees with its release."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from dp_accounting.rdp import RdpAccountant
from optuna.trial import TrialState
from slow_cases import slow_if
from support import study_of

import optuna_dp as odp

RECORDS = 400
NUMBERS: dict[str, Any] = {"records": RECORDS, "batch_size": RECORDS}
PLAN = odp.plan_budget(epsilon=3.0, **NUMBERS, epochs=1, pilots=(3, 2))
RNG = np.random.default_rng(0)


def trains(trial: optuna.Trial, records: int = RECORDS, **options: Any) -> float | None:
    """A training that learns everything of records that are easy to tell apart."""
    run = odp.start_run(trial)
    trial.suggest_float("a", 0, 1)
    x = RNG.choice([-1.0, 1.0], size=(records, 3))
    y = (x[:, 0] > 0).astype(int)
    score = "accuracy" if run.scored_on != "public" or "score_records" in options else None
    model = odp.SoftmaxRegression(3, 2)
    trained = odp.train(
        run, model, (x, y), score=score, learning_rate=3.0, optimizer="sgd", **options
    )
    return trained.score


def own_loop(trial: optuna.Trial) -> Any:
    run = odp.start_run(trial)
    trial.suggest_float("a", 0, 1)
    event = odp.dp_sgd(noise_multiplier=run.noise_multiplier, sample_rate=1.0, steps=run.steps)
    run.spent(RdpAccountant().compose(event))
    return run.score(np.ones(RECORDS))


def budget(objective: Callable[[optuna.Trial], Any], **options: Any) -> odp.Release:
    study = study_of(odp.BudgetSampler(options.pop("plan", PLAN)))
    study.optimize(objective, catch=(RuntimeError,))
    return odp.release(study, **options)


def with_records(records: int) -> Callable[[], odp.Release]:
    """The plan names a rounded number of records, and there may be others."""
    return lambda: budget(lambda trial: trains(trial, records))


def selection_with_more_records() -> odp.Release:
    run = odp.RunPlan(**NUMBERS, steps=1, noise_multiplier=4.0, score_noise_multiplier=0.5)
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=run))
    study.optimize(lambda trial: trains(trial, 2 * RECORDS))
    return odp.release(study)


def pilot_that_never_began(number: int) -> Callable[[], odp.Release]:
    """Its worker died before, so the trial is there and the run is not."""

    def release() -> odp.Release:
        study = study_of(odp.BudgetSampler(PLAN))
        study.optimize(trains, n_trials=number)
        trial = study._storage.create_new_trial(study._study_id)
        study._storage.set_trial_state_values(trial, TrialState.FAIL)
        study.optimize(trains)
        return odp.release(study)

    return release


def ends(which: str) -> Callable[[], odp.Release]:
    """Pilot 1 and the last run end in another way than with a score."""

    def objective(trial: optuna.Trial) -> Any:
        score = own_loop(trial)
        if trial.number in (1, PLAN.pilots):
            if which == "prune":
                raise optuna.TrialPruned
            if which == "nan":
                return float("nan")
            raise RuntimeError("as any run may")
        return score

    vouched = "Its score is the worst, whatever it was." if which == "nan" else None
    return lambda: budget(objective, vouched=vouched)


def spare_run() -> odp.Release:
    plan = odp.plan_budget(epsilon=3.0, **NUMBERS, epochs=1, pilots=2, spare_runs=1)

    def objective(trial: optuna.Trial) -> Any:
        score = trains(trial)
        if trial.number == plan.pilots:
            raise RuntimeError("as any run may")
        return score

    return budget(objective, plan=plan)


def public_scores() -> odp.Release:
    plan = odp.plan_budget(epsilon=3.0, **NUMBERS, epochs=1, pilots=2, score=None)
    public = (np.ones((50, 3)), np.ones(50, dtype=int))
    return budget(lambda trial: trains(trial, score_records=public), plan=plan)


def disjoint_scores() -> odp.Release:
    plan = odp.plan_budget(epsilon=3.0, **NUMBERS, epochs=1, pilots=2, score="disjoint")
    others = (np.ones((150, 3)), np.ones(150, dtype=int))
    return budget(lambda trial: trains(trial, score_records=others, score_size=100), plan=plan)


def selection_whose_runs_were_all_pruned() -> odp.Release:
    schema = odp.Schema(age=(20, 80), died=["no", "yes"], target="died", unit="who", most=2)
    rows = {"age": np.full(400, 40.0), "died": ["no", "yes"] * 200, "who": np.arange(400) // 2}
    run = odp.RunPlan(**NUMBERS, steps=1, noise_multiplier=4.0, score_noise_multiplier=20.0)

    def objective(trial: optuna.Trial) -> float:
        model, table = odp.SoftmaxRegression(schema.width, 2), schema.encode(rows)
        odp.train(odp.start_run(trial), model, table)
        raise optuna.TrialPruned

    study = study_of(odp.RandTuneSampler(trials=odp.Binomial(2, mean=2), run=run))
    study.optimize(objective)
    return odp.release(study)


def last_run_without_a_score() -> odp.Release:
    plan = odp.plan_budget(epsilon=3.0, **NUMBERS, epochs=1, pilots=2, score_final=False)
    return budget(trains, plan=plan)


def last_run_given_up() -> odp.Release:
    return budget(trains, give_up_last_run=True)


HONEST: dict[str, Callable[[], odp.Release]] = {
    "twice as many": with_records(2 * RECORDS),
    "nine times as many": with_records(9 * RECORDS),
    "half as many": with_records(RECORDS // 2),
    "a selection with twice as many": selection_with_more_records,
    "a pilot of the first rung never began": pilot_that_never_began(1),
    "a pilot of the second rung never began": pilot_that_never_began(4),
    "pruned": ends("prune"),
    "failed": ends("fail"),
    "not a number": ends("nan"),
    "a spare run": spare_run,
    "all of a selection pruned": selection_whose_runs_were_all_pruned,
    "public scores": public_scores,
    "disjoint scores": disjoint_scores,
    "no score of the last run": last_run_without_a_score,
    "the last run given up": last_run_given_up,
    "a loop of one's own": lambda: budget(own_loop),
}
QUICK = ("twice as many", "a pilot of the first rung never began", "pruned", "disjoint scores")


@pytest.mark.promise("statement-file")
@pytest.mark.parametrize("kind", slow_if(lambda kind: kind not in QUICK, HONEST))
def test_verify_agrees_with_an_honest_release(kind: str) -> None:
    found = odp.verify(json.loads(json.dumps(HONEST[kind]().to_json())))
    assert found.ok, str(found)
