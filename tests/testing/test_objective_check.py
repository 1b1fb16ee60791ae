"""``check_objective`` finds what is planted in honest objectives, and nothing in honest ones.

Trainings by hand; those of Opacus are in ``test_opacus_check.py``.
"""

from __future__ import annotations

import functools
import json
import random
import sqlite3
import time
from os import urandom as uncontrolled_bytes  # by a name that no check replaces
from pathlib import Path

import numpy as np
import optuna
import pytest
from numpy import ndarray
from slow_cases import slow_if

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.testing.made_up_data import variants
from optuna_dp.testing.stated_training import alternatives, answers_in

from .small_trainings import EVENT, SIZE, TRAINING, X, Y, names, score, train


def honest(trial):
    return score(train(trial.suggest_float("rate", 0.1, 1.0, log=True)))


class Keeper:
    """Keeps every model, and reads none."""

    def __init__(self):
        self.models, self.last, self.count = {}, None, 0

    def __call__(self, trial):
        self.last = train(trial.suggest_float("rate", 0.1, 1.0))
        self.models[trial.number] = self.last
        return score(self.models[trial.number])


def with_categories(trial):
    trial.suggest_categorical("kind", ["a", "b"])
    if trial.suggest_int("depth", 1, 9, log=True) > 3:
        trial.suggest_float("only then", 0, 1)
    trial.set_user_attr("threshold", 0.5)
    return honest(trial)


def reports_its_score(trial):
    value = honest(trial)
    trial.report(value, 1)
    return value


HISTORY: list[float] = []


def writes_a_log(trial):
    value = honest(trial)
    HISTORY.append(value)
    return value


class Model:
    """Looks like a network of torch, as a class and as an object."""

    def __init__(self):
        self.weights = np.zeros(3)

    def state_dict(self):
        return {"weights": self.weights}

    def parameters(self):
        return [self.weights]


def has_classes_of_models(trial):
    model = Model()
    model.weights = train(trial.suggest_float("rate", 0.1, 1.0))
    return score(model.weights.view(ndarray))


HONEST = {
    "honest": honest,
    "has classes of models and arrays": has_classes_of_models,
    "a lambda": lambda trial: honest(trial),
    "a partial": functools.partial(lambda trial, k: honest(trial), k={"a": 1}),
    "keeps its models": Keeper(),
    "conditional": with_categories,
    "reports its score": reports_its_score,
    "writes a log": writes_a_log,
    "pruned": lambda trial: (_ for _ in ()).throw(optuna.TrialPruned()),
}


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_found_in_honest_objectives(name) -> None:
    report = odp.check_objective(HONEST[name], EVENT)
    assert not report.findings, str(report)
    assert report.ok
    report.check()
    assert "nothing found, which proves nothing" in str(report)
    assert any("Opacus" in sentence for sentence in report.not_checked)


def seeds_numpy(trial):
    np.random.seed(3)
    return honest(trial)


def seeds_random(trial):
    random.seed(3)
    return honest(trial)


def fixed_generator(trial):
    rng = np.random.default_rng(0)
    return float(rng.normal() + trial.suggest_float("rate", 0.1, 1.0))


def exact(trial):
    return float(np.mean((X @ train(trial.suggest_float("rate", 0.1, 1.0, log=True)) > 0) == Y))


def exact_in_single_precision(trial):
    return float(np.float32(exact(trial)))


def best_so_far(trial):
    return max(honest(trial), trial.study.best_value)


def best_so_far_if_any(trial):
    return honest(trial) + (1e-9 * trial.study.best_value if trial.number else 0.0)


def warm_start(trial):
    others = [t.params["rate"] for t in trial.study.trials if t.params]
    trial.suggest_float("rate", 0.1, 1.0)
    return score(train(max(others, default=1.0)))


CACHE: dict[float, np.ndarray] = {}


def cached(trial):
    rate = trial.suggest_float("rate", 0.1, 1.0)
    if rate not in CACHE:
        CACHE[rate] = train(rate)
    return score(CACHE[rate])


@functools.cache
def remembered(rate):
    return train(rate)


def memoised(trial):
    return score(remembered(trial.suggest_float("rate", 0.1, 1.0)))


BEST = 0.0


def global_best(trial):
    global BEST
    BEST = max(BEST, honest(trial))
    return BEST


WEIGHTS = np.zeros(3)


def margin(weights):
    """A noisy score that every change of the weights changes, unlike a count of few records."""
    return float(np.tanh(X @ weights).mean() + np.random.default_rng().normal())


def same_array(trial):
    WEIGHTS[:] += train(trial.suggest_float("rate", 0.1, 1.0))
    return margin(WEIGHTS)


