"""Under ``schedule="batch"`` the density is a function of earlier private outputs alone.

The conditions of docs/explanation/history-bound.md, one by one: a policy that could see anything
else would be charged too little.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from support import RUN, exactly, objective, study_of

import optuna_dp as odp
from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity
from optuna_dp.priors.scores import RunOutcome
from optuna_dp.study.entries import DRAW

SPACE: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
FORBIDDEN = (
    "datetime_start",
    "datetime_complete",
    "duration",
    "intermediate_values",
    "last_step",
    "user_attrs",
)


class Spy:
    """A score model that keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def __repr__(self) -> str:
        return "Spy()"

    def fit(self, x: Any, y: Any) -> Spy:
        self.seen.append((x.copy(), y.copy()))
        return self

    def predict(self, x: Any) -> tuple[Any, Any]:
        return x[:, 0], np.zeros(len(x))


@contextmanager
def poisoned() -> Iterator[None]:
    """Whoever reads a forbidden property of a trial dies."""

    def poison(self: FrozenTrial) -> Any:
        raise AssertionError("the sampler looked at what a policy must not see")

    saved = {name: FrozenTrial.__dict__.get(name) for name in FORBIDDEN}
    try:
        for name in FORBIDDEN:
            setattr(FrozenTrial, name, property(poison, lambda self, value: None))
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                delattr(FrozenTrial, name)
            else:
                setattr(FrozenTrial, name, value)


def test_a_poisoned_study_is_not_touched() -> None:
    sampler = odp.DPHyPOSampler(SPACE, trials=exactly(5), candidates=16, run=RUN)
    study = study_of(sampler)
    study.optimize(objective, n_trials=4)
    trial = study.ask()
    frozen = study._storage.get_trial(trial._trial_id)
    with poisoned():
        space = sampler.infer_relative_search_space(study, frozen)
        sampler.sample_relative(study, frozen, space)
        with pytest.raises(AssertionError, match="must not see"):
            _ = study._storage.get_all_trials(study._study_id, deepcopy=False)[0].duration


def make_history(
    scores: Sequence[float | None],
    *,
    batch_size: int = 1,
    order: Sequence[int] | None = None,
    noise: float = 0.0,
    total: int = 9,
) -> tuple[optuna.Study, optuna.Trial]:
    """A study whose slots have the given scores, whatever the rest looks like."""
    sampler = odp.DPHyPOSampler(
        SPACE,
        trials=exactly(total),
        candidates=32,
        batch_size=batch_size,
        seed=11,
        run=RUN,
    )
    study = study_of(sampler)
    for start in range(0, len(scores), batch_size):
        block = [study.ask() for _ in scores[start : start + batch_size]]
        for trial in block:
            trial.suggest_float("x", -1.0, 1.0)
        for i in order or range(len(block)):
            trial, value = block[i], scores[start + i]
            trial.set_user_attr("loss", noise)
            trial.report(noise, step=0)
            if value is None:
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, value)
    for frozen in study._storage.get_all_trials(study._study_id, deepcopy=False):
        if noise and frozen.datetime_complete is not None:
            frozen.datetime_complete += datetime.timedelta(seconds=1e5 * noise)
    return study, study.ask()


def test_equal_histories_give_equal_draws_whatever_else_differs() -> None:
    """Durations, raw losses, reported values, order of arrival and T change nothing."""
    scores = [0.1, 0.9, None, 0.4]

    def next_x(**kwargs: Any) -> float:
        _, trial = make_history(scores, batch_size=2, **kwargs)
        return trial.suggest_float("x", -1.0, 1.0)

    reference = next_x()
    assert next_x(order=[1, 0]) == reference
    assert next_x(noise=7.0) == reference
    assert next_x(total=6) == reference
    assert next_x(order=[1, 0], noise=3.0) == reference


def test_other_histories_give_other_draws() -> None:
    """The check above could not fail if nothing were learnt."""
    draws = set()
    for last in (-9.0, 0.0, 0.9, 9.0):
        _, trial = make_history([0.1, 0.9, 0.2, last])
        draws.add(trial.suggest_float("x", -1.0, 1.0))
    assert len(draws) > 1


def test_a_run_sees_the_completed_batches_before_its_own_and_no_other() -> None:
    spy = Spy()
    sampler = odp.DPHyPOSampler(
        SPACE, trials=exactly(9), candidates=8, batch_size=3, surrogate=spy, run=RUN
    )
    study = study_of(sampler)
    study.optimize(objective)
    assert [len(y) for _, y in spy.seen] == [3, 3, 3, 6, 6, 6]


@pytest.mark.slow
def test_a_run_waits_for_the_batches_before_its_own() -> None:
    """With four threads, no run starts before all earlier batches have ended."""
    sampler = odp.DPHyPOSampler(SPACE, trials=exactly(24), candidates=8, batch_size=4, run=RUN)
    study = study_of(sampler)
    started_with: dict[int, int] = {}

    def watches(trial: optuna.Trial) -> float:
        value = objective(trial)
        trials = study._storage.get_all_trials(study._study_id, deepcopy=False)
        first = trial.number - trial.number % 4
        started_with[trial.number] = sum(t.state.is_finished() for t in trials[:first])
        return value

    study.optimize(watches, n_jobs=4)
    assert started_with == {number: number - number % 4 for number in range(24)}


