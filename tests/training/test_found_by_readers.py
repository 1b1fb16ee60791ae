"""What a reader of the code found in trainings: two runs with one model, and warnings."""

from __future__ import annotations

import contextlib
import threading
import warnings

import numpy as np
import optuna
from refusals import refuses

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError


def test_one_of_two_runs_gets_the_model() -> None:
    plan = odp.RunPlan(
        records=40, batch_size=20, steps=2, noise_multiplier=4.0, score_noise_multiplier=4.0
    )
    records = np.linspace(-1, 1, 40)[:, None], np.arange(40) % 2
    model, together = odp.SoftmaxRegression(1, 2), threading.Barrier(2, timeout=30)
    ends = []

    class Meeting(odp.Schedule):
        """A training waits for the other one in its first step, if there is another."""

        def factor(self, step: int, steps: int) -> float:
            if step == 0:
                with contextlib.suppress(threading.BrokenBarrierError):
                    together.wait(2.0)
            return super().factor(step, steps)

    def objective(trial: optuna.Trial) -> float:
        trained = odp.train(
            odp.start_run(trial),
            model,
            records,
            learning_rate=0.1,
            score="accuracy",
            schedule=Meeting("constant"),
        )
        ends.append(trial.number)
        assert trained.score is not None
        return trained.score

    study = optuna.create_study(
        direction="maximize", sampler=odp.RandTuneSampler(trials=odp.Binomial(2, 2), run=plan)
    )
    study.optimize(objective, n_jobs=2, catch=(InvalidArgumentError,))
    assert len(ends) == 1


def test_a_record_that_is_infinite_warns_of_nothing() -> None:
    """A warning that comes with one record only would tell of it."""
    plan = odp.plan_budget(epsilon=3.0, records=40, batch_size=20, epochs=2, pilots=0)
    x, y = np.ones((40, 3)), np.arange(40) % 2
    x[7] = [np.inf, -np.inf, np.inf]
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    run = odp.start_run(study.ask())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained = odp.train(
            run, odp.SoftmaxRegression(3, 2), (x, y), learning_rate=0.1, score="accuracy"
        )
    assert trained.score is not None


def test_a_mean_of_numbers_beyond_all_floats_is_refused_as_other_values_are() -> None:
    with refuses("values"):
        odp.scoring.private_mean(
            [0.1, 10**400], lower=0.0, upper=1.0, size=2, noise_multiplier=1.0
        )
