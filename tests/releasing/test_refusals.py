"""What the release refuses: runs that were not drawn as planned."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState, create_trial
from support import (
    KNOWN_COUNT,
    RUN,
    exactly,
    finished_study,
    objective,
    refused,
    rewrite,
    study_of,
)

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    UnfinishedStudyError,
)
from optuna_dp.protocol.records import DRAW_KEY, INDEPENDENT_KEY, SLOT_KEY

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}


def test_a_sound_study_is_released() -> None:
    assert odp.release(finished_study(), RUN, vouched="a test").params is not None


def test_seeded_randomness() -> None:
    study = finished_study(odp.RandTuneSampler(trials=exactly(3), seed=1))
    refused(study, "seed")


def test_runs_that_have_not_ended() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(9)))
    study.optimize(objective, n_trials=3)
    study.ask()
    error = refused(study, "Some of its runs have not ended")
    assert isinstance(error, UnfinishedStudyError)
    assert "9" not in str(error)


def test_stopping_on_a_timeout_and_releasing_what_is_there() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(10)))
    study.optimize(objective, n_trials=3)
    study.optimize(objective, timeout=0.0)
    assert isinstance(refused(study, "not ended"), UnfinishedStudyError)


@pytest.mark.slow
def test_what_happens_after_the_last_run_does_not_spoil_the_study() -> None:
    """Nothing beyond slot T can win, whoever made it."""
    study = finished_study()
    best = study.best_value
    study.add_trial(create_trial(params={"x": 0.3}, distributions=X, value=9.0))
    study.enqueue_trial({"x": 0.3})
    with pytest.raises(PlanError, match="enqueued"):
        study.optimize(objective)
    study.sampler = optuna.samplers.RandomSampler()
    study.optimize(objective, n_trials=2, callbacks=[odp.PrivacyCallback(RUN)])
    failed = {"failed_trial": 0, "fixed_params": study.trials[0].params}
    study.add_trial(create_trial(state=TrialState.WAITING, system_attrs=failed))
    assert odp.release(study, RUN, vouched="a test").value == best


def test_added_trials_in_a_slot() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.optimize(objective, n_trials=1)
    study.add_trial(create_trial(params={"x": 0.3}, distributions=X, value=9.0))
    study.optimize(objective)
    assert refused(study, "added by hand").trial_number == 1


def test_enqueued_trials() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.optimize(objective, n_trials=2)
    study.enqueue_trial({"x": 0.3})
    assert refused(study, "enqueued").trial_number == 2


def test_failed_runs_retried_for_free_by_a_copy_of_all_that_they_hold() -> None:
    """As Optuna's own callback does elsewhere: parameters, slot record and draw of the run."""
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3)),
        odp.RandTuneSampler(X, trials=exactly(3)),
        odp.DPHyPOSampler(X, trials=exactly(3), candidates=8),
    ):
        study = study_of(sampler)
        trial = study.ask()
        objective(trial)
        study.tell(trial, state=TrialState.FAIL)
        failed = study.trials[0]
        copy = create_trial(
            state=TrialState.WAITING,
            params=failed.params,
            distributions=failed.distributions,
            system_attrs={"failed_trial": 0, "retry_history": [0], **failed.system_attrs},
        )
        study.add_trial(copy)
        with pytest.raises(PlanError, match="retries failed trials"):
            study.optimize(objective)
        refused(study, "enqueued")


def test_a_point_chosen_by_hand_and_left_waiting() -> None:
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3)),
        odp.DPHyPOSampler(trials=exactly(3), candidates=8),
    ):
        study = study_of(sampler)
        study.optimize(objective, n_trials=1)
        study.add_trial(create_trial(state=TrialState.WAITING, params={"x": 0.3}, distributions=X))
        with pytest.raises(PlanError, match="enqueued or copied"):
            study.optimize(objective)
        study.optimize(objective)
        assert refused(study, "not drawn|by hand|copied").trial_number == 1