def test_schedule_any_never_waits() -> None:
    study = study_of(
        odp.DPHyPOSampler(SPACE, trials=exactly(6), schedule="any", candidates=8, run=RUN)
    )
    trials = [study.ask() for _ in range(6)]
    values = [objective(trial) for trial in trials]
    for trial, value in zip(trials, values, strict=True):
        study.tell(trial, value)
    assert odp.release(study, vouched="a test").guarantee.event.policy == "data"


def test_schedule_any_shows_no_trial_that_was_turned_away() -> None:
    """Its number is at least T, so a density that knew it would know that T is reached."""
    spy = Spy()
    sampler = odp.DPHyPOSampler(
        SPACE,
        trials=exactly(3),
        schedule="any",
        candidates=8,
        surrogate=spy,
        run=RUN,
    )
    study = study_of(sampler)
    study.optimize(objective, n_trials=2)
    last = study.ask()  # Draws its parameters when it is asked for them.
    study.optimize(objective, n_trials=1)
    assert [t.state for t in study.trials][2:] == [TrialState.RUNNING, TrialState.PRUNED]
    spy.seen.clear()
    last.suggest_float("x", -1.0, 1.0)
    assert [len(scores) for _, scores in spy.seen] == [2]


def test_failed_runs_are_outcomes() -> None:
    spy = Spy()
    sampler = odp.DPHyPOSampler(SPACE, trials=exactly(4), candidates=8, surrogate=spy, run=RUN)

    def sometimes(trial: optuna.Trial) -> float:
        value = objective(trial)
        if trial.number == 1:
            raise RuntimeError("diverged")
        if trial.number == 2:
            trial.report(1e9, step=0)
            raise optuna.TrialPruned
        return value

    study = study_of(sampler, pruner=optuna.pruners.NopPruner())
    study.optimize(sometimes, catch=(RuntimeError,))
    last = spy.seen[-1][1]
    assert len(last) == 3
    assert last[1] == last[2] == last.min()


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(0.75, 2.0), (0.9, 1.25)])
def test_the_realised_density_ratio_stays_within_the_bounds(bounds: tuple[float, float]) -> None:
    study = study_of(
        odp.DPHyPOSampler(
            SPACE,
            trials=exactly(40),
            candidates=64,
            density_bounds=bounds,
            beta=50,
            run=RUN,
        )
    )
    study.optimize(objective)
    # The first run is from the prior itself, and has no joint draw.
    ratios = [t.system_attrs[DRAW.key]["density_ratio"] for t in study.trials[1:]]
    assert all(bounds[0] <= ratio <= bounds[1] for ratio in ratios)
    assert max(ratios) > 1.1


@pytest.mark.slow
def test_the_joint_density_is_bounded_and_not_the_product_of_single_ones() -> None:
    """With d parameters drawn one by one the favourite corner would get C^d of its prior.

    A surrogate that loves one corner (a quarter of the space in two dimensions): its probability
    is at most C/4 = 0.375 under a joint bound and would be (C/2)^2 = 0.5625 drawn one by one.
    With 1500 draws the one-by-one sampler fails with probability above 1 - 1e-9, the right one
    below 1e-6.
    """

    class Corner:
        def __repr__(self) -> str:
            return "Corner()"

        def fit(self, x: Any, y: Any) -> Corner:
            return self

        def predict(self, x: Any) -> tuple[Any, Any]:
            return 100.0 * np.all(x > 0.5, axis=1), np.zeros(len(x))

    names = ("a", "b")
    space: dict[str, Any] = {n: optuna.distributions.FloatDistribution(0.0, 1.0) for n in names}
    adaptive = AdaptiveDensity(bounds=(0.5, 1.5), surrogate=Corner(), candidates=64)
    rng = np.random.default_rng(3)
    history = [RunOutcome({"a": 0.1, "b": 0.1}, 0.0)]
    hits = 0
    for _ in range(1500):
        params = adaptive.propose(history, space, rng).params
        hits += params["a"] > 0.5 and params["b"] > 0.5
    assert 0.30 < hits / 1500 < 0.375 + 5 * (0.375 * 0.625 / 1500) ** 0.5


@pytest.mark.slow
def test_parameters_that_are_not_drawn_jointly_come_from_the_prior() -> None:
    """Define-by-run: a branch that not all runs share is uniform, whatever has been learnt.

    Fails falsely with probability below 1e-9 (6.2 standard errors).
    """

    def branches(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        name = trial.suggest_categorical("kind", ["a", "b"])
        return x + trial.suggest_float(f"only_{name}", 0.0, 1.0)

    class Likes:
        """Prefers large values of everything, by far."""

        def __repr__(self) -> str:
            return "Likes()"

        def fit(self, x: Any, y: Any) -> Likes:
            return self

        def predict(self, x: Any) -> tuple[Any, Any]:
            return 100.0 * x.sum(axis=1), np.zeros(len(x))

    values = []
    for _ in range(30):
        study = study_of(
            odp.DPHyPOSampler(trials=exactly(12), candidates=16, surrogate=Likes(), run=RUN)
        )
        study.optimize(branches)
        for t in study.trials:
            joint = t.system_attrs.get(DRAW.key, {"space": {}})["space"]
            values += [
                value
                for name, value in t.params.items()
                if name.startswith("only_") and name not in joint
            ]
    assert len(values) > 200
    # Drawn with a preference (C = 2 for the upper third) the mean would be near 0.6.
    assert abs(np.mean(values) - 0.5) < 6.2 * (1 / 12 / len(values)) ** 0.5
