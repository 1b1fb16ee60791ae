"""What is not in the trusted base may be wrong, and every guarantee stays true.

Each file that tests/trusted_base.py leaves out is broken: every function in it returns wrong
numbers, lists in another order and negated answers, or raises. Then a study is planned, run,
shown, released and published. What is released must not claim less than what the objective's own
ledger says that the runs have cost; a search that ends in an error has released nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import import_graph
import numpy as np
import optuna
import pytest
import trusted_base
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from support import RUN, recorded, simulated

import optuna_dp as odp
from optuna_dp.evidence.stated_run import RunCost, StatedRun

DELTA = 1e-5
# A sample of the whole, which is a slow test.
QUICK = (
    "accounting/reading_points.py",
    "planning/budget.py",
    "planning/budget_split.py",
)
FILES = sorted(
    file
    for file in import_graph.files()
    if trusted_base.is_untrusted(file, "budget")
    and not file.startswith(("cli/", "federated/", "check/", "digits.py"))
    and not file.endswith("__init__.py")
)


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
    if file.startswith("accounting/"):
        _forget()
    module = importlib.import_module(name)
    patch = pytest.MonkeyPatch()
    for thing in list(vars(module).values()):
        if getattr(thing, "__module__", None) != name:
            continue
        if inspect.isfunction(thing):
            replacement = how(thing)
            for other in _loaded():
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
        if file.startswith("accounting/"):
            _forget()


@contextmanager
def limited_memory() -> Iterator[None]:
    """A wrong size of an array is a MemoryError, not the end of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _forget() -> None:
    """Empties every cache, so that nothing that was right stands in for what is broken."""
    for module in _loaded():
        for thing in list(vars(module).values()):
            if hasattr(thing, "cache_clear"):
                thing.cache_clear()


def _loaded() -> list[Any]:
    return [m for name, m in sys.modules.items() if name.startswith("optuna_dp") and m]


def truth(started: list[odp.Run]) -> float:
    """What runs with these noises and lengths have cost, by dp-accounting alone."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for run in started:
        step = dp_event.PoissonSampledDpEvent(
            run.sample_rate, dp_event.GaussianDpEvent(run.noise_multiplier)
        )
        accountant.compose(dp_event.SelfComposedDpEvent(step, run.steps))
        accountant.compose(dp_event.GaussianDpEvent(run.score_noise_multiplier))
    return float(accountant.get_epsilon(DELTA))


def budget_study() -> tuple[odp.Release, float]:
    """A budget from the plan to the publication; returns the release and the true epsilon."""
    plan = odp.plan_budget(
        epsilon=3.0, delta=DELTA, records=500, batch_size=100, epochs=4, pilots=(3, 2)
    )
    started: list[odp.Run] = []

    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        started.append(run)
        run.spent(recorded(simulated(run)))
        return run.score([trial.suggest_float("x", 0, 1)] * 500)

    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.enqueue_trial({"x": 0.5})
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    odp.release(study).guarantee.bounds(DELTA)  # What is shown beside a guarantee.
    return odp.release(study), truth(started)


def selection_study() -> tuple[odp.Release, float]:
    """A private selection; returns the release and what it costs with nothing broken."""
    sampler = odp.DPHyPOSampler(
        {"x": optuna.distributions.FloatDistribution(0, 1)},
        trials=odp.Geometric(mean=3),
        candidates=8,
        run=RUN,
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    callback = odp.PrivacyCallback()
    rng = np.random.default_rng()
    study.optimize(
        lambda trial: trial.suggest_float("x", 0, 1) + 0.1 * rng.normal(), callbacks=[callback]
    )
    odp.release(study, vouched="a test").guarantee.bounds(DELTA)
    return odp.release(study, vouched="a test"), SELECTION


SELECTION = odp.selection_guarantee(
    odp.gaussian(4.0),
    odp.Geometric(mean=3),
    density_bounds=(0.75, 2.0),
    startup_runs=1,
).epsilon(DELTA)
STUDIES = {"budget": budget_study, "selection": selection_study}


def no_less_than_it_cost(study: str, file: str, how: Callable[..., Any]) -> bool:
    """Whether a study with a broken file released nothing, or no less than the truth."""
    with broken(file, how):
        try:
            release, cost = STUDIES[study]()
        except Exception:  # whatever a broken file makes of it: nothing was released
            return True
    return release.guarantee.epsilon(DELTA) >= cost * (1.0 - 1e-3)


@pytest.mark.parametrize("study", STUDIES)
def test_a_sound_study_releases_what_it_cost(study: str) -> None:
    release, cost = STUDIES[study]()
    assert cost * (1.0 - 1e-3) <= release.guarantee.epsilon(DELTA) <= 1.05 * cost


@pytest.mark.parametrize("file", QUICK)
def test_a_broken_file_outside_the_base_leaves_a_budget_true(file: str) -> None:
    assert no_less_than_it_cost("budget", file, lying)


def called_in(study: str) -> set[str]:
    """The files outside the base of which a study runs some code."""
    root = f"{import_graph.ROOT}/"
    found: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename.removeprefix(root))

    _forget()
    sys.setprofile(note)
    try:
        STUDIES[study]()
    finally:
        sys.setprofile(None)
    return found & set(FILES)


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_broken_file_outside_the_base_leaves_guarantees_true(study: str) -> None:
    """One by one; those that a study never calls cannot change what it releases."""
    files = called_in(study)
    assert len(files) >= 5
    for file in sorted(files):
        for how in (lying, raising):
            assert no_less_than_it_cost(study, file, how), (file, how)


@pytest.mark.parametrize(
    ("study", "file"),
    [
        ("budget", "samplers/budget/plan.py"),
        ("budget", "accounting/plds.py"),
        ("selection", "accounting/event_json.py"),
    ],
)
def test_breaking_a_file_of_the_base_shows(study: str, file: str) -> None:
    """The sabotage is strong enough to be noticed where something depends on the file."""
    procedure = "with density bounds" if study == "selection" else study
    assert file in trusted_base.trusted(procedure)
    with broken(file, lying):
        try:
            release, cost = STUDIES[study]()
            found = release.guarantee.epsilon(DELTA)
        except Exception:
            return
    assert not cost * (1.0 - 1e-3) <= found <= 1.05 * cost
