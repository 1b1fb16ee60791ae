"""A reviewer with nothing but the JSON of a release, or of its statement."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from refusals import refuses
from releasing.forgery import made_again
from samplers.budget.budget_support import budget
from slow_cases import slow_if
from support import asking
from support import release as released_by
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app
from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.errors import InvalidArgumentError

RUN = odp.gaussian(noise_multiplier=4.0)
QUICK = odp.pure_dp(0.1)  # Quickly accounted for.
LAW = odp.Geometric(mean=3)
PRIVATE_RUNS = ("rand_tune", "dp_hypo", "dp_hypo, any schedule")
LOOP: dict[str, Any] = {"epsilon": 0.2, "granularity": 0.2, "resolve": 0.3}
SAMPLERS: dict[str, Callable[[], Any]] = {
    "rand_tune": lambda: odp.RandTuneSampler(trials=LAW, run=QUICK),
    "dp_hypo": lambda: odp.DPHyPOSampler(trials=LAW, candidates=4, startup_runs=1, run=QUICK),
    "dp_hypo, any schedule": lambda: odp.DPHyPOSampler(
        trials=LAW, candidates=4, schedule="any", run=QUICK
    ),
    "budget": lambda: odp.BudgetSampler(budget(3, 1)),
    "noisy_max": lambda: odp.NoisyMaxSampler(candidates=2, n_partitions=900, epsilon=1.0),
    "propose_test": lambda: odp.ProposeTestSampler(candidates=2, n_partitions=30_000, **LOOP),
}


def released(**kwargs: Any) -> odp.Release:
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3), run=RUN))
    odp.describe(study, dataset="made up", records=900, unit="patient", most=2)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return odp.release(study, **kwargs, vouched="a test")


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in names}


@pytest.mark.parametrize(
    ("kind", "trained"),
    slow_if(
        lambda kind, trained: trained or kind == "dp_hypo, any schedule",
        [*((kind, False) for kind in SAMPLERS), ("rand_tune", True), ("budget", True)],
    ),
)
def test_a_release_of_every_kind_can_be_checked(kind: str, trained: bool) -> None:
    study = optuna.create_study(direction="maximize", sampler=SAMPLERS[kind]())
    study.optimize(asking(lambda trial: trial.suggest_float("x", 0, 1)))
    release = released_by(study)
    release = release.with_training(odp.pure_dp(0.1)) if trained else release
    found = odp.verify(json.loads(json.dumps(release.to_json())))
    assert found.ok, str(found)
    assert any(check.what == "SHA-256" for check in found.checks)
    assert found.statement == release.statement()


def test_the_statement_alone_is_enough() -> None:
    statement = json.loads(json.dumps(released().to_json()["statement"]))
    found = odp.verify(statement)
    assert found.ok
    assert {"SHA-256", "unit with several records", "attack"} <= {
        check.what for check in found.checks
    }
    assert list(found.believed) == [promise["text"] for promise in statement["assumptions"]]
    assert "storage" in " ".join(found.unchecked)


def test_what_protects_clients_can_be_checked() -> None:
    run = odp.per_client(RUN)
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(mean=3), run=run))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    data = odp.release(study, vouched="a test").to_json()
    found = odp.verify(data)
    assert found.ok, str(found)
    assert "client" in data["statement"]["protected"]


def lies() -> dict[str, Any]:
    def epsilon(data: dict[str, Any]) -> None:
        data["statement"]["epsilon"] *= 0.999

    def infinite(data: dict[str, Any]) -> None:
        data["statement"]["rdp"]["epsilons"][3] = 0.001

    def group(data: dict[str, Any]) -> None:
        data["statement"]["unit_with_several_records"]["epsilon"] /= 2

    def attack(data: dict[str, Any]) -> None:
        data["statement"]["attack"] *= 1.01

    def gaussian(data: dict[str, Any]) -> None:
        data["statement"]["gaussian_dp"]["mu"] /= 1.001

    def value(data: dict[str, Any]) -> None:
        data["params"]["x"] += 0.001

    def both_values(data: dict[str, Any]) -> None:
        value(data)
        data["statement"]["content"]["params"]["x"] = data["params"]["x"]

    def description(data: dict[str, Any]) -> None:
        data["description"]["records"] = 9

    def relation(data: dict[str, Any]) -> None:
        data["statement"]["guarantee"]["neighboring_relation"] = "replace_one"

    def protected(data: dict[str, Any]) -> None:
        data["statement"]["protected"] = "adding or removing all records of one patient"

    def cheaper_run(data: dict[str, Any]) -> None:
        cheaper = odp.Guarantee(odp.gaussian(noise_multiplier=40.0))
        data["statement"]["guarantee"] = cheaper.to_json()
        data["statement"]["epsilon"] = cheaper.epsilon(1e-5)

    def cheaper_run_in_the_design(data: dict[str, Any]) -> None:
        data["statement"]["design"]["settings"]["run"]["event"]["noise_multiplier"] = 40.0

    def fewer_runs(data: dict[str, Any]) -> None:
        data["statement"]["design"]["settings"]["trials"] = odp.Binomial(1, mean=1).to_json()

    return dict(locals())


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return dict(json.loads(json.dumps(released().to_json())))


@pytest.mark.promise("statement-file")
@pytest.mark.parametrize("lie", lies())
def test_every_lie_is_found(honest: dict[str, Any], lie: str) -> None:
    data = copy.deepcopy(honest)
    assert odp.verify(data).ok
    lies()[lie](data)
    found = odp.verify(data)
    assert not found.ok
    assert "DIFFERS" in str(found)
    assert str(found).startswith("DIFFERS")


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where everything is in JSON values."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*path, key))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def changed(value: Any) -> Any:
    if isinstance(value, dict):
        return {**value, "extra": 1}
    if isinstance(value, list):
        return [*value, 1]
    if isinstance(value, bool) or value is None:
        return not value
    return value - abs(value) / 2 - 0.5 if isinstance(value, int | float) else value + "x"


def holds(data: Any) -> bool:
    try:
        return odp.verify(data, time_limit=100.0).ok
    except InvalidArgumentError:
        return False


# Said to be unchecked; and what is true all the same: a weaker attack.
TRUE = [("versions",), ("attack",)]


@pytest.mark.promise("statement-file")
@pytest.mark.parametrize("part", ["guarantee", "design", "content", "others"])
def test_every_field_that_is_changed_is_noticed(honest: dict[str, Any], part: str) -> None:
    """Each by itself: a number smaller, a text longer, a key more."""
    statement = honest["statement"]
    large = ("guarantee", "design", "content")
    of = {path: path[0] if path[0] in large else "others" for path in paths(statement) if path}
    within = [path for path in of if of[path] == part]
    assert len(within) > 5
    for path in within:
        data = copy.deepcopy(statement)
        at(data, path[:-1])[path[-1]] = changed(at(data, path))
        if not any(path[: len(true)] == true for true in TRUE):
            assert not holds(data), path


def test_an_attack_that_was_rounded_elsewhere_agrees(honest: dict[str, Any]) -> None:
    data = copy.deepcopy(honest)
    data["statement"]["attack"] *= 1 + 1e-9
    assert odp.verify(data).ok
    data["statement"]["attack"] *= 1.01
    assert not odp.verify(data).ok


def test_a_bound_on_a_grid_of_other_libraries_is_compared_less_exactly(
    honest: dict[str, Any],
) -> None:
    """Other versions of numpy have other grids; nothing else excuses a smaller number."""
    for version, share, is_ok in (("0.1", 5e-4, True), ("0.1", 0.01, False), (None, 5e-4, False)):
        data = copy.deepcopy(honest)
        data["statement"]["epsilon"] *= 1.0 - share
        if version is not None:
            data["statement"]["versions"]["numpy"] = version
        found = odp.verify(data)
        assert found.ok is is_ok
        assert any("Bounds were compared" in text for text in found.unchecked) is bool(version)


def test_the_words_of_another_version_are_not_compared_and_its_numbers_are(
    honest: dict[str, Any],
) -> None:
    data = copy.deepcopy(honest)
    data["statement"]["versions"]["optuna-dp"] = "9.9"
    data["statement"]["assumptions"] = data["statement"]["facts"] = []
    found = odp.verify(data)
    assert found.ok
    assert found.of_another_version == ("facts", "assumptions")
    assert str(found).startswith("AGREES IN PART")
    assert (found.believed, found.questions) == (
        (own := odp.verify(honest)).believed,
        own.questions,
    )
    for key in ("epsilon", "delta"):
        forged = copy.deepcopy(data)
        forged["statement"][key] /= 2
        assert not odp.verify(forged).ok


@pytest.mark.parametrize(
    "value", [None, True, "x", [], {}, -1, 10**400, 1e299, [[]], {"epsilon": 1}, "inf"]
)
def test_whatever_stands_in_a_field_is_refused_or_differs(
    honest: dict[str, Any], value: Any
) -> None:
    for key, stated in honest["statement"].items():
        if key in ("versions", "attack", "content") and value in (None, {}, -1):
            continue
        if stated != value and not (key == "epsilon" and value in (None, 1e299)):
            assert not holds({**honest["statement"], key: value}), key


def nested(levels: int) -> str:
    return '{"format": "optuna-dp release", "statement": ' + "[" * levels + "]" * levels + "}"


BOMBS: dict[str, tuple[Callable[[dict[str, Any]], str], str]] = {
    "very deep": (lambda honest: nested(200_000), "nested"),
    "large": (lambda honest: '"' + "x" * 11_000_000 + '"', "bytes"),
    "huge number": (
        lambda honest: json.dumps(honest).replace('"delta": 1e-05', '"delta": 1' + "0" * 400),
        "delta=",
    ),
    "infinite number": (
        lambda honest: json.dumps(honest).replace('"delta": 1e-05', '"delta": 1e999'),
        "delta=",
    ),
    "digits": (
        lambda honest: json.dumps(honest).replace('"delta": 1e-05', '"delta": 1' + "0" * 9999),
        "digits",
    ),
    "NaN": (
        lambda honest: json.dumps(honest).replace('"delta": 1e-05', '"delta": NaN'),
        "NaN",
    ),
    "twins": (
        lambda honest: json.dumps(honest).replace(
            '"delta": 1e-05', '"delta": 0.1, "delta": 1e-05'
        ),
        "twice",
    ),
    "no digest": (
        lambda honest: json.dumps({**honest, "statement": without(honest["statement"], "digest")}),
        "'digest'",
    ),
    "unknown key": (lambda honest: json.dumps({**honest, "more": 1}), "'more'"),
    "no JSON": (lambda honest: "{", "Expecting"),
    "no text": (lambda honest: "\udcff\x00", "Expecting"),
    "number": (lambda honest: "3", "format"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_is_made_to_harm_is_refused_in_one_line(
    bomb: str, honest: dict[str, Any], tmp_path: Path
) -> None:
    make, word = BOMBS[bomb]
    file = tmp_path / "release.json"
    file.write_text(make(honest), errors="surrogateescape")
    with refuses("path_or_json") as caught:
        odp.verify(file)
    assert word in caught.value.why
    assert len(str(caught.value)) < 1000
    found = CliRunner().invoke(app, ["verify", str(file)])
    assert found.exit_code == 2
    assert found.output.count("\n") == 1
    assert "Traceback" not in found.output


def test_what_takes_too_long_is_given_up(
    honest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(odp.Guarantee, "by_method", lambda self, delta: never.wait())
    with refuses("time_limit"):
        odp.verify(honest, time_limit=0.05)
    never.set()
    with refuses("time_limit"):
        odp.verify(honest, time_limit=0.0)


def test_a_larger_epsilon_than_needed_is_no_lie(honest: dict[str, Any]) -> None:
    data = copy.deepcopy(honest)
    data["statement"]["epsilon"] *= 2
    assert odp.verify(data).ok


def test_a_forgery_that_is_consistent_throughout_agrees_and_the_storage_tells(
    honest: dict[str, Any],
) -> None:
    found = odp.verify(made_again(honest, lambda content: content["params"].update(x=0.25)))
    assert found.ok
    assert "storage can make the release once more" in " ".join(found.unchecked)


def test_a_design_that_nothing_follows_from_is_found_in_a_consistent_forgery() -> None:
    plan = odp.RunPlan(
        records=400, batch_size=400, steps=1, noise_multiplier=4.0, score_noise_multiplier=20.0
    )
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=LAW, run=plan))
    study.optimize(lambda trial: odp.start_run(trial) and trial.suggest_float("x", 0, 1))
    data = json.loads(json.dumps(odp.release(study, vouched="a test").to_json()))
    assert odp.verify(data).ok

    def differing(**design: Any) -> list[str]:
        forged = copy.deepcopy(data)
        forged["statement"]["design"] |= design
        found = odp.verify(made_again(forged))
        return [check.what for check in found.checks if not check.holds]

    assert differing(seeded=True) == ["seed"]
    settings = copy.deepcopy(data["statement"]["design"]["settings"])
    settings["run"]["noise_multiplier"] = 9.0
    assert differing(settings=settings) == ["guarantee of the stated design"]


def facts_of(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {fact["name"]: fact for fact in data["statement"]["facts"]}


@pytest.mark.parametrize("part", ["value", "status"])
def test_every_fact_that_is_changed_is_found_and_named(honest: dict[str, Any], part: str) -> None:
    """The digest does not cover facts: they follow from what it covers."""
    for name, fact in facts_of(honest).items():
        data = copy.deepcopy(honest)
        statuses = {"enforced": "not checked"}
        other = statuses.get(fact["status"], "enforced") if part == "status" else "checked by us"
        facts_of(data)[name][part] = other
        (check,) = [check for check in odp.verify(data).checks if not check.holds]
        assert check.what == "facts"
        assert check.found.startswith(f"{name}: {part}: ")


def test_facts_that_are_left_out_or_added_are_found(honest: dict[str, Any]) -> None:
    for change in (
        lambda facts: facts.pop(),
        lambda facts: facts.append({"name": "More", "value": "audited", "status": "enforced"}),
        lambda facts: facts.append(facts[0]),
    ):
        data = copy.deepcopy(honest)
        change(data["statement"]["facts"])
        assert [check.what for check in odp.verify(data).checks if not check.holds] == ["facts"]


@pytest.fixture(scope="module")
def of_ranges() -> dict[str, Any]:
    """A release of a budget whose parameters are of every kind."""

    def objective(trial: optuna.Trial) -> float:
        odp.start_run(trial)
        trial.suggest_int("width", 8, 256, step=8)
        trial.suggest_float("rate", 1e-4, 1.0, log=True)
        trial.suggest_categorical("choice", [None, 1, "a"])
        return 0.0

    study = optuna.create_study(sampler=odp.BudgetSampler(budget(3, 1)))
    study.optimize(objective)
    release = odp.release(study, vouched="a test")
    return dict(json.loads(json.dumps(release.to_json())))


@pytest.mark.promise("statement-file")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", 9999),
        ("width", 12),
        ("width", 8.5),
        ("width", "8"),
        ("width", True),
        ("rate", 1.5),
        ("rate", 0),
        ("choice", "b"),
        ("choice", True),
        ("depth", 3),
    ],
)
def test_a_hyperparameter_outside_its_stated_range_differs(
    of_ranges: dict[str, Any], name: str, value: Any
) -> None:
    def of_the_last_run(content: dict[str, Any]) -> None:
        content["params"][name] = value

    def of_a_pilot(content: dict[str, Any]) -> None:
        content["attributes"]["pilots"][1]["params"][name] = value

    assert odp.verify(of_ranges).ok
    for change, words in ((of_the_last_run, f"{name} is"), (of_a_pilot, f"{name} of pilot 2 is")):
        found = odp.verify(made_again(of_ranges, change))
        differing = [check for check in found.checks if not check.holds]
        assert [check.what for check in differing] == ["hyperparameters"]
        assert differing[0].found.startswith(words)


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", 16), ("rate", 1), ("choice", None), ("choice", "a")],
)
def test_another_hyperparameter_of_its_stated_range_agrees(
    of_ranges: dict[str, Any], name: str, value: Any
) -> None:
    """Nothing tells it apart but the study's storage."""
    change = made_again(of_ranges, lambda content: content["params"].update({name: value}))
    assert odp.verify(change).ok


