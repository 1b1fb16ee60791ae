"""Approved pages: what a reader of a release is told, whole, as it is printed.

``statements/`` holds the pages of small studies. After a change of words make them again, and read
the difference before you commit it::

    PYTHONPATH=tests python tests/releasing/test_statements.py
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from releasing.small_studies import compares, released, shows_nothing, trains
from slow_cases import slow_if
from support import exactly, recorded, simulated, study_of

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError
from optuna_dp.evidence.facts import Fact, Status

PAGES = Path(__file__).parent / "statements"
RELEASES: dict[str, Callable[[], odp.Release]] = {}
QUICK = odp.pure_dp(0.1)  # Quickly accounted for.


def approved(make: Callable[[], odp.Release]) -> Callable[[], odp.Release]:
    """Enters a release whose page is approved, under the name of the function that makes it."""
    RELEASES[make.__name__] = make
    return make


def draws(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1)


def selected(run: Any, law: Any = None, **description: Any) -> odp.Release:
    """A release whose cost of a run is the curator's word."""
    study = study_of(odp.RandTuneSampler(trials=law or odp.Geometric(mean=3), run=run))
    if description:
        odp.describe(study, **description)
    study.optimize(draws)
    return odp.release(study, vouched="I trained with this noise.")


@approved
def budget_enforced() -> odp.Release:
    return released(trains, described=400)


@approved
def budget_of_two_kinds() -> odp.Release:
    return released(lambda trial: (trains if trial.number == 0 else compares)(trial))


@approved
def budget_not_checked() -> odp.Release:
    return released(shows_nothing, vouched="Our own library trains with this noise.")


@approved
def selection_described() -> odp.Release:
    return selected(
        odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.1, steps=3),
        dataset="Ward 7, release 2",
        records=900,
        owner="St. Anne's",
        unit="patient",
        most=2,
        trust="the clinic's own cluster",
    )


@approved
def selection_of_clients() -> odp.Release:
    return selected(odp.per_client(odp.gaussian(noise_multiplier=4.0)))


@approved
def selection_within_density_bounds() -> odp.Release:
    sampler = odp.DPHyPOSampler(
        trials=odp.Geometric(mean=3), candidates=4, startup_runs=1, run=QUICK
    )
    study = study_of(sampler)
    study.optimize(draws)
    return odp.release(study, vouched="a test")


@approved
def number_of_runs_revealed() -> odp.Release:
    def breaks(trial: optuna.Trial) -> float:
        if trial.number >= 3:
            raise RuntimeError("the objective is broken")
        return draws(trial)

    study = study_of(odp.RandTuneSampler(trials=exactly(40), run=QUICK))
    study.optimize(breaks, catch=(RuntimeError,))
    return odp.release(study, failures="lost", vouched="a test")


@approved
def choice_over_partitions() -> odp.Release:
    study = study_of(odp.NoisyMaxSampler(candidates=2, n_partitions=900, epsilon=1.0))
    study.optimize(draws)
    return odp.release(study)


@approved
def all_by_schema() -> odp.Release:
    schema = odp.Schema(age=(20, 80), died=["no", "yes"], target="died")
    rows = {"age": np.linspace(30, 70, 200), "died": ["no", "yes"] * 100}
    plan = odp.plan_budget(epsilon=3.0, records=200, batch_size=200, epochs=1, pilots=0)
    study = study_of(odp.BudgetSampler(plan))
    study.optimize(
        lambda trial: (
            odp.train(
                odp.start_run(trial),
                odp.SoftmaxRegression(schema.width, 2),
                schema.encode(rows),
                score="accuracy",
            ).score
        )
    )
    return odp.release(study)


@approved
def with_a_final_training() -> odp.Release:
    release = with_fixed_values(selected(QUICK))
    return release.with_training(odp.gaussian(noise_multiplier=9.0), artifact=b"the model")


def with_fixed_values(release: odp.Release) -> odp.Release:
    """A release whose values are the same each time, instead of drawn ones."""
    pilots = [
        {**pilot, "params": dict.fromkeys(pilot["params"], i / 8), "value": i / 16}
        | {"values": [i / 16]}
        for i, pilot in enumerate(release.pilots, start=1)
    ]
    return dataclasses.replace(
        release,
        params=pilots[-1]["params"] if pilots else dict.fromkeys(release.params or {}, 0.25),
        value=None if release.value is None else 0.75,
        attributes={"pilots": pilots} if "pilots" in release.attributes else {},
    )


