"""Each field of each kind of release, changed once, with all that follows made again.

Anybody who holds a file can do that, and compute its digest again. ``verify`` finds that the file
does not agree with itself, or says that nothing in the file shows such a change.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optuna
import pytest
from releasing import small_studies, test_statements, test_verification
from releasing.forgery import made_again
from slow_cases import slow_if
from support import asking, recorded, study_of
from support import release as released_by

import optuna_dp as odp
from optuna_dp.releasing.comparison import NOT_COMPARED, places_not_compared


def sampled(kind: str) -> odp.Release:
    sampler = test_verification.SAMPLERS[kind]()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(asking(lambda trial: trial.suggest_float("x", 0.25, 1)))
    return released_by(study)


def selection_enforced() -> odp.Release:
    run = odp.RunPlan(**small_studies.RUN)
    study = study_of(odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=run))
    study.optimize(small_studies.trains)
    return odp.release(study)


def short_list() -> odp.Release:
    plan = odp.plan_budget(epsilon=3.0, **small_studies.STEP, epochs=1, candidates=2)
    candidates = [{"a": 0.25}, {"a": 0.75}]
    study = study_of(odp.BudgetSampler(plan, candidates=candidates))
    study.optimize(small_studies.trains)
    return odp.release(study)


def disjoint_scores() -> odp.Release:
    return small_studies.released(small_studies.trains, small_studies.DISJOINT)


def fewer_steps_and_own_words() -> odp.Release:
    plan = odp.plan_budget(epsilon=3.0, records=400, batch_size=400, epochs=4, pilots=1)

    def stops_early(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        steps = run.steps - 1
        event = odp.dp_sgd(noise_multiplier=run.noise_multiplier, sample_rate=1.0, steps=steps)
        run.spent(recorded(event))
        return run.score(np.ones(40), vouched="a sample that was fixed before")

    return small_studies.released(stops_early, plan, vouched="a test")


def prepared(**options: Any) -> odp.Release:
    """Records of a schema; ``options`` say what is special of it."""
    of_rows = {"prepare": options.pop("prepare")} if "prepare" in options else {}
    rows = {"age": np.linspace(30.0, 70.0, 400), "died": ["no", "yes"] * 200}
    if "unit" in options:
        rows["who"] = np.arange(400) // 2
    age = options.pop("age", (20, 80))
    schema = odp.Schema(age=age, died=["no", "yes"], target="died", **options)
    plan = odp.plan_budget(epsilon=8.0, **small_studies.STEP, epochs=1, pilots=1, schema=schema)

    def objective(trial: optuna.Trial) -> Any:
        run = odp.start_run(trial)
        public = odp.draw_ranges(run, schema, rows) if plan.ranges is not None else schema
        table = public.encode(rows, **of_rows)
        return odp.train(run, odp.SoftmaxRegression(table.width, 2), table).score

    study = study_of(odp.BudgetSampler(plan))
    study.optimize(objective)
    return odp.release(study)


_FACTOR = 2.0
INNER = odp.Schema(age=(40, 160), died=["no", "yes"], target="died")


def doubled(rows: Any) -> Any:
    return INNER.encode({**rows, "age": _FACTOR * np.asarray(rows["age"], dtype=float)})


KINDS: dict[str, Callable[[], odp.Release]] = {
    **{kind: functools.partial(sampled, kind) for kind in test_verification.SAMPLERS},
    **test_statements.RELEASES,
    "selection_enforced": selection_enforced,
    "short_list": short_list,
    "disjoint_scores": disjoint_scores,
    "fewer_steps_and_own_words": fewer_steps_and_own_words,
    "of_persons": lambda: prepared(unit="who", most=2),
    "prepared_row_by_row": lambda: prepared(prepare=doubled),
    "drawn_ranges": lambda: prepared(age=odp.Number(0, 1000, scale="private")),
}
QUICK = ("rand_tune", "noisy_max", "all_by_schema")


@functools.cache
def released(kind: str) -> str:
    return json.dumps(KINDS[kind]().to_json())


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields where single values are in JSON; an empty list or object is one."""
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*place, key))
    else:
        yield place


def at(data: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        data = data[key]
    return data


def others(value: Any) -> list[Any]:
    """Values that might stand in place of one."""
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [1.0, "x"]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [value * 1.01, value * 0.99] if value else [0.001, -0.001]
    return [f"{value}x"] if isinstance(value, str) else [[1], {"a": 1}]


def agrees_after(data: dict[str, Any], place: tuple[Any, ...], value: Any) -> bool:
    """Returns whether a file agrees with itself after a change; False if it is none any more."""
    forged = copy.deepcopy(data)
    at(forged["statement"], place[:-1])[place[-1]] = value
    if place[0] == "content":
        at(forged, place[1:-1])[place[-1]] = value
    try:
        return odp.verify(made_again(forged), time_limit=100.0).ok
    except Exception:
        return False  # No release can be made of it.


def unnoticed(kind: str) -> set[str]:
    """Returns the places of a release that can be changed so that its file agrees."""
    data = json.loads(released(kind))
    statement = data["statement"]
    return {
        ".".join(map(str, place))
        for place in places({part: statement[part] for part in ("design", "guarantee", "content")})
        if any(agrees_after(data, place, value) for value in others(at(statement, place)))
    }


@pytest.mark.promise("statement-file")
@pytest.mark.parametrize("kind", slow_if(lambda kind: kind not in QUICK, KINDS))
def test_every_field_is_compared_or_named_as_not_compared(kind: str) -> None:
    data = json.loads(released(kind))
    named = places_not_compared(data["statement"])
    assert unnoticed(kind) <= named.keys()
    told = " ".join(odp.verify(data).unchecked)
    assert all(words in told for words in named.values())


@pytest.mark.slow
def test_nothing_is_named_as_not_compared_that_is_compared_in_all_kinds() -> None:
    found: set[str] = set()
    for kind in KINDS:
        named = places_not_compared(json.loads(released(kind))["statement"])
        found |= {named[place] for place in unnoticed(kind) & named.keys()}
    assert found == NOT_COMPARED.keys()
