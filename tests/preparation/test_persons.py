"""Several records of one person: bounded by the schema, planned for, and first on the page."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses

import optuna_dp as odp
from optuna_dp.accounting.groups import group_epsilon
from optuna_dp.core.numbers_shown import rounded_up

N = 300
ROWS: dict[str, Any] = {
    "age": np.random.default_rng(0).normal(50, 10, N),
    "died": np.random.default_rng(1).choice(["no", "yes"], N),
    "patient": np.arange(N) // 3,
}


def schema(most: int) -> odp.Schema:
    return odp.Schema(age=(20, 80), died=["no", "yes"], target="died", unit="patient", most=most)


def released(plan: odp.BudgetPlan, most: int) -> odp.Release:
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    table = schema(most).encode(ROWS)

    def objective(trial: optuna.Trial) -> float:
        model = odp.SoftmaxRegression(table.width, 2)
        return odp.train(odp.start_run(trial), model, table).score or 0.0

    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    return odp.release(study)


@pytest.mark.promise("persons")
def test_a_plan_by_a_schema_of_persons_costs_each_person_the_target() -> None:
    plan = odp.plan_budget(
        epsilon=4.0, records=N, batch_size=30, epochs=1, pilots=0, schema=schema(3)
    )
    assert 3.96 <= group_epsilon(plan.guarantee, 1e-5, 3) <= 4.0
    assert odp.BudgetPlan.from_json(plan.to_json()) == plan
    words = " ".join(released(plan, 3).statement().split())
    first = re.search(
        r"differentially private with epsilon = (\S+) and delta = 1e-05 for each", words
    )
    assert first is not None
    assert 3.96 <= float(first[1]) <= 4.0
    assert "for each patient** with up to 3 records, and with epsilon = " in words
    assert "for a patient with one record, if the " in words
    assert "| What is protected | each patient with all of up to 3 records (epsilon 3.9" in words
    detected = re.search(
        r"up to 3 records of a patient together are detected in at most (\S+)", words
    )
    assert detected is not None
    bound = 1.0 - 0.95 / np.exp(float(first[1]))
    assert float(detected[1]) == pytest.approx(100 * bound, abs=0.11)
    assert "| A record belongs to | enforced: one patient |" in words
    assert "| Records of one person | enforced: 3 of each at most were used |" in words


def test_one_record_of_each_person_is_planned_and_stated_as_one_record() -> None:
    plan = odp.plan_budget(
        epsilon=4.0, records=100, batch_size=30, epochs=1, pilots=0, schema=schema(1)
    )
    assert plan.most is None
    release = released(plan, 1)
    assert "| Records of one person | enforced: 1 of each at most" in release.statement()
    assert odp.verify(release.to_json()).ok


def test_whose_records_were_bounded_is_said_as_the_schema_says_it() -> None:
    """Another unit in the curator's words may have many of the schema's."""
    plan = odp.plan_budget(
        epsilon=4.0, records=N, batch_size=30, epochs=1, pilots=0, score=None, schema=schema(2)
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    odp.describe(study, unit="hospital", most=1)
    table = schema(2).encode(ROWS)

    def objective(trial: optuna.Trial) -> float:
        odp.train(odp.start_run(trial), odp.SoftmaxRegression(table.width, 2), table)
        return 0.0

    study.optimize(objective)
    words = " ".join(odp.release(study).statement().split())
    assert "for each patient** with up to 2 records" in words
    assert "enforced: one patient. In the curator's words: one hospital |" in words
    assert "for each hospital" not in words


@pytest.mark.promise("persons")
def test_no_other_person_decides_which_rows_of_a_person_are_kept() -> None:
    names = ["a", None, "7", 7, float("nan"), "007", 7.0, "a", "a", " a "]
    rows = {"age": np.arange(20.0, 30.0), "died": ["no"] * 10, "patient": names}
    for person in ("a", "7", "007", None):
        without = [place for place, name in enumerate(names) if not is_of(person, name)]
        fewer = {key: [column[place] for place in without] for key, column in rows.items()}
        kept, kept_of_fewer = (set(schema(2).encode(r).x[:, 0]) for r in (rows, fewer))
        assert kept_of_fewer <= kept
        assert len(kept - kept_of_fewer) == {"a": 2, "7": 2, "007": 1, None: 0}[person]


def is_of(person: str | None, name: Any) -> bool:
    if name is None or name != name:
        return person is None
    return person == (str(int(name)) if isinstance(name, float) else str(name).strip())


def test_ranges_of_persons_are_drawn_from_the_records_that_are_kept() -> None:
    def with_income(most: int | None) -> odp.Schema:
        person = {} if most is None else {"unit": "patient", "most": most}
        income = odp.Number(0, 1e6, scale="private")
        return odp.Schema(income=income, died=["no", "yes"], target="died", **person)

    rows = {**ROWS, "income": np.full(N, 5.0)}
    plan = odp.plan_budget(
        epsilon=9.0, records=N, batch_size=30, epochs=1, pilots=0, schema=with_income(None)
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    run = odp.start_run(study.ask())
    odp.draw_ranges(run, with_income(None), rows)
    table = odp.draw_ranges(run, with_income(1), rows).encode(rows)
    with pytest.raises(odp.errors.PlanError, match="unit"):
        odp.train(run, odp.SoftmaxRegression(table.width, 2), table)


def test_no_plan_is_made_where_none_costs_a_person_so_little() -> None:
    with refuses("epsilon"):
        odp.plan_budget(
            epsilon=1e-4, records=N, batch_size=30, epochs=1, pilots=0, schema=schema(200)
        )


def test_a_plan_for_one_record_is_warned_of_before_the_training_spends_anything() -> None:
    plan = odp.plan_budget(epsilon=2.0, records=N, batch_size=30, epochs=1, pilots=0)
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    table, run = schema(3).encode(ROWS), odp.start_run(study.ask())
    exact = group_epsilon(plan.guarantee, 1e-5, 3)
    numbers = rf"epsilon {rounded_up(plan.guarantee.epsilon(1e-5), 3)} .*{rounded_up(exact, 3)}"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(UserWarning, match=numbers):
            odp.train(run, odp.SoftmaxRegression(table.width, 2), table)
        warnings.simplefilter("ignore", UserWarning)  # Nothing was trained before.
        assert odp.train(run, odp.SoftmaxRegression(table.width, 2), table).score is not None


def test_what_a_person_pays_is_in_the_log_on_the_release_and_in_two_releases_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = odp.plan_budget(
        epsilon=4.0, records=N, batch_size=30, epochs=1, pilots=0, schema=schema(3)
    )
    lines: list[str] = []
    logger = optuna.logging.get_logger("optuna.optuna_dp")
    monkeypatch.setattr(logger, "isEnabledFor", lambda level: True)
    monkeypatch.setattr(logger, "info", lambda text, *of: lines.append(text % of))
    release = released(plan, 3)
    assert release.person_epsilon == plan.person_epsilon
    words = f"For one patient with up to 3 records: epsilon {rounded_up(plan.person_epsilon, 3)}."
    assert words in " ".join(lines)
    together = str(odp.verify(release.to_json(), others=[release.to_json()]))
    exact = group_epsilon(release.guarantee.compose(release.guarantee), release.delta, 3)
    assert f"epsilon = {rounded_up(exact)} for one patient with up to 3 records" in together
