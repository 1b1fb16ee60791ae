"""Adaptive densities: bounded, pure, blind to everything but DP outputs, better than chance."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from refusals import refuses
from scipy import stats

from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity
from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.prior import UniformPrior
from optuna_dp.priors.scores import RunOutcome, clean_scores
from optuna_dp.priors.surrogate import FittedModel, describe_model

SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-4, 1.0, log=True),
    "layers": IntDistribution(1, 4),
    "act": CategoricalDistribution(["relu", "tanh"]),
}


def _score(params: dict[str, Any]) -> float:
    return -abs(np.log10(params["lr"]) + 2.0) + (0.5 if params["act"] == "relu" else 0.0)


def _history(n: int, seed: int = 0, sign: float = 1.0) -> list[RunOutcome]:
    points = UniformPrior().sample(SPACE, n, np.random.default_rng(seed))
    return [RunOutcome(p, sign * _score(p)) for p in map(points.params, range(n))]


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class _Stub:
    """A score model that says what it is told to."""

    def __init__(self, mean: Any, std: Any = 0.0) -> None:
        self.mean, self.std, self.calls = mean, std, 0

    def fit(self, x: np.ndarray, y: np.ndarray) -> FittedModel:
        self.calls += 1
        return self

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.broadcast_to(self.mean, len(x)), np.broadcast_to(self.std, len(x))


def test_an_outcome_holds_parameters_and_score_only() -> None:
    assert [f.name for f in dataclasses.fields(RunOutcome)] == ["params", "score"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunOutcome({}, 1.0).score = 2.0  # type: ignore[misc]


def test_nothing_else_can_reach_the_density() -> None:
    arguments = list(inspect.signature(AdaptiveDensity.propose).parameters)
    assert arguments == ["self", "history", "space", "rng", "direction"]


def test_a_function_of_its_arguments() -> None:
    # The same history, whatever was proposed before and however the global sources stand.
    adaptive, history = AdaptiveDensity(), _history(12)
    first = adaptive.propose(history, SPACE, _rng(3))
    np.random.seed(5)
    for n in range(1, 12):
        adaptive.propose(history[:n], SPACE, _rng(n))
    assert adaptive.propose(history, SPACE, _rng(3)) == first
    assert AdaptiveDensity().propose(list(history), dict(SPACE), _rng(3)) == first
    assert adaptive.propose(history, SPACE, _rng(4)) != first


def test_the_first_run_is_drawn_from_the_prior() -> None:
    stub = _Stub(np.nan)
    adaptive = AdaptiveDensity(surrogate=stub)
    proposals = [adaptive.propose([], SPACE, _rng(i)) for i in range(1500)]
    assert stub.calls == 0
    assert {p.ratio for p in proposals} == {1.0}
    logs = [(np.log10(p.params["lr"]) + 4) / 4 for p in proposals]
    assert stats.kstest(logs, "uniform").pvalue > 1e-3
    layers = np.bincount([p.params["layers"] for p in proposals])[1:]
    assert stats.chisquare(layers).pvalue > 1e-3


@pytest.mark.slow
def test_the_first_run_on_a_fixed_set_is_drawn_from_its_weights() -> None:
    fixed = FixedCandidates([{"x": 0}, {"x": 1}, {"x": 2}], [1.0, 2.0, 5.0])
    adaptive, space = AdaptiveDensity(prior=fixed), {"x": IntDistribution(0, 2)}
    drawn = [adaptive.propose([], space, _rng(i)) for i in range(2000)]
    assert {p.ratio for p in drawn} == {1.0}
    counts = np.bincount([p.params["x"] for p in drawn])
    assert stats.chisquare(counts, np.array([1, 2, 5]) / 8 * 2000).pvalue > 1e-3


def test_equal_bounds_never_ask_the_surrogate() -> None:
    stub = _Stub(1.0)
    proposal = AdaptiveDensity(bounds=(1.0, 1.0), surrogate=stub).propose(
        _history(5), SPACE, _rng()
    )
    assert proposal.ratio == 1.0
    assert stub.calls == 0


@pytest.mark.parametrize(("projection", "sign"), [("kl", 1.0), ("l2", -1.0)])
def test_prefers_good_regions_within_the_bounds(projection: Any, sign: float) -> None:
    adaptive = AdaptiveDensity(bounds=(0.5, 3.0), projection=projection, candidates=128)
    direction: Any = "maximize" if sign > 0 else "minimize"
    history = _history(40, sign=sign)
    proposals = [adaptive.propose(history, SPACE, _rng(i), direction) for i in range(60)]
    ratios = np.array([p.ratio for p in proposals])
    assert ratios.min() >= 0.5
    assert ratios.max() <= 3.0
    reached = np.mean([_score(p.params) for p in proposals])
    by_chance = np.mean([outcome.score for outcome in _history(2000, seed=1)])  # type: ignore[misc]
    assert reached > by_chance + 0.15


@pytest.mark.parametrize(
    "scores",
    [
        [None] * 6,
        [None, 1.0, None, 2.0, None, 3.0],
        [float("nan"), 1.0, float("inf"), 2.0, float("-inf"), 3.0],
        [5.0] * 6,
        [1e308, -1e308, 1e308, 0.0, 1.0, 2.0],
        [1e-320, 2e-320, 0.0, 0.0, 1e-320, 0.0],
    ],
)
@pytest.mark.parametrize("standardize", [True, False])
def test_odd_scores_do_no_harm(scores: list[Any], standardize: bool) -> None:
    points = [outcome.params for outcome in _history(6)]
    history = [RunOutcome(p, s) for p, s in zip(points, scores, strict=True)]
    adaptive = AdaptiveDensity(standardize=standardize, candidates=64)
    for direction in ("maximize", "minimize"):
        for seed in range(5):
            ratio = adaptive.propose(history, SPACE, _rng(seed), direction).ratio  # type: ignore[arg-type]
            assert 0.75 <= ratio <= 2.0


@pytest.mark.parametrize("mean", [np.nan, np.inf, -np.inf, 1e308])
def test_a_broken_surrogate_cannot_break_the_bounds(mean: float) -> None:
    for std in (0.0, np.nan, np.inf, -1.0):
        adaptive = AdaptiveDensity(surrogate=_Stub(mean, std), candidates=16)
        assert 0.75 <= adaptive.propose(_history(3), SPACE, _rng()).ratio <= 2.0


def test_failed_runs_are_the_lowest_outcome() -> None:
    np.testing.assert_array_equal(
        clean_scores([1.0, None, 2.0, float("nan"), 1.5], 1.0), [1.0, 1.0, 2.0, 1.0, 1.5]
    )
    np.testing.assert_array_equal(clean_scores([1.0, None, 2.0], -1.0), [-1.0, -2.0, -2.0])
    np.testing.assert_array_equal(clean_scores([None, None], 1.0), [0.0, 0.0])
    # and the search stays away from where runs fail
    history = [
        RunOutcome(o.params, None if o.params["lr"] > 0.01 else 0.5 + 0.01 * i)
        for i, o in enumerate(_history(40))
    ]
    adaptive = AdaptiveDensity(bounds=(0.2, 4.0))
    high = [adaptive.propose(history, SPACE, _rng(i)).params["lr"] > 0.01 for i in range(100)]
    assert np.mean(high) < 0.3


def test_one_diverged_loss_does_not_hide_the_others() -> None:
    good = [0.1, 0.2, 0.3, 0.4, 0.5]
    cleaned = clean_scores([*good, 1e9], -1.0)
    np.testing.assert_array_equal(cleaned[:5], -np.array(good))
    assert -10.0 < cleaned[5] < -0.5


def test_history_from_another_range_is_understood() -> None:
    history = [RunOutcome({"lr": 5.0, "act": "gelu"}, 1.0), RunOutcome({}, 0.0)]
    assert AdaptiveDensity().propose(history, SPACE, _rng()).params.keys() == SPACE.keys()


def test_runs_of_an_empty_space() -> None:
    assert AdaptiveDensity().propose([RunOutcome({}, 1.0)] * 5, {}, _rng()).params == {}


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"bounds": (1.2, 2.0)}, "density_bounds"),
        ({"bounds": (0.5, 0.9)}, "density_bounds"),
        ({"bounds": (0.0, 2.0)}, "density_bounds"),
        ({"tau": float("inf")}, "tau"),
        ({"tau": "x"}, "tau"),
        ({"beta": -1.0}, "beta"),
        ({"beta": float("nan")}, "beta"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": 10.5}, "candidates"),
        ({"projection": "osqp"}, "projection"),
        ({"prior": "uniform"}, "prior"),
        ({"surrogate": None}, "surrogate"),
    ],
)
def test_bad_settings_are_refused_at_construction(settings: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        AdaptiveDensity(**settings)


def test_bad_direction_is_refused() -> None:
    with refuses("direction"):
        AdaptiveDensity().propose([], SPACE, _rng(), "up")  # type: ignore[arg-type]


def test_the_record_of_a_density_is_plain_and_tells_densities_apart() -> None:
    settings = [
        AdaptiveDensity(),
        AdaptiveDensity(bounds=(0.5, 2.0)),
        AdaptiveDensity(prior=FixedCandidates([{"lr": 0.1, "layers": 1, "act": "relu"}])),
        AdaptiveDensity(tau=1),
        AdaptiveDensity(projection="l2"),
        AdaptiveDensity(beta=1),
        AdaptiveDensity(surrogate=_Stub(0.0)),
        AdaptiveDensity(candidates=7),
        AdaptiveDensity(standardize=False),
    ]
    records = [json.dumps(p.describe(SPACE), allow_nan=False) for p in settings]
    assert len(set(records)) == len(settings)
    assert json.dumps(AdaptiveDensity().describe(SPACE)) == records[0]
    assert " at 0x" not in describe_model(_Stub(0.0))


@pytest.mark.slow
def test_importing_the_density_loads_nothing_heavy() -> None:
    code = (
        "import sys; import optuna_dp.priors.densities.adaptive_density; "
        "print([m for m in ('sklearn', 'cvxpy', 'scipy.stats') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
