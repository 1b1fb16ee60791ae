"""What a release refuses: studies that were not run as planned, and records that disagree."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from dp_accounting import dp_event
from optuna.trial import TrialState, create_trial
from refusals import refuses
from support import (
    KNOWN_COUNT,
    RUN,
    add_behind,
    exactly,
    finished_study,
    objective,
    refused,
    rewrite,
    study_of,
)

import optuna_dp as odp
from optuna_dp.errors import (
    OptunaDPError,
    PlanError,
    ReleaseRefusedError,
    UnfinishedStudyError,
    UnsupportedEventError,
)
from optuna_dp.study.entries import DRAW, PLAN, SINGLE_DRAWS, SLOT

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
Make = Callable[[], optuna.Study]

# -- the table: a study, a word of its refusal, the trial that it names, and its type ------------

REFUSALS: dict[str, tuple[Make, str, int | None, type[ReleaseRefusedError]]] = {}


def is_refused(
    word: str, trial: int | None = None, error: type[ReleaseRefusedError] = ReleaseRefusedError
) -> Callable[[Make], Make]:
    """Enters a study into the table, under the name of the function that makes it."""

    def enter(make: Make) -> Make:
        REFUSALS[make.__name__] = (make, word, trial, error)
        return make

    return enter


def begun(runs: int, count: int = KNOWN_COUNT) -> optuna.Study:
    """A study of ``count`` runs, of which the first ``runs`` have ended."""
    study = study_of(odp.RandTuneSampler(trials=exactly(count), run=RUN))
    study.optimize(objective, n_trials=runs)
    return study


@is_refused("no plan")
def of_another_sampler() -> optuna.Study:
    study = optuna.create_study()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    return study


@is_refused("objectives")
def with_several_objectives() -> optuna.Study:
    return optuna.create_study(directions=["minimize", "minimize"])


@is_refused("no runs", error=UnfinishedStudyError)
def without_runs() -> optuna.Study:
    return optuna.create_study()


@is_refused("seed")
def with_a_seed() -> optuna.Study:
    return finished_study(odp.RandTuneSampler(trials=exactly(3), seed=1, run=RUN))


@is_refused("recover", error=UnfinishedStudyError)
def stopped_by_a_timeout() -> optuna.Study:
    study = begun(3, 10)
    study.optimize(objective, timeout=0.0)
    return study


@is_refused("load_study", 1)
def with_a_run_added_by_hand() -> optuna.Study:
    study = begun(1)
    study.add_trial(create_trial(params={"x": 0.3}, distributions=X, value=9.0))
    study.optimize(objective)
    return study


@is_refused("--fail 2", 2)
def ended_early_by_failed_trials_added_by_hand() -> optuna.Study:
    study = begun(2)
    for _ in range(KNOWN_COUNT):
        study.add_trial(create_trial(state=TrialState.FAIL))
    return study


@is_refused("enqueued", 2)
def with_an_enqueued_trial() -> optuna.Study:
    study = begun(2)
    study.enqueue_trial({"x": 0.3})
    return study


@is_refused("enqueued", 2)
def with_a_failed_run_that_optunas_callback_retries() -> optuna.Study:
    study = begun(2)
    failed = {"failed_trial": 0, "fixed_params": study.trials[0].params}
    study.add_trial(create_trial(state=TrialState.WAITING, system_attrs=failed))
    return study


@is_refused("load_study", 2)
def continued_with_another_sampler() -> optuna.Study:
    study = begun(2)
    study.sampler = optuna.samplers.TPESampler()
    study.optimize(objective, n_trials=2)
    return study


@is_refused("PartialFixedSampler", 0)
def with_a_sampler_that_is_wrapped() -> optuna.Study:
    study = begun(0)
    study.sampler = optuna.samplers.PartialFixedSampler({"x": 0.3}, study.sampler)
    study.optimize(objective)
    return study


def with_another_sampler_from(name: str, sampler: Any) -> optuna.Study:
    """Of two values each, every second choice is the one that ours would have made."""

    def exchanges(trial: optuna.Trial) -> float:
        ours = trial.study.sampler
        for parameter in ("x", "y"):
            if parameter == name:
                trial.study.sampler = optuna.samplers.RandomSampler()
            trial.suggest_categorical(parameter, [0, 1])
        trial.study.sampler = ours
        return 0.5

    return finished_study(sampler, exchanges)


@is_refused("'x'", 0)
def with_another_sampler_for_a_moment() -> optuna.Study:
    return with_another_sampler_from("x", odp.RandTuneSampler(trials=exactly(12), run=RUN))


@is_refused("'y'", 0)
def with_another_sampler_for_the_last_parameter() -> optuna.Study:
    sampler = odp.DPHyPOSampler(trials=exactly(12), batch_size=12, candidates=8, run=RUN)
    return with_another_sampler_from("y", sampler)


@is_refused("'x'", 0)
def with_a_range_so_narrow_that_rounding_hides_who_drew() -> optuna.Study:
    class Lowest(optuna.samplers.RandomSampler):
        def sample_independent(self, *arguments: object) -> float:
            return 1.0

    study = begun(0, 1)
    sampler, trial = study.sampler, study.ask()
    study.sampler = Lowest()
    trial.suggest_float("x", 1.0, 1.0 + 1e-13)
    study.tell(trial, 0.5)
    study.sampler = sampler
    return study


@is_refused("high=2.0", 0)
def with_other_ranges_than_the_search_space() -> optuna.Study:
    sampler = odp.DPHyPOSampler(X, trials=exactly(4), candidates=8, run=RUN)
    return finished_study(sampler, lambda trial: trial.suggest_float("x", -1.0, 2.0))


@is_refused("high=2.0", 1)
def with_ranges_that_change_between_runs() -> optuna.Study:
    return finished_study(function=lambda trial: trial.suggest_float("x", 0.0, 1.0 + trial.number))


def compared_by_a_pruner(*, prunes: bool) -> optuna.Study:
    def reports(trial: optuna.Trial) -> float:
        value = objective(trial)
        trial.report(value, step=0)
        trial.study.pruner = optuna.pruners.MedianPruner(n_startup_trials=0)
        if trial.number == 2 and prunes:
            raise optuna.TrialPruned
        return value

    return finished_study(function=reports)


@is_refused("WithinTrialPruner", 2)
def pruned_in_view_of_other_runs() -> optuna.Study:
    return compared_by_a_pruner(prunes=True)


@is_refused("belongs", 2)
def with_a_run_of_another_study() -> optuna.Study:
    study, other = finished_study(), finished_study()
    rewrite(study, 2, SLOT.key, other.trials[2].system_attrs[SLOT.key])
    return study


@is_refused("belongs", 2)
def with_a_slot_record_of_another_trial() -> optuna.Study:
    study = finished_study()
    rewrite(study, 2, SLOT.key, study.trials[1].system_attrs[SLOT.key])
    return study


@is_refused("'x'", 1)
def with_parameters_that_are_not_those_of_the_slot() -> optuna.Study:
    """Parameters that are drawn alone have no record: the slot's tells what they must be."""
    study = finished_study(odp.RandTuneSampler(X, trials=exactly(3), run=RUN))
    attributes = study.trials[1].system_attrs
    assert DRAW.key not in attributes
    assert not any(key.startswith(SINGLE_DRAWS.prefix) for key in attributes)
    rewrite(study, 1, SLOT.key, {**attributes[SLOT.key], "draws": "0" * 64})
    return study


