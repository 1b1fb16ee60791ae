"""Runs that the plan promises to draw from the prior are drawn from it, and charged less."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution, distribution_to_json
from refusals import refuses
from support import RUN, exactly, finished_study, objective, rewrite, study_of

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.prior import UniformPrior
from optuna_dp.samplers.selection.dp_hypo import DPHyPOSampler
from optuna_dp.samplers.selection.settings import SelectionSettings
from optuna_dp.samplers.selection.statement import facts_of
from optuna_dp.study.entries import DRAW
from optuna_dp.study.trials import read_plan

SPACE: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


def sampler_of(count: int = 6, **how: Any) -> DPHyPOSampler:
    return odp.DPHyPOSampler(SPACE, trials=exactly(count), candidates=8, beta=50.0, **how, run=RUN)


def charged(study: optuna.Study) -> int:
    return odp.release(study, vouched="a test").guarantee.event.startup_runs


@pytest.mark.parametrize(
    ("how", "promised"),
    [
        ({}, 1),
        ({"batch_size": 3}, 3),
        ({"startup_runs": 4}, 4),
        ({"startup_runs": 2, "batch_size": 3}, 3),
        ({"startup_runs": 0, "batch_size": 3}, 0),
        ({"schedule": "any"}, 0),
    ],
    ids=str,
)
def test_the_first_batch_or_more_is_promised_and_charged(how: dict[str, Any], promised) -> None:
    study = finished_study(sampler_of(**how))
    assert charged(study) == promised
    settings = read_plan(study).design.settings
    # Left out where nothing is promised: such a plan is what it was before there was the field.
    assert settings.get("startup_runs") == (promised or None)
    assert ("startup_runs" in settings) == (promised > 0)
    said = facts_of(SelectionSettings.from_json(settings), "DPHyPOSampler")["Adaptivity"]
    assert ("drawn from the prior itself" in said) == (promised > 0)


def test_start_up_runs_do_not_depend_on_what_is_known() -> None:
    def drawn(sign: float) -> list[float]:
        study = study_of(sampler_of(12, startup_runs=5, seed=3))
        study.optimize(lambda trial: sign * trial.suggest_float("x", -1.0, 1.0))
        return [trial.params["x"] for trial in study.trials]

    up, down = drawn(1.0), drawn(-1.0)
    assert up[:5] == down[:5]
    assert up[5:] != down[5:]


def test_start_up_runs_do_not_wait_for_one_another() -> None:
    study = study_of(sampler_of(startup_runs=6))
    for trial in [study.ask() for _ in range(6)]:
        study.tell(trial, objective(trial))
    assert charged(study) == 6


def test_an_informed_prior_is_drawn_from_too() -> None:
    fixed = FixedCandidates([{"x": -0.5}, {"x": 0.5}])
    study = finished_study(sampler_of(startup_runs=3, prior=fixed))
    noted = ["density_ratio" in trial.system_attrs[DRAW.key] for trial in study.trials]
    assert noted == [False] * 3 + [True] * 3
    assert charged(study) == 3


@pytest.mark.parametrize("prior", [None, FixedCandidates([{"x": -0.5}, {"x": 0.5}])], ids=type)
def test_a_start_up_run_in_view_of_others_is_refused(prior, monkeypatch) -> None:
    # A worker that breaks the promise.
    promised = sampler_of(startup_runs=3, prior=prior)
    worker = sampler_of(startup_runs=0, prior=prior)
    monkeypatch.setattr(worker, "own_design", promised.own_design)
    study = finished_study(worker)
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study, vouched="a test")
    assert caught.value.trial_number == 0


def test_a_start_up_run_whose_draw_cannot_be_made_again_is_refused() -> None:
    # Drawn jointly and said to be from the uniform prior, which is drawn parameter by parameter.
    study = finished_study(sampler_of(startup_runs=3))
    joint = {
        "space": {"x": distribution_to_json(SPACE["x"])},
        "internal": {"x": study.trials[1].params["x"]},
    }
    rewrite(study, 1, DRAW.key, joint)
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study, vouched="a test")
    assert caught.value.trial_number == 1


@pytest.mark.parametrize("how", [{"startup_runs": -1}, {"startup_runs": 1.5}], ids=str)
def test_numbers_that_are_not_allowed(how: dict[str, Any]) -> None:
    with refuses("startup_runs"):
        sampler_of(**how)


def test_promises_under_schedule_any_are_refused() -> None:
    with refuses("startup_runs"):
        sampler_of(schedule="any", startup_runs=2)
    sampler_of(schedule="any", startup_runs=0)


class Near(UniformPrior):
    """A prior of one's own, made of ours: x is near 1."""

    def sample(self, space: Any, n: int, rng: Any) -> Any:
        found = super().sample(space, n, rng)
        found.columns["x"][:] = 0.9 + 0.1 * found.columns["x"]
        return found

    def draw_one(self, name: str, distribution: Any, rng: Any) -> float:
        return 0.9 + 0.1 * float(rng.random())


class SaysSo(Near):
    def fingerprint(self, space: Any) -> dict[str, Any]:
        return {"prior": "near 1"}


def test_a_list_of_candidates_has_no_subclasses() -> None:
    with refuses("class"):
        type("Own", (FixedCandidates,), {})


@pytest.mark.parametrize("sampler", [odp.RandTuneSampler, odp.DPHyPOSampler])
def test_a_subclass_of_the_uniform_prior_is_a_prior_of_its_own(sampler: Any) -> None:
    space = {"x": FloatDistribution(0.0, 1.0)}
    with refuses("prior"):
        sampler(space, trials=exactly(4), prior=Near())
    study = study_of(sampler(space, trials=exactly(4), prior=SaysSo()))
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0))
    assert all(trial.params["x"] >= 0.9 for trial in study.trials)


def test_just_the_promised_runs_are_drawn_without_a_density() -> None:
    study = finished_study(sampler_of(4, startup_runs=2))
    with_density = ["density_ratio" in t.system_attrs.get(DRAW.key, {}) for t in study.trials]
    assert with_density == [False, False, True, True]
