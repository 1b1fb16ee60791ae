"""The check of an objective within its study: budgets, failures, what an event says."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from support import logged, simulated

import optuna_dp as odp

from .small_trainings import EVENT, SIZE, TRAINING, X, Y, names, score, train


def budgeted(trial):
    run = odp.fidelity(trial)
    weights = train(run.learning_rate(noise_per_weight=trial.suggest_float("noise", 0.1, 1.0)))
    run.spent(simulated(run))
    return run.score((X @ weights > 0) == Y)


@pytest.fixture(scope="module")
def plan():
    return odp.plan_budget(epsilon=3.0, records=SIZE, batch_size=4, epochs=1, pilots=4)


@pytest.mark.slow
def test_studies_with_a_budget(plan) -> None:
    with logged() as lines:
        report = odp.check_objective(budgeted, plan=plan)
    assert not report.findings, str(report)
    assert lines == []
    assert report.runs == 8  # a pilot and the last run

    def faulty_at_the_end(trial):
        value = budgeted(trial)
        return value if odp.fidelity(trial).is_pilot else round(value, 2)

    # Two scores of two decimals may be equal as well.
    found = names(faulty_at_the_end, None, plan=plan)
    found = [name for name in found if name != "repeated score"]
    assert found == ["exact score", "not compared"]

    def best_pilot(trial):
        return max(budgeted(trial), trial.study.best_value)

    assert names(best_pilot, None, plan=plan) == ["other trials", "not compared"]


@pytest.mark.slow
def test_what_a_release_would_say_of_runs_with_a_budget(plan) -> None:
    def hands_nothing_in(trial):
        run = odp.fidelity(trial)
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        return run.score((X @ weights > 0) == Y)

    report = odp.check_objective(hands_nothing_in, plan=plan)
    assert [found.name for found in report.findings] == ["not compared"], str(report)
    assert report.ok, "the curator may vouch for it"
    assert "nothing shows what its training spent" in str(report)

    def goes_on(trial):
        run = odp.fidelity(trial)
        step = odp.dp_sgd(noise_multiplier=run.noise_multiplier, sample_rate=0.1, steps=1)
        accountant = PLDAccountant().compose(step)
        run.spent(accountant)
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        accountant.compose(step)
        return run.score((X @ weights > 0) == Y)

    report = odp.check_objective(goes_on, plan=plan)
    assert [found.name for found in report.findings] == ["refused at release"], str(report)
    assert not report.ok
    assert "the training went on after run.spent" in str(report)


def on_data(trial, data):
    return score(train(trial.suggest_float("rate", 0.1, 1.0), data), data)


def test_failures_that_depend_on_the_data() -> None:
    report = odp.check_objective(on_data, EVENT, data=(X, Y))
    assert not report.findings, str(report)
    assert report.runs == 5 + 4

    def fails(trial, data):
        if not data[1].any():
            raise ValueError("only one class")
        value = on_data(trial, data)
        return float("nan") if np.abs(data[0]).max() > 1e9 else value

    found = odp.check_objective(fails, EVENT, data=(X, Y)).findings
    assert {f.name for f in found} == {"failure on data"}
    assert {f.about for f in found} >= {"all values are zero", "one record has enormous values"}


@pytest.mark.slow
def test_a_score_with_less_noise_than_the_event_says_is_found() -> None:
    def objective(noise, count=1):
        def run(trial):
            weights = train(trial.suggest_float("rate", 0.1, 1.0))
            right = (X @ weights > 0) == Y
            scores = [
                odp.scoring.private_accuracy(right, size=SIZE, noise_multiplier=noise)
                for _ in range(count)
            ]
            return sum(scores) / count

        return run

    assert names(objective(4.0)) == ["score noise"]
    assert names(objective(8.0, count=2)) == ["score noise"]
    assert names(objective(8.0 * 2**0.5, count=2)) == [], "two such scores cost as much as one"
    assert names(objective(9.0)) == []
    assert names(objective(8.0), TRAINING) == ["score noise"], "no score is paid for"
    assert names(objective(4.0), public_score=True) == []


def test_scores_that_one_event_may_pay_for_are_no_fault() -> None:
    def folds(trial):
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        right = (X @ weights > 0) == Y
        return sum(
            odp.scoring.private_accuracy(right[i::2], size=SIZE // 2, noise_multiplier=8.0)
            for i in range(2)
        )

    found = odp.check_objective(folds, EVENT).findings
    assert [(f.name, f.certain) for f in found] == [("score noise", False)]
    assert "no record is in two" in found[0].what
    of_a_sample = dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(8.0))
    assert names(honest_score, odp.compose(TRAINING, of_a_sample)) == []


def test_noise_of_a_score_that_another_part_may_pay_for_is_no_fault() -> None:
    opaque = odp.rdp([2.0, 4.0], [0.1, 0.2])
    may_pay = odp.compose(TRAINING, opaque)
    assert names(honest_score, may_pay) == []
    report = odp.check_objective(honest_score, odp.compose(may_pay, odp.gaussian(50.0)))
    assert [(f.name, f.certain) for f in report.findings] == [("score noise", False)]
    assert names(honest_score, odp.compose(TRAINING, odp.zcdp(1 / 128))) == []
    assert names(honest_score, odp.compose(odp.pure_dp(1.0), odp.zcdp(1 / 129))) == ["score noise"]


def honest_score(trial):
    return score(train(trial.suggest_float("rate", 0.1, 1.0)))


@pytest.mark.slow
def test_the_number_of_records_as_size_of_a_score_is_found_where_it_is_private() -> None:
    def by_length(trial, data):
        run = odp.fidelity(trial)
        weights = train(trial.suggest_float("rate", 0.1, 1.0), data)
        run.spent(simulated(run))
        return run.score((data[0] @ weights > 0) == data[1], size=len(data[1]))

    def found(relation):
        plan = odp.plan_budget(
            epsilon=3.0, records=SIZE, batch_size=4, epochs=1, pilots=0,
            neighboring_relation=relation,
        )  # fmt: skip
        report = odp.check_objective(by_length, plan=plan, data=(X, Y))
        return {
            (f.name, f.certain) for f in report.findings if f.about != "the length of an array"
        }

    assert found("add_or_remove_one") == {("size of the score", True)}
    assert found("replace_one") == set()


def test_how_much_noise_a_score_of_ones_own_has_is_said_not_to_be_known() -> None:
    def own_noise(trial):
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        return float(np.mean((X @ weights > 0) == Y) + np.random.default_rng().normal(0, 0.1))

    report = odp.check_objective(own_noise, EVENT)
    assert any("how much noise the score has" in words for words in report.not_checked)
    report = odp.check_objective(honest_score, EVENT)
    assert not any("how much noise the score has" in words for words in report.not_checked)
    report = odp.check_objective(own_noise, TRAINING, public_score=True)
    assert any("public records only" in words for words in report.not_checked)
