"""Pilot runs rung by rung, then the last run: docs/explanation/budget.md as software."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from refusals import refuses
from samplers.budget.budget_support import X, budget, finished, rungs_of, sampler
from support import asking, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    UnfinishedStudyError,
    WaitError,
)

# Exactly the planned runs.


@pytest.mark.parametrize("space", [X, None])
@pytest.mark.parametrize("n_jobs", [1, 4])
@pytest.mark.parametrize("sizes", [(1,), (5,), (4, 2), (4, 2, 1)])
def test_exactly_the_planned_runs_take_place(space: Any, n_jobs: int, sizes: Any) -> None:
    seen = []

    def spends(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        seen.append((trial.number, run.rung, run.is_pilot, run.noise_multiplier))
        return objective(trial)

    plan = budget(*sizes)
    study = study_of(odp.BudgetSampler(plan, search_space=space))
    study.optimize(spends, n_jobs=n_jobs)
    expected = [(plan.rungs[i], i) for i, n in enumerate(sizes) for _ in range(n)]
    assert sorted(seen) == [
        *[(k, i, True, rung.noise_multiplier) for k, (rung, i) in enumerate(expected)],
        (plan.pilots, len(sizes), False, plan.final.noise_multiplier),
    ]
    assert rungs_of(study)[: plan.runs] == ["pilot"] * plan.pilots + ["last"]
    assert not any(rungs_of(study)[plan.runs :])
    release = odp.release(study)
    assert release.params == study.trials[plan.pilots].params
    assert release.guarantee == plan.guarantee


def test_the_release_holds_the_pilots_and_the_last_run() -> None:
    study = finished()
    release = odp.release(study)
    last = study.trials[6]
    assert (release.params, release.value) == (last.params, last.value)
    assert release.pilots == [
        {
            "rung": 0 if t.number < 4 else 1,
            "params": t.params,
            "value": t.value,
            "values": t.values,
            "state": "COMPLETE",
        }
        for t in study.trials[:6]
    ]
    assert odp.release(study).to_json() == release.to_json()


def test_the_best_climb_and_the_best_of_the_last_rung_is_run() -> None:
    study = finished()
    x = [t.params["x"] for t in study.trials]
    best = sorted(x[:4], key=lambda v: abs(v - 0.3))
    assert x[4:6] == best[:2]
    assert x[6] == best[0]


def test_scores_of_lower_rungs_do_not_count_for_the_last_run() -> None:
    """The best of the last rung is taken, though a pilot below had a better score."""

    def luckier_below(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -1.0, 1.0)
        return {0: x, 1: -x, 2: 0.0}[odp.start_run(trial).rung]

    study = finished(function=luckier_below)
    climbed = [t.params["x"] for t in study.trials[4:6]]
    assert study.trials[6].params["x"] == min(climbed)


@pytest.mark.parametrize("choose", ["best", "evidence"])
def test_choosing_is_a_function_of_the_outputs(choose: Any) -> None:
    """Minimising and maximising the negative choose alike, and what is chosen is a pilot's."""
    for direction, sign in (("maximize", 1.0), ("minimize", -1.0)):
        study = optuna.create_study(
            direction=direction, sampler=sampler(budget(6, 2), choose=choose)
        )
        study.optimize(lambda trial, sign=sign: sign * objective(trial))
        pilots = [t.params["x"] for t in study.trials[:6]]
        assert study.trials[8].params["x"] == min(pilots, key=lambda v: abs(v - 0.3))


SCORES = {-0.5: 0.0, 0.0: 1.0, 0.5: 2.0}  # Their standard deviation is 1.


def with_first_guess(guess: float, on_top: dict[float, float], **kwargs: Any) -> optuna.Study:
    """Three pilots with SCORES, the guess before the others; two climb and score as given."""
    study = study_of(sampler(budget(3, 2), search_space=X, **kwargs))
    for x in (guess, *(x for x in SCORES if x != guess)):
        study.enqueue_trial({"x": x})

    def scores(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -1.0, 1.0)
        return SCORES[x] if odp.start_run(trial).rung == 0 else on_top[x]

    study.optimize(asking(scores))
    return study


