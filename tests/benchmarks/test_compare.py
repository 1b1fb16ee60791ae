"""examples/compare: landscapes agree with trainings, and the harness runs files of anybody's."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples" / "compare"))

import candidates
import kinds
import lists
import network_lists
from bench import VERIFIED, Bench
from landscape import FOLDER as LANDSCAPES
from landscape import MEASURES, Landscape, bare_run, make, measured
from networks import trained
from results import PAGE_ARMS, falls_short, most_work, read, standings, summary, table
from task import Task, choices, from_file, load

import optuna_dp as odp

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "compare"
harness = from_file(FOLDER / "run.py")  # Another example has a module of this name.
NAMES = sorted(path.stem for path in LANDSCAPES.glob("*.npz"))


def tiny() -> Task:
    """Two clouds; one feature of two tells them apart."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    x = np.stack([rng.normal(size=300), 3.0 * y + rng.normal(size=300)], axis=1)
    transforms = {"both": lambda x: x, "first": lambda x: x[:, :1]}
    return Task(
        name="tiny",
        x=x.astype(np.float32),
        y=y,
        space=choices(features=("both", "first"), width=(0, 4), unit=("tanh", "relu")),
        only_if={"unit": lambda params: params["width"] > 0},
        good={"features": "both", "width": 0},
        poor={"features": "first", "width": 0},
        train=trained(transforms, lambda: odp.made_up_inputs((-2, 2), (-1, 4)), 2),
        records=200,
        test=100,
        batch=50,
        epsilons=(3.0, 8.0),
        steps=30,
    )


def tiny_regression() -> Task:
    """The second feature itself, in three bins."""
    task, centers = tiny(), (-1.0, 0.0, 1.0)
    target = (task.x[:, 1] - 1.5) / 2.0
    bins = np.abs(target[:, None] - centers).argmin(axis=1)
    transforms = {"both": lambda x: x, "first": lambda x: x[:, :1]}
    train = trained(transforms, lambda: odp.made_up_inputs((-2, 2), (-1, 4)), 3)
    return replace(task, y=bins, target=target, centers=centers, train=train)


def test_there_are_landscapes_of_fifteen_tasks_in_eight_megabytes() -> None:
    assert len(NAMES) == 12
    assert len(network_lists.files()) == 3
    assert sum(path.stat().st_size for path in LANDSCAPES.rglob("*.npz")) < 8e6


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("flights", "origins")])
def test_a_landscape_has_every_configuration_of_its_task(name: str) -> None:
    task, found = load(name), Landscape.read(name)
    assert found.configurations == json.loads(json.dumps(task.configurations()))
    assert found.place(task.good) != found.place(task.poor)
    assert found.found[..., MEASURES.index("test accuracy")].max() <= 1.0001
    # More noise is worse, on the whole.
    test = found.found[..., MEASURES.index("test")].mean(axis=(0, 1, 3))
    assert test[0] > test[-1]


@pytest.mark.slow
def test_the_page_has_what_is_on_file_and_all_that_falls_short() -> None:
    page = (ROOT / "docs" / "explanation" / "searches.md").read_text()
    path = FOLDER / "searches.csv"
    shown = [*summary(path).splitlines(), *standings(path).splitlines(), *falls_short(path)]
    for line in shown:
        assert line in page
    assert table(path, list(PAGE_ARMS)) in (FOLDER / "results.md").read_text()
    cells = read(path)
    assert len(cells) == 36
    assert all(len(runs) == 40 for cell in cells.values() for arm, runs in cell.items())
    # The choices without private runs are made at a task's largest epsilon only.
    for cell in cells.values():
        assert set(PAGE_ARMS) - set(cell) <= {"noisy_max", "propose_test"}
    tried = json.loads((FOLDER / "utilities.json").read_text())
    assert sum("noisy_max" in cell for cell in cells.values()) == len(tried) == 12


def test_the_page_has_the_tables_of_short_lists() -> None:
    page = (ROOT / "docs" / "explanation" / "searches.md").read_text()
    found = json.loads(lists.RESULTS.read_text())
    assert len(found["cells"]) == 36
    for part in lists.pages(found["cells"]):
        for line in part.splitlines():
            assert line in page


def test_the_page_has_the_tables_of_real_networks() -> None:
    page = (ROOT / "docs" / "explanation" / "searches.md").read_text()
    found = json.loads(network_lists.RESULTS.read_text())
    assert len(found["cells"]) == 9
    for part in network_lists.pages(found["cells"]):
        for line in part.splitlines():
            assert line in page


