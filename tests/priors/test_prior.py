"""Priors: Optuna's own random law, fresh at every call; informed priors say what they are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from refusals import refuses
from scipy import stats

from optuna_dp.priors.densities.informed import FixedCandidates
from optuna_dp.priors.encoding import encode_params, encoded
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.prior import UniformPrior, from_unit

DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "float": FloatDistribution(-2.0, 3.0),
    "log": FloatDistribution(1e-4, 10.0, log=True),
    "stepped": FloatDistribution(0.3, 6.0, step=0.3),
    "int": IntDistribution(-3, 4),
    "int_step": IntDistribution(2, 20, step=3),
    "int_log": IntDistribution(1, 20, log=True),
    "int_log_wide": IntDistribution(1, 10**6, log=True),
    "choice": CategoricalDistribution(["a", None, True, 2, 0.5]),
}
SINGLE: dict[str, BaseDistribution] = {
    "float": FloatDistribution(1.5, 1.5),
    "log": FloatDistribution(2.0, 2.0, log=True),
    "stepped": FloatDistribution(1.0, 1.0, step=0.5),
    "int": IntDistribution(7, 7),
    "int_log": IntDistribution(7, 7, log=True),
    "choice": CategoricalDistribution(["only"]),
}


def _optuna_draws(distribution: BaseDistribution, n: int, seed: int) -> np.ndarray:
    sampler = optuna.samplers.RandomSampler(seed=seed)
    draws = [
        sampler.sample_independent(None, None, "x", distribution)  # type: ignore[arg-type]
        for _ in range(n)
    ]
    return np.array([distribution.to_internal_repr(value) for value in draws])


def _p_value(a: np.ndarray, b: np.ndarray, discrete: bool) -> float:
    if not discrete:
        return float(stats.ks_2samp(a, b).pvalue)
    values, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    table = np.stack([np.bincount(c, minlength=len(values)) for c in np.split(codes, [len(a)])])
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_matches_optunas_random_sampler(name: str) -> None:
    d = DISTRIBUTIONS[name]
    ours = UniformPrior().sample({"x": d}, 8000, np.random.default_rng(1)).columns["x"]
    discrete = name in ("stepped", "int", "int_step", "int_log", "choice")
    assert _p_value(ours, _optuna_draws(d, 8000, 2), discrete) > 1e-3


@pytest.mark.slow
def test_the_law_test_rejects_neighbouring_laws() -> None:
    # Rounding a log-uniform on [low, high] (without the half steps) is not Optuna's law.
    d = DISTRIBUTIONS["int_log"]
    u = np.random.default_rng(1).random(8000)
    assert _p_value(np.rint(np.exp(u * np.log(20.0))), _optuna_draws(d, 8000, 2), True) < 1e-6
    # Neither is a uniform parameter a log-uniform one.
    wrong = UniformPrior().sample({"x": FloatDistribution(1e-4, 10)}, 3000, _rng(1)).columns["x"]
    assert _p_value(wrong, _optuna_draws(DISTRIBUTIONS["log"], 3000, 2), False) < 1e-6


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("space", [DISTRIBUTIONS, SINGLE, {}])
def test_values_are_plain_and_inside(space: dict[str, BaseDistribution]) -> None:
    candidates = UniformPrior().sample(space, 33, _rng(0))
    assert len(candidates) == 33
    for i in range(33):
        params = candidates.params(i)
        assert params.keys() == space.keys()
        for name, value in params.items():
            assert type(value) in (int, float, str, bool, type(None))
            assert to_internal(space[name], value) is not None
            if isinstance(space[name], IntDistribution):
                assert type(value) is int
        assert json.loads(json.dumps(params)) == params
    points = encoded(candidates)
    assert points.shape[0] == 33
    assert np.isfinite(points).all()
    assert ((points >= 0) & (points <= 1)).all()


def test_ends_of_the_unit_interval_stay_inside() -> None:
    ends = np.array([0.0, 2.0**-53, 1.0 - 2.0**-53])
    wide = {
        "huge": FloatDistribution(-1.7e308, 1.7e308),
        "tiny": FloatDistribution(5e-324, 1e308, log=True),
        "big_int": IntDistribution(-(2**62), 2**63 - 1),
        "thin": FloatDistribution(1.0, float(np.nextafter(1.0, 2.0))),
    }
    for d in [*DISTRIBUTIONS.values(), *SINGLE.values(), *wide.values()]:
        for value in from_unit(d, ends):
            from optuna_dp.priors.prior import to_external

            assert d._contains(d.to_internal_repr(to_external(d, float(value))))


def test_encoding() -> None:
    space: dict[str, BaseDistribution] = {
        "log": FloatDistribution(1e-4, 1.0, log=True),
        "one": IntDistribution(3, 3),
        "int": IntDistribution(0, 10, step=5),
        "c": CategoricalDistribution(["a", "b"]),
    }
    x = encode_params(space, [{"log": 1e-2, "one": 3, "int": 5, "c": "b"}, {}, {"int": 99}])
    h = np.sqrt(0.5)
    np.testing.assert_allclose(x[0], [0.5, 0.5, 0.0, h])
    np.testing.assert_allclose(x[1], [0.5, 0.5, h / 2, h / 2])  # nothing known: the middle
    np.testing.assert_allclose(x[2, 1], 1.0)  # outside the range: its edge
    assert np.linalg.norm(encode_params({"c": space["c"]}, [{"c": "a"}])) == pytest.approx(h)


def test_draw_one_has_the_prior_law_and_is_plain() -> None:
    rng = _rng(5)
    for d in [*DISTRIBUTIONS.values(), *SINGLE.values()]:
        value = UniformPrior().draw_one("x", d, rng)
        assert type(value) in (int, float, str, bool, type(None))
    draws = np.array(
        [UniformPrior().draw_one("x", DISTRIBUTIONS["int"], rng) for _ in range(4000)]
    )
    assert stats.chisquare(np.bincount(draws + 3)).pvalue > 1e-3


def test_bad_spaces_are_refused() -> None:
    with refuses("search_space['x']"):
        UniformPrior().sample({"x": (0, 1)}, 3, _rng(0))  # type: ignore[dict-item]
    with refuses("search_space['parameter']"):
        UniformPrior().draw_one("x", FloatDistribution(0.0, float("inf")), _rng(0))


def test_fixed_candidates() -> None:
    space: dict[str, BaseDistribution] = {
        "x": FloatDistribution(0, 1),
        "c": CategoricalDistribution([True, None]),
    }
    points = [{"x": np.float64(0.1), "c": True}, {"x": 0.1, "c": None}, {"x": 1, "c": True}]
    fixed = FixedCandidates(points, weights=[1, 2, 3])
    assert fixed.masses.tolist() == [1, 2, 3]
    candidates = fixed.candidates(space)
    assert [candidates.params(i) for i in range(3)] == points
    assert type(candidates.params(0)["x"]) is float
    assert fixed.fingerprint(space) != FixedCandidates(points).fingerprint(space)
    assert fixed.fingerprint(space) == FixedCandidates(points, [2, 4, 6]).fingerprint(space)
    json.dumps(fixed.fingerprint(space))
    with refuses("params_list [0]"):
        FixedCandidates([{"x": 7.0, "c": True}]).candidates(space)
    with refuses("params_list [0]"):
        FixedCandidates([{"x": 0.5}]).candidates(space)


@pytest.mark.parametrize(
    ("points", "weights", "argument"),
    [
        ([], None, "params_list"),
        ([{"x": 1}, {"y": 1}], None, "params_list[1]"),
        ([{"x": 1}, {"x": 2}, {"x": 1}], None, "params_list[2]"),
        ([{"x": 1}, {"x": np.int64(1)}], None, "params_list[1]"),
        ([{"x": [1]}], None, "params_list[0]['x']"),
        ([{"x": float("nan")}], None, "params_list[0]['x']"),
        ([{"x": 1}, {"x": 2}], [1.0], "weights"),
        ([{"x": 1}, {"x": 2}], [1.0, 0.0], "weights[1]"),
        ([{"x": 1}, {"x": 2}], [1.0, -1.0], "weights[1]"),
        ([{"x": 1}, {"x": 2}], [1.0, float("nan")], "weights[1]"),
    ],
)
def test_bad_candidate_sets_are_refused(points: Any, weights: Any, argument: str) -> None:
    with refuses(argument):
        FixedCandidates(points, weights)
