"""What an Optuna user is promised, line by line: an ordinary script, and what is added to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from support import logged

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.releasing.callbacks import OPTUNA_LOG

# An ordinary Optuna script. It knows nothing of privacy.
SCRIPT = """
import optuna

def objective(trial):
    model = trial.suggest_categorical("model", ["linear", "mlp"])
    rate = trial.suggest_float("learning_rate", 1e-4, 1.0, log=True)
    score = 1.0 - abs(rate - 0.1)
    if model == "mlp":
        width = trial.suggest_int("width", 8, 256, log=True)
        trial.set_user_attr("weights", 10 * width)
        score -= 0.1 / width
    return score

study = optuna.create_study(direction="maximize")
study.optimize(objective, n_trials=50)
print(study.best_params, study.best_value, len(study.trials))
"""
RUN = odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.01, steps=100)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many runs there are, which only these tests know."""
    monkeypatch.setattr(odp.TrialCount, "sample", lambda law, uniform_bits=None: 7)
    return 7


def objective(trial: optuna.Trial) -> float:
    return -abs(trial.suggest_float("x", -1.0, 1.0) - 0.3)


@pytest.mark.slow
def test_the_sampler_is_one_argument_of_create_study(drawn: int) -> None:
    study = optuna.create_study(sampler=odp.DPHyPOSampler(run=RUN))
    study.optimize(objective)
    release = odp.release(study, vouched="a test")
    assert release.params == study.best_params
    assert release.guarantee.epsilon(delta=1e-5) < np.inf


@pytest.mark.parametrize("sampler", ["odp.DPHyPOSampler()", "odp.RandTuneSampler()"])
def test_an_existing_script_needs_a_sampler_and_a_callback(
    sampler: str, drawn: int, capsys: pytest.CaptureFixture[str]
) -> None:
    private = SCRIPT.replace(
        'direction="maximize"', f'direction="maximize", sampler={sampler}'
    ).replace("n_trials=50", "n_trials=50, callbacks=[odp.PrivacyCallback(run)]")
    names: dict[str, Any] = {"odp": odp, "run": RUN}
    exec(private, names)
    study = names["study"]
    assert f"{study.best_params} {study.best_value} {drawn}" in capsys.readouterr().out
    release = odp.release(study, vouched="a test")
    assert (release.params, release.value) == (study.best_params, study.best_value)
    exec(SCRIPT, {})  # It still is an ordinary script.


def test_the_study_stops_at_the_secret_number_of_runs(drawn: int) -> None:
    calls: list[int] = []

    def counted(trial: optuna.Trial) -> float:
        calls.append(trial.number)
        return objective(trial)

    study = optuna.create_study(sampler=odp.DPHyPOSampler(run=RUN))
    study.optimize(counted, n_trials=1000, callbacks=[odp.PrivacyCallback()])
    assert calls == list(range(drawn))
    study.optimize(counted, n_trials=1000, callbacks=[odp.PrivacyCallback()])
    assert len(calls) == drawn


def test_the_callback_shows_the_loss_that_it_tracks(drawn: int) -> None:
    callback = odp.PrivacyCallback()
    study = optuna.create_study(sampler=odp.DPHyPOSampler(run=RUN))
    with logged(OPTUNA_LOG) as lines:
        study.optimize(objective, n_trials=1, callbacks=[callback])
    line = next(line for line in lines if "guaranteed" in line)
    assert re.search(r"epsilon [\d.]+ at delta 1e-05 \(Renyi divergence at most [\d.]+ at", line)
    early = callback.guarantee(study)
    study.optimize(objective, callbacks=[callback])
    assert callback.guarantee(study) == early == odp.release(study, vouched="a test").guarantee
    divergences = early.rdp([2.0, 4.0, 8.0])
    assert np.all(np.diff(divergences) >= 0.0)
    assert np.all(np.isfinite(divergences))


def test_the_line_of_the_card_ends_well_and_the_cost_can_be_said_afterwards(drawn: int) -> None:
    """``create_study(sampler=DPHyPOSampler())``, and the callback beside it."""
    study = optuna.create_study(sampler=odp.DPHyPOSampler())
    with logged(OPTUNA_LOG) as lines, logged() as warnings:
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert len(study.trials) == drawn
    assert any("odp.release(study)" in line for line in lines)
    assert sum("nobody said what one run costs" in line for line in warnings) == 1
    with pytest.raises(ReleaseRefusedError):
        odp.release(study)
    study.optimize(objective, callbacks=[odp.PrivacyCallback(RUN)])
    assert sum(trial.value is not None for trial in study.trials) == drawn
    assert odp.release(study, vouched="a test").guarantee.epsilon(1e-5) > 0.0


def test_densities_are_projected_by_cvxpy_and_stay_within_the_bounds(drawn: int) -> None:
    cp = pytest.importorskip("cvxpy")

    def distance(f: Any, w: Any, prior: Any) -> Any:
        return cp.sum(cp.multiply(prior, cp.square(f - w)))

    projections = (odp.ConvexProjection(nu=0.5), odp.ConvexProjection(distance, name="squared"))
    for projection in projections:
        sampler = odp.DPHyPOSampler(
            density_bounds=(0.75, 2.0), projection=projection, candidates=32, run=RUN
        )
        study = optuna.create_study(sampler=sampler)
        study.optimize(objective, callbacks=[odp.PrivacyCallback()])
        ratios = [
            trial.system_attrs["optuna_dp:draw"]["density_ratio"] for trial in study.trials[2:]
        ]
        assert len(ratios) == drawn - 2
        assert all(0.75 <= ratio <= 2.0 for ratio in ratios)
        odp.release(study, vouched="a test")


def answer_of(app: Any, path: str) -> Any:
    """What Optuna Dashboard answers to a browser that asks for a path."""
    from wsgiref.util import setup_testing_defaults

    environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
    setup_testing_defaults(environ)
    status: list[str] = []
    body = b"".join(app(environ, lambda line, headers, error=None: status.append(line)))
    assert status[0].startswith("200"), (status, body)
    return json.loads(body)


def test_the_dashboard_shows_the_guarantee(drawn: int, tmp_path: Path) -> None:
    dashboard = pytest.importorskip("optuna_dashboard")
    pytest.importorskip("plotly")
    callback = odp.PrivacyCallback()
    study = optuna.create_study(
        storage=f"sqlite:///{tmp_path / 'tuning.db'}", sampler=odp.RandTuneSampler(run=RUN)
    )
    study.optimize(objective, callbacks=[callback, odp.dashboard.DashboardCallback()])
    page = answer_of(dashboard.wsgi(study._storage), f"/api/studies/{study._study_id}")
    assert page["name"] == study.study_name
    assert len(page["trials"]) == drawn
    epsilon = re.search(r"epsilon = ([\d.]+) at delta = 1e-05", page["note"]["body"])
    assert epsilon is not None
    assert 0.0 <= float(epsilon[1]) - callback.guarantee(study).epsilon(1e-5) < 0.01
    assert re.search(r"Renyi divergence at most [\d.]+ at order", page["note"]["body"])
    figures = {figure["id"] for figure in page["plotly_graph_objects"]}
    assert figures == {
        *("optuna-dp-privacy-profile", "optuna-dp-renyi-divergence"),
        "optuna-dp-epsilon-by-trials",
    }