def test_a_short_list_knows_nothing_of_its_own_task_or_its_kin() -> None:
    assert {"diabetes", "progress"}.isdisjoint(kinds.others("progress"))
    assert {"flights", "origins"}.isdisjoint(kinds.others("flights"))
    task = load("wine")
    found = kinds.short_list(task, task.poor)
    assert found[:2] == [[task.poor], list(task.beyond)]
    assert len(found) == 6
    assert all(params in task.configurations() for those in found[2:] for params in those)


def test_what_the_package_ships_is_what_the_landscapes_say() -> None:
    before = kinds.KNOWN.read_text()
    assert kinds.record() == json.loads(before)


def test_an_oracle_of_densities_stays_within_its_bounds() -> None:
    cell = lists.Cell(load("wine"), Landscape.read("wine", beyond=True), 3.0)
    tests = np.random.default_rng(0).random(len(cell.land.configurations))
    base, found = cell.uniform(tests), cell.oracle(tests)
    inside = base > 0.0
    assert found.sum() == pytest.approx(1.0)
    assert not found[~inside].any()
    density = found[inside] / base[inside]
    assert (density.min(), density.max()) == pytest.approx((0.75, 2.0))
    assert found @ tests > base @ tests
    assert cell.of_the_list(tests).sum() == pytest.approx(1.0)


def test_every_search_has_a_guarantee_within_its_epsilon() -> None:
    stored = json.loads((FOLDER / "guarantees.json").read_text())
    assert len(stored) == sum(len(cell) for cell in read(FOLDER / "searches.csv").values())
    for name, kept in stored.items():
        assert kept["epsilon"] <= float(name.split("epsilon ")[1].split(",")[0])
    assert most_work(FOLDER / "searches.csv", "budget") <= 3.5


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["budget", pytest.param("", id="all")])
def test_every_epsilon_follows_from_the_stored_guarantee(arm: str) -> None:
    stored = json.loads((FOLDER / "guarantees.json").read_text())
    known: dict[str, float] = {}
    for name, kept in stored.items():
        if not name.endswith(arm):
            continue
        key = json.dumps(kept["guarantee"])
        if key not in known:
            known[key] = odp.Guarantee.from_json(kept["guarantee"]).epsilon(1e-5)
        assert known[key] == pytest.approx(kept["epsilon"], rel=1e-6), name
        assert known[key] <= float(name.split("epsilon ")[1].split(",")[0]), name


def test_a_parameter_that_is_not_always_there_is_listed_only_where_it_is() -> None:
    found = tiny().configurations()
    assert len(found) == 6
    assert all(("unit" in params) == (params["width"] > 0) for params in found)


@pytest.mark.slow
def test_what_took_place_is_looked_up_as_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    made = make(tiny(), repetitions=2)
    monkeypatch.setattr("landscape.FOLDER", tmp_path)
    made.save("tiny")
    kept = Landscape.read("tiny")
    for (i, steps), j in [((0, 30), 1), ((1, 12), 0)]:
        noise = float(made.noises[i, j])
        for params in made.configurations:
            here = kept.run(params, noise, steps, repetition=1)
            there = made.found[made.place(params), i, j, 1]
            assert here == pytest.approx(np.minimum(there, 16.0), abs=3e-4)
    between = kept.at(float(np.sqrt(made.noises[0, 0] * made.noises[0, 1])), 30)
    ends = made.found[:, 0, :2]
    assert np.all(between <= ends.max(axis=1) + 3e-4)
    assert np.all(between >= ends.min(axis=1) - 3e-4)