@is_refused("direction")
def with_a_direction_that_was_turned_round() -> optuna.Study:
    study = finished_study()
    data = json.loads(json.dumps(study.trials[0].system_attrs[PLAN.key]))
    data["design"]["direction"] = "minimize"
    rewrite(study, 0, PLAN.key, data)
    return study


@is_refused("compose")
def that_was_released_with_another_result() -> optuna.Study:
    study = finished_study()
    odp.release(study, vouched="a test")
    winner = max(study.trials, key=lambda trial: trial.value or -9.0)
    study._storage._get_trial(winner._trial_id).values = [-5.0]  # type: ignore[attr-defined]
    return study


@pytest.mark.promise("a pruner that compares trials")
@pytest.mark.promise("a seed for the draws or for T")
@pytest.mark.promise("a trial was enqueued in a private selection")
@pytest.mark.promise("fixed-beforehand")
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("name", REFUSALS)
def test_a_study_is_refused(name: str) -> None:
    make, word, trial, kind = REFUSALS[name]
    error = refused(make(), word)
    assert type(error) is kind
    assert error.trial_number == trial


def test_a_study_with_a_pruner_that_pruned_nothing_is_released() -> None:
    study = compared_by_a_pruner(prunes=False)
    assert odp.release(study, vouched="a test").params is not None


