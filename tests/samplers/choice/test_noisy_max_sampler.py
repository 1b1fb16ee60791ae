"""Candidates as trials and one private choice: what both samplers promise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from refusals import refuses
from samplers.choice.utility_support import (
    BOTH,
    GRID,
    MAKERS,
    SPACE,
    choice_trials,
    evaluated,
    mean_utility,
    run,
)

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
    UnfinishedStudyError,
)
from optuna_dp.releasing import make_release
from optuna_dp.samplers.choice.choice import Choice, make_choice, recorded_choices
from optuna_dp.study.entries import CHOICE, add_trial
from optuna_dp.study.trials import read_plan

# The candidates.


@BOTH
@pytest.mark.parametrize("n_jobs", [1, 4])
def test_every_point_of_the_grid_is_tested_once(make: Any, n_jobs: int) -> None:
    study = run(make(SPACE), n_jobs=n_jobs)
    assert [t.params["x"] for t in evaluated(study)] == pytest.approx(GRID)
    assert all(t.state == TrialState.COMPLETE for t in evaluated(study))
    assert odp.release(study).params == {"x": pytest.approx(0.4, abs=0.15)}


def test_a_grid_is_the_product_of_all_values() -> None:
    space = {
        "a": IntDistribution(1, 7, step=3),
        "b": CategoricalDistribution(["p", None, 2]),
        "c": FloatDistribution(0.5, 0.5),
    }

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_int("a", 1, 7, step=3)
        trial.suggest_categorical("b", ["p", None, 2])
        trial.suggest_float("c", 0.5, 0.5)
        return 0.5

    study = run(MAKERS["noisy_max"](space), objective)
    found = {(t.params["a"], t.params["b"], t.params["c"]) for t in evaluated(study)}
    assert found == {(a, b, 0.5) for a in (1, 4, 7) for b in ("p", None, 2)}


@pytest.mark.parametrize("space", [None, SPACE])
def test_a_list_of_candidates_is_tested_in_its_order(space: Any) -> None:
    points = [{"x": 0.9}, {"x": 0.1}, {"x": 0.4}]
    study = run(MAKERS["noisy_max"](space, candidates=points))
    assert [t.params for t in evaluated(study)] == points
    assert odp.release(study).params == {"x": 0.4}


def test_candidates_may_have_different_parameters() -> None:
    points = [{"kind": "a", "depth": 3}, {"kind": "b", "rate": 0.5}]

    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return trial.suggest_int("depth", 1, 10) / 10
        return trial.suggest_float("rate", 0, 1)

    study = run(MAKERS["noisy_max"](candidates=points), objective)
    assert [t.params for t in evaluated(study)] == points


@pytest.mark.parametrize("space", [None, {"x": FloatDistribution(0, 1)}])
def test_a_number_of_candidates_is_drawn_from_the_space(space: Any) -> None:
    sampler = MAKERS["noisy_max"](space, candidates=70)
    study = run(sampler, lambda trial: trial.suggest_float("x", 0, 1))
    drawn = [t.params["x"] for t in evaluated(study)]
    assert len(set(drawn)) == 70
    assert min(drawn) < 0.3 < 0.7 < max(drawn)  # All on one side: 3e-11.


def test_a_candidate_that_does_not_fit_the_objective_says_so() -> None:
    with refuses("candidates[0]"):
        run(MAKERS["noisy_max"](candidates=[{"y": 1.0}]))
    with refuses("candidates[0]['x']"):
        run(MAKERS["noisy_max"](candidates=[{"x": 3.0}]))


# The choice.


@BOTH
def test_the_study_stops_after_the_choice_and_a_second_release_is_the_same(make: Any) -> None:
    study = run(make(SPACE))
    assert len(choice_trials(study)) == 1
    assert len(study.trials) == len(GRID) + 2
    first = odp.release(study)
    study.optimize(mean_utility)  # Adds nothing that counts.
    assert odp.release(study) == first
    assert len(choice_trials(study)) == 1
    assert len(evaluated(study)) == len(GRID)


@BOTH
def test_release_makes_the_choice_if_no_worker_has(make: Any) -> None:
    study = run(make(SPACE), n_trials=len(GRID))
    assert len(study.trials) == len(GRID)
    # As a curator would, in another process: the sampler is not there.
    study.sampler = optuna.samplers.TPESampler()
    first = odp.release(study)
    assert len(choice_trials(study)) == 1
    assert odp.release(study) == first


def test_the_choice_is_random() -> None:
    """Two candidates that are as good: 40 choices of the same one have probability 2e-12."""
    points = [{"x": 0.3}, {"x": 0.5}]
    seen = Counter()
    for _ in range(40):
        study = run(MAKERS["noisy_max"](candidates=points, n_partitions=30, resolve=1.0))
        seen[odp.release(study).params["x"]] += 1
    assert set(seen) == {0.3, 0.5}


def test_of_two_choices_made_at_once_everybody_takes_the_same() -> None:
    """A worker that read the storage before the other wrote makes a choice that nobody takes."""
    study = run(MAKERS["propose_test"](SPACE), n_trials=len(GRID))
    plan = read_plan(study)
    assert plan is not None
    first = make_choice(study, plan)
    template = optuna.trial.create_trial(
        state=TrialState.FAIL,
        system_attrs={CHOICE.key: {**first.to_json(), "answers": [], "chosen": 0}},
    )
    study.add_trial(template)
    assert make_choice(study, plan) == first
    assert recorded_choices(study.trials, plan)[0] == first
    assert odp.release(study).params == study.trials[first.chosen or 0].params


@pytest.mark.parametrize("name", MAKERS)
def test_a_release_takes_the_choice_that_another_worker_recorded_meanwhile(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = run(MAKERS[name](SPACE), n_trials=len(GRID))
    first: list[Choice] = []

    def add_second(study: optuna.Study, choice: optuna.trial.FrozenTrial) -> None:
        plan = read_plan(study)
        assert plan is not None
        first.append(make_choice(study, plan))
        # Another answer than the one that was recorded first.
        other = {**choice.system_attrs[CHOICE.key], "chosen": (first[0].chosen or 0) + 1}
        choice.system_attrs[CHOICE.key] = other
        add_trial(study, choice)

    monkeypatch.setattr(make_release, "add_trial", add_second)
    released = odp.release(study)
    assert len(choice_trials(study)) == 2
    chosen = first[0].chosen
    assert released.params == (None if chosen is None else study.trials[chosen].params)


@pytest.mark.parametrize("name", MAKERS)
def test_a_release_that_dies_once_its_choice_is_recorded_is_made_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = run(MAKERS[name](SPACE), n_trials=len(GRID))

    def add_and_die(study: optuna.Study, choice: optuna.trial.FrozenTrial) -> None:
        add_trial(study, choice)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(make_release, "add_trial", add_and_die)
        with pytest.raises(KeyboardInterrupt):
            odp.release(study)
    (recorded,) = choice_trials(study)
    chosen = Choice.from_json(recorded.system_attrs[CHOICE.key]).chosen
    released = odp.release(study)
    assert len(choice_trials(study)) == 1
    assert released.params == (None if chosen is None else study.trials[chosen].params)


def test_a_worker_that_dies_before_it_has_recorded_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from optuna_dp.mechanisms import doubling

    study = run(MAKERS["propose_test"](SPACE), n_trials=len(GRID))
    real, calls = doubling.above_threshold, []

    def dies(*arguments: Any) -> int | None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(doubling, "above_threshold", dies)
    with pytest.raises(KeyboardInterrupt):
        odp.release(study)
    assert choice_trials(study) == []  # Nothing was seen, so nothing was spent.
    assert odp.release(study).params is not None


def test_a_trial_that_is_asked_for_too_early_does_not_wait_for_its_own_thread() -> None:
    study = optuna.create_study(direction="maximize", sampler=MAKERS["noisy_max"](SPACE))
    asked = [study.ask() for _ in range(len(GRID) + 1)]
    with pytest.raises(optuna.TrialPruned):
        asked[-1].suggest_float("x", 0, 1, step=0.1)
    study.tell(asked[-1], state=TrialState.PRUNED)
    for trial in asked[:-1]:
        study.tell(trial, mean_utility(trial))
    assert odp.release(study).params is not None


@BOTH
def test_resuming_tests_the_candidates_that_remain(make: Any) -> None:
    study = run(make(SPACE), n_trials=4)
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)
    assert choice_trials(study) == []
    study.sampler = make(SPACE)
    study.optimize(mean_utility, n_jobs=2)
    assert [t.params["x"] for t in evaluated(study)] == pytest.approx(GRID)
    odp.release(study)


def test_a_candidate_whose_worker_died_before_the_objective_is_left_out() -> None:
    study = optuna.create_study(direction="maximize", sampler=MAKERS["noisy_max"](SPACE))
    study.optimize(mean_utility, n_trials=2)
    study._storage.create_new_trial(study._study_id)  # Killed in before_trial.
    odp.recover(study, fail=[2])
    study.optimize(mean_utility)
    assert len(evaluated(study)) == len(GRID) - 1
    assert odp.release(study).params == {"x": pytest.approx(0.4, abs=0.15)}


def test_a_candidate_whose_worker_died_can_be_evaluated_again() -> None:
    def objective(trial: optuna.Trial) -> float:
        return odp.report_utilities(trial, [mean_utility(trial)] * 10)

    sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.ask().suggest_float("x", 0, 1, step=0.1)  # Its worker is killed.
    study.optimize(objective, n_trials=len(GRID) - 1)
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)
    dead = study.trials[0]
    scores = [1.0 - abs(dead.params["x"] - 0.4)] * 10
    with refuses("study"):
        odp.report_utilities(dead, scores)
    study.tell(0, odp.report_utilities(dead, scores, study=study))
    assert [t.params["x"] for t in evaluated(study)] == pytest.approx(GRID)
    odp.release(study)


@BOTH
def test_a_cost_is_minimised(make: Any) -> None:
    study = run(make(SPACE), lambda trial: 1.0 - mean_utility(trial), direction="minimize")
    assert odp.release(study).params == {"x": pytest.approx(0.4, abs=0.15)}


# Utilities.


def test_utilities_are_reported_by_partition() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1, step=0.1)
        return odp.report_utilities(trial, [1.0 - abs(x - 0.4)] * 9 + [None])

    study = run(MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0), objective)
    assert study.best_value == pytest.approx(0.9)  # The failed partition counts as 0.
    assert odp.release(study).params == {"x": pytest.approx(0.4)}


def test_a_failed_partition_of_a_cost_is_the_highest_cost() -> None:
    def objective(trial: optuna.Trial) -> float:
        failed = trial.suggest_categorical("failed", [True, False])
        return odp.report_utilities(trial, [float("nan") if failed else 0.5] * 10)

    space = {"failed": CategoricalDistribution([True, False])}
    sampler = MAKERS["noisy_max"](space, n_partitions=10, epsilon=2000.0)
    assert odp.release(run(sampler, objective, direction="minimize")).params == {"failed": False}


def test_the_choice_uses_the_reported_utilities_and_not_their_rounded_mean() -> None:
    study = run(
        MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0),
        lambda trial: (
            odp.report_utilities(trial, [trial.suggest_float("x", 0, 1, step=0.1)] * 10) * 0.0
        ),
    )
    assert odp.release(study).params == {"x": 1.0}


@pytest.mark.parametrize(
    ("utilities", "argument"),
    [
        ([0.5] * 9, "utilities"),
        ([0.5] * 9 + [1.01], "utilities[9] of trial 0"),
        ([-0.1] * 10, "utilities[0] of trial 0"),
        (["a"] * 10, "utilities[0]"),
        ([float("inf")] * 10, "utilities[0] of trial 0"),
    ],
)
def test_bad_utilities_are_refused_when_they_are_reported(utilities: Any, argument: str) -> None:
    sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
    with refuses(argument):
        run(sampler, lambda trial: odp.report_utilities(trial, utilities))


def test_report_utilities_is_for_these_studies_only() -> None:
    study = optuna.create_study(sampler=odp.RandTuneSampler(run=odp.gaussian(4.0)))
    with pytest.raises(PlanError):
        study.optimize(lambda trial: odp.report_utilities(trial, [0.5]))


@BOTH
@pytest.mark.parametrize("value", [1.5, -0.1])
def test_a_mean_outside_the_unit_interval_names_the_trial(make: Any, value: float) -> None:
    with refuses("objective value of trial 2"):
        run(make(SPACE), lambda trial: value if trial.number == 2 else mean_utility(trial))


def test_a_mean_outside_the_unit_interval_is_refused_at_release_too() -> None:
    study = run(MAKERS["noisy_max"](SPACE), n_trials=len(GRID))
    study._storage._get_trial(study.trials[3]._trial_id).values = [1.5]  # type: ignore[attr-defined]
    with pytest.raises(ReleaseRefusedError) as refused:
        odp.release(study)
    assert refused.value.trial_number == 3
    assert "1.5" not in str(refused.value), "made of data without noise"
    assert choice_trials(study) == []


def test_means_of_too_many_partitions_are_refused_after_the_first() -> None:
    with refuses("n_partitions"):
        run(MAKERS["noisy_max"](SPACE, n_partitions=1 << 16))


def test_means_and_reported_utilities_do_not_mix() -> None:
    def objective(trial: optuna.Trial) -> float:
        value = mean_utility(trial)
        return value if trial.number == 5 else odp.report_utilities(trial, [value] * 10)

    sampler = MAKERS["noisy_max"](SPACE, n_partitions=10, epsilon=2000.0)
    with pytest.raises(ReleaseRefusedError) as caught:
        run(sampler, objective)
    assert caught.value.trial_number == 5


def test_nothing_is_pruned() -> None:
    def objective(trial: optuna.Trial) -> float:
        trial.report(0.0, step=0)
        assert not trial.should_prune()
        return mean_utility(trial)

    study = optuna.create_study(
        direction="maximize",
        sampler=MAKERS["noisy_max"](SPACE),
        pruner=odp.WithinTrialPruner(optuna.pruners.ThresholdPruner(lower=0.5)),
    )
    study.optimize(objective)
    odp.release(study)


# The release.


def test_nothing_of_a_candidate_but_its_hyperparameters_is_released() -> None:
    release = odp.release(run(MAKERS["noisy_max"](SPACE)))
    assert release.value is None
    data = release.to_json()
    assert data["value"] is None
    assert data["statement"]["released"] == ["the hyperparameters"]
    with refuses("artifact_store"):
        odp.release(run(MAKERS["noisy_max"](SPACE)), artifact_store=object())


def test_the_published_study_shows_the_hyperparameters_alone() -> None:
    release = odp.release(run(MAKERS["noisy_max"](SPACE)))
    public = odp.publish(release, optuna.storages.InMemoryStorage(), "choice")
    assert [t.params for t in public.trials] == [release.params]
    assert [t.values for t in public.trials] == [None]


def test_one_epsilon_without_delta() -> None:
    guarantee = odp.release(run(MAKERS["noisy_max"](SPACE, epsilon=0.7))).guarantee
    assert guarantee.event == odp.pure_dp(0.7)
    assert guarantee.epsilon(1e-9) <= 0.7 + 1e-9


@pytest.mark.slow
def test_the_final_training_is_composed_and_stated() -> None:
    training = odp.gaussian(4.0)
    release = odp.release(run(MAKERS["noisy_max"](SPACE)))
    whole = release.with_training(training, value=0.9, artifact=b"model")
    assert whole.guarantee == odp.Guarantee(odp.compose(odp.pure_dp(1.0), training))
    assert whole.params == release.params
    assert whole.to_json()["value"] == 0.9
    text = whole.statement()
    for words in ("Final training", "report-noisy-max, once: 1-DP", "the model artifact"):
        assert words in text
    again = whole.with_training(training)
    assert again.guarantee.epsilon(1e-5) > whole.guarantee.epsilon(1e-5)
    assert "report-noisy-max, once: 1-DP" in again.statement()


@BOTH
def test_the_relation_is_the_samplers_and_that_of_a_final_training(make: Any) -> None:
    usual = odp.release(run(make(SPACE)))
    assert usual.guarantee.neighboring_relation == "add_or_remove_one"
    release = odp.release(run(make(SPACE, neighboring_relation="replace_one")))
    assert release.guarantee.neighboring_relation == "replace_one"
    assert release.guarantee.epsilon(1e-5) == usual.guarantee.epsilon(1e-5)
    whole = release.with_training(odp.gaussian(8.0))
    assert whole.guarantee.neighboring_relation == "replace_one"
    assert odp.verify(whole.to_json()).ok
    with refuses("neighboring_relation"):
        make(SPACE, neighboring_relation="friends")


@pytest.mark.slow
def test_a_final_training_after_another_procedure() -> None:
    study = optuna.create_study(
        sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=odp.gaussian(4.0))
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    release = odp.release(study, vouched="a test").with_training(odp.gaussian(8.0))
    assert "One run" in release.statement()
