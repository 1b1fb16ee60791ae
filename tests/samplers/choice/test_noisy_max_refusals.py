"""What candidates and one private choice refuse, and what they say first."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from refusals import refuses
from samplers.choice.utility_support import (
    BOTH,
    MAKERS,
    SPACE,
    K,
    choice_trials,
    evaluated,
    mean_utility,
    run,
)

import optuna_dp as odp
from optuna_dp.errors import (
    PlanError,
    ReleaseRefusedError,
)
from optuna_dp.mechanisms import NoiseWarning
from optuna_dp.study.entries import CHOICE


def test_a_run_event_is_refused() -> None:
    with pytest.raises(PlanError):
        run(MAKERS["noisy_max"](SPACE), callbacks=[odp.PrivacyCallback(odp.gaussian(4.0))])


@BOTH
def test_a_seed_repeats_the_candidates_and_forbids_the_release(make: Any) -> None:
    def drawn(seed: int, n_jobs: int) -> list[Any]:
        sampler = make({"x": FloatDistribution(0, 1)}, candidates=9, seed=seed)
        study = run(sampler, lambda t: t.suggest_float("x", 0, 1), n_jobs=n_jobs)
        with pytest.raises(ReleaseRefusedError, match="seed"):
            odp.release(study)
        return [t.params for t in evaluated(study)]

    assert drawn(3, 1) == drawn(3, 3)
    assert drawn(3, 1) != drawn(4, 1)


def test_a_seed_does_not_make_the_choice() -> None:
    """Ten choices of one in 30 that nothing tells apart: all the same once in 10**13."""
    sampler = MAKERS["noisy_max"](SPACE, candidates=30, n_partitions=2, resolve=1e9, seed=3)
    studies = [run(sampler, lambda t: 0.0 * t.suggest_float("x", 0, 1)) for _ in range(10)]
    records = [t.system_attrs[CHOICE.key] for study in studies for t in choice_trials(study)]
    assert len({tuple(record["answers"]) for record in records}) > 1


def test_workers_with_other_candidates_do_not_run() -> None:
    study = run(MAKERS["noisy_max"](SPACE), n_trials=2)
    study.sampler = MAKERS["noisy_max"](candidates=[{"x": 0.1}])
    with pytest.raises(PlanError):
        study.optimize(mean_utility)
    study.sampler = MAKERS["noisy_max"](SPACE)
    study.optimize(mean_utility)
    odp.release(study)


def test_a_worker_with_other_candidates_from_before_the_plan_spoils_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = run(MAKERS["noisy_max"](SPACE), n_trials=2)
    study.sampler = MAKERS["noisy_max"](candidates=[{"x": 0.1}])
    with monkeypatch.context() as early:
        early.setattr(odp.NoisyMaxSampler, "check_before_asking", lambda *_: None)
        with pytest.raises(PlanError):
            study.optimize(mean_utility)
    study.sampler = MAKERS["noisy_max"](SPACE)
    study.optimize(mean_utility, catch=(ReleaseRefusedError,))
    with pytest.raises(ReleaseRefusedError, match="sampler"):
        odp.release(study)


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"n_partitions": 1}, "n_partitions"),
        ({"n_partitions": 2.5}, "n_partitions"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"candidates": []}, "candidates"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": "abc"}, "candidates"),
        ({"candidates": [3]}, "candidates[0]"),
        ({"candidates": [{"x": object()}]}, "candidates[0]"),
        ({"candidates": [{"x": float("nan")}]}, "candidates[0]"),
        ({"candidates": [{"y": 1}]}, "candidates[0]"),
        ({"candidates": [{"x": 7.0}]}, "candidates[0]['x']"),
        ({"seed": 0.5}, "seed"),
        ({"resolve": 0.0}, "resolve"),
    ],
)
@BOTH
def test_bad_arguments(make: Any, arguments: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        make(SPACE, **arguments)


@BOTH
def test_a_grid_needs_finitely_many_values(make: Any) -> None:
    with refuses("search_space['x']"):
        make({"x": FloatDistribution(0, 1)})
    with refuses("candidates"):
        make()
    with refuses("search_space"):
        make({name: IntDistribution(1, 1000) for name in "abc"})


@BOTH
def test_noise_that_hides_everything_is_announced_before_the_run(make: Any) -> None:
    with pytest.warns(NoiseWarning) as caught:
        make(SPACE, n_partitions=10)
    # Where the sampler is made.
    assert [warning.filename for warning in caught] == [inspect.getsourcefile(run)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(SPACE)


def test_fewer_records_than_partitions() -> None:
    with refuses("record_ids_or_n"):
        odp.partition(5, K)
