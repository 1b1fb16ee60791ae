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
from scipy import stats

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.models.encoding import encode_params, encoded
from optuna_dp.models.given_points import to_internal
from optuna_dp.models.prior import (
    Prior,
    UniformPrior,
    from_unit,
    unit_points,
)
from optuna_dp.private_selection.densities.informed import (
    FixedCandidates,
    JointPrior,
    MarginalPrior,
)

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


@pytest.fixture(scope="module")
def sobol_units() -> np.ndarray:
    # Sobol points of one set depend on each other, so one candidate is taken from each of many.
    rng = np.random.default_rng(11)
    return np.array([unit_points(8, 1, rng, "sobol")[5, 0] for _ in range(2000)])


@pytest.mark.parametrize("points", ["independent", "sobol"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_matches_optunas_random_sampler(name: str, points: Any, sobol_units: np.ndarray) -> None:
    d = DISTRIBUTIONS[name]
    if points == "sobol":
        ours = from_unit(d, sobol_units)
    else:
        sample = UniformPrior(points).sample({"x": d}, 8000, np.random.default_rng(1))
        ours = sample.columns["x"]
    discrete = name in ("stepped", "int", "int_step", "int_log", "choice")
    assert _p_value(ours, _optuna_draws(d, 8000, 2), discrete) > 1e-3


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
@pytest.mark.parametrize("points", ["independent", "sobol"])
def test_values_are_plain_and_inside(space: dict[str, BaseDistribution], points: Any) -> None:
    candidates = UniformPrior(points).sample(space, 33, _rng(0))
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
            from optuna_dp.models.prior import to_external

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


def _halves_agree(first: np.ndarray, second: np.ndarray) -> float:
    """Normal deviate of "the second point falls in the half of the first"; 0 on average."""
    same = (first < 0.5) == (second < 0.5)
    return float((same.mean() - 0.5) * 2.0 * np.sqrt(len(same)))


def test_sobol_sets_of_successive_trials_are_independent() -> None:
    rng, first, second = _rng(3), [], []
    for _ in range(1000):
        first.append(unit_points(4, 1, rng, "sobol")[0, 0])
        second.append(unit_points(4, 1, rng, "sobol")[0, 0])
    assert abs(_halves_agree(np.array(first), np.array(second))) < 4.0


def test_the_independence_test_catches_a_continued_stream() -> None:
    from scipy.stats import qmc

    rng, first, second = _rng(3), [], []
    for _ in range(300):
        stream = qmc.Sobol(1, scramble=True, rng=rng)
        first.append(stream.random(1)[0, 0])  # trial 1
        second.append(stream.random(1)[0, 0])  # trial 2 continues
    assert _halves_agree(np.array(first), np.array(second)) < -17.0  # never in the same half


def test_sobol_points_have_the_marginals_of_numpys_uniforms() -> None:
    points = unit_points(1000, 3, _rng(4), "sobol") * 2.0**53
    assert (points == np.floor(points)).all()
    assert np.mean(points % 2) == pytest.approx(0.5, abs=0.05)  # all 53 bits are random


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
    with pytest.raises(InvalidArgumentError, match="search_space"):
        UniformPrior().sample({"x": (0, 1)}, 3, _rng(0))  # type: ignore[dict-item]
    with pytest.raises(InvalidArgumentError, match="finite"):
        UniformPrior().draw_one("x", FloatDistribution(0.0, float("inf")), _rng(0))
    with pytest.raises(InvalidArgumentError, match="points"):
        UniformPrior("halton")  # type: ignore[arg-type]


# --- informed priors ---------------------------------------------------------------------------


@pytest.mark.parametrize("points", ["independent", "sobol"])
def test_marginal_weights_shape_the_law(points: Any) -> None:
    space: dict[str, BaseDistribution] = {
        "x": FloatDistribution(0.0, 1.0),
        "lr": FloatDistribution(1e-3, 1.0, log=True),
        "k": IntDistribution(1, 4, log=True),
        "c": CategoricalDistribution(["a", "b", "d"]),
        "free": FloatDistribution(0.0, 1.0),
    }
    prior = MarginalPrior(
        {
            "x": lambda x: x,
            "lr": lambda v: 1.0 if v > 0.1 else 0.0,
            "k": {1: 1.0, 2: 0.0, 3: 1.0, 4: 1.0},
            "c": {"a": 1.0, "b": 3.0, "d": 0.0},
        },
        points=points,
    )
    assert isinstance(prior, Prior)
    sample = prior.sample(space, 8192, _rng(0))
    assert stats.kstest(sample.columns["x"], lambda x: x**2).pvalue > 1e-3  # density 2x
    assert sample.columns["lr"].min() > 0.0995  # up to one cell of the table
    assert 2.0 not in sample.columns["k"]
    share = np.bincount(sample.columns["c"].astype(int), minlength=3) / 8192
    np.testing.assert_allclose(share, [0.25, 0.75, 0.0], atol=0.03)
    assert stats.kstest(sample.columns["free"], "uniform").pvalue > 1e-3
    # relative to the uniform prior, not to the counting measure
    log_int = np.log([1.5 / 0.5, 3.5 / 2.5, 4.5 / 3.5])
    got = np.bincount(sample.columns["k"].astype(int), minlength=5)[[1, 3, 4]] / 8192
    np.testing.assert_allclose(got, log_int / log_int.sum(), atol=0.03)


def test_marginal_prior_covers_wide_grids_and_single_draws() -> None:
    d = IntDistribution(0, 10**6)
    prior = MarginalPrior({"n": lambda n: 1.0 if n < 5 * 10**5 else 0.0})
    assert prior.sample({"n": d}, 2000, _rng(1)).columns["n"].max() < 5.01e5
    draws = [prior.draw_one("n", d, _rng(i)) for i in range(50)]
    assert max(draws) < 5.01e5
    assert all(type(v) is int for v in draws)


def test_marginal_fingerprints_follow_the_law() -> None:
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0.0, 1.0)}
    one = MarginalPrior({"x": lambda x: 1 + x}).fingerprint(space)
    assert one == MarginalPrior({"x": lambda v: 2 * (1 + v)}).fingerprint(space)
    assert one != MarginalPrior({"x": lambda x: 1 + x * x}).fingerprint(space)
    assert json.loads(json.dumps(one)) == one


