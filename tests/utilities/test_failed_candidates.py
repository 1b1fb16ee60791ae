"""A candidate whose evaluation failed: it blocks the choice, or is evaluated again."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
)
from optuna_dp.utilities.choice import CHOICE_KEY
from utilities.utility_support import MAKERS, SPACE, mean_utility


def choice_trials(study: optuna.Study) -> list[Any]:
    return [t for t in study.trials if CHOICE_KEY in t.system_attrs]


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
    with pytest.raises(ReleaseRefusedError, match=r"Trial 4.*no utility"):
        odp.release(study)
    assert choice_trials(study) == []


def reported(trial: optuna.Trial) -> float:
    return odp.report_utilities(trial, [mean_utility(trial) / 2] * 10)


def one_failed(failure: Exception, at: int = 4, early: bool = False) -> optuna.Study:
    """A study whose candidate ``at``, the best, has failed after it began."""

    def objective(trial: optuna.Trial) -> float:
        if trial.number == at and early:
            raise failure
        value = mean_utility(trial)
        if trial.number == at:
            raise failure
        return odp.report_utilities(trial, [value] * 10)

    sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, catch=(RuntimeError, ReleaseRefusedError))
    return study


@pytest.mark.parametrize("failure", [RuntimeError("bad record"), optuna.TrialPruned()])
def test_a_candidate_that_failed_can_be_evaluated_again(failure: Exception) -> None:
    """By a heartbeat while its worker lived, for a bug, by hand: nothing was spent by then."""
    study = one_failed(failure)
    with pytest.raises(ReleaseRefusedError, match=r"Trial 4.*Evaluate its candidate again"):
        odp.release(study)
    failed = study.trials[4]
    assert failed.params == {"x": pytest.approx(0.4)}
    odp.report_utilities(failed, [1.0] * 10, study=study)
    odp.report_utilities(failed, [0.0] * 10, study=study)  # Too late: the first one counts.
    assert odp.release(study).params == {"x": pytest.approx(0.4)}
    assert odp.release(study).params == {"x": pytest.approx(0.4)}
    assert len(choice_trials(study)) == 1


def test_a_worker_whose_trial_a_heartbeat_failed_reports_all_the_same() -> None:
    sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    alive = study.ask()
    alive.suggest_float("x", 0, 1, step=0.1)
    study._storage.set_trial_state_values(alive._trial_id, TrialState.FAIL)
    study.optimize(reported, catch=(ReleaseRefusedError,))
    odp.report_utilities(alive, [1.0] * 10)
    assert odp.release(study).params == {"x": pytest.approx(alive.params["x"])}


def test_what_cannot_be_evaluated_again() -> None:
    failure = RuntimeError("bad record")
    study = one_failed(failure, early=True)
    with pytest.raises(PlanError, match="before it asked for a parameter"):
        odp.report_utilities(study.trials[4], [1.0] * 10, study=study)
    study = one_failed(failure)
    with pytest.raises(PlanError, match="not a candidate that began and failed"):
        odp.report_utilities(study.trials[3], [1.0] * 10, study=study)
    study = optuna.create_study(
        direction="maximize",
        sampler=MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0),
    )
    trial = study.ask()
    mean_utility(trial)
    study.tell(trial, state=TrialState.FAIL)
    with pytest.raises(PlanError, match="only after all others have begun"):
        odp.report_utilities(study.trials[0], [1.0] * 10, study=study)
    study.optimize(mean_utility, catch=(ReleaseRefusedError,))
    with pytest.raises(PlanError, match="cannot be mixed"):
        odp.report_utilities(study.trials[0], [1.0] * 10, study=study)
    assert choice_trials(study) == []


def test_second_evaluations_of_another_study_are_not_taken() -> None:
    """A copy keeps the plan; another study's trial, added by hand, has another nonce."""
    first = one_failed(RuntimeError("bad record"))
    odp.report_utilities(first.trials[4], [1.0] * 10, study=first)
    other = one_failed(RuntimeError("bad record"))
    other.add_trial(first.trials[-1])
    with pytest.raises(ReleaseRefusedError, match=r"Trial 4.*no utility"):
        odp.release(other)