RUNS = [0]


def seldom(trial):
    """What is left behind changes every second score only, as with shares of few records."""
    RUNS[0] += 1
    return score(train(trial.suggest_float("rate", 0.1, 1.0))) + RUNS[0] // 2


def in_a_closure():
    seen = []

    def objective(trial):
        seen.append(honest(trial))
        return sum(seen) / len(seen)

    return objective


def in_a_default(trial, kept={}):  # noqa: B006 (the fault that is planted)
    rate = trial.suggest_float("rate", 0.1, 1.0)
    if "weights" not in kept:
        kept["weights"] = train(rate)
    return score(kept["weights"])


class WarmStart:
    def __init__(self):
        self.weights = np.zeros(3)

    def __call__(self, trial):
        self.weights = self.weights + train(trial.suggest_float("rate", 0.1, 1.0))
        return margin(self.weights)


def reports_exact_values(trial):
    for step in range(3):
        trial.report(exact(trial), step)
    return honest(trial)


def raises(trial):
    honest(trial)
    raise ArithmeticError("the third record is broken")


# Shared state that each run changes takes many runs to be seen.
DRIFTING = ("a global", "an array", "a count", "a closure", "an attribute")
PLANTED = {
    "a seed of numpy": (seeds_numpy, ["fixed seed", "literal seed"]),
    "a seed of random": (seeds_random, ["fixed seed", "literal seed"]),
    "a generator of its own": (fixed_generator, ["repeated score", "fixed seed", "literal seed"]),
    "exact accuracy": (exact, ["exact score"]),
    "exact in single precision": (exact_in_single_precision, ["exact score"]),
    "the best so far": (best_so_far, ["other trials"]),
    "the best so far, if any": (best_so_far_if_any, ["other trials"]),
    "a warm start": (warm_start, ["other trials"]),
    "a cache": (cached, ["shared state"]),
    "functools.cache": (memoised, ["shared state"]),
    "a global": (global_best, []),
    "an array": (same_array, ["shared state"]),
    "a count": (seldom, ["shared state"]),
    "a closure": (in_a_closure(), ["shared state"]),
    "an attribute": (WarmStart(), ["shared state"]),
    "reports": (reports_exact_values, ["reported values"]),
    "raises": (raises, ["failure"]),
}


@pytest.mark.parametrize("name", slow_if(lambda name: name in DRIFTING, PLANTED))
def test_what_is_planted_is_found_and_nothing_else(name) -> None:
    objective, expected = PLANTED[name]
    report = odp.check_objective(objective, EVENT)
    found = [f.name for f in report.findings]
    if name == "a global":  # the best of several is often the same twice
        assert found[-1] == "kept across runs", str(report)
        assert set(found[:-1]) <= {"shared state", "repeated score"}, str(report)
    else:
        # Two exact scores of a few records may be equal as well.
        others = [n for n in found if n != "repeated score" or n in expected]
        assert others == expected, str(report)
    assert not report.ok
    with pytest.raises(AssertionError, match="to mend"):
        report.check()


def test_a_function_that_takes_no_trial_is_told_what_an_objective_is() -> None:
    def train(rate, hidden, records):
        return 0.5

    report = odp.check_objective(train, EVENT)
    assert [f.name for f in report.findings] == ["arguments"]
    assert "train(rate, hidden, records) cannot be called with the trial alone" in str(report)
    assert report.runs == 0
    with_records = odp.check_objective(lambda trial: 0.5, EVENT, data=np.zeros((8, 2)))
    assert "with the trial and the records" in str(with_records)


def test_when_every_run_fails_alike_that_is_all_there_is_to_mend() -> None:
    report = odp.check_objective(raises, EVENT)
    (failure,) = report.findings
    assert failure.what.startswith("Every run fails (")
    assert "Mend this first" in failure.change
    assert not any("Opacus" in words for words in report.not_checked)


def test_what_only_the_very_first_run_leaves_is_a_hint() -> None:
    """A library may begin otherwise than it goes on, so nobody is accused of it."""
    report = odp.check_objective(in_a_default, EVENT)
    assert [(f.name, f.certain) for f in report.findings] == [("shared state", False)]


