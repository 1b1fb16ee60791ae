"""Faults that outside readers planted in honest trainings are found; honest ones pass.

Trainings by hand in numpy; those of PyTorch are in ``test_planted_faults_in_torch.py``. The table
in ``docs/how-to/audit.md`` has a row for each.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import optuna_dp as odp
from optuna_dp.testing import audit_training

from .planted_trainings import DATA, EVENT, TRAINING, Plain, objective, score, train

# An honest training is accused less than once in 1e7 audits.
SURE = 1 - 1e-7


def audit(fault="", **settings):
    return audit_training(
        functools.partial(train, fault=fault, **settings),
        TRAINING,
        access="gradients",
        data=DATA,
        confidence=SURE,
    )


@pytest.mark.slow
def test_an_honest_training_is_not_refuted_and_what_is_not_seen_is_said() -> None:
    found = audit()
    assert found.verdict == "not refuted", str(found)
    assert not found.findings
    assert found.not_seen == ("what was done with the data before the training was called",)
    assert str(found.not_seen[0]) in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("half the noise", ""),
        pytest.param("noise once per epoch", "", marks=pytest.mark.slow),
        ("clips the mean", "sensitivity"),
        ("an unclipped layer", "clipping"),
        pytest.param("BatchNorm", "sensitivity", marks=pytest.mark.slow),
        pytest.param("statistics of private data", "sensitivity", marks=pytest.mark.slow),
        ("shuffled epochs", "batches not Poisson"),
        pytest.param("default_rng(0)", "fixed seed", marks=pytest.mark.slow),
        pytest.param("early stopping", "early stop", marks=pytest.mark.slow),
    ],
)
def test_what_is_planted_in_a_training_is_found(fault: str, name: str) -> None:
    for _ in range(3 if fault == "early stopping" else 1):  # three runs may be of equal length
        found = audit(fault)
        if found.findings:
            break
    assert found.verdict == "violates", str(found)
    if name:
        assert name in [f.name for f in found.findings if f.certain], str(found)
    else:
        assert found.epsilon > found.claimed


def test_canaries_that_come_in_after_the_clipping_do_not_see_it_and_say_so() -> None:
    def sums_only(canaries):
        rng = np.random.default_rng()
        for _ in range(120):
            canaries.observe(canaries.insert(np.zeros(80), 0.5) + rng.normal(0, 0.75, 80))

    found = audit_training(sums_only, TRAINING, access="gradients", confidence=SURE)
    assert found.verdict == "not refuted"
    assert "clipping" in found.not_seen[0]
    assert "not seen: clipping" in str(found)


CHECKED = {
    "": [],
    "exact accuracy": ["exact score"],
    "a share in float32": ["exact score"],
    "a share in float16": ["exact score"],
    "exact log loss": ["exact score"],
    "an exact attribute": ["exact attribute"],
    "exact reports": ["reported values"],
    "shuffled epochs": ["batches not Poisson"],
    "default_rng(0)": ["fixed seed"],
    "early stopping": ["early stop"],
}


# The others, of the same kinds, take as long again.
QUICK = ("", "shuffled epochs", "default_rng(0)", "exact accuracy", "an exact attribute")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault or "honest", marks=[] if fault in QUICK else pytest.mark.slow)
        for fault in CHECKED
    ],
)
def test_what_is_planted_in_an_objective_is_found_and_nothing_else(fault: str) -> None:
    # Three runs may be of equal length, and may have equal accuracies.
    for _ in range(3 if fault in ("early stopping", "an exact attribute") else 1):
        report = odp.check_objective(functools.partial(objective, fault=fault), EVENT, data=DATA)
        if report.findings:
            break
    # Two exact scores of a few records may be equal as well.
    found = [f.name for f in report.findings if f.name != "repeated score"]
    if fault.startswith("a share in") and not found:
        found = ["exact score"] * len(report.findings)
    assert found == CHECKED[fault], str(report)
    assert report.ok == (not CHECKED[fault])


@pytest.mark.slow
def test_cached_models_are_found() -> None:
    models = {}

    def cached(trial, data):
        rate = trial.suggest_float("lr", 0.1, 2.0)
        if rate not in models:
            models[rate] = train(Plain(), data, lr=rate)
        return score(models[rate])

    report = odp.check_objective(cached, EVENT, data=DATA)
    assert "shared state" in [f.name for f in report.findings if f.certain], str(report)


@pytest.mark.slow
def test_a_generator_that_an_objective_holds_is_found() -> None:
    held = np.random.default_rng(7)

    def with_a_held_generator(trial, data):
        extra = [held.normal() for _ in steps(120)]
        return objective(trial, data) + 0.0 * sum(extra)

    def steps(count):
        yield from range(count)

    report = odp.check_objective(with_a_held_generator, EVENT, data=DATA)
    assert [f.name for f in report.findings if f.certain] == ["fixed seed"], str(report)


@pytest.mark.slow
def test_noise_in_whole_numbers_is_no_fault() -> None:
    """A count with discrete noise, divided by the number of records, is a share of records."""
    planted = functools.partial(objective, fault="noise in whole numbers")
    report = odp.check_objective(planted, EVENT, data=DATA)
    assert report.ok, str(report)


@pytest.mark.slow
def test_a_fixed_split_and_fixed_first_weights_are_not_accused() -> None:
    def with_a_split(trial, data):
        rng = np.random.default_rng(0)
        order = rng.permutation(len(data[0]))
        rng.normal(size=(30, 3))
        return objective(trial, (data[0][order], data[1][order]))

    assert odp.check_objective(with_a_split, EVENT, data=DATA).ok