def test_values_by_hand_and_ranges_that_change_are_within_what_is_stated() -> None:
    def objective(trial: optuna.Trial) -> float:
        odp.start_run(trial)
        trial.suggest_int("width", 8, 256 if trial.number == 1 else 64, step=8)
        trial.suggest_float("rate", 0.1, 1.0, log=True)
        return float(trial.number)

    study = optuna.create_study(sampler=odp.BudgetSampler(budget(3, 1)))
    study.enqueue_trial({"width": 9999, "rate": 0.01})
    with pytest.warns(UserWarning, match="out of range"):
        study.optimize(objective)
    release = odp.release(study, vouched="a test")
    assert release.pilots[0]["params"] == {"width": 9999, "rate": 0.01}
    assert odp.verify(release.to_json()).ok
    rates = release.distributions["rate"]
    assert (rates.low, rates.high, rates.log) == (0.01, 1.0, True)  # type: ignore[attr-defined]
    widths = release.distributions["width"]
    assert (widths.low, widths.high, widths.step) == (8, 9999, 1)  # type: ignore[attr-defined]
    assert "width: whole numbers 8 to 9999" in release.statement()


@pytest.mark.slow
def test_a_training_on_top_and_its_model(tmp_path: Path) -> None:
    release = released().with_training(odp.gaussian(noise_multiplier=9.0), artifact=b"model")
    (tmp_path / "model").write_bytes(b"model")
    (tmp_path / "other").write_bytes(b"other")
    data = release.to_json()
    assert odp.verify(data, artifact=tmp_path / "model").ok
    assert not odp.verify(data, artifact=tmp_path / "other").ok
    assert any("artifact" in text for text in odp.verify(data).unchecked)


