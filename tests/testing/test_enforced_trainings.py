"""``check`` of an objective that trains by odp.train looks at what is left to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest

import optuna_dp as odp

RECORDS = 200
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=RECORDS, batch_size=40, epochs=1, pilots=0)
X = np.random.default_rng(0).normal(size=(RECORDS, 4))
Y = (X[:, 0] > 0).astype(int)


def softmax(trial: optuna.Trial) -> Any:
    run = odp.fidelity(trial)
    return odp.train(run, odp.SoftmaxRegression(4, 2), (X, Y), score="accuracy").score


def with_dropout(trial: optuna.Trial) -> Any:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def record_loss(model: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x[None]), y[None])

    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    records = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
    run = odp.fidelity(trial)
    return odp.train(run, model, records, record_loss=record_loss, score="accuracy").score


@pytest.mark.slow
@pytest.mark.parametrize("objective", [softmax, with_dropout])
def test_nothing_of_the_steps_is_left_to_check(objective: Any) -> None:
    if objective is with_dropout:
        pytest.importorskip("torch")
    report = odp.check_objective(objective, plan=PLAN)
    assert report.findings == ()
    words = " ".join(report.not_checked)
    assert "noise and steps" not in words
    assert "BatchNorm" not in words
    assert "what a run leaves for the next" not in words


@pytest.mark.slow
def test_what_the_objective_does_besides_is_still_found() -> None:
    kept: list[float] = []

    def best_so_far(trial: optuna.Trial) -> float:
        kept.append(softmax(trial))
        return max(kept)

    report = odp.check_objective(best_so_far, plan=PLAN)
    assert not report.ok