@pytest.mark.parametrize(
    "weights", [{"x": lambda x: -1.0}, {"x": lambda x: 0.0}, {"x": lambda x: float("nan")}]
)
def test_bad_marginal_weights_are_refused(weights: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="x"):
        MarginalPrior(weights).sample({"x": FloatDistribution(0, 1)}, 2, _rng(0))


def test_marginal_weights_must_fit_the_space() -> None:
    with pytest.raises(InvalidArgumentError, match="only the parameters"):
        MarginalPrior({"y": lambda y: 1.0}).sample({"x": FloatDistribution(0, 1)}, 2, _rng(0))
    with pytest.raises(InvalidArgumentError, match="needs a weight for 'b'"):
        MarginalPrior({"x": {"a": 1.0}}).sample(
            {"x": CategoricalDistribution(["a", "b"])}, 2, _rng(0)
        )
    with pytest.raises(InvalidArgumentError, match="function or a mapping"):
        MarginalPrior({"x": 3})  # type: ignore[dict-item]


def _line(n: int, rng: np.random.Generator) -> list[dict[str, float]]:
    return [{"x": float(u), "y": float(u)} for u in rng.random(n)]


def test_joint_prior() -> None:
    space: dict[str, BaseDistribution] = {
        "x": FloatDistribution(0, 1),
        "y": FloatDistribution(0, 1),
    }
    prior = JointPrior(_line, name="the diagonal")
    assert isinstance(prior, Prior)
    sample = prior.sample(space, 50, _rng(0))
    np.testing.assert_array_equal(sample.columns["x"], sample.columns["y"])
    mark = prior.fingerprint(space)
    assert mark["name"] == "the diagonal"
    assert mark["function"].endswith("._line")
    with pytest.raises(InvalidArgumentError, match="x must be within"):
        prior.sample({**space, "x": FloatDistribution(2, 3)}, 5, _rng(0))
    with pytest.raises(InvalidArgumentError, match="parameters must be exactly"):
        prior.sample({"x": space["x"]}, 5, _rng(0))
    with pytest.raises(InvalidArgumentError, match="must return 5 points"):
        JointPrior(lambda n, rng: [], name="none").sample(space, 5, _rng(0))
    with pytest.raises(InvalidArgumentError, match="name"):
        JointPrior(_line, name="")


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
    with pytest.raises(InvalidArgumentError, match="x must be within"):
        FixedCandidates([{"x": 7.0, "c": True}]).candidates(space)


@pytest.mark.parametrize(
    ("points", "weights", "message"),
    [
        ([], None, "at least one"),
        ([{"x": 1}, {"y": 1}], None, "parameters"),
        ([{"x": 1}, {"x": 2}, {"x": 1}], None, r"repeats params_list\[0\]"),
        ([{"x": 1}, {"x": np.int64(1)}], None, "repeats"),
        ([{"x": [1]}], None, "finite float or a string"),
        ([{"x": float("nan")}], None, "finite float"),
        ([{"x": 1}, {"x": 2}], [1.0], "one weight per candidate"),
        ([{"x": 1}, {"x": 2}], [1.0, 0.0], "positive and finite"),
        ([{"x": 1}, {"x": 2}], [1.0, -1.0], "positive and finite"),
        ([{"x": 1}, {"x": 2}], [1.0, float("nan")], "NaN"),
    ],
)
def test_bad_candidate_sets_are_refused(points: Any, weights: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        FixedCandidates(points, weights)