@pytest.mark.parametrize("how", slow_if(lambda how: how == "sqlite", ["json", "numpy", "sqlite"]))
def test_a_file_that_an_earlier_run_has_left_is_found(tmp_path: Path, how: str) -> None:
    place = tmp_path / "state.npy"

    def best_in_json(value):
        best = max([value, *(json.loads(place.read_text()) if place.exists() else [])])
        place.write_text(json.dumps([best]))
        return best

    def model_in_numpy(rate):
        if not place.exists():
            np.save(place, train(rate))
        return score(np.load(place))

    def best_in_sqlite(value):
        with sqlite3.connect(place) as db:
            db.execute("create table if not exists t (x)")
            db.execute("insert into t values (?)", [value])
            return db.execute("select max(x) from t").fetchone()[0]

    def left(trial):
        if how == "numpy":
            return model_in_numpy(trial.suggest_float("rate", 0.1, 1.0))
        return (best_in_json if how == "json" else best_in_sqlite)(honest(trial))

    # The best of several is often the same twice.
    found = set(names(left))
    assert found
    assert found <= {"shared state", "repeated score"}


def test_what_cannot_be_repeated_is_said_and_nobody_is_accused() -> None:
    def from_the_clock(trial):
        return honest(trial) + float(np.random.default_rng(time.time_ns()).normal())

    report = odp.check_objective(from_the_clock, EVENT)
    assert not report.findings, str(report)
    assert any("what a run leaves for the next" in line for line in report.not_checked)


@pytest.mark.parametrize(
    ("share", "checks"),
    slow_if(
        lambda share, checks: checks == 50,
        [(0.3, 5), (0.05, 50), (0.3, 50), (0.5, 50), (0.9, 50)],
    ),
)
def test_few_scores_of_noise_that_cannot_be_repeated_are_no_shared_state(share, checks) -> None:
    """Two scores by a source that no check controls: they are equal, and differ, by luck."""

    def coarse(trial):
        trial.suggest_float("rate", 0.1, 1.0)
        return 0.5 + 0.1 * (uncontrolled_bytes(1)[0] < 256 * share)

    reports = [odp.check_objective(coarse, public_score=True) for _ in range(checks)]
    assert not any(report.findings for report in reports)
    gap = "what a run leaves for the next"
    assert any(gap in line for report in reports for line in report.not_checked)


def test_input_files_are_no_shared_state(tmp_path: Path) -> None:
    data = tmp_path / "data.npy"
    np.save(data, X)

    def reads(trial):
        assert len(np.load(data)) == SIZE
        return honest(trial)

    assert names(reads) == []


def test_the_random_generators_are_put_back() -> None:
    np.random.seed(5)
    random.seed(5)
    expected = (np.random.get_state()[1].copy(), random.getstate())
    odp.check_objective(seeds_numpy, EVENT)
    assert (np.random.get_state()[1] == expected[0]).all()
    assert random.getstate() == expected[1]


def test_public_scores_and_reports_may_be_exact() -> None:
    assert names(exact, public_score=True) == []
    assert names(reports_exact_values, public_score=True) == []


def test_reports_that_are_paid_for() -> None:
    paid = odp.compose(TRAINING, *[odp.scoring.score_event(8.0)] * 4)
    assert answers_in(paid) == 4

    def noisy(trial):
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        for step in range(3):
            trial.report(score(weights), step)
        return score(weights)

    assert names(noisy, paid) == []
    assert names(noisy, EVENT) == ["reported values", "score noise"]


def test_made_up_data_have_the_shape_of_the_data() -> None:
    for words, (x, y) in variants((X, Y)):
        assert x.dtype == X.dtype
        assert y.dtype == Y.dtype
        assert len(x) == len(y) == SIZE - (words == "one record is missing")
    assert np.isfinite(X).all()
    assert len(variants(X)) == 4


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"objective": 3}, "objective"),
        ({"direction": "up"}, "direction"),
        ({"event": "cheap"}, "event"),
        ({"plan": "plan"}, "plan"),
        ({"event": EVENT, "plan": "plan"}, "event"),
        ({"data": 3}, "data"),
        ({"data": (X, Y[:-1])}, "data"),
    ],
    ids=["objective", "direction", "event", "plan", "both", "number", "lengths"],
)
def test_bad_arguments_of_a_check(settings, argument) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        odp.check_objective(**{"objective": honest, **settings})
    assert refused.value.argument == argument


def test_what_an_event_says_of_a_run() -> None:
    other = odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.05, steps=7)
    assert alternatives(EVENT) == [(1.0, 0.1, 5)]
    assert alternatives(odp.worst_case(EVENT, other)) == [(1.0, 0.1, 5), (2.0, 0.05, 7)]
    assert alternatives(odp.compose(TRAINING, other)) == [(1.0, 0.1, 12)]
    assert alternatives(odp.gaussian(1.0)) == []
    assert answers_in(odp.worst_case(EVENT, odp.compose(other, *[odp.laplace(1.0)] * 2))) == 2


