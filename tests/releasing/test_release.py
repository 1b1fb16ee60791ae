"""What is chosen, what leaves, and that nothing else does."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from refusals import refuses
from support import exactly, finished_study, logged, objective, study_of

import optuna_dp as odp
from optuna_dp.errors import ReleaseRefusedError

RUN = odp.pure_dp(0.1)  # Quickly accounted for.
RELEASE_KEYS = {
    "format",
    "version",
    "params",
    "value",
    "attributes",
    "artifact_sha256",
    "distributions",
    "statement",
    "spending",
}
STATEMENT_KEYS = {
    "format",
    "version",
    "protected",
    "epsilon",
    "delta",
    "method",
    "epsilon_by_method",
    "comparisons",
    "rdp",
    "design",
    "guarantee",
    "released",
    "digest",
    "attack",
    "attack_risks",
    "gaussian_dp",
    "unit_with_several_records",
    "unit",
    "content",
    "trust",
    "checked",
    "facts",
    "protected_records",
    "assumptions",
    "not_covered",
    "versions",
}


def scores(values: list[Any], direction: str = "maximize", **kwargs: Any) -> optuna.Study:
    """A study whose k-th run ends as ``values[k]`` says."""

    def ends(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        trial.set_user_attr("number", trial.number)
        value = values[trial.number]
        if isinstance(value, Exception):
            raise value
        return value

    sampler = odp.RandTuneSampler(trials=exactly(len(values)), run=RUN)
    study = optuna.create_study(direction=direction, sampler=sampler, **kwargs)
    study.optimize(ends, catch=(RuntimeError,))
    return study


@pytest.mark.parametrize(
    ("direction", "values", "best"),
    [
        ("maximize", [0.1, 0.7, 0.3], 0.7),
        ("minimize", [0.1, 0.7, 0.3], 0.1),
        ("maximize", [RuntimeError("died"), -3.0, math.nan], -3.0),
        ("minimize", [RuntimeError("died"), 5.0, math.nan], 5.0),
        ("maximize", [-math.inf, RuntimeError("died")], -math.inf),
        ("minimize", [0.2, -math.inf], -math.inf),
        ("maximize", [optuna.TrialPruned(), 0.0], 0.0),
    ],
)
def test_the_best_run_wins_and_failures_are_the_lowest_outcome(
    direction: str, values: list[Any], best: float
) -> None:
    assert odp.release(scores(values, direction), vouched="a test").value == best


def test_a_pruned_run_does_not_win_with_the_value_it_reported() -> None:
    def prunes(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        if trial.number == 0:
            trial.report(100.0, step=1)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 0.5

    pruner = optuna.pruners.ThresholdPruner(upper=10.0)
    study = finished_study(odp.RandTuneSampler(trials=exactly(3), run=RUN), prunes, pruner=pruner)
    assert study.trials[0].state == optuna.trial.TrialState.PRUNED
    assert odp.release(study, vouched="a test").value == 0.5


@pytest.mark.parametrize(
    "values", [[RuntimeError("died")] * 3, [math.nan], [optuna.TrialPruned(), math.nan]]
)
def test_no_success_is_an_outcome(values: list[Any]) -> None:
    release = odp.release(scores(values), vouched="a test")
    assert release.params is None
    assert release.value is None
    assert release.guarantee.epsilon(1e-5) < 2.0
    assert "epsilon" in release.statement().lower()


@pytest.mark.slow
def test_ties_are_broken_by_the_uniform_and_not_by_completion_order() -> None:
    """Among four equal runs each wins a quarter of the time.

    With 150 studies, a rule that prefers one position above 0.6 (the first to complete would win
    always) is caught with probability above 0.999; a fair one fails with probability below 1e-8.
    """
    studies = 150
    slack = 6.2 * math.sqrt(0.25 * 0.75 / studies)
    wins = Counter[int]()
    for _ in range(studies):
        study = scores([1.0] * 4)
        best = odp.release(study, vouched="a test")
        wins[next(t.number for t in study.trials if t.params == best.params)] += 1
    assert max(wins.values()) < studies * (0.25 + slack)
    assert min(wins.values()) > studies * (0.25 - slack)


@pytest.mark.promise("statement-file")
def test_releasing_twice_gives_the_same() -> None:
    study = finished_study()
    assert (
        odp.release(study, vouched="a test")
        == odp.release(study, vouched="a test")
        == odp.release(study, vouched="a test")
    )


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.items() for part in item for leaf in leaves(part)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


@pytest.mark.promise("nothing-else")
@pytest.mark.slow
def test_nothing_that_identifies_the_winners_position_leaves(tmp_path: Path) -> None:
    study = scores([0.1] * 37 + [0.9] + [0.2] * 6)
    study.trials[37]
    release = odp.release(study, vouched="a test")
    assert release.value == 0.9
    data = release.to_json()
    assert set(data) == RELEASE_KEYS
    assert set(data["statement"]) == STATEMENT_KEYS
    assert set(data["statement"]["design"]) == {
        "procedure",
        "sampler",
        "direction",
        "seeded",
        "settings",
    }
    text = json.dumps(data)
    winner = study.trials[37]
    for secret in (
        winner.datetime_start.isoformat()[:19],
        winner.system_attrs["optuna_dp:slot"]["tie_break"],
        study.trials[0].system_attrs["optuna_dp:plan"]["nonce"],
    ):
        assert secret not in text
        assert secret not in release.statement()
        assert secret not in repr(release)
    # 37 is the number of the winner; T itself is the parameter of this test's artificial law.
    assert 37 not in leaves(data)
    assert not [leaf for leaf in leaves(data) if isinstance(leaf, str) and "37" in leaf.split()]
    published = odp.publish(release, f"sqlite:///{tmp_path / 'public.db'}", "result")
    (only,) = published.trials
    assert only.number == 0
    assert only.params == release.params
    assert only.value == 0.9
    assert not only.system_attrs
    assert only.user_attrs == {}
    assert only.datetime_start > winner.datetime_complete


@pytest.mark.promise("nothing-else")
def test_only_named_attributes_leave() -> None:
    def speaks(trial: optuna.Trial) -> float:
        trial.set_user_attr("threshold", 0.25)
        trial.set_user_attr("validation_loss", 0.77)
        return objective(trial)

    names = ["threshold"]
    sampler = odp.RandTuneSampler(trials=exactly(3), run=RUN, output_attributes=names)
    release = odp.release(finished_study(sampler, speaks), vouched="a test")
    assert release.attributes == {"threshold": 0.25}
    assert "0.77" not in json.dumps(release.to_json())
    sampler = odp.RandTuneSampler(trials=exactly(3), run=RUN)
    assert odp.release(finished_study(sampler, speaks), vouched="a test").attributes == {}


@pytest.mark.promise("nothing-else")
@pytest.mark.slow
def test_the_artifact_of_the_winner_only_and_without_its_name(tmp_path: Path) -> None:
    store = FileSystemArtifactStore(tmp_path)

    def saves(trial: optuna.Trial) -> float:
        value = objective(trial)
        file = tmp_path / f"model_of_trial_{trial.number}.bin"
        file.write_text(repr(trial.params["x"]))
        upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)
        return value

    study = finished_study(function=saves)
    release = odp.release(study, artifact_store=store, vouched="a test")
    assert release.params is not None
    assert release.artifact == repr(release.params["x"]).encode()
    assert "model_of_trial" not in json.dumps(release.to_json())
    assert odp.release(study, vouched="a test").artifact is None


def test_several_artifacts_of_the_winner_are_refused(tmp_path: Path) -> None:
    store = FileSystemArtifactStore(tmp_path)
    file = tmp_path / "model.bin"
    file.write_text("weights")

    def saves(trial: optuna.Trial) -> float:
        for _ in range(2):
            upload_artifact(artifact_store=store, file_path=str(file), study_or_trial=trial)
        return objective(trial)

    with pytest.raises(ReleaseRefusedError, match="artifact"):
        odp.release(finished_study(function=saves), artifact_store=store, vouched="a test")


@pytest.mark.slow
def test_publishing_beside_a_curators_study_is_refused(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'all.db'}"
    study = finished_study(storage=storage)
    release = odp.release(study, vouched="a test")
    with pytest.raises(ReleaseRefusedError, match=r"all\.db"):
        odp.publish(release, storage, "result")
    assert len(optuna.get_all_study_names(storage)) == 1


def test_publishing_an_empty_result() -> None:
    release = odp.release(scores([math.nan]), vouched="a test")
    study = odp.publish(release, optuna.storages.InMemoryStorage(), "nothing")
    assert study.trials == []
    assert "differential privacy" in study.user_attrs["privacy statement"]


@pytest.mark.promise("all-searches")
@pytest.mark.slow
def test_sister_studies_are_pointed_out(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'all.db'}"
    finished_study(storage=storage)
    study = finished_study(storage=storage)
    with logged() as lines:
        odp.release(study, vouched="a test")
    assert any("WARNING" in line and "Guarantee.compose" in line for line in lines)


@pytest.mark.slow
def test_the_schedule_decides_the_analysis() -> None:
    epsilons = {}
    for schedule in ("batch", "any"):
        sampler = odp.DPHyPOSampler(
            trials=odp.Geometric(mean=3),
            density_bounds=(0.75, 2.0),
            schedule=schedule,
            candidates=8,
            run=RUN,
        )
        study = study_of(sampler)
        study.optimize(objective)
        release = odp.release(study, vouched="a test")
        assert release.guarantee.event.policy == {"batch": "history", "any": "data"}[schedule]
        epsilons[schedule] = release.guarantee.epsilon(1e-5)
    assert epsilons["batch"] < epsilons["any"]


@pytest.mark.slow
def test_a_search_without_a_renyi_curve_has_a_sentence_in_place_of_a_table() -> None:
    infinite = odp.Poisson(mean=3.0).capped(2)
    release = odp.release(
        finished_study(odp.RandTuneSampler(trials=infinite, run=RUN)), vouched="a test"
    )
    assert all(value is None for value in release.to_json()["statement"]["rdp"]["epsilons"])
    assert "no such bound is known" in release.statement()
    assert "infinite" not in release.statement()
    usual = odp.release(
        finished_study(odp.RandTuneSampler(trials=odp.Geometric(2), run=RUN)), vouched="a test"
    )
    assert "| order | epsilon |" in usual.statement()


def test_publishing_where_it_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    release = odp.release(finished_study(), vouched="a test")
    storage = f"sqlite:///{tmp_path / 'public.db'}"
    odp.publish(release, storage, "result")
    with pytest.raises(ReleaseRefusedError, match=r"public\.db"):
        odp.publish(release, storage, "another")
    for bad in ("", 3):
        with refuses("study_name"):
            odp.publish(release, "sqlite://", bad)  # type: ignore[arg-type]
    for bad in (None, 3, "garbage", f"sqlite:///{tmp_path / 'missing' / 'x.db'}"):
        with refuses("storage"):
            odp.publish(release, bad, "result")  # type: ignore[arg-type]


@pytest.mark.parametrize("told", [False, True])
def test_a_cost_that_is_only_stated_is_vouched_for_or_refused(told: bool) -> None:
    """By the sampler or by the callback: an event is the curator's word."""
    sampler = odp.RandTuneSampler(trials=exactly(2), run=RUN if told else None)
    study = optuna.create_study(sampler=sampler)
    callbacks = [odp.PrivacyCallback(None if told else RUN)]
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), callbacks=callbacks)
    with pytest.raises(ReleaseRefusedError, match="vouched="):
        odp.release(study)
    with refuses("vouched"):
        odp.release(study, vouched=" ")
    release = odp.release(study, vouched="the audit of May")
    assert release.spending["training"] == "not checked"
    assert "the audit of May" in str(release.statement())
    assert odp.verify(release.to_json()).ok
