"""The committed results of examples/headline: complete, within their budgets, and as printed."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "compare"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "headline"))

import rates
from results import table
from tasks import NAMES, REPETITIONS, SMALL, rows, size_of, split

import optuna_dp as odp

ROOT = Path(__file__).parents[2]
COMPARE = ROOT / "examples" / "compare"
FOLDER = ROOT / "examples" / "headline"
PAGE = ROOT / "docs" / "explanation" / "what-tuning-costs.md"
STORED = json.loads((FOLDER / "guarantees.json").read_text())
NOT_PRIVATE = {"free_choice", "free_choice_4x", "no_privacy"}
CELLS = [(f"{name}_rate", f"{e:g}") for name in NAMES for e in rates.EPSILONS[name]]


def searches() -> list[dict[str, str]]:
    with (FOLDER / "searches.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# PyTorch trains the network for long: some arms were left out, four have fewer repetitions.
LEFT_OUT = {"noisy_max", "train_linear", "train_linear_4x"}
FEWER, FEWEST = ("train", "train_4x", "train_adam", "train_adam_4x"), 3


def arms_of(task: str) -> set[str]:
    return set(rates.ARMS) - (LEFT_OUT if task == "flights_rate" else set())


def test_every_arm_has_all_its_repetitions_everywhere() -> None:
    found = Counter((r["task"], r["epsilon"], r["arm"], int(r["repetition"])) for r in searches())
    assert set(found.values()) == {1}
    wanted = {
        (task, epsilon, arm, repetition)
        for task, epsilon in CELLS
        for arm in arms_of(task)
        for repetition in range(REPETITIONS[task.removesuffix("_rate")])
    }
    missing = wanted - set(found)
    assert set(found) <= wanted
    assert all(
        task == "flights_rate" and arm in FEWER and repetition >= FEWEST
        for task, _, arm, repetition in missing
    )
    assert all(REPETITIONS[name] >= 24 for name in SMALL)


def test_what_an_arm_releases_is_within_its_budget() -> None:
    keys = {
        f"{task}, epsilon {epsilon}, {arm}": float(epsilon)
        for task, epsilon in CELLS
        for arm in arms_of(task) - NOT_PRIVATE
    }
    assert set(STORED) == set(keys)
    assert all(STORED[key]["epsilon"] <= epsilon for key, epsilon in keys.items())


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=[] if key.startswith("breast_cancer_rate, epsilon 3, p") else slow)
        for slow in [[pytest.mark.slow]]
        for key in STORED
    ],
)
def test_every_epsilon_follows_from_the_stored_guarantee(key: str) -> None:
    kept = STORED[key]
    found = odp.Guarantee.from_json(kept["guarantee"]).epsilon(rates.DELTA)
    assert found == pytest.approx(kept["epsilon"], rel=1e-6)


@pytest.mark.parametrize("name", SMALL)
def test_a_record_is_in_one_part_and_the_partitions_are_not_too_many(name: str) -> None:
    from optuna_dp.mechanisms import validation_records_needed

    parts, size = rows(name, 3), size_of(name)
    assert len(parts["train"]) == pytest.approx(size.train, rel=0.15)
    assert len(parts["valid"]) == pytest.approx(size.valid, rel=0.35)
    assert sorted([*parts["train"], *parts["valid"]]) == parts["private"].tolist()
    assert len(parts["private"]) == pytest.approx(size.records, rel=0.15)
    assert not set(parts["private"]) & set(parts["test"])
    assert len(split(name, 3).test[1]) == len(parts["test"])
    # A validation record moves a utility by no more than a training record does.
    assert len(parts["valid"]) >= validation_records_needed(size.partitions)


def test_one_run_is_what_known_without_data_promises() -> None:
    """No search at all: what the page claims, and the lowest that was asked for."""
    for epsilon, floor in (("1", 88.0), ("3", 91.8), ("8", 93.2)):
        found = [
            float(row["test"])
            for row in searches()
            if (row["task"], row["epsilon"], row["arm"])
            == ("digits_rate", epsilon, "one_rehearsed")
        ]
        assert 100 * sum(found) / len(found) >= floor


def test_odp_train_without_another_word_comes_to_what_the_page_says() -> None:
    """Goals were 89.5, 93.0 and 94.7: the first is missed by 0.3, the second by a hundredth."""
    for epsilon, floor in (("1", 89.15), ("3", 92.95), ("8", 94.7)):
        accuracies = [
            float(row["test"])
            for row in searches()
            if (row["task"], row["epsilon"], row["arm"]) == ("digits_rate", epsilon, "train_4x")
        ]
        assert 100 * sum(accuracies) / len(accuracies) >= floor


def test_a_rate_that_follows_looks_at_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr("tasks.load", refused)
    assert rates.rehearsed(size_of("digits"), 1.27) == pytest.approx(0.3722, abs=1e-3)


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    page = PAGE.read_text("utf-8")
    for arms in rates.TABLES:
        assert table(FOLDER / "searches.csv", arms) in page


def test_the_figure_is_drawn_from_the_results() -> None:
    figure = (ROOT / "docs" / "_static" / "headline.svg").read_text()
    for file in (FOLDER / "searches.csv", rates.FASHION, rates.LISTS):
        assert f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" in figure


@pytest.mark.slow
def test_the_harness_runs_the_tasks_and_arms_and_charges_what_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        "import rates\n"
        "ARMS = rates.ARMS\n"
        "TASKS = {'breast_cancer_rate': rates.TASKS['breast_cancer_rate']}\n"
    )
    command = [sys.executable, str(COMPARE / "run.py"), "--task", str(file), "--arms", str(file)]
    command += ["--epsilon", "3", "--real", "--repetitions", "1", "--results", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    with (tmp_path / "searches.csv").open(newline="") as found:
        kept = {row["arm"]: float(row["test"]) for row in csv.DictReader(found)}
    assert set(kept) == set(rates.ARMS)
    assert all(test > 0.5 for test in kept.values())
    made = json.loads((tmp_path / "guarantees.json").read_text())
    for key, plan in made.items():
        assert plan["epsilon"] <= 3.0
        # Today's planner may end elsewhere in the last per cent.
        if key in STORED:
            assert plan["epsilon"] == pytest.approx(STORED[key]["epsilon"], rel=0.01)
