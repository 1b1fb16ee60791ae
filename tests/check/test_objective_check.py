"""``check_objective`` finds honest mistakes that are planted, and nothing in sound objectives."""

from __future__ import annotations

import functools
import json
import random
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from dp_accounting import dp_event

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError

from .small_trainings import EVENT, SIZE, TRAINING, X, Y, names, score, train


def sound(trial):
    return score(train(trial.suggest_float("rate", 0.1, 1.0, log=True)))


def with_categories(trial):
    trial.suggest_categorical("kind", ["a", "b"])
    if trial.suggest_int("depth", 1, 9, log=True) > 3:
        trial.suggest_float("only then", 0, 1)
    trial.set_user_attr("threshold", 0.5)
    trial.set_user_attr("records", SIZE)
    return sound(trial)


def reports_its_score(trial):
    value = sound(trial)
    trial.report(value, 1)
    return value


def mean_of_two(trial):
    weights = train(trial.suggest_float("rate", 0.1, 1.0))
    right = (X @ weights > 0) == Y
    noisy = [
        odp.scoring.private_accuracy(right, size=SIZE, noise_multiplier=8.0 * 2**0.5)
        for _ in range(2)
    ]
    return sum(noisy) / 2


SOUND = {
    "sound": sound,
    "a lambda": lambda trial: sound(trial),
    "a partial": functools.partial(lambda trial, k: sound(trial), k={"a": 1}),
    "conditional": with_categories,
    "reports its score": reports_its_score,
    "rounds its score": lambda trial: round(sound(trial), 2),
    "clips its score": lambda trial: min(0.5, sound(trial)),
    "two scores for the price of one": mean_of_two,
    "pruned": lambda trial: (_ for _ in ()).throw(optuna.TrialPruned()),
}


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_in_sound_objectives(name: str) -> None:
    report = odp.check_objective(SOUND[name], EVENT)
    assert not report.findings, str(report)
    assert report.ok
    report.check(strict=True)
    first, second = str(report).splitlines()
    assert first.startswith("Nothing found in 2 runs")
    assert second.startswith("Not seen:")


def seeds_numpy(trial):
    np.random.seed(3)
    return sound(trial)


def seeds_random(trial):
    random.seed(3)
    return sound(trial)


def fixed_generator(trial):
    rng = np.random.default_rng(0)
    return float(rng.normal() + trial.suggest_float("rate", 0.1, 1.0))


def exact(trial):
    return float(np.mean((X @ train(trial.suggest_float("rate", 0.1, 1.0, log=True)) > 0) == Y))


def exact_in_single_precision(trial):
    return float(np.float32(exact(trial)))


def constant(trial):
    return float(np.pi)


SCORES: dict[float, float] = {}


def cached(trial):
    rate = trial.suggest_float("rate", 0.1, 1.0)
    if rate not in SCORES:
        SCORES[rate] = score(train(rate))
    return SCORES[rate]


def own_noise(trial):
    return exact(trial) + float(np.random.default_rng().normal(0, 0.1))


def best_so_far(trial):
    return max(sound(trial), trial.study.best_value)


def warm_start(trial):
    others = [t.params["rate"] for t in trial.study.trials if t.params]
    trial.suggest_float("rate", 0.1, 1.0)
    return score(train(max(others, default=1.0)))


def reports_exact_values(trial):
    for step in range(3):
        trial.report(exact(trial), step)
    return sound(trial)


def raises(trial):
    sound(trial)
    raise ArithmeticError("the third record is broken")


def cannot_tell_choices_apart(trial):
    trial.suggest_categorical("max_features", [1, 1.0])
    return sound(trial)


PLANTED = {
    "a seed of numpy": (seeds_numpy, ["fixed seed", "literal seed"]),
    "a seed of random": (seeds_random, ["fixed seed", "literal seed"]),
    "a generator of its own": (fixed_generator, ["repeated score", "literal seed"]),
    "exact accuracy": (exact, ["exact score"]),
    "exact in single precision": (exact_in_single_precision, ["exact score"]),
    "a constant": (constant, ["repeated score"]),
    "a score of an earlier run": (cached, ["repeated score"]),
    "the best so far": (best_so_far, ["other trials"]),
    "a warm start": (warm_start, ["other trials"]),
    "reports": (reports_exact_values, ["reported values"]),
    "raises": (raises, ["failure"]),
    "equal choices": (cannot_tell_choices_apart, ["choices"]),
}


@pytest.mark.promise("independent-runs")
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(name: str) -> None:
    objective, expected = PLANTED[name]
    report = odp.check_objective(objective, EVENT)
    assert [f.name for f in report.findings] == expected, str(report)
    assert not report.ok
    assert str(report).startswith(f"FAULT {expected[0]}: ")
    assert all(f.change and f.change in str(report) for f in report.findings)
    with pytest.raises(AssertionError, match=expected[0]):
        report.check()


