"""Search spaces that do not fit the objective, waiting for oneself, seeds and how runs differ."""

from __future__ import annotations

import warnings
from typing import Any

import optuna
import pytest
from refusals import refuses
from samplers.budget.budget_support import budget
from support import RUN, exactly, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import (
    SeedWarning,
    WaitError,
)

SPACE = {name: optuna.distributions.FloatDistribution(-1.0, 1.0) for name in ("lr", "x")}


def misspelt(trial: optuna.Trial) -> float:
    return objective(trial) + 0.0 * trial.suggest_float("rate", -1.0, 1.0)


def conditional(trial: optuna.Trial) -> float:
    return trial.suggest_float("lr", -1.0, 1.0) if trial.number % 2 else objective(trial)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        odp.RandTuneSampler(SPACE, trials=exactly(4), run=RUN),
        odp.DPHyPOSampler(SPACE, trials=exactly(4), candidates=8, run=RUN),
        odp.BudgetSampler(budget(3), search_space=SPACE),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_search_space_that_the_objective_does_not_use_is_pointed_out(sampler: Any) -> None:
    """Early and once; the guarantee holds all the same, and the statement says what is true."""
    study = study_of(sampler)
    with logged() as lines:
        study.optimize(misspelt)
    (unused,) = [line for line in lines if "'lr'" in line]
    assert unused.startswith("WARNING")
    # A budget's proposer proposes whatever a pilot asks for.
    remarks = 0 if isinstance(sampler, odp.BudgetSampler) else 1
    assert len([line for line in lines if "'rate'" in line]) == remarks
    found = odp.release(study, vouched="a test")
    assert found.params is not None
    assert set(found.params) == {"x", "rate"}
    (row,) = [line for line in found.statement().splitlines() if "| Parameters |" in line]
    assert "planned: lr, x; a run may use a part of them" in row


def test_a_conditional_space_is_released_with_what_the_winner_used() -> None:
    study = study_of(odp.RandTuneSampler(SPACE, trials=exactly(4), run=RUN))
    study.optimize(conditional)
    found = odp.release(study, vouched="a test")
    assert found.params is not None
    assert len(found.params) == 1


def test_a_search_space_that_is_used_is_not_remarked_on() -> None:
    study = study_of(
        odp.DPHyPOSampler({"x": SPACE["x"]}, trials=exactly(3), candidates=8, run=RUN)
    )
    with logged() as lines:
        study.optimize(objective)
    assert not [line for line in lines if "search_space" in line]


def test_waiting_for_a_run_of_ones_own_thread_is_an_error_that_can_be_mended() -> None:
    space = {"x": optuna.distributions.FloatDistribution(-1, 1)}
    study = study_of(odp.DPHyPOSampler(space, trials=exactly(3), run=RUN))
    first = study.ask()
    second = study.ask()
    with pytest.raises(WaitError):
        objective(second)
    study.tell(first, 0.5)
    study.tell(second, objective(second))


def test_multi_objective_studies_are_refused() -> None:
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=odp.RandTuneSampler(run=RUN)
    )
    with refuses("directions"):
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0))
    # Otherwise other workers would wait for it for ever.
    assert [trial.state for trial in study.trials] == [optuna.trial.TrialState.FAIL]


def test_a_seed_repeats_the_study_whatever_the_number_of_jobs() -> None:
    def run(n_jobs: int) -> list[dict[str, Any]]:
        study = study_of(odp.RandTuneSampler(trials=odp.Geometric(mean=9), seed=5, run=RUN))
        study.optimize(objective, n_jobs=n_jobs)
        return [t.params for t in study.trials if t.params]

    assert run(1) == run(1) == run(3)


@pytest.mark.parametrize("bounds", [(1.0, 2.0), (1, 2), (0.5, 1.0)])
def test_density_bounds_under_which_nothing_can_be_learnt_are_refused(bounds: Any) -> None:
    with refuses("density_bounds"):
        odp.DPHyPOSampler(density_bounds=bounds, run=RUN)
    odp.DPHyPOSampler(density_bounds=(1, 1), run=RUN)
    # The accounting knows that such a density is the prior, and charges accordingly.
    law = odp.Geometric(mean=3)
    assert odp.selection_guarantee(odp.gaussian(4.0), law, density_bounds=bounds).epsilon(
        1e-5
    ) == odp.selection_guarantee(odp.gaussian(4.0), law).epsilon(1e-5)


@pytest.mark.promise("a seed for the draws or for T")
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: odp.RandTuneSampler(seed=seed, run=RUN),
        lambda seed: odp.DPHyPOSampler(seed=seed, run=RUN),
        lambda seed: odp.NoisyMaxSampler(candidates=2, n_partitions=900, epsilon=1.0, seed=seed),
        lambda seed: odp.ProposeTestSampler(
            candidates=2,
            n_partitions=90_000,
            epsilon=0.2,
            granularity=0.2,
            resolve=0.3,
            seed=seed,
        ),
    ],
)
def test_a_seed_is_warned_of_once_where_the_sampler_is_made(make: Any) -> None:
    with pytest.warns(SeedWarning) as caught:
        make(31_415)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "31415" not in str(caught[0].message)
    with warnings.catch_warnings(), logged() as lines:
        warnings.simplefilter("ignore")  # Common in scripts; the log says it all the same.
        make(31_415)
    assert len(lines) == 1
    assert "release()" in lines[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(None)


def test_without_a_seed_nothing_repeats() -> None:
    def first() -> float:
        study = study_of(odp.RandTuneSampler(trials=exactly(1), run=RUN))
        study.optimize(objective)
        return float(study.trials[0].params["x"])

    assert len({first() for _ in range(20)}) == 20
