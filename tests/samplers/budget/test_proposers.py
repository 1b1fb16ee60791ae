"""CMA-ES and Gaussian processes as proposers, end to end; the latter where torch is there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler
from samplers.budget.budget_support import budget, sampler
from support import asking, study_of

import optuna_dp as odp
from optuna_dp.study.entries import PROPOSER

PLANE: dict[str, Any] = {"x": FloatDistribution(-1.0, 1.0), "y": FloatDistribution(-1.0, 1.0)}
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="GPSampler needs torch")
GP = pytest.param("gp", marks=needs_torch)


class Cma(CmaEsSampler):
    """CMA-ES with a population of four; "new randomness" is the next of fixed seeds."""

    def __init__(self) -> None:
        super().__init__(popsize=4)

    def reseed_rng(self) -> None:
        _seed(self, "_cma_rng", "_independent_sampler")


class Gp(GPSampler):
    """A Gaussian process after four random proposals, seeded likewise."""

    def __init__(self) -> None:
        super().__init__(n_startup_trials=4)

    def reseed_rng(self) -> None:
        _seed(self, "_rng", "_independent_sampler")


_seeds: list[int] = []


def _seed(sampler: Any, own: str, other: str) -> None:
    _seeds.append(len(_seeds))
    getattr(sampler, own).rng.seed(len(_seeds))
    getattr(sampler, other)._rng.rng.seed(len(_seeds))


@pytest.fixture(autouse=True)
def _from_the_first_seed() -> Iterator[None]:
    _seeds.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # GPSampler is experimental
        yield


def proposer(name: str) -> BaseSampler:
    return Cma() if name == "cma" else Gp()


def hill(trial: optuna.Trial) -> float:
    x, y = trial.suggest_float("x", -1.0, 1.0), trial.suggest_float("y", -1.0, 1.0)
    return 1.0 - ((x - 0.3) ** 2 + (y + 0.4) ** 2) / 4.0


def remembered(study: optuna.Study, key: str) -> list[Any]:
    """What the proposer kept of each trial under a key; None where it kept nothing."""
    attrs = [t.system_attrs.get(PROPOSER.key, {"trial": {}}) for t in study.trials]
    return [entry["trial"].get(key) for entry in attrs]


def piloted(
    name: str,
    space: dict[str, Any] | None = PLANE,
    objective: Callable[[optuna.Trial], float] = hill,
    pilots: int = 13,
    batch: int = 1,
) -> optuna.Study:
    study = study_of(
        sampler(
            budget(pilots), search_space=space, proposer=proposer(name), pilot_batch_size=batch
        )
    )
    study.optimize(asking(objective), catch=(RuntimeError,))
    release = odp.release(study)
    assert release.params in [t.params for t in study.trials[:pilots]]
    assert f"proposed by {type(proposer(name)).__name__}" in release.statement()
    return study


@pytest.mark.slow
@pytest.mark.parametrize("space", [PLANE, None])
def test_generations_of_cma_es_follow_each_other_through_the_pilots(space: Any) -> None:
    """One random pilot, then four of each generation, whose state is handed on by slot."""
    study = piloted("cma", space)
    generations = remembered(study, "cma:generation")
    assert generations == [None, *[0] * 4, *[1] * 4, *[2] * 4, None]


def test_a_generation_of_cma_es_in_one_batch() -> None:
    study = piloted("cma", batch=4, pilots=16)
    generations = remembered(study, "cma:generation")
    assert generations == [*[None] * 4, *[0] * 4, *[1] * 4, *[2] * 4, None]
    assert len({t.params["x"] for t in study.trials}) == 16


def test_a_generation_of_cma_es_goes_on_after_a_failed_pilot() -> None:
    def fails(trial: optuna.Trial) -> float:
        value = hill(trial)
        if trial.number == 3:
            raise RuntimeError("out of memory")
        return value

    generations = remembered(piloted("cma", objective=fails), "cma:generation")
    assert generations[:13] == [None, *[0] * 5, *[1] * 4, *[2] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cma", GP])
def test_the_pilots_learn(name: str) -> None:
    """Two of the last five are near the top, which five random ones are once in sixty times."""
    study = piloted(name, pilots=25 if name == "cma" else 12)
    last = [t.value for t in study.trials[:-1]][-5:]
    assert sorted(last)[-2] > 0.985


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize(("space", "batch"), [(PLANE, 1), (PLANE, 4), (None, 1), (None, 4)])
def test_a_gaussian_process_proposes_the_pilots(space: Any, batch: int) -> None:
    study = piloted("gp", space, pilots=8, batch=batch)
    kept = remembered(study, "gp:relative_params:0")
    assert [entry is None for entry in kept] == [True] * 4 + [False] * 4 + [True]
    # A batch is spread out: its members know of each other that they run.
    assert len({(t.params["x"], t.params["y"]) for t in study.trials}) == 8