def test_an_exact_score_beside_a_noisy_one_is_found() -> None:
    def objective(trial):
        right = np.random.default_rng().random(500) < trial.suggest_float("chance", 0.4, 0.6)
        odp.scoring.private_accuracy(right, size=500, noise_multiplier=1e5)
        return right.mean()

    assert names(objective) == ["exact score"]


def test_an_exact_score_of_other_records_than_the_noisy_ones_is_found() -> None:
    def objective(trial):
        right = np.random.default_rng().random(1797) < trial.suggest_float("chance", 0.4, 0.6)
        odp.scoring.private_accuracy(right[:300], size=300, noise_multiplier=8.0)
        return right.mean()

    assert names(objective) == ["exact score"]


def test_noise_of_ones_own_is_a_hint() -> None:
    report = odp.check_objective(own_noise, EVENT)
    assert [(f.name, f.certain) for f in report.findings] == [("noise of your own", False)]
    report.check()
    with pytest.raises(AssertionError, match="noise of your own"):
        report.check(strict=True)


def test_a_failing_run_is_all_there_is_to_mend() -> None:
    report = odp.check_objective(raises, EVENT)
    (failure,) = report.findings
    assert "the third record is broken" in failure.what
    assert report.runs == 1


def test_a_function_that_takes_no_trial_is_told_what_an_objective_is() -> None:
    def train(rate, hidden, records):
        return 0.5

    report = odp.check_objective(train, EVENT)
    assert [f.name for f in report.findings] == ["arguments"]
    assert "train(rate, hidden, records)" in str(report)
    assert report.runs == 0


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


def noisy_score_of(noise: float, count: int = 1) -> Any:
    def objective(trial):
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        right = (X @ weights > 0) == Y
        return sum(
            odp.scoring.private_accuracy(right, size=SIZE, noise_multiplier=noise)
            for _ in range(count)
        )

    return objective


def test_a_score_with_less_noise_than_the_event_says_is_found() -> None:
    assert names(noisy_score_of(4.0)) == ["score noise"]
    assert names(noisy_score_of(9.0)) == []
    assert names(noisy_score_of(8.0), TRAINING) == ["score noise"], "no score is paid for"
    assert names(noisy_score_of(4.0), None) == []
    report = odp.check_objective(noisy_score_of(8.0, count=2), EVENT)
    assert [(f.name, f.certain) for f in report.findings] == [("score noise", False)]


@pytest.mark.parametrize(
    ("part", "is_paid"),
    [
        (odp.rdp([2.0, 4.0], [0.1, 0.2]), True),
        (odp.approximate_dp(1.0, 1e-7), True),
        (dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(8.0)), True),
        (odp.zcdp(1 / 128), True),
        (odp.zcdp(1 / 129), False),
        (odp.pure_dp(1.0), False),
        (odp.laplace(1.0), False),
        (odp.worst_case(odp.pure_dp(1.0), odp.gaussian(8.0)), True),
    ],
)
def test_noise_of_a_score_that_a_part_of_the_event_may_pay_for_is_no_fault(
    part: dp_event.DpEvent, is_paid: bool
) -> None:
    expected = [] if is_paid else ["score noise"]
    assert names(sound, odp.compose(TRAINING, part)) == expected


def test_noisy_reports_are_counted_like_scores() -> None:
    def noisy(trial):
        weights = train(trial.suggest_float("rate", 0.1, 1.0))
        for step in range(3):
            trial.report(score(weights), step)
        return score(weights)

    assert names(noisy, odp.compose(TRAINING, *[odp.scoring.score_event(8.0)] * 4)) == []
    assert names(noisy) == ["score noise"]


def keeps(kept: Any) -> Any:
    def objective(trial):
        right = np.random.default_rng().random(500) < trial.suggest_float("chance", 0.6, 0.8)
        noisy = odp.scoring.private_accuracy(right, size=480, noise_multiplier=1e3)
        trial.set_user_attr("kept", kept(right, noisy))
        return noisy

    return objective


@pytest.mark.parametrize(
    "kept",
    [
        lambda right, noisy: float(right.mean()),
        lambda right, noisy: int(right.sum()),
        lambda right, noisy: float(100 * right.mean()),
        lambda right, noisy: float(np.float32(right.mean())),
        lambda right, noisy: {"history": [0.1, float(right.mean())]},
        lambda right, noisy: f"acc={right.mean():.4f}",
    ],
    ids=["mean", "count", "per cent", "single precision", "in a list", "in a text"],
)
def test_a_score_without_noise_in_an_attribute_is_found_in_any_form(kept: Any) -> None:
    report = odp.check_objective(keeps(kept), EVENT)
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
def test_a_noisy_score_in_an_attribute_is_not_called_exact(kept: Any) -> None:
    report = odp.check_objective(keeps(kept), EVENT)
    assert not report.findings, str(report)