@pytest.mark.slow
def test_a_replayed_search_is_charged_and_released_like_a_real_one() -> None:
    task = tiny()
    budget, made = from_file(FOLDER / "arms" / "budget.py"), make(task, repetitions=1)
    plan = budget.plan(task, 8.0)
    for landscape in (None, made):
        bench = Bench(task, 8.0, 0, landscape, np.random.default_rng(0))
        found = budget.search(bench, plan)
        assert found.runs == plan.runs
        assert found.params in task.configurations()
        assert bench.models[0][0] == task.good


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The records that the package is asked to verify from now on."""
    verified: list[Any] = []
    verify = odp.verify

    def counting(record: Any) -> Any:
        verified.append(record)
        return verify(record)

    monkeypatch.setattr(odp, "verify", counting)
    return verified


# Arms that make a study, whose outcome is a release.
STUDIES = ("budget", "randtune", "dp_hypo", "noisy_max", "propose_test")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arm",
    [
        pytest.param(arm, marks=[] if arm == "budget" else [pytest.mark.slow])
        for arm in sorted(path.stem for path in (FOLDER / "arms").glob("*.py"))
    ],
)
def test_every_arm_searches_and_what_it_releases_is_verified(
    arm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task, made = tiny(), from_file(FOLDER / "arms" / f"{arm}.py")
    verified, plan = counted(monkeypatch), made.plan(task, 8.0)
    assert plan.guarantee.epsilon(1e-5) <= 8.0
    found = made.search(Bench(task, 8.0, 3, None, np.random.default_rng(0)), plan)
    assert found.params in task.configurations()
    assert len(verified) == (
        arm in STUDIES or arm.startswith(("budget", "pilots", "randtune", "short_list"))
    )
    if arm in ("noisy_max", "propose_test"):
        assert made.plan(task, 3.0) is None


@pytest.mark.slow
def test_releases_of_replays_are_verified_once_in_twenty(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny()
    budget, made = from_file(FOLDER / "arms" / "budget.py"), make(task, repetitions=1)
    plan, verified = budget.plan(task, 8.0), counted(monkeypatch)
    for repetition in (0, 1, VERIFIED - 1, VERIFIED):
        budget.search(Bench(task, 8.0, repetition, made, np.random.default_rng(0)), plan)
    assert len(verified) == 2


@pytest.mark.slow
def test_a_release_that_does_not_verify_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    task, budget = tiny(), from_file(FOLDER / "arms" / "budget.py")
    plan, verify = budget.plan(task, 8.0), odp.verify

    def of_other_params(record: Any) -> Any:
        changed = {**record, "params": {**record["params"], "width": 64}}
        return verify(changed)

    monkeypatch.setattr(odp, "verify", of_other_params)
    with pytest.raises(ValueError, match="DIFFERS"):
        budget.search(Bench(task, 8.0, 0, None, np.random.default_rng(0)), plan)


def test_an_epsilon_that_does_not_follow_from_the_stored_guarantee_is_found(
    tmp_path: Path,
) -> None:
    guarantee = odp.Guarantee(odp.gaussian(2.0))
    spent = guarantee.epsilon(1e-5)
    paid = tmp_path / "guarantees.json"
    stored = {"epsilon": spent, "guarantee": guarantee.to_json()}
    paid.write_text(json.dumps({"right": stored, "wrong": {**stored, "epsilon": spent / 2}}))
    harness.check(paid, "right", 3.0)
    for key, allowed in (("wrong", 3.0), ("right", spent / 2)):
        with pytest.raises(ValueError, match=key):
            harness.check(paid, key, allowed)


def test_a_regression_is_scored_by_its_capped_squared_error() -> None:
    task = tiny_regression()
    assert task.target is not None
    rows = np.arange(300)
    nearly = 50.0 * np.eye(3)[task.y]
    errors = np.minimum((np.array(task.centers)[task.y] - task.target) ** 2, 1.0)
    assert task.values(nearly, rows) == pytest.approx(1.0 - errors)
    assert task.values(nearly[:, ::-1], rows).min() == 0.0
    # A search of it runs on a landscape and in truth, and tells the feature that matters.
    good = measured(task, *predicted(task, "both"))[0]
    assert good > measured(task, *predicted(task, "first"))[0] + 0.05


def predicted(task: Task, features: str) -> tuple[Any, np.ndarray, np.ndarray]:
    private, test = task.split(0)
    params = {"features": features, "width": 0}
    run, rng = bare_run(task, 1.0, 60), np.random.default_rng(0)
    return task.train(task.x[private], task.y[private], params, run, rng), private, test


@pytest.mark.parametrize("made", [tiny, tiny_regression], ids=lambda made: made.__name__)
def test_a_real_score_is_a_private_mean_of_what_records_add(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = made()
    bench, calls = Bench(task, 8.0, 0, None, np.random.default_rng(0)), []
    model = bench.run(task.good, bare_run(task, 2.0, 30))
    values = bench.values[model]
    assert 0.0 <= values.min() <= values.max() <= task.reach
    assert values.mean() == pytest.approx(bench.exact(model, "score"))
    private_mean = odp.scoring.private_mean

    def mean(*args: Any, **given: Any) -> float:
        calls.append(given)
        return private_mean(*args, **given)

    monkeypatch.setattr(odp.scoring, "private_mean", mean)
    bench.score(model, 3.0)
    expected = {"lower": 0.0, "upper": task.reach, "size": 200, "noise_multiplier": 3.0}
    assert calls == [expected]


@pytest.mark.slow
def test_a_record_moves_the_utilities_of_one_part_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the parts' generators fixed; 0 to 1 each, and the scores decide."""
    task = tiny()
    placed = np.arange(200) % 10
    monkeypatch.setattr(candidates.odp, "partition", lambda n, k: placed[:n])
    rows, run = np.arange(200), bare_run(task, 2.0, 20)
    fresh = np.random.default_rng
    found = []
    for shift in (0.0, 5.0):
        seeds = iter(range(1000))

        def same(seed: Any = None, seeds: Any = seeds) -> np.random.Generator:
            return fresh(next(seeds) if seed is None else seed)

        monkeypatch.setattr(candidates.np.random, "default_rng", same)
        task.x[3] += shift
        found.append(candidates.utilities(task, rows, run))
    assert found[0].shape == (len(task.configurations()), 10)
    moved = np.flatnonzero((found[0] != found[1]).any(axis=0))
    assert set(moved) <= {3}
    assert 0.0 <= np.min(found) <= np.max(found) <= 1.0


