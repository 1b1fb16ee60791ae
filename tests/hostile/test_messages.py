"""What errors say: the argument, the value as it was given, what is allowed, what to do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from support import RUN, exactly, finished_study, study_of

import optuna_dp as odp
from optuna_dp.errors import (
    InvalidArgumentError,
    PlanError,
    ReleaseRefusedError,
    UnfinishedStudyError,
)
from optuna_dp.protocol.plan import PLAN_KEY
from optuna_dp.protocol.records import SLOT_KEY

from .junk import write

WHAT_WAS_GIVEN: dict[str, tuple[Callable[[], Any], str]] = {
    "no study": (lambda: odp.release(3, RUN), "study=3 .* must be an Optuna study. Load one"),
    "no study to recover": (lambda: odp.recover(None), "study=None .* must be an Optuna study"),
    "no event": (lambda: odp.Guarantee(3), "event=3 .* DpEvent. Make one with dp_sgd"),
    "no store": (
        lambda: odp.release(finished_study(), RUN, artifact_store=3),
        "artifact_store=3 .*FileSystemArtifactStore",
    ),
    "no mean": (lambda: odp.Geometric(None), "^gamma, mean=.* exactly one of them"),
    "no mean either": (lambda: odp.Logarithmic(None), "^gamma, mean=.* exactly one of them"),
    "a whole mean": (lambda: odp.Geometric(-1), "^mean=-1 is"),
    "a whole shape": (lambda: odp.NegativeBinomial(shape=-2, mean=3), "^shape=-2 is"),
    "a mean above n": (lambda: odp.Binomial(3, 7), "^mean=7 is .* n=3"),
    "a tiny mean": (lambda: odp.Poisson(10**9), "^mean=1000000000 is"),
    "whole bounds": (lambda: odp.DPHyPOSampler(density_bounds=(1, 3)), r"=\(1, 3\) is"),
    "order one": (lambda: odp.Guarantee(RUN).rdp([1.0]), r"Just above 1 .*by_method\(delta\)"),
    "its epsilon first": (
        lambda: odp.NoisyMaxSampler(epsilon=-1, n_partitions=100),
        "^epsilon=-1 is",
    ),
    "nothing in common": (
        lambda: odp.NoisyMaxSampler(
            candidates=[{"x": 1}, {"y": 1}], epsilon=1.0, n_partitions=900
        ),
        "no parameter in common",
    ),
    "nothing in common with nothing": (
        lambda: odp.ProposeTestSampler(
            candidates=[{"x": 1}, {}], epsilon=0.2, n_partitions=90_000, granularity=0.2
        ),
        "no parameter in common",
    ),
    "no means": (lambda: odp.selection_plan(RUN, means=[]), "^means=.* at least one"),
    "a mean alone": (lambda: odp.selection_plan(RUN, means=3), r"^means=3 .* Give means=\[...\]"),
    "a law alone": (lambda: odp.selection_plan(RUN, laws="poisson"), "^laws='poisson' .* a list"),
    "no laws": (
        lambda: odp.selection_plan(RUN, laws=[], density_bounds=[]),
        "^laws=",
    ),
    "a pair alone": (
        lambda: odp.selection_plan(RUN, density_bounds=(0.5, 2)),
        r"\(0.5, 2\) .* list of pairs .* \[\(0.75, 2.0\)\]",
    ),
}


@pytest.mark.parametrize("name", WHAT_WAS_GIVEN)
def test_the_argument_and_its_value_are_named(name: str) -> None:
    call, words = WHAT_WAS_GIVEN[name]
    with pytest.raises(InvalidArgumentError, match=words):
        call()


@pytest.mark.parametrize(
    "objective", [lambda t: (t.suggest_float("x", 0, 1), 1.0), lambda t: (1, 1)]
)
def test_several_objectives_are_refused_before_the_first(objective: Any) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=odp.RandTuneSampler())
    with pytest.raises(InvalidArgumentError, match=r"multi-objective studies. Make the study"):
        study.optimize(objective, n_trials=3)
    assert [t.state.name for t in study.trials] == ["FAIL"]


def test_candidates_of_a_conditional_space_may_differ() -> None:
    """They share what is asked for first."""
    candidates = [{"kind": "a", "depth": 3}, {"kind": "b", "rate": 0.5}]
    sampler = odp.NoisyMaxSampler(candidates=candidates, n_partitions=900, epsilon=5.0)
    study = study_of(sampler)

    def objective(trial: optuna.Trial) -> float:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            return 0.1 * trial.suggest_int("depth", 1, 9)
        return trial.suggest_float("rate", 0, 1)

    study.optimize(objective)
    assert odp.release(study).params in candidates


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({}, r"holds \[\] instead of \['design', 'nonce'"),
        ("text", "holds a str instead"),
        ({"slots": 98_765}, None),
        ({"slots": -98_765}, "corrupted: its number of slots"),
        ({"nonce": "98765"}, "corrupted: its nonce"),
        ({"design": {}}, r"design is corrupted: it holds \[\]"),
    ],
)
def test_a_damaged_plan_says_what_is_wrong_and_what_to_do_and_no_secret(
    damage: Any, words: str | None
) -> None:
    study = finished_study()
    record = dict(study.trials[0].system_attrs[PLAN_KEY])
    write(
        study, 0, PLAN_KEY, {**record, **damage} if isinstance(damage, dict) and damage else damage
    )
    with pytest.raises(ReleaseRefusedError) as caught:
        odp.release(study, RUN)
    text = str(caught.value)
    if words is not None:
        assert caught.match(words)
        assert text.endswith("Restore the storage from a backup, or start a new study.")
        with pytest.raises(PlanError, match="Restore the storage"):
            study.optimize(lambda trial: 0.0, n_trials=1)
    assert "98765" not in text


def test_a_plan_changed_after_it_was_written_is_not_blamed_on_a_worker() -> None:
    study = finished_study()
    record = dict(study.trials[0].system_attrs[PLAN_KEY])
    settings = {**record["design"]["settings"], "batch_size": 2}
    write(study, 0, PLAN_KEY, {**record, "design": {**record["design"], "settings": settings}})
    with pytest.raises(ReleaseRefusedError, match="not the one with which this run began"):
        odp.release(study, RUN)


def test_a_damaged_slot_record_says_what_to_do() -> None:
    study = finished_study()
    write(study, 1, SLOT_KEY, {})
    with pytest.raises(ReleaseRefusedError, match=r"Trial 1: The slot record .* Restore"):
        odp.release(study, RUN)


def test_a_refusal_after_a_release_says_that_the_release_stands() -> None:
    study = finished_study(odp.RandTuneSampler(trials=exactly(2)))
    odp.release(study, RUN, vouched="a test")
    write(study, 1, SLOT_KEY, {})
    with pytest.raises(
        ReleaseRefusedError, match="released before; that release stands"
    ) as caught:
        odp.release(study, RUN)
    assert caught.value.trial_number == 1


@pytest.mark.parametrize("kind", [ReleaseRefusedError, UnfinishedStudyError])
def test_a_refusal_keeps_its_kind_and_its_facts_on_the_way_to_another_process(
    kind: type[ReleaseRefusedError],
) -> None:
    error = kind("It is open.", trial_number=3, fix="Wait.")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (kind, str(error), vars(error))
