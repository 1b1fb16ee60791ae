"""A candidate whose evaluation failed: it blocks the choice, or is evaluated again."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState
from samplers.choice.utility_support import MAKERS, SPACE, choice_trials, mean_utility

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
)


@pytest.mark.parametrize("failure", [RuntimeError("bad record"), optuna.TrialPruned()])
@pytest.mark.parametrize("early", [True, False])
def test_a_candidate_that_failed_blocks_the_choice(failure: Exception, early: bool) -> None:
    """Whether it fails may hinge on one record: dropping it would tell."""

    def objective(trial: optuna.Trial) -> float:
        if trial.number == 4 and early:
            raise failure
        value = mean_utility(trial)
        if trial.number == 4:
            raise failure
        return value

    study = optuna.create_study(direction="maximize", sampler=MAKERS["noisy_max"](SPACE))
    study.optimize(objective, catch=(RuntimeError, ReleaseRefusedError))
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study)
    assert caught.value.trial_number == 4
    assert choice_trials(study) == []


def test_a_candidate_that_has_failed_takes_no_utilities() -> None:
    """Neither for a trial that failed, nor from a worker whose trial a heartbeat failed."""
    sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    alive = study.ask()
    mean_utility(alive)
    study._storage.set_trial_state_values(alive._trial_id, TrialState.FAIL)
    with pytest.raises(PlanError):
        odp.report_utilities(alive, [1.0] * 10)
    with pytest.raises(PlanError):
        odp.report_utilities(study.trials[0], [1.0] * 10, study=study)


def test_a_new_study_of_the_same_candidates_takes_scores_that_were_kept() -> None:
    """What the page recommends after a failure: nothing is computed twice."""
    computed: list[float] = []
    kept: dict[float, list[float]] = {}

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0, step=0.1)
        if x not in kept:
            computed.append(x)
            if len(computed) == 5:
                raise RuntimeError("out of memory")
            kept[x] = [1.0 - abs(x - 0.4)] * 10
        return odp.report_utilities(trial, kept[x])

    def study() -> optuna.Study:
        sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
        return optuna.create_study(direction="maximize", sampler=sampler)

    study().optimize(objective, catch=(RuntimeError, ReleaseRefusedError))
    again = study()
    again.optimize(objective)
    assert len(computed) == 12  # Eleven candidates, one of which failed.
    assert odp.release(again).params == {"x": pytest.approx(0.4)}