def test_a_slot_record_copied_to_another_trial_of_the_study() -> None:
    study = finished_study()
    rewrite(study, 2, SLOT_KEY, study.trials[1].system_attrs[SLOT_KEY])
    assert refused(study, "belongs to another trial").trial_number == 2


def test_failed_trials_added_by_hand_to_stop_early() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.optimize(objective, n_trials=2)
    for _ in range(KNOWN_COUNT):
        study.add_trial(create_trial(state=TrialState.FAIL))
    assert refused(study, "added by hand").trial_number == 2


def test_a_sampler_that_is_replaced_for_a_moment() -> None:
    def cheats(trial: optuna.Trial) -> float:
        ours = trial.study.sampler
        trial.study.sampler = optuna.samplers.TPESampler()
        value = objective(trial)
        trial.study.sampler = ours
        return value

    assert refused(finished_study(function=cheats), "was not drawn").trial_number == 0


@pytest.mark.parametrize("replaced_from", ["x", "y"])
def test_a_replaced_sampler_that_happens_to_choose_the_same(replaced_from: str) -> None:
    """With two values to choose from, every second choice is the one ours would have made."""
    numbers = set()
    for sampler in (
        odp.RandTuneSampler(trials=exactly(12)),
        odp.DPHyPOSampler(trials=exactly(12), batch_size=12, candidates=8),
    ):

        def cheats(trial: optuna.Trial) -> float:
            ours = trial.study.sampler
            for name in ("x", "y"):
                if name == replaced_from:
                    trial.study.sampler = optuna.samplers.RandomSampler()
                trial.suggest_categorical(name, [0, 1])
            trial.study.sampler = ours
            return 0.5

        study = finished_study(sampler, cheats)
        numbers.add(refused(study, "was not drawn").trial_number)
    assert numbers == {0}


@pytest.mark.parametrize("value", [0, 1])
def test_few_values_chosen_by_a_sampler_that_stays_until_the_end(value: int) -> None:
    """Half of what it chooses is what ours would have drawn."""

    class Fixed(optuna.samplers.RandomSampler):
        def sample_independent(self, *arguments: object) -> int:
            return value

    for _ in range(8):
        sampler = odp.RandTuneSampler(trials=exactly(1))
        study = study_of(sampler)
        trial = study.ask()
        study.sampler = Fixed()
        trial.suggest_categorical("x", [0, 1])
        study.tell(trial, 0.5)
        study.sampler = sampler
        refused(study, "was not drawn")


def test_a_range_so_narrow_that_rounding_hides_who_drew() -> None:
    class Lowest(optuna.samplers.RandomSampler):
        def sample_independent(self, *arguments: object) -> float:
            return 1.0

    sampler = odp.RandTuneSampler(trials=exactly(1))
    study = study_of(sampler)
    trial = study.ask()
    study.sampler = Lowest()
    trial.suggest_float("x", 1.0, 1.0 + 1e-13)
    study.tell(trial, 0.5)
    study.sampler = sampler
    refused(study, "was not drawn")


def test_parameters_drawn_alone_that_were_changed_afterwards() -> None:
    """They have no record of their own; the slot's record tells what they must be."""
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3)),
        odp.RandTuneSampler(X, trials=exactly(3)),
    ):
        study = finished_study(sampler)
        assert not any(key.startswith(INDEPENDENT_KEY) for key in study.trials[1].system_attrs)
        assert DRAW_KEY not in study.trials[1].system_attrs
        data = dict(study.trials[1].system_attrs[SLOT_KEY])
        rewrite(study, 1, SLOT_KEY, {**data, "draws": "0" * 64})
        assert refused(study, "was not drawn").trial_number == 1