def test_the_first_guess_climbs_whatever_it_scored() -> None:
    study = with_first_guess(-0.5, {-0.5: 0.0, 0.5: 0.0})
    assert [t.params["x"] for t in study.trials[3:5]] == [-0.5, 0.5]


@pytest.mark.parametrize(("ahead", "expected"), [(-1.0, -0.5), (0.9, -0.5), (1.1, 0.5)])
def test_the_first_guess_is_run_unless_another_is_clearly_better(
    ahead: float, expected: float
) -> None:
    study = with_first_guess(-0.5, {-0.5: 3.0, 0.5: 3.0 + ahead})
    assert study.trials[5].params["x"] == expected
    assert "first guess" in odp.release(study).statement()


def test_the_best_is_run_however_close_where_that_is_asked_for() -> None:
    study = with_first_guess(-0.5, {-0.5: 3.0, 0.5: 3.1}, choose="best")
    assert study.trials[5].params["x"] == 0.5


def test_one_diverged_score_does_not_make_the_margin_infinite() -> None:
    study = study_of(sampler(budget(8, 2), search_space=X))
    places = [-1.0, *(0.1 * i for i in range(7))]
    for x in places:
        study.enqueue_trial({"x": x})
    study.optimize(
        lambda trial: -1e9 if (x := trial.suggest_float("x", -1.0, 1.0)) == places[1] else x
    )
    assert study.trials[10].params["x"] == places[-1]


def test_a_first_guess_that_fails_is_no_guess() -> None:
    study = study_of(sampler(budget(3, 2), search_space=X))
    study.enqueue_trial({"x": -0.9})

    def fails_there(trial: optuna.Trial) -> float:
        if trial.suggest_float("x", -1.0, 1.0) == -0.9:
            raise RuntimeError
        return objective(trial)

    study.optimize(fails_there, catch=(RuntimeError,))
    tried = [t.params["x"] for t in study.trials[1:3]]
    assert study.trials[5].params["x"] == min(tried, key=lambda x: abs(x - 0.3))


def test_a_function_chooses_from_the_last_rung() -> None:
    given: list[Any] = []

    def worst(pilots: Any) -> dict[str, Any]:
        given.extend(pilots)
        return min(pilots, key=lambda pilot: pilot[1])[0]

    study = finished(choose=worst)
    trials = study.trials
    assert sorted(given, key=str) == sorted([(t.params, (t.value,)) for t in trials[4:6]], key=str)
    assert trials[6].params == min(trials[4:6], key=lambda t: t.value or 0.0).params
    assert "worst" in odp.release(study).statement()


def test_a_run_and_what_has_none() -> None:
    study = study_of(sampler())
    trial = study.ask()
    assert odp.start_run(trial) == budget(4, 2).pilot
    with pytest.raises(PlanError):
        odp.start_run(optuna.create_study().ask())
    with pytest.raises(PlanError):
        odp.start_run(study_of(odp.RandTuneSampler()).ask())
    with pytest.raises(PlanError):
        odp.start_run(optuna.trial.FixedTrial({"x": 0.0}))


# Faults.


def failing(numbers: set[int]) -> Callable[[optuna.Trial], float]:
    def fails(trial: optuna.Trial) -> float:
        value = objective(trial)
        if trial.number in numbers:
            raise RuntimeError("out of memory")
        return value

    return fails


def test_failed_pilots_are_charged_and_do_not_climb() -> None:
    study = finished(function=failing({0, 2, 5}))
    assert [t.state.name for t in study.trials[:6]].count("FAIL") == 3
    x = [t.params["x"] for t in study.trials]
    assert set(x[4:6]) == {x[1], x[3]}
    assert x[6] == x[4]
    release = odp.release(study)
    assert [p["state"] for p in release.pilots].count("FAIL") == 3
    assert release.guarantee == budget(4, 2).guarantee


