"""What is not in the trusted base may be wrong, and every guarantee stays true.

Each file that docs/explanation/trusted-base.md has outside the base is broken: every function in
it returns wrong numbers, lists in another order and negated answers, or raises. So is each file of
which only words of the statement come. Then a small study is planned, run and released. What is
released must not claim less than what was spent; a search that ends in an error has released
nothing.

What was spent is seen where the records are touched: the batches that are drawn, the noise that is
added to their gradients and to the scores.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
import resource
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import small_studies
import trusted_base
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from small_studies import DELTA

import optuna_dp as odp
from optuna_dp import scoring
from optuna_dp.evidence.stated_run import RunCost, StatedRun
from optuna_dp.runs import train as of_train
from optuna_dp.training.exact_step import ExactStep

# Rounding, and grids of privacy losses.
TOLERANCE = 1e-3
RUN = small_studies.run_plan()


def wrong(value: Any) -> Any:
    """Another value of the same type, where that is easy."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float | np.floating):
        return type(value)(value * 0.3) if not isinstance(value, int) else value // 3 + 1
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value[::-1] * 0.3
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(wrong(item) for item in value)
    if isinstance(value, list):
        return [wrong(item) for item in reversed(value)]
    if isinstance(value, str):
        return value[::-1]
    if isinstance(value, dp_event.GaussianDpEvent):
        return dp_event.GaussianDpEvent(3.0 * value.noise_multiplier)
    if isinstance(value, dp_event.SelfComposedDpEvent):
        return dp_event.SelfComposedDpEvent(value.event, value.count // 3 + 1)
    if isinstance(value, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent([wrong(event) for event in value.events])
    if isinstance(value, StatedRun):
        return dataclasses.replace(value, event=wrong(value.event))
    if isinstance(value, RunCost):
        return dataclasses.replace(value, run=wrong(value.run))
    return value


class Sabotage(Exception):
    """Raised by a broken function."""


def lying(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def broken(*args: Any, **kwargs: Any) -> Any:
        return wrong(function(*args, **kwargs))

    return broken


def raising(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise Sabotage

    return broken


@contextmanager
def broken(file: str, how: Callable[..., Any]) -> Iterator[None]:
    """Breaks every function and method that a file defines, wherever it was imported to."""
    name = "optuna_dp." + file.removesuffix(".py").replace("/", ".")
    trusted_base.forget()  # Nothing that was right stands in for what is broken.
    module = importlib.import_module(name)
    patch = pytest.MonkeyPatch()
    for thing in list(vars(module).values()):
        if getattr(thing, "__module__", None) != name:
            continue
        if inspect.isfunction(thing):
            replacement = how(thing)
            for other in trusted_base.loaded():
                for their, value in list(vars(other).items()):
                    if value is thing:
                        patch.setattr(other, their, replacement)
        elif inspect.isclass(thing):
            for attribute, member in list(vars(thing).items()):
                if inspect.isfunction(member) and not attribute.startswith("__"):
                    patch.setattr(thing, attribute, how(member))
    try:
        with limited_memory():
            yield
    finally:
        patch.undo()
        trusted_base.forget()


@contextmanager
def limited_memory() -> Iterator[None]:
    """A wrong size of an array is a MemoryError, not the end of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@dataclass
class Spending:
    """What the trainings and scores of a study have spent.

    Attributes:
        rates: The sampling rates of batches to which no noise was added yet.
        trainings: For each the sampling rates and the noise multipliers of its steps.
        scores: Noise and value of each score.
    """

    rates: list[float] = field(default_factory=list)
    trainings: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    scores: list[tuple[float, float]] = field(default_factory=list)

    def runs(self) -> list[tuple[int, float, float]]:
        """Of each training the steps, the largest sampling rate and the least noise."""
        return [
            (len(steps), max(rate for rate, _ in steps), min(noise for _, noise in steps))
            for steps in self.trainings.values()
        ]

    def epsilon(self) -> float:
        """What all of it costs together, by dp-accounting alone."""
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        for steps, rate, noise in self.runs():
            step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
            accountant.compose(dp_event.SelfComposedDpEvent(step, steps))
        for noise, _ in self.scores:
            accountant.compose(dp_event.GaussianDpEvent(noise))
        return float(accountant.get_epsilon(DELTA))


@contextmanager
def spending() -> Iterator[Spending]:
    """Notes what is drawn and added, where it is."""
    spent, patch = Spending(), pytest.MonkeyPatch()
    real_sample, real_noise = of_train.poisson_sample, ExactStep.with_noise
    real_mean = scoring.private_mean

    def sample(records: int, sample_rate: float) -> Any:
        assert records == small_studies.RECORDS
        spent.rates.append(sample_rate)
        return real_sample(records, sample_rate)

    def noise(step: ExactStep, totals: Any) -> Any:
        of_step = spent.rates.pop(), step.noise_multiplier
        spent.trainings.setdefault(id(step), []).append(of_step)
        steps.append(step)  # Or another one would get its id.
        return real_noise(step, totals)

    def mean(*args: Any, **kwargs: Any) -> float:
        value = real_mean(*args, **kwargs)
        spent.scores.append((kwargs["noise_multiplier"], value))
        return value

    steps: list[ExactStep] = []
    patch.setattr(of_train, "poisson_sample", sample)
    patch.setattr(ExactStep, "with_noise", noise)
    patch.setattr(scoring, "private_mean", mean)
    try:
        yield spent
    finally:
        patch.undo()


@functools.cache
def sound(procedure: str) -> float:
    """What a study guarantees with nothing broken, at the same numbers each time."""
    return small_studies.STUDIES[procedure](small_studies.unwatched).guarantee.epsilon(DELTA)


def cost(procedure: str, spent: Spending) -> float:
    """The least epsilon that is true of a study that has spent this."""
    if procedure == "budget":
        return spent.epsilon()
    if spent.trainings:  # Runs that are all alike: each as the one plan that was given.
        for steps, rate, noise in spent.runs():
            assert steps <= RUN.steps
            assert noise >= RUN.noise_multiplier
            assert rate <= RUN.sample_rate
        assert all(noise >= RUN.score_noise_multiplier for noise, _ in spent.scores)
        assert len(spent.scores) <= len(spent.trainings)
    return sound(procedure)


def check_true(procedure: str, release: odp.Release, spent: Spending) -> None:
    """Fails if a release claims less than what was spent, or what did not take place."""
    true_epsilon = cost(procedure, spent)
    assert release.guarantee.epsilon(DELTA) >= true_epsilon * (1.0 - TOLERANCE)
    if release.spending:
        assert release.value in [None, 0.0, *(value for _, value in spent.scores)]
        for kind, done in ("training", len(spent.trainings)), ("score", len(spent.scores)):
            words = release.spending.get(kind, {})
            enforced = words.get("enforced", 0) if isinstance(words, dict) else words == "enforced"
            assert enforced <= done


def check_with(procedure: str, file: str, how: Callable[..., Any]) -> None:
    """Runs a study with a broken file. It has released nothing, or what is true."""
    assert sound(procedure) > 0.0  # Kept from here on: nothing is broken yet.
    with broken(file, how), spending() as spent, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            release = small_studies.STUDIES[procedure](small_studies.unwatched)
        except Exception:  # Whatever a broken file makes of it: nothing was released.
            return
        try:
            statement = small_studies.state(release)["statement"]
        except Exception:
            statement = None
    check_true(procedure, release, spent)
    if statement is not None and file not in trusted_base.WORDS:
        assert statement["epsilon"] >= cost(procedure, spent) * (1.0 - TOLERANCE)


def needed(procedure: str) -> list[pytest.MarkDecorator]:
    package = small_studies.NEEDS.get(procedure)
    is_here = package is None or importlib.util.find_spec(package) is not None
    return [] if is_here else [pytest.mark.skip(reason=f"needs {package}")]


PROCEDURES = [pytest.param(name, marks=needed(name)) for name in small_studies.STUDIES]
# Each file that may be wrong, with the first procedure that runs it.
CASES = {
    file: procedure
    for procedure, letters in reversed(trusted_base.shown().items())
    for file, letter in letters.items()
    if letter == "o" or file in trusted_base.WORDS
}


@pytest.mark.slow
@pytest.mark.parametrize("procedure", PROCEDURES)
def test_a_sound_study_releases_what_it_cost(procedure: str) -> None:
    with spending() as spent:
        release = small_studies.STUDIES[procedure](small_studies.unwatched)
    check_true(procedure, release, spent)
    assert release.guarantee.epsilon(DELTA) <= 1.05 * cost(procedure, spent)
    is_training = procedure not in ("noisy max", "doubling", "votes")
    assert bool(spent.trainings) is bool(spent.scores) is is_training


@pytest.mark.slow
@pytest.mark.parametrize("how", [lying, raising])
@pytest.mark.parametrize(
    ("procedure", "file"),
    [pytest.param(CASES[file], file, marks=needed(CASES[file])) for file in sorted(CASES)],
)
def test_a_broken_file_outside_the_base_leaves_guarantees_true(
    procedure: str, file: str, how: Callable[..., Any]
) -> None:
    check_with(procedure, file, how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("procedure", "file"),
    [
        ("budget", "samplers/budget/plan.py"),
        ("budget", "accounting/plds.py"),
        ("private selection", "runs/train.py"),
        ("density bounds", "accounting/event_json.py"),
    ],
)
def test_breaking_a_file_of_the_base_shows(procedure: str, file: str) -> None:
    """The sabotage is strong enough to be noticed where something depends on the file."""
    assert trusted_base.shown()[procedure][file] in ("N", "T")
    expected = sound(procedure)
    with broken(file, lying), spending() as spent:
        try:
            release = small_studies.STUDIES[procedure](small_studies.unwatched)
        except Exception:
            return
    try:
        check_true(procedure, release, spent)
    except AssertionError:
        return
    assert release.guarantee.epsilon(DELTA) > 1.05 * expected
