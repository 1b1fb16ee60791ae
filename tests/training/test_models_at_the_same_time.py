"""Two runs of a private selection that begin at the same time do not train the same model."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import optuna

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