def test_a_trial_that_another_process_continues_keeps_its_draws() -> None:
    """The parameter a second process asks for is the one the first would have drawn."""
    for space in (None, X):
        study = study_of(odp.RandTuneSampler(space, trials=exactly(2)))
        trial = study.ask()
        other = optuna.load_study(
            study_name=study.study_name,
            storage=study._storage,
            sampler=odp.RandTuneSampler(space, trials=exactly(2)),
        )
        theirs = optuna.trial.Trial(other, trial._trial_id).suggest_float("x", -1.0, 1.0)
        assert trial.suggest_float("x", -1.0, 1.0) == theirs
        other.tell(trial, theirs)
        study.optimize(objective)
        assert odp.release(study, RUN, vouched="a test").params is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_are_tuples_are_those_of_search_space() -> None:
    """The plan is JSON, so its tuples are lists; a storage in memory keeps the tuples."""
    choices = ((1, 2), (3, 4))
    space = {"c": optuna.distributions.CategoricalDistribution(choices)}
    for sampler in (
        odp.RandTuneSampler(space, trials=exactly(3)),
        odp.DPHyPOSampler(space, trials=exactly(3), candidates=8),
    ):
        for kwargs in ({}, {"storage": "sqlite://"}):
            study = optuna.create_study(sampler=sampler, **kwargs)
            study.optimize(
                lambda trial: float(sum(trial.suggest_categorical("c", choices))),
                callbacks=[odp.PrivacyCallback(RUN)],
            )
            assert tuple(odp.release(study, vouched="a test").params["c"]) in choices


def test_a_trial_never_told_leaves_nothing_to_a_later_storage() -> None:
    """A storage may give an id away again: what stood under it is not this trial's."""
    mine = odp.RandTuneSampler(trials=exactly(1))
    abandoned = study_of(mine)
    abandoned.ask()
    frozen = abandoned.trials[0]
    left = mine.under_way.get(abandoned, frozen)
    assert left is not None

    study = study_of(odp.RandTuneSampler(trials=exactly(1)))
    begun = study.ask()
    mine.under_way.put(study, study.trials[0], left)
    study.sampler = mine
    continued = optuna.trial.Trial(study, begun._trial_id)
    study.tell(begun, continued.suggest_float("x", -1.0, 1.0))
    assert odp.release(study, RUN, vouched="a test").params is not None


def test_a_trial_made_anew_is_not_drawn_again() -> None:
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3)),
        odp.RandTuneSampler(X, trials=exactly(3)),
        odp.DPHyPOSampler(X, trials=exactly(3), candidates=8),
    ):
        study = study_of(sampler)
        trial = study.ask()
        copies = [optuna.trial.Trial(study, trial._trial_id) for _ in range(4)]
        draws = {
            sampler.sample_independent(study, c._cached_frozen_trial, "y", X["x"]) for c in copies
        }
        assert len(draws) == 1
        assert len({copy.suggest_float("x", -1.0, 1.0) for copy in copies}) == 1


def test_failed_runs_retried_for_free() -> None:
    """Optuna's retry callback enqueues a copy of the failed trial."""
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.optimize(objective, n_trials=2)
    failed = study.trials[0]
    study.add_trial(
        create_trial(
            state=TrialState.WAITING,
            system_attrs={"failed_trial": 0, "fixed_params": failed.params},
        )
    )
    refused(study, "enqueued")


def test_a_study_of_another_sampler() -> None:
    study = optuna.create_study()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    refused(study, "not made by a sampler of optuna-dp")


def test_a_slot_drawn_by_another_sampler() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.optimize(objective, n_trials=2)
    study.sampler = optuna.samplers.TPESampler()
    study.optimize(objective, n_trials=2)
    assert refused(study, "another sampler").trial_number == 2


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_wrapped_sampler_that_fixes_parameters() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    study.sampler = optuna.samplers.PartialFixedSampler({"x": 0.3}, study.sampler)
    study.optimize(objective)
    assert refused(study, "PartialFixedSampler").trial_number == 0


def test_an_objective_that_ends_a_run_by_a_rule_of_its_own_returns_nan() -> None:
    """As the refusal of its TrialPruned advises."""

    def gives_up(trial: optuna.Trial) -> float:
        value = objective(trial)
        trial.report(value, step=0)
        return float("nan") if trial.number == 1 else value

    study = finished_study(function=gives_up)
    assert study.trials[1].state == TrialState.FAIL
    assert odp.release(study, RUN, vouched="a test").params is not None
