"""Studies whose runs are all alike and whose sampler knows what a run is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from support import exactly, logged, recorded, study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError, ReleaseRefusedError

RUN = odp.RunPlan(
    records=1000, batch_size=64, steps=50, noise_multiplier=2.0, score_noise_multiplier=20.0
)
X = {"x": FloatDistribution(0.0, 1.0)}
CORRECT = np.arange(1000) < 900
SAMPLERS: dict[str, Callable[..., Any]] = {
    "RandTune": odp.RandTuneSampler,
    "DP-HyPO": odp.DPHyPOSampler,
}
either = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def what_it_did(run: odp.Run, noise: float = 1.0) -> Any:
    assert run.sample_rate is not None
    return odp.dp_sgd(
        noise_multiplier=noise * run.noise_multiplier, sample_rate=run.sample_rate, steps=run.steps
    )


def honest(trial: optuna.Trial) -> float:
    run = odp.start_run(trial)
    trial.suggest_float("x", 0.0, 1.0)
    run.spent(recorded(what_it_did(run)))
    return run.score(CORRECT)


def by_hand(trial: optuna.Trial) -> float:
    odp.start_run(trial)
    return trial.suggest_float("x", 0.0, 1.0)


def studied(sampler: Callable[..., Any], objective: Any, runs: int = 4) -> optuna.Study:
    study = study_of(sampler(X, trials=exactly(runs), run=RUN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return study


@pytest.mark.slow
@either
def test_neither_callback_nor_release_is_told_what_a_run_costs(sampler: Any) -> None:
    release = odp.release(studied(sampler, honest))
    assert release.guarantee.event.run == RUN.event
    assert RUN.event == odp.compose(what_it_did(RUN.run), odp.scoring.score_event(20.0))
    words = {"preparation": "as given", "training": "compared", "score": "compared"}
    # Which tests were loaded decides which files there are.
    assert {name: fact for name, fact in release.spending.items() if name != "script"} == words
    assert odp.verify(release.to_json()).ok


@pytest.mark.slow
@either
def test_the_statement_does_not_tell_how_many_runs_there_were(sampler: Any) -> None:
    """Two studies that differ in T alone have the same rows on what runs did."""

    def rows(runs: int) -> list[str]:
        statement = odp.release(studied(sampler, honest, runs)).statement()
        return re.findall(r"^\| (?:Training|Score) \| .*$", statement, re.MULTILINE)

    assert rows(2) == rows(5)
    assert len(rows(2)) == 2


@either
def test_a_run_that_spends_more_is_refused(sampler: Any) -> None:
    def spends_more(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        run.spent(recorded(what_it_did(run, noise=0.9)))
        return run.score(CORRECT)

    with pytest.raises(PlanError):
        studied(sampler, spends_more)


@pytest.mark.slow
def test_what_is_not_compared_needs_the_curators_word() -> None:
    with logged() as lines:
        study = studied(odp.RandTuneSampler, by_hand)
    assert sum("vouched=" in line for line in lines) == 1
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert caught.value.trial_number == 0
    release = odp.release(study, vouched="Our own trainer adds the noise.")
    assert release.spending["training"] == release.spending["score"] == "not checked"
    assert "Our own trainer adds the noise." in release.statement()


@pytest.mark.slow
def test_runs_of_different_words_need_the_curators_word() -> None:
    """Which run was which may depend on the hyperparameters, so on how many runs there were."""

    def mixed(trial: optuna.Trial) -> float:
        if trial.number != 2:
            return honest(trial)
        run = odp.start_run(trial)
        run.spent(recorded(what_it_did(run)))
        return run.score(np.ones(100, dtype=bool), vouched="The rest has no label.")

    study = studied(odp.RandTuneSampler, mixed)
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert caught.value.trial_number is None
    release = odp.release(study, vouched="A tenth of the records has labels.")
    assert release.spending["score"] == "not checked"
    assert "The rest has no label." not in release.statement()


@pytest.mark.promise("cost-of-a-run")
@pytest.mark.slow
def test_another_cost_of_a_run_is_refused() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2), run=RUN))
    with pytest.raises(PlanError, match="PrivacyCallback"):
        study.optimize(honest, callbacks=[odp.PrivacyCallback(odp.gaussian(4.0))])
    study.optimize(honest, callbacks=[odp.PrivacyCallback(RUN.event)])  # The same cost.
    assert odp.release(study).guarantee.event.run == RUN.event


def test_workers_with_other_runs_are_another_design() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    study.optimize(honest, n_trials=1)
    other = odp.RunPlan(
        records=1000, batch_size=64, steps=60, noise_multiplier=2.0, score_noise_multiplier=20.0
    )
    study.sampler = odp.RandTuneSampler(trials=exactly(3), run=other)
    with pytest.raises(PlanError):
        study.optimize(honest)


@pytest.mark.parametrize(
    "same",
    [
        odp.RunPlan(
            records=1000, batch_size=64, steps=50, noise_multiplier=2, score_noise_multiplier=20
        ),
        odp.RunPlan(
            records=np.int64(1000),  # type: ignore[arg-type]
            batch_size=np.float32(64.0),  # type: ignore[arg-type]
            steps=np.int32(50),  # type: ignore[arg-type]
            noise_multiplier=np.float64(2.0),
            score_noise_multiplier=np.float32(20.0),  # type: ignore[arg-type]
        ),
        odp.RunPlan.from_json(RUN.to_json()),
    ],
    ids=["whole numbers", "numpy's numbers", "read from JSON"],
)
def test_a_worker_may_write_the_same_numbers_in_another_type(same: odp.RunPlan) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2), run=RUN))
    study.optimize(honest, n_trials=1)
    study.sampler = odp.RandTuneSampler(trials=exactly(2), run=same)
    study.optimize(honest)
    assert odp.release(study).spending["training"] == "compared"


def test_public_scores_are_exact_and_cost_nothing() -> None:
    run = odp.RunPlan(records=1000, batch_size=64, steps=50, noise_multiplier=2.0, score=None)
    assert run.event == what_it_did(run.run)
    study = study_of(odp.RandTuneSampler(trials=exactly(2), run=run))
    study.optimize(honest)
    assert odp.release(study).value == 0.9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("records", 0),
        ("batch_size", 2000),
        ("steps", 0),
        ("noise_multiplier", 0.0),
        ("score_noise_multiplier", None),
        ("score_noise_multiplier", -1.0),
        ("score", "elsewhere"),
        ("neighboring_relation", "null_client"),
    ],
)
def test_what_is_no_run(name: str, value: Any) -> None:
    sound: dict[str, Any] = {
        "records": 1000,
        "batch_size": 64,
        "steps": 50,
        "noise_multiplier": 2.0,
        "score_noise_multiplier": 20.0,
    }
    with pytest.raises(InvalidArgumentError) as refused:
        odp.RunPlan(**{**sound, name: value})
    assert refused.value.argument == name


def test_an_event_says_nothing_of_what_a_trial_may_do() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(2), run=odp.gaussian(4.0)))
    with pytest.raises(PlanError, match="RunPlan"):
        odp.start_run(study.ask())


def test_a_large_delta_is_warned_of() -> None:
    study = studied(odp.RandTuneSampler, honest)
    with pytest.warns(UserWarning, match="delta"):
        odp.release(study, delta=0.3)
    stated = study_of(odp.RandTuneSampler(trials=exactly(2), run=odp.gaussian(4.0)))
    stated.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0))
    with pytest.warns(UserWarning, match="delta=0.3"):
        odp.release(stated, delta=0.3, vouched="a test")
    with pytest.warns(UserWarning, match="delta"):
        odp.plan_budget(
            epsilon=3.0, delta=0.01, records=np.int64(569), batch_size=64, epochs=5, pilots=0
        )


def test_a_plan_and_a_statement_point_out_the_same_deltas(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for delta, is_large in ((1.9e-4, True), (1e-4, False)):
        caplog.clear()
        plan = odp.plan_budget(
            epsilon=3.0, delta=delta, records=1000, batch_size=64, epochs=1, pilots=0
        )
        assert ("times the 1,000 records" in caplog.text) == is_large
        study = study_of(odp.BudgetSampler(plan))
        study.optimize(honest)
        assert ("Delta is too large" in odp.release(study).statement()) == is_large