def test_a_statement_has_nothing_that_steers_a_terminal(honest: dict[str, Any]) -> None:
    words = "ward \x1b[2J\u202e\n# Privacy statement"
    page = odp.verify(
        made_again(honest, lambda content: content["description"].update(dataset=words))
    ).statement
    assert "ward" in page
    assert page.count("\n# Privacy statement") == 0
    assert not {"\x1b", "\u202e"} & set(page)


def test_the_command(tmp_path: Path, honest: dict[str, Any]) -> None:
    file = tmp_path / "release.json"
    file.write_text(json.dumps(honest))
    runner = CliRunner()
    good = runner.invoke(app, ["verify", str(file)])
    assert good.exit_code == 0
    assert "Remains to be believed" in good.stdout
    page = runner.invoke(app, ["verify", str(file), "--statement"])
    assert page.stdout.startswith("# Privacy statement\n")
    assert runner.invoke(app, ["verify", str(file), "--statement", "--json"]).exit_code == 2
    as_json = runner.invoke(app, ["verify", str(file), "--json"])
    assert json.loads(as_json.stdout)["ok"] is True
    lies()["value"](data := copy.deepcopy(honest))
    file.write_text(json.dumps(data))
    assert runner.invoke(app, ["verify", str(file)]).exit_code == 1
    tampered = runner.invoke(app, ["verify", str(file), "--statement"])
    assert tampered.exit_code == 1
    assert "# Privacy statement" not in tampered.stdout
    assert "DIFFERS" in tampered.stdout
    file.write_text("{")
    bad = runner.invoke(app, ["verify", str(file)])
    assert bad.exit_code == 2
    assert bad.output.count("\n") == 1