def test_a_share_of_other_records_in_an_attribute_is_a_hint() -> None:
    report = odp.check_objective(
        keeps(lambda right, noisy: float(right[:97].mean())), odp.gaussian(1e3)
    )
    assert [(f.name, f.certain) for f in report.findings] == [("exact attribute", False)]


class PrivacyLeakWarning(RuntimeWarning):
    """Has the name of diffprivlib's."""


@pytest.mark.promise("other-library")
@pytest.mark.parametrize("action", ["ignore", "default"])
def test_another_librarys_privacy_warning_is_a_fault(action: Any) -> None:
    def leaks(trial):
        warnings.warn("Data norm has not been specified.", PrivacyLeakWarning, stacklevel=2)
        return sound(trial)

    with warnings.catch_warnings():
        warnings.simplefilter(action, PrivacyLeakWarning)
        report = odp.check_objective(leaks, EVENT)
    (fault,) = report.findings
    assert fault.certain
    assert "Data norm has not been specified." in fault.what


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"objective": 3}, "objective"),
        ({"event": "cheap"}, "event"),
        ({"plan": "plan"}, "plan"),
        ({"event": EVENT, "plan": "plan"}, "event"),
    ],
    ids=["objective", "event", "plan", "both"],
)
def test_bad_arguments_of_a_check(settings: Any, argument: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        odp.check_objective(**{"objective": sound, **settings})
    assert refused.value.argument == argument


def test_the_report_as_json() -> None:
    data = json.loads(odp.check_objective(exact).to_json())
    assert data["ok"] is False
    assert data["runs"] == 2
    assert data["findings"][0]["certain"] is True
    assert data["findings"][0]["name"] == "exact score"


def test_an_objective_that_is_pruned_and_never_asks_what_it_may_spend() -> None:
    def prunes(trial):
        trial.suggest_float("x", 0.0, 1.0)
        raise optuna.TrialPruned

    plan = odp.plan_budget(epsilon=3.0, records=50, batch_size=5, epochs=1, pilots=2)
    report = odp.check_objective(prunes, plan=plan)
    assert "run not started" in [finding.name for finding in report.findings]


SCHEMA = odp.Schema(age=(20, 80), sex=["F", "M"], died=["no", "yes"], target="died")
TABLE: dict[str, Any] = {
    "age": [30.0, 75.0, None, 19.0] * 50,
    "sex": ["F", "M", "f", None] * 50,
    "died": ["no", "yes"] * 100,
}


def encodes(table: dict[str, Any], schema: odp.Schema = SCHEMA, prepare: Any = None) -> Any:
    def objective(trial: optuna.Trial) -> float:
        schema.encode(table, prepare=prepare)
        return sound(trial)

    return [f for f in odp.check_objective(objective, EVENT).findings if not f.certain]


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("died", [0, 1] * 100, "100 % of the values that are not missing are none of its list"),
        ("age", ["30,5", "75,2"] * 100, "100 % of the values that are not missing are not a num"),
        ("age", [0.3, 75.0, 0.2, 0.1] * 50, "75 % of the values that are not missing lie outside"),
    ],
)
def test_a_column_that_the_schema_describes_wrongly_gives_a_hint(
    column: str, values: list[Any], words: str
) -> None:
    assert not encodes(TABLE)
    (hint,) = encodes({**TABLE, column: values})
    assert hint.name == "values beyond the schema"
    assert hint.what.startswith(f"Column {column}: {words}")


def test_a_column_that_a_function_makes_is_looked_at_in_the_records_only() -> None:
    """Made-up rows have other values: they are no reason for a hint."""
    inner = odp.Schema(third=(6, 30), died=["no", "yes"], target="died")

    def by_age(rows: dict[str, Any], divisor: float = 3.0) -> odp.PreparedRecords:
        age = np.array(rows["age"], dtype=float)
        return inner.encode({"third": age / divisor, "died": rows["died"]})

    schema = odp.Schema(age=(200, 800), died=["no", "yes"], target="died")
    table = {"age": np.full(200, 40.0), "died": TABLE["died"]}
    assert [hint.about for hint in encodes(table, schema, by_age)] == ["age"]
    hints = encodes(table, schema, lambda rows: by_age(rows, 0.1))
    assert {hint.about for hint in hints} == {"age", "third"}