# -- sound studies, and refusals with more to say ----------------------------------------------


def test_a_sound_study_is_released() -> None:
    assert odp.release(finished_study(), vouched="a test").params is not None


@pytest.mark.promise("a study is resumed")
@pytest.mark.promise("a worker is killed")
def test_a_study_with_open_runs_is_refused_without_saying_how_many() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(9), run=RUN))
    study.optimize(objective, n_trials=3)
    study.ask()
    error = refused(study, "recover")
    assert isinstance(error, UnfinishedStudyError)
    assert "9" not in str(error)


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
    study.optimize(objective, n_trials=2, callbacks=[odp.PrivacyCallback()])
    failed = {"failed_trial": 0, "fixed_params": study.trials[0].params}
    study.add_trial(create_trial(state=TrialState.WAITING, system_attrs=failed))
    assert odp.release(study, vouched="a test").value == best


def test_a_copy_of_a_failed_run_with_all_that_it_holds_is_refused() -> None:
    """As Optuna's own callback does elsewhere: parameters, slot entry and draw of the run."""
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3), run=RUN),
        odp.RandTuneSampler(X, trials=exactly(3), run=RUN),
        odp.DPHyPOSampler(X, trials=exactly(3), candidates=8, run=RUN),
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
        add_behind(study, copy)
        with pytest.raises(PlanError, match="enqueued"):
            study.optimize(objective)
        assert refused(study, "enqueued").trial_number == 1


def test_a_point_that_was_chosen_by_hand_and_left_waiting_is_refused() -> None:
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3), run=RUN),
        odp.DPHyPOSampler(trials=exactly(3), candidates=8, run=RUN),
    ):
        study = study_of(sampler)
        study.optimize(objective, n_trials=1)
        study.add_trial(create_trial(state=TrialState.WAITING, params={"x": 0.3}, distributions=X))
        with pytest.raises(PlanError, match="enqueued"):
            study.optimize(objective)
        study.optimize(objective)
        assert refused(study, "load_study").trial_number == 1


@pytest.mark.promise("another sampler for part of a study")
@pytest.mark.parametrize("value", [0, 1])
def test_few_values_that_another_sampler_chose_until_the_end_are_refused(value: int) -> None:
    """Half of what it chooses is what ours would have drawn."""

    class Fixed(optuna.samplers.RandomSampler):
        def sample_independent(self, *arguments: object) -> int:
            return value

    for _ in range(8):
        sampler = odp.RandTuneSampler(trials=exactly(1), run=RUN)
        study = study_of(sampler)
        trial = study.ask()
        study.sampler = Fixed()
        trial.suggest_categorical("x", [0, 1])
        study.tell(trial, 0.5)
        study.sampler = sampler
        assert refused(study, "'x'").trial_number == 0


def test_a_trial_that_another_process_continues_keeps_its_draws() -> None:
    """The parameter a second process asks for is the one the first would have drawn."""
    for space in (None, X):
        study = study_of(odp.RandTuneSampler(space, trials=exactly(2), run=RUN))
        trial = study.ask()
        other = optuna.load_study(
            study_name=study.study_name,
            storage=study._storage,
            sampler=odp.RandTuneSampler(space, trials=exactly(2), run=RUN),
        )
        theirs = optuna.trial.Trial(other, trial._trial_id).suggest_float("x", -1.0, 1.0)
        assert trial.suggest_float("x", -1.0, 1.0) == theirs
        other.tell(trial, theirs)
        study.optimize(objective)
        assert odp.release(study, vouched="a test").params is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_are_tuples_are_those_of_search_space() -> None:
    """The plan is JSON, so its tuples are lists; a storage in memory keeps the tuples."""
    choices = ((1, 2), (3, 4))
    space = {"c": optuna.distributions.CategoricalDistribution(choices)}
    for sampler in (
        odp.RandTuneSampler(space, trials=exactly(3), run=RUN),
        odp.DPHyPOSampler(space, trials=exactly(3), candidates=8, run=RUN),
    ):
        for kwargs in ({}, {"storage": "sqlite://"}):
            study = optuna.create_study(sampler=sampler, **kwargs)
            study.optimize(
                lambda trial: float(sum(trial.suggest_categorical("c", choices))),
                callbacks=[odp.PrivacyCallback()],
            )
            assert tuple(odp.release(study, vouched="a test").params["c"]) in choices