def test_the_arm_of_the_extending_page_has_thirty_lines_at_most() -> None:
    text = (FOLDER / "arms" / "successive_halving.py").read_text()
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 30


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "steps"), [(1.5, 40), (5.0, 100)])
def test_replayed_runs_agree_with_real_ones(noise: float, steps: int) -> None:
    """Between the grid's points, on other seeds: each configuration, and all in the mean."""
    task, found = load("digits"), Landscape.read("digits")
    rng = np.random.default_rng(1)
    at = [MEASURES.index(measure) for measure in ("score", "test", "loss 2")]
    real = []
    for params in task.configurations():
        runs = []
        for repetition in (8, 9):
            private, test = task.split(repetition)
            run = bare_run(task, noise, steps)
            predict = task.train(task.x[private], task.y[private], params, run, rng)
            runs.append(measured(task, predict, private, test))
        real.append(np.array(runs)[:, at])
    replayed = found.at(noise, steps)[:, :, at]
    apart = np.array(real).mean(axis=1) - replayed.mean(axis=1)
    # Of one configuration by the spread of single runs; in the mean by that of the means.
    spread = replayed.std(axis=1, ddof=1)
    assert np.all(np.abs(apart) <= 6.0 * spread * (1 / 2 + 1 / 8) ** 0.5 + 0.02)
    error = apart.std(axis=0, ddof=1) / len(apart) ** 0.5
    # Curves between two points of the grid are not quite straight: a point is allowed for it.
    assert np.all(np.abs(apart.mean(axis=0)) <= 0.01 * np.array([1, 1, 3]) + 4.0 * error)


def area(found: np.ndarray, positive: np.ndarray) -> float:
    """Under the curve, from ranks."""
    ranks = np.argsort(np.argsort(found)) + 1.0
    count = positive.sum()
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(positive) - count)))


@pytest.mark.slow
def test_a_balanced_accuracy_tells_configurations_apart_better_than_an_area() -> None:
    """Its noise is half as large, and its differences twice as large."""
    task, land = load("rare"), Landscape.read("rare")
    private, test = task.split(0)
    for place in (0, 2):
        areas, balanced = [], []
        for k, params in enumerate(task.configurations()):
            run = bare_run(task, float(land.whole[place]), task.steps)
            rng = np.random.default_rng(k)
            predict = task.train(task.x[private], task.y[private], params, run, rng)
            logits = predict(task.x[test]).astype(np.float64)
            areas.append(area(logits[:, 1] - logits[:, 0], task.y[test] == 1))
            balanced.append(task.values(logits, test).mean())
        assert np.std(balanced) > 1.5 * np.std(areas)
    rarer = task.records * min(task.shares)
    # The noise of a private mean over that of an area whose pairs count from -1/2 to 1/2.
    noise = task.reach / (2 * task.records)
    assert noise == pytest.approx(0.5 / (2 * rarer))


@pytest.mark.slow
def test_the_harness_resumes_and_prints_paired_differences(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text((FOLDER / "arms" / "one_poor.py").read_text())
    task = tmp_path / "own.py"
    task.write_text((FOLDER / "tasks" / "wine.py").read_text().replace('"wine"', '"own"'))

    def run(count: int) -> str:
        command = [sys.executable, str(FOLDER / "run.py"), "--task", str(task), "--epsilon", "8"]
        command += ["--arms", f"one_good,budget,{own}", "--repetitions", str(count)]
        command += ["--results", str(tmp_path / "found")]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout

    run(2)
    first = (tmp_path / "found" / "searches.csv").read_text()
    shown = run(3)
    assert (tmp_path / "found" / "searches.csv").read_text().startswith(first)
    assert "| own, 8 |" in shown
    assert "±" in shown
    stored = json.loads((tmp_path / "found" / "guarantees.json").read_text())
    for kept in stored.values():
        again = odp.Guarantee.from_json(kept["guarantee"]).epsilon(1e-5)
        assert again == pytest.approx(kept["epsilon"])
        assert again <= 8.0