def test_fewer_outputs_than_places_take_turns() -> None:
    study = finished(function=failing({0, 1, 2}))
    x = [t.params["x"] for t in study.trials]
    assert x[4] == x[5] == x[3]


def test_a_last_run_that_failed_releases_what_it_was_to_be_run_with() -> None:
    study = finished(function=failing({6}))
    release = odp.release(study)
    assert release.params == study.trials[4].params or release.params == study.trials[5].params
    assert release.value is None
    assert "failed" in release.attributes["last run"]
    assert len(release.pilots) == 6
    assert "the score," not in release.statement()


def test_a_last_run_that_failed_before_it_had_parameters() -> None:
    def fails(trial: optuna.Trial) -> float:
        if not odp.start_run(trial).is_pilot:
            raise RuntimeError("no GPU")
        return objective(trial)

    study = finished(function=fails)
    assert study.trials[6].params == {}
    assert odp.release(study).params in [t.params for t in study.trials[4:6]]


@pytest.mark.parametrize("spare", [1, 2])
def test_a_spare_run_takes_the_place_of_one_that_failed(spare: int) -> None:
    study = finished(budget(4, 2, spare_runs=spare), failing({6}))
    assert rungs_of(study)[6:8] == ["last", "last"]
    assert len(study.trials) == 8
    release = odp.release(study)
    assert release.value == study.trials[7].value is not None
    assert study.trials[6].params == study.trials[7].params
    assert release.guarantee == budget(4, 2, spare_runs=spare).guarantee


def test_spare_runs_that_are_not_needed_never_begin() -> None:
    for n_jobs in (1, 4):
        study = study_of(sampler(budget(3, spare_runs=2)))
        study.optimize(objective, n_jobs=n_jobs)
        assert rungs_of(study).count("last") == 1
        odp.release(study)


def test_an_exception_that_ends_the_loop_leaves_the_spare_run_for_later() -> None:
    study = study_of(sampler(budget(3, spare_runs=1)))
    with pytest.raises(RuntimeError, match="memory"):
        study.optimize(failing({3}))
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)
    study.optimize(objective)
    assert odp.release(study).value == study.trials[4].value
    study.optimize(objective)  # Nothing is left to do.
    assert rungs_of(study).count("last") == 2


def test_ctrl_c_in_the_last_run_is_a_failed_run() -> None:
    def interrupted(trial: optuna.Trial) -> float:
        if not odp.start_run(trial).is_pilot:
            raise KeyboardInterrupt
        return objective(trial)

    study = study_of(sampler())
    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted)
    study.optimize(objective)
    assert odp.release(study).value is None
    assert rungs_of(study).count("last") == 1


@pytest.mark.parametrize("value", [float("nan"), None])
def test_no_number_is_no_output(value: Any) -> None:
    study = finished(budget(3, 1), lambda trial: value if trial.number == 1 else objective(trial))
    assert odp.release(study).pilots[1]["value"] is None
    study = finished(
        budget(3, 1), lambda trial: objective(trial) if odp.start_run(trial).is_pilot else value
    )
    assert odp.release(study).value is None


def test_a_dead_worker_costs_a_pilot_and_a_dead_last_run_is_recovered() -> None:
    study = study_of(sampler(budget(3, spare_runs=1)))
    study.ask().suggest_float("x", -1.0, 1.0)  # Its worker is killed.
    odp.recover(study, fail=[0])
    study.optimize(objective, n_trials=2)
    study.ask()  # The last run; its worker is killed too.
    odp.recover(study, fail=[3])
    study.optimize(objective)
    assert rungs_of(study) == ["pilot"] * 3 + ["last"] * 2
    assert odp.release(study).value == study.trials[4].value


def test_without_any_output_the_last_run_does_not_begin_and_a_person_may_choose() -> None:
    study = study_of(sampler(budget(2, 1)))
    with pytest.raises(PlanError):
        study.optimize(failing({0, 1, 2}), catch=(RuntimeError,))
    assert rungs_of(study) == ["pilot"] * 3 + [""]
    study.enqueue_trial({"x": 0.25})
    study.optimize(objective)
    release = odp.release(study)
    assert release.params == {"x": 0.25}
    assert "by hand" in release.attributes["last run"]