def test_the_report_as_json() -> None:
    report = odp.check_objective(exact)
    data = json.loads(report.to_json())
    assert data["ok"] is False
    assert data["findings"][0]["certain"] is True
    assert any("give its event" in sentence for sentence in data["not_checked"])


def test_an_interrupted_check_shows_what_it_has_found() -> None:
    runs = []

    def interrupted(trial):
        runs.append(1)
        if len(runs) == 4:
            raise KeyboardInterrupt
        return 0.5

    with pytest.raises(KeyboardInterrupt, match="FAULT repeated score") as caught:
        odp.check_objective(interrupted, EVENT)
    assert "interrupted in run 4" in caught.value.report.verdict
    assert not caught.value.report.ok


def test_a_strict_check_fails_for_a_hint() -> None:
    def hinted(trial):
        np.random.default_rng(0)
        return honest(trial)

    report = odp.check_objective(hinted, EVENT)
    report.check()
    with pytest.raises(AssertionError, match="literal seed"):
        report.check(strict=True)


def scored(trial):
    """Returns which of 500 records are predicted right."""
    chance = trial.suggest_float("chance", 0.6, 0.8)
    return np.random.default_rng().random(500) < chance


@pytest.mark.parametrize(
    "kept",
    [
        lambda right, noisy: float(right.mean()),
        lambda right, noisy: int(right.sum()),
        lambda right, noisy: {"scores": [float(right.mean())]},
        lambda right, noisy: f"{right.mean():.4f}",
        lambda right, noisy: f"{100 * right.mean():.2f} %",
        lambda right, noisy: float(np.float32(right.mean())),
    ],
    ids=["mean", "count", "nested", "text", "per cent", "single precision"],
)
def test_a_score_without_noise_in_an_attribute_is_found_in_any_form(kept) -> None:
    def objective(trial):
        right = scored(trial)
        noisy = odp.scoring.private_accuracy(right, size=480, noise_multiplier=8.0)
        trial.set_user_attr("kept", kept(right, noisy))
        return noisy

    report = odp.check_objective(objective, EVENT)
    assert [f.name for f in report.findings if f.certain] == ["exact attribute"], str(report)


@pytest.mark.parametrize(
    "kept",
    [
        lambda right, noisy: round(noisy, 3),
        lambda right, noisy: round(100 * noisy, 1),
        lambda right, noisy: f"{noisy:.2f}",
        lambda right, noisy: {"noisy": noisy, "records": 480, "rate": 0.5},
        lambda right, noisy: round(float(np.random.default_rng().normal(0.7, 0.1)), 3),
    ],
    ids=["rounded", "per cent", "text", "settings", "noise of its own, rounded"],
)
def test_a_noisy_score_in_an_attribute_is_not_called_exact(kept) -> None:
    def objective(trial):
        right = scored(trial)
        noisy = odp.scoring.private_accuracy(right, size=480, noise_multiplier=8.0)
        trial.set_user_attr("kept", kept(right, noisy))
        return noisy

    report = odp.check_objective(objective, EVENT)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("low", "event", "names_of_faults"),
    [
        (4.0, odp.scoring.score_event(8.0), ["score noise"]),
        (8.0, odp.scoring.score_event(8.0), []),
    ],
    ids=["down to less", "never less"],
)
def test_a_noise_that_is_searched_is_judged_at_its_worst(low, event, names_of_faults) -> None:
    def objective(trial):
        # Most of the range has enough noise, so that the drawn values seldom show the fault.
        noise = max(low, trial.suggest_float("noise", 4.0, 1e4))
        return odp.scoring.private_accuracy([True] * 50, size=50, noise_multiplier=noise)

    for _ in range(3):
        report = odp.check_objective(objective, event)
        assert [f.name for f in report.findings if f.certain] == names_of_faults, str(report)


def scored_twice(trial, records, *, parts):
    right = np.random.default_rng().random(len(records)) < trial.suggest_float("x", 0.4, 0.6)
    scores = [
        odp.scoring.private_accuracy(right[part], size=50, noise_multiplier=8.0) for part in parts
    ]
    return scores[0]


@pytest.mark.parametrize(
    ("parts", "certain"),
    [((slice(None), slice(20, None)), True), ((slice(0, None, 2), slice(1, None, 2)), False)],
    ids=["shared", "disjoint"],
)
def test_two_scores_of_more_values_than_records_are_a_fault(parts, certain: bool) -> None:
    report = odp.check_objective(
        functools.partial(scored_twice, parts=parts),
        odp.scoring.score_event(8.0),
        data=np.arange(100.0),
    )
    scores = [f for f in report.findings if f.name == "score noise"]
    assert [f.certain for f in scores] == [certain], str(report)
