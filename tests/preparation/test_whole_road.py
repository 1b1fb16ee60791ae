"""What a statement says of the whole road, from the records as they came to the score."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
from refusals import refuses

import optuna_dp as odp

N = 200
ROWS: dict[str, Any] = {
    "age": np.random.default_rng(0).normal(50, 10, N),
    "died": np.random.default_rng(1).choice(["no", "yes"], N),
}
SCHEMA = odp.Schema(age=(20, 80), died=["no", "yes"], target="died")
WHOLE, TENSORS = "The whole road is enforced", "From ready-made tensors on"


def half(rows: dict[str, Any], first: bool) -> dict[str, Any]:
    place = slice(None, N // 2) if first else slice(N // 2, None)
    return {name: column[place] for name, column in rows.items()}


def trained(records: Any, **scored: Any) -> optuna.Study:
    plan = odp.plan_budget(
        epsilon=8.0,
        records=len(records if hasattr(records, "x") else records[0]),
        batch_size=20,
        epochs=1,
        pilots=0,
        score="disjoint" if scored else "training",
    )
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))

    def objective(trial: optuna.Trial) -> float:
        model = odp.SoftmaxRegression(SCHEMA.width, 2)
        run = odp.start_run(trial)
        return odp.train(run, model, records, score="accuracy", **scored).score or 0.0

    study.optimize(objective)
    return study


def first_screen(study: optuna.Study, **arguments: Any) -> str:
    return "\n".join(odp.release(study, **arguments).statement().splitlines()[:12])


def test_held_out_records_are_a_part_of_the_road() -> None:
    train, held_out = (SCHEMA.encode(half(ROWS, first)) for first in (True, False))
    assert WHOLE in first_screen(trained(train, score_records=held_out, score_size=N // 2))
    ready_made = tuple(np.array(part) for part in held_out.parts)
    screen = first_screen(trained(train, score_records=ready_made, score_size=N // 2))
    assert TENSORS in screen
    assert "nforced" not in screen
    wider = odp.Schema(age=(0, 120), died=["no", "yes"], target="died")
    with refuses("score_records"):
        trained(train, score_records=wider.encode(half(ROWS, False)), score_size=N // 2)


def test_what_is_vouched_for_is_not_enforced() -> None:
    study = trained(SCHEMA.encode(ROWS))
    assert WHOLE in first_screen(study)

    def objective(trial: optuna.Trial) -> float:
        trial.set_user_attr("loss", 0.5)
        model = odp.SoftmaxRegression(SCHEMA.width, 2)
        return odp.train(odp.start_run(trial), model, SCHEMA.encode(ROWS)).score or 0.0

    plan = odp.plan_budget(epsilon=8.0, records=N, batch_size=20, epochs=1, pilots=0)
    attribute = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    attribute.optimize(objective)
    assert WHOLE not in first_screen(attribute, vouched="the number is public")


def test_records_that_a_model_cannot_learn_from_are_refused_in_words() -> None:
    rows = {"age": ROWS["age"]}
    with refuses("records"):
        trained(SCHEMA.encode(rows))
    number = odp.Schema(age=(20, 80), target="age", cost=(0, 9))
    with refuses("model"):
        trained_number(number.encode({**rows, "cost": ROWS["age"]}))


def trained_number(records: Any) -> None:
    plan = odp.plan_budget(epsilon=8.0, records=N, batch_size=20, epochs=1, pilots=0)
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    odp.train(odp.start_run(study.ask()), odp.SoftmaxRegression(records.width, 2), records)


def test_a_function_that_prepared_rows_is_a_part_of_the_road_and_asked_about() -> None:
    """Of a selection, too, whose number of runs is secret."""
    center = 50.0
    numbers = odp.Schema(age=(20, 80), died=["no", "yes"], target="died")

    def prepare(rows: Any) -> Any:
        return np.nan_to_num((np.asarray(rows["age"], dtype=float) - center) / 30.0)[:, None]

    records = numbers.encode(ROWS, prepare=prepare)
    run = odp.RunPlan(
        records=N, batch_size=N, steps=1, noise_multiplier=4.0, score_noise_multiplier=20.0
    )
    plan = odp.plan_budget(epsilon=3.0, records=N, batch_size=N, epochs=1, pilots=0)
    for sampler in (
        odp.RandTuneSampler(trials=odp.Binomial(2, mean=2), run=run),
        odp.BudgetSampler(plan),
    ):
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(
            lambda trial: (
                odp.train(
                    odp.start_run(trial), odp.SoftmaxRegression(1, 2), records, score="accuracy"
                ).score
                or 0.0
            )
        )
        statement = odp.release(study).to_json()["statement"]
        (fact,) = [fact for fact in statement["facts"] if fact["name"] == "Preparation"]
        assert fact["status"] == "compared"
        assert "center (float)" in fact["value"]
        texts = " ".join(promise["text"] for promise in statement["assumptions"])
        assert "the function that prepared rows holds from outside" in texts
        assert "but for a function of the curator's" in odp.release(study).statement()