def test_a_choice_that_raises_costs_nothing() -> None:
    broken = [True]

    def choose(pilots: Any) -> Any:
        if broken[0]:
            raise ZeroDivisionError
        return pilots[0][0]

    study = study_of(sampler(choose=choose))
    with pytest.raises(ZeroDivisionError):
        study.optimize(objective)
    broken[0] = False
    study.optimize(objective)
    assert rungs_of(study) == ["pilot"] * 6 + ["", "last"]
    odp.release(study)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        0.5,
        {"y": 1.0},
        {"x": 7.0},
        {"x": "high"},
    ],
)
def test_what_a_function_may_not_choose(answer: Any) -> None:
    study = study_of(sampler(choose=lambda pilots: answer))
    with refuses("choose"):
        study.optimize(objective)


@pytest.mark.parametrize(
    "other",
    [
        {"plan": budget(4, 3)},
        {"plan": budget(4, 2, spare_runs=1)},
        {"search_space": X},
        {"proposer": optuna.samplers.RandomSampler()},
        {"choose": "best"},
        {"choose": max},
        {"pilot_batch_size": 3},
    ],
    ids=lambda other: "-".join(other),
)
def test_a_worker_of_another_design_never_begins_a_run(other: Any) -> None:
    study = study_of(sampler())
    study.optimize(objective, n_trials=6)
    study.sampler = sampler(**other)
    with pytest.raises(PlanError):
        study.optimize(objective)
    study.sampler = sampler()
    study.optimize(objective)
    assert rungs_of(study) == ["pilot"] * 6 + ["last"]
    odp.release(study)


def test_resuming_adds_no_run() -> None:
    study = study_of(sampler())
    for _ in range(9):
        study.optimize(objective, n_trials=1)
    assert rungs_of(study)[:7] == ["pilot"] * 6 + ["last"]
    assert not any(rungs_of(study)[7:])
    odp.release(study)


def test_an_unfinished_study_is_not_released() -> None:
    study = study_of(sampler())
    study.optimize(objective, n_trials=3)
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)
    study.optimize(objective, n_trials=3)
    with pytest.raises(UnfinishedStudyError):
        odp.release(study)


# Ask and tell; waiting.


def test_ask_and_tell() -> None:
    study = study_of(sampler(budget(3, 2)))
    pilots = [study.ask() for _ in range(3)]
    for trial in pilots:
        study.tell(trial, objective(trial))
    early = study.ask()
    with pytest.raises(WaitError):
        study.ask(), study.ask()
    study.tell(early, objective(early))
    assert rungs_of(study)[:4] == ["pilot"] * 4


def test_the_last_run_asked_for_too_early_is_not_lost() -> None:
    study = study_of(sampler(budget(2)))
    first, second = study.ask(), study.ask()
    study.tell(first, objective(first))
    with pytest.raises(WaitError):
        study.ask()
    study.tell(second, objective(second))
    last = study.ask()
    assert not odp.start_run(last).is_pilot
    study.tell(last, objective(last))
    assert odp.release(study).value is not None


def test_a_rung_waits_for_the_one_below_and_runs_in_parallel() -> None:
    study = study_of(sampler(budget(4, 4)))
    meet = [threading.Barrier(4), threading.Barrier(4)]
    ended_then: dict[int, int] = {}

    def watches(trial: optuna.Trial) -> float:
        value = objective(trial)
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        before = [t for t in trials if t.number < trial.number]
        ended_then[trial.number] = sum(t.state.is_finished() for t in before)
        if odp.start_run(trial).is_pilot:
            meet[odp.start_run(trial).rung].wait(60)
        return value

    # The first rung is one batch here: as many as there are workers.
    study.sampler = sampler(budget(4, 4), pilot_batch_size=4)
    study.optimize(watches, n_jobs=4)
    assert [ended_then[i] >= 4 for i in range(4, 8)] == [True] * 4
    assert ended_then[8] == 8
    assert odp.release(study).value is not None