@pytest.mark.parametrize("junk", [{}, {"format": "optuna-dp release"}, "no such file", 3, []])
def test_junk_is_refused(junk: Any) -> None:
    with refuses("path_or_json"):
        odp.verify(junk)


@pytest.mark.parametrize("name", ["guarantee", "design", "rdp", "delta", "assumptions"])
def test_a_statement_without_a_part_is_refused(honest: dict[str, Any], name: str) -> None:
    with refuses("path_or_json") as caught:
        odp.verify(without(honest["statement"], name))
    assert f"'{name}'" in caught.value.why


def test_a_statement_of_another_version_is_refused(honest: dict[str, Any]) -> None:
    with refuses("path_or_json") as caught:
        odp.verify({**honest["statement"], "version": 99})
    assert "99" in caught.value.why


def test_a_stated_bound_is_told_from_the_computed_one() -> None:
    run = odp.pure_dp(0.1)
    study = optuna.create_study(sampler=odp.RandTuneSampler(trials=odp.Geometric(3), run=run))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    record = odp.release(study, vouched="a test").to_json()
    computed = {key: record["statement"][key] for key in ("attack", "epsilon")}
    record["statement"]["attack"] = 7.5
    check = next(check for check in odp.verify(record).checks if check.what == "attack")
    assert not check.holds
    assert check.found == f"{computed['attack']:.6g}, stated 7.5"
    record["statement"] |= {"attack": computed["attack"], "epsilon": 9.5}
    check = next(check for check in odp.verify(record).checks if check.what == "epsilon")
    assert check.holds, "a larger epsilon is true, too"
    assert check.found.startswith(f"{rounded_up(computed['epsilon'], 4)}; the statement says 9.5")