def test_a_trial_never_told_leaves_nothing_to_a_later_storage() -> None:
    """A storage may give an id away again: what stood under it is not this trial's."""
    mine = odp.RandTuneSampler(trials=exactly(1), run=RUN)
    abandoned = study_of(mine)
    abandoned.ask()
    frozen = abandoned.trials[0]
    left = mine.under_way.get(abandoned, frozen)
    assert left is not None

    study = study_of(odp.RandTuneSampler(trials=exactly(1), run=RUN))
    begun = study.ask()
    mine.under_way.put(study, study.trials[0], left)
    study.sampler = mine
    continued = optuna.trial.Trial(study, begun._trial_id)
    study.tell(begun, continued.suggest_float("x", -1.0, 1.0))
    assert odp.release(study, vouched="a test").params is not None


def test_a_trial_made_anew_is_not_drawn_again() -> None:
    for sampler in (
        odp.RandTuneSampler(trials=exactly(3), run=RUN),
        odp.RandTuneSampler(X, trials=exactly(3), run=RUN),
        odp.DPHyPOSampler(X, trials=exactly(3), candidates=8, run=RUN),
    ):
        study = study_of(sampler)
        trial = study.ask()
        copies = [optuna.trial.Trial(study, trial._trial_id) for _ in range(4)]
        draws = {
            sampler.sample_independent(study, c._cached_frozen_trial, "y", X["x"]) for c in copies
        }
        assert len(draws) == 1
        assert len({copy.suggest_float("x", -1.0, 1.0) for copy in copies}) == 1


def test_an_objective_that_ends_a_run_by_a_rule_of_its_own_returns_nan() -> None:
    """As the refusal of its TrialPruned advises."""

    def gives_up(trial: optuna.Trial) -> float:
        value = objective(trial)
        trial.report(value, step=0)
        return float("nan") if trial.number == 1 else value

    study = finished_study(function=gives_up)
    assert study.trials[1].state == TrialState.FAIL
    assert odp.release(study, vouched="a test").params is not None


# -- records and costs ----------------------------------------------------------------------


@pytest.mark.promise("a worker has another plan")
def test_workers_with_different_plans_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT), run=RUN))
    study.optimize(objective, n_trials=2)
    study.sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=50), run=RUN)
    with monkeypatch.context() as early:
        # As where the worker began before the first one had written the plan.
        early.setattr(odp.RandTuneSampler, "check_before_asking", lambda *_: None)
        with pytest.raises(PlanError, match=r"trials\.mean"):
            study.optimize(objective, n_trials=1, catch=(OptunaDPError,))
    study.sampler = odp.RandTuneSampler(trials=exactly(KNOWN_COUNT), run=RUN)
    study.optimize(objective)
    assert refused(study, "arguments").trial_number == 2


@pytest.mark.parametrize(
    "damage",
    [
        None,
        {},
        "text",
        {"slots": -1},
        {"slots": "4"},
        {"slots": True},
        {"nonce": 3},
        {"version": 99},
        {"design": {}},
        {"design": None},
    ],
)
def test_a_corrupted_plan_record_is_refused(damage: Any) -> None:
    study = finished_study()
    data = dict(study.trials[0].system_attrs[PLAN.key])
    rewrite(
        study, 0, PLAN.key, {**data, **damage} if isinstance(damage, dict) and damage else damage
    )
    refused(study, "no plan" if damage is None else "corrupted")


@pytest.mark.parametrize("damage", [{}, "text", {"tie_break": "zz"}, {"nonce": 1}])
def test_a_corrupted_slot_record_is_refused(damage: Any) -> None:
    study = finished_study()
    data = dict(study.trials[1].system_attrs[SLOT.key])
    rewrite(
        study, 1, SLOT.key, {**data, **damage} if isinstance(damage, dict) and damage else damage
    )
    assert refused(study, "corrupted").trial_number == 1