def pages_of(release: odp.Release) -> str:
    """The page and the sheet of questions, without versions, digests and lines for answers."""
    found = odp.verify(json.loads(json.dumps(release.to_json())))
    assert found.ok, str(found)
    assert found.statement == release.statement()
    text = f"{found.statement}\n{found.questions}"
    text = re.sub(r"\n\n   (Answer|How it is known|Name): _.*", "", text)
    text = re.sub(r"[0-9a-f]{64}", "(SHA-256)", text)
    text = re.sub(r"(noted when the runs began: ).*?( That these)", r"\1(script).\2", text)
    return re.sub(r"\nMade with .*", "\nMade with (versions).", text)


NUMBERS = re.compile(r"\d+\.\d+(?:e-?\d+)?")
SLOW = (
    "number_of_runs_revealed",
    "selection_described",
    "selection_within_density_bounds",
    "with_a_final_training",
)


@pytest.mark.parametrize("name", slow_if(lambda name: name in SLOW, list(RELEASES)))
def test_the_page_and_the_questions_of_a_release_are_the_approved_ones(name: str) -> None:
    page, expected = (
        pages_of(with_fixed_values(RELEASES[name]())),
        (PAGES / f"{name}.md").read_text(),
    )
    if NUMBERS.sub("", page) != NUMBERS.sub("", expected):
        assert page == expected
    # A last digit may differ between processors.
    numbers, expected_numbers = (
        [float(number) for number in NUMBERS.findall(text)] for text in (page, expected)
    )
    np.testing.assert_allclose(numbers, expected_numbers, rtol=1e-3)


@pytest.mark.parametrize("status", Status)
def test_a_fact_is_read_from_its_json_as_it_was(status: Status) -> None:
    fact = Fact("A row", None if status is Status.NOT_STATED else "what is said", status)
    assert Fact.from_json(json.loads(json.dumps(fact.to_json()))) == fact
    with pytest.raises(OptunaDPError):
        Fact.from_json({**fact.to_json(), "status": "audited"})


# Words of the page's own. As a curator's words they must change nothing but the row they are in.
MISLEADING = (
    "a pilot that was not checked by anybody",
    "vouched for: what was not stated",
    "not stated by the curator (optuna_dp.describe)",
    "enforced: by us. **The whole road is enforced**",
    "compared; checked; planned",
)


def verified(release: odp.Release) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(release.to_json()))
    assert odp.verify(data).ok
    return data


def described(words: str) -> dict[str, Any]:
    """A release with these words in every field of its description, and as its reason."""
    study = optuna.create_study(
        sampler=odp.RandTuneSampler(trials=odp.Binomial(1, mean=1), run=QUICK)
    )
    fields = ("dataset", "owner", "sampling", "trust", "purpose")
    free: dict[str, Any] = dict.fromkeys(fields, words)
    unit = "".join(c for c in words if c.isalnum() or c == " ").strip()
    odp.describe(study, **free, unit=unit, most=2)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return verified(odp.release(study, vouched=words))


def named(words: str) -> dict[str, Any]:
    """A release with these words where an objective may have some."""
    plan = odp.plan_budget(epsilon=3.0, records=400, batch_size=400, epochs=1, pilots=1)

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        trial.suggest_categorical(words, [words])
        run.spent(recorded(simulated(run)))
        return run.score(np.ones(10), size=400, vouched=words)

    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective)
    return verified(odp.release(study, vouched=words))


def open_points(data: dict[str, Any]) -> tuple[str, int, str]:
    found = odp.verify(data)
    return found.open_points, found.questions.count("Answer: "), found.statement.split("\n\n")[3]


@pytest.mark.parametrize("words", MISLEADING)
@pytest.mark.parametrize("make", [described, named])
def test_words_of_the_curator_change_no_status_no_question_and_no_warning(
    make: Callable[[str], dict[str, Any]], words: str
) -> None:
    plain, misleading = make("ours"), make(words)
    assert [(fact["name"], fact["status"]) for fact in misleading["statement"]["facts"]] == [
        (fact["name"], fact["status"]) for fact in plain["statement"]["facts"]
    ]
    assert open_points(misleading) == open_points(plain)


if __name__ == "__main__":
    for title, make_release in RELEASES.items():
        (PAGES / f"{title}.md").write_text(pages_of(with_fixed_values(make_release())))
