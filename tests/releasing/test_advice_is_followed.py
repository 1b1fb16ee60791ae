"""What errors advise is done, and ends in a release; sound studies are not lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from refusals import refuses
from samplers.budget.budget_support import budget
from support import recorded

import optuna_dp as odp
from optuna_dp.errors import PlanError, ReleaseRefusedError

RUN = odp.gaussian(4.0)


def spending(trial: optuna.Trial) -> float:
    """Trains nothing, and says so as a sound objective says what it spent."""
    run = odp.start_run(trial)
    run.spent(recorded(odp.gaussian(run.noise_multiplier)))
    return run.score([trial.suggest_float("x", 0.0, 1.0) < 0.5] * 2000, size=2000)


def with_sizes(trial: optuna.Trial) -> float:
    trial.set_user_attr("n_params", 123)
    return spending(trial)


def budget_study(*sizes: int, **kwargs: Any) -> optuna.Study:
    sampler = odp.BudgetSampler(budget(*(sizes or (3,))), **kwargs)
    return optuna.create_study(direction="maximize", sampler=sampler)


def test_an_attribute_that_was_refused_is_named_and_released() -> None:
    study = budget_study()
    advice = r"output_attributes=\['n_params'\]"
    with pytest.raises(ReleaseRefusedError, match=advice) as caught:
        study.optimize(with_sizes, callbacks=[odp.PrivacyCallback()])
    assert caught.value.trial_number == 0
    study.optimize(with_sizes)
    with pytest.raises(ReleaseRefusedError, match=advice):
        odp.release(study)
    study = budget_study(output_attributes=["n_params"])
    study.optimize(with_sizes, callbacks=[odp.PrivacyCallback()])
    assert odp.release(study).attributes["n_params"] == 123


def test_an_accountant_that_is_handed_in_twice_has_spent_what_it_has_spent() -> None:
    class Accountant:
        dp_event = odp.gaussian(2.0)

    def objective(trial: optuna.Trial) -> float:
        run, accountant = odp.start_run(trial), Accountant()
        accountant.dp_event = odp.gaussian(run.noise_multiplier)
        run.spent(accountant)
        run.spent(accountant)
        return run.score([trial.suggest_float("x", 0.0, 1.0) < 0.5] * 2000, size=2000)

    study = budget_study()
    study.optimize(objective)
    assert odp.release(study).params is not None


def test_an_event_or_another_accountant_that_is_handed_in_second_is_refused() -> None:
    study = budget_study()
    run = odp.start_run(study.ask())
    event = odp.gaussian(run.noise_multiplier)
    run.spent(event)
    with pytest.raises(PlanError, match=r"run\.spent"):
        run.spent(event)


def test_a_run_that_is_pruned_before_it_asks_what_it_may_spend_shows_nothing() -> None:
    def objective(trial: optuna.Trial) -> float:
        if trial.number == 1:  # A public rule.
            raise optuna.TrialPruned("too large a network for this machine")
        return spending(trial)

    study = budget_study()
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert odp.release(study).attributes["pilots"][1]["state"] == "PRUNED"


def test_a_run_that_is_pruned_after_it_asked_is_not_checked() -> None:
    def objective(trial: optuna.Trial) -> float:
        odp.start_run(trial)
        if trial.number == 1:
            raise optuna.TrialPruned
        return spending(trial)

    study = budget_study()
    study.optimize(objective)
    with pytest.raises(ReleaseRefusedError, match=r"run\.spent") as caught:
        odp.release(study)
    assert caught.value.trial_number == 1
    assert odp.release(study, vouched="It was pruned before its training.").params is not None


class Failing(optuna.samplers.RandomSampler):
    """Raises whenever it is asked for something."""

    def sample_independent(self, *args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("no fit")

    sample_relative = sample_independent


@pytest.mark.parametrize("space", [None, {"x": FloatDistribution(0.0, 1.0)}])
def test_a_proposer_that_fails_costs_no_run(space: Any, caplog: Any) -> None:
    study = budget_study(proposer=Failing(), search_space=space)
    study.optimize(spending)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    assert len({trial.params["x"] for trial in study.trials[:3]}) == 3
    assert "raised an error, so hyperparameters are drawn at random" in caplog.text
    assert odp.release(study).params is not None


@pytest.mark.parametrize("space", [None, {"x": FloatDistribution(0.0, 1.0)}])
@pytest.mark.filterwarnings("ignore:Fixed parameter .?x.? with value 1.5 is out of range")
def test_an_enqueued_value_outside_the_range_costs_no_other_pilot(space: Any) -> None:
    study = budget_study(4, 2, search_space=space)
    study.enqueue_trial({"x": 1.5})
    study.optimize(spending)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 7
    assert study.trials[4].params == {"x": 1.5}  # The first guess climbs as it is.
    assert odp.release(study).params is not None


CHOICES = [
    [(1, 2), (3, 4)],
    [{1: 2}, {3: 4}],
    [[1], [2]],
    [("a", (1, (2,))), ("b", ())],
]
SAMPLERS: list[Callable[[Any], Any]] = [
    lambda space: odp.BudgetSampler(budget(4, 2), search_space=space),
    lambda space: odp.RandTuneSampler(space, trials=odp.Geometric(mean=4), run=RUN),
    lambda space: odp.DPHyPOSampler(space, trials=odp.Geometric(mean=4), run=RUN),
]


@pytest.mark.slow
@pytest.mark.parametrize("make", SAMPLERS)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_json_changes_work_on_every_storage(
    make: Any, known: bool, on_disk: bool, tmp_path: Path
) -> None:
    names = {f"c{i}": choices for i, choices in enumerate(CHOICES)}
    space = {name: CategoricalDistribution(choices) for name, choices in names.items()}
    study = optuna.create_study(
        direction="maximize",
        sampler=make(space if known else None),
        storage=f"sqlite:///{tmp_path / 'study.db'}" if on_disk else None,
    )
    given: list[tuple[Any, list[Any]]] = []

    def objective(trial: optuna.Trial) -> float:
        for name, choices in names.items():
            given.append((trial.suggest_categorical(name, choices), choices))
        if isinstance(trial.study.sampler, odp.BudgetSampler):
            return spending(trial)
        return trial.suggest_float("x", 0.0, 1.0)

    study.optimize(objective)
    assert all(
        choice in choices for choice, choices in given
    )  # The objective's own, of its own type.
    assert all(trial.state.name == "COMPLETE" for trial in study.trials)
    release = odp.release(study, vouched="a test")
    assert release.params is not None
    assert set(names) <= set(release.params)


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_a_model_of_scores_learns_from_choices_that_json_changes(tmp_path: Path) -> None:
    """The same history has the same encoding, whatever form a storage gives choices back in."""
    from optuna_dp.priors.encoding import encode_params
    from optuna_dp.study.draws import checked_space, stored_form

    space = {"c": CategoricalDistribution([(1, 2), (3, 4)])}
    encodings = []
    for place in (None, f"sqlite:///{tmp_path / 'study.db'}"):
        study = optuna.create_study(storage=place)
        for choice in (0, 1, 1):
            trial = study.ask({"c": CategoricalDistribution([[1, 2], [3, 4]])} if place else space)
            study.tell(trial, float(choice))
        histories = [stored_form(trial)[0] for trial in study.trials]
        encodings.append(encode_params(checked_space(space) or {}, histories))
    assert all(((found > 0).sum(axis=1) == 1).all() for found in encodings)


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_are_one_in_json_are_refused_at_the_first_suggest() -> None:
    study = budget_study()
    trial = study.ask()
    with refuses("choices of 'c'"):
        trial.suggest_categorical("c", [(1, 2), [1, 2]])


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one", "null_client"])
@pytest.mark.parametrize("score", ["training", None])
def test_a_plan_is_about_clients_where_its_training_is(relation: str, score: str | None) -> None:
    plan = odp.plan_budget(
        epsilon=3.0,
        run=lambda noise, steps: odp.per_client(odp.gaussian(noise)),
        steps=1,
        pilots=3,
        score=score,
        neighboring_relation=relation,
    )
    assert plan.guarantee.unit == "client"
    assert plan.guarantee.epsilon(1e-5) <= 3.0
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(spending)
    assert odp.release(study).guarantee.unit == "client"


def test_a_score_of_clients_costs_what_a_score_of_records_costs() -> None:
    def plan(wrap: Any) -> Any:
        return odp.plan_budget(
            epsilon=3.0, run=lambda noise, steps: wrap(odp.gaussian(noise)), steps=1, pilots=3
        )

    by_client, by_record = plan(odp.per_client), plan(lambda event: event)
    assert by_client.pilot.score_noise_multiplier == by_record.pilot.score_noise_multiplier
    assert by_client.pilot.noise_multiplier == by_record.pilot.noise_multiplier


@pytest.mark.slow
def test_a_cost_that_has_no_renyi_curve_is_planned() -> None:
    plan = odp.plan_budget(
        epsilon=3.0,
        run=lambda noise, steps: odp.approximate_dp(1.0 / noise, 1e-7),
        steps=1,
        pilots=4,
        noise_increase=2.0,
    )
    assert 2.97 <= plan.guarantee.epsilon(1e-5) <= 3.0


def test_a_study_pickles_after_a_run() -> None:
    study = optuna.create_study(
        sampler=odp.RandTuneSampler(trials=odp.Poisson(mean=500.0), run=RUN)
    )
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=2)
    again = pickle.loads(pickle.dumps(study))
    again.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=2)
    assert len(again.trials) == 4


def test_a_study_with_pilots_pickles_after_a_run() -> None:
    study = budget_study(4)
    study.optimize(spending, n_trials=2)
    again = pickle.loads(pickle.dumps(study))
    again.optimize(spending)
    assert odp.release(again).params is not None