@pytest.mark.parametrize("damage", [{}, {"space": {"x": "?"}, "internal": {}}, {"space": 3}, 7])
def test_a_corrupted_draw_record_is_refused(damage: Any) -> None:
    study = finished_study(odp.DPHyPOSampler(X, trials=exactly(3), candidates=8, run=RUN))
    rewrite(study, 1, DRAW.key, damage)
    assert refused(study, "corrupted").trial_number == 1


def test_a_release_without_the_cost_of_a_run_is_refused() -> None:
    study = finished_study(odp.RandTuneSampler(trials=exactly(KNOWN_COUNT)))
    refused(study, "run=")


@pytest.mark.slow
def test_another_delta_is_for_display_only() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3), run=RUN))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback()])
    study.optimize(objective, callbacks=[odp.PrivacyCallback(delta=1e-7)])
    for delta in (1e-6, 1e-5, 1e-6):
        found = odp.release(study, delta=delta, vouched="a test")
        assert found.delta == delta
        assert f"delta = {delta:g}" in found.statement()
    with refuses("delta"):
        odp.release(study, delta=1.5, vouched="a test")


@pytest.mark.promise("cost-of-a-run")
@pytest.mark.slow
def test_workers_that_recorded_different_costs_are_refused() -> None:
    study = study_of(odp.RandTuneSampler(trials=exactly(3)))
    study.optimize(objective, n_trials=1, callbacks=[odp.PrivacyCallback(odp.gaussian(5.0))])
    with pytest.raises(PlanError, match="noise of 9"):
        study.optimize(objective, callbacks=[odp.PrivacyCallback(odp.gaussian(9.0))])
    study.optimize(objective)
    error = refused(study, "worst_case")
    assert "noise of 5" in str(error)
    assert "noise of 9" in str(error)


@pytest.mark.parametrize("sampler", [odp.RandTuneSampler, odp.DPHyPOSampler])
def test_what_a_sampler_cannot_be_told_is_refused(sampler: Any) -> None:
    plan = odp.RunPlan(records=9, batch_size=3, steps=2, noise_multiplier=1.0, score=None)
    for arguments, argument in (
        ({"run": 1.0}, "run"),
        ({"run": RUN, "neighboring_relation": "friends"}, "neighboring_relation"),
        ({"run": RUN, "output_attributes": "threshold"}, "output_attributes"),
        ({"run": plan, "neighboring_relation": "replace_one"}, "neighboring_relation"),
        ({"neighboring_relation": "replace_one"}, "neighboring_relation"),
        ({"output_attributes": ["threshold"]}, "output_attributes"),
    ):
        with refuses(argument):
            sampler(**arguments)
    with pytest.raises(UnsupportedEventError) as caught:
        sampler(run=dp_event.UnsupportedDpEvent())
    assert caught.value.event == dp_event.UnsupportedDpEvent()


@pytest.mark.promise("the study goes on after the release")
def test_a_study_that_goes_on_after_its_release_gives_the_same_release() -> None:
    study = finished_study()
    first = odp.release(study, vouched="a test")
    study.optimize(objective)  # Adds a trial that ends before it has parameters.
    assert odp.release(study, vouched="a test") == first
    trial = study.ask()
    study.tell(trial, 1e9)
    assert odp.release(study, vouched="a test").value == first.value
    study.add_trial(create_trial(params={"x": 0.3}, distributions=X, value=9.0))
    assert odp.release(study, vouched="a test").value == first.value


def test_a_cost_about_records_is_no_cost_about_clients() -> None:
    """ "null_client" is for events that protect a client with all its records."""
    with refuses("neighboring_relation"):
        odp.RandTuneSampler(run=RUN, neighboring_relation="null_client")
    with refuses("neighboring_relation"):
        odp.PrivacyCallback(RUN, neighboring_relation="null_client")
    with refuses("neighboring_relation"):
        study_of(
            odp.NoisyMaxSampler(
                candidates=2, n_partitions=900, epsilon=1.0, neighboring_relation="null_client"
            )
        ).ask()
    with refuses("neighboring_relation"):
        odp.plan_budget(
            epsilon=3.0,
            run=lambda noise, steps: odp.gaussian(noise),
            steps=1,
            pilots=2,
            neighboring_relation="null_client",
        )
    study = finished_study(
        odp.RandTuneSampler(
            trials=exactly(3), run=odp.per_client(RUN), neighboring_relation="null_client"
        )
    )
    assert odp.release(study, vouched="a test").guarantee.unit == "client"
