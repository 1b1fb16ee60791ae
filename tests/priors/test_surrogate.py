"""Score models: right where there is an independent answer, and functions of the history."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from optuna_dp.priors import surrogate
from optuna_dp.priors.surrogate import FittedModel, GaussianProcess, ScoreModel

MODELS = [GaussianProcess()]


def _data(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, d))
    return x, -((x - 0.4) ** 2).sum(axis=1) * 4 + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 9, 40])
@pytest.mark.parametrize("d", [0, 1, 5])
def test_any_history_gives_finite_predictions(model: ScoreModel, n: int, d: int) -> None:
    assert isinstance(model, ScoreModel)
    x, y = _data(n, d)
    points = np.random.default_rng(1).random((7, d))
    for scores in (y, np.zeros(n), np.full(n, 1e12), y * 1e100):
        fitted = model.fit(x, scores)
        assert isinstance(fitted, FittedModel)
        mean, std = fitted.predict(points)
        assert mean.shape == std.shape == (7,)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert (std >= 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_learns_a_smooth_function(model: ScoreModel) -> None:
    x, y = _data(120, 2)
    points, truth = _data(200, 2, seed=9)
    mean, _ = model.fit(x, y).predict(points)
    assert np.corrcoef(mean, truth)[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_a_worker_from_scratch_agrees_with_one_that_was_there_all_along(model: Any) -> None:
    x, y = _data(70, 3)
    points = np.random.default_rng(1).random((50, 3))
    for n in range(1, 70):
        model.fit(x[:n], y[:n]).predict(points)
    seasoned = model.fit(x, y).predict(points)
    surrogate.most_probable.cache_clear()
    fresh = type(model)(**vars(model)).fit(x, y).predict(points)
    np.testing.assert_array_equal(seasoned, fresh)


@pytest.mark.slow
def test_hyperparameters_are_refitted_when_the_history_has_doubled() -> None:
    x, y = _data(300, 2)
    surrogate.most_probable.cache_clear()
    for n in range(1, 301):
        GaussianProcess().fit(x[:n], y[:n])
    assert surrogate.most_probable.cache_info().misses == 7  # at 4, 8, 16, 32, 64, 128, 256


def test_rescaling_the_scores_does_not_refit() -> None:
    x, y = _data(20, 2)
    surrogate.most_probable.cache_clear()
    points = np.random.default_rng(1).random((5, 2))
    mean, std = GaussianProcess().fit(x, y).predict(points)
    mean_scaled, std_scaled = GaussianProcess().fit(x, 1e3 * y - 7.0).predict(points)
    assert surrogate.most_probable.cache_info().misses == 1
    np.testing.assert_allclose(mean_scaled, 1e3 * mean - 7.0, rtol=1e-6)
    np.testing.assert_allclose(std_scaled, 1e3 * std, rtol=1e-6)


def test_the_hyperparameters_are_the_most_probable_ones() -> None:
    # Against the density written out, with scipy's law of normal vectors.
    from scipy.spatial.distance import cdist
    from scipy.stats import multivariate_normal

    x, y = _data(16, 2)
    z = (y - y.mean()) / y.std()
    typical = np.log([1.0, 0.4 * 2**0.5, 0.4 * 2**0.5, 0.1])

    def log_density(theta: np.ndarray) -> float:
        amplitude, noise = np.exp(theta[[0, -1]])
        r = cdist(x / np.exp(theta[1:-1]), x / np.exp(theta[1:-1])) * 5**0.5
        kernel = amplitude * (1 + r + r * r / 3) * np.exp(-r) + noise * np.eye(16)
        off = (theta - typical) / np.array([0.7, 1.0, 1.0, 1.5])
        return float(multivariate_normal(cov=kernel).logpdf(z)) - 0.5 * float(off @ off)

    best = GaussianProcess().hyperparameters(x, y)
    steps = 0.05 * np.vstack([np.eye(4), -np.eye(4)])
    assert all(log_density(best) > log_density(best + step) for step in steps)


def test_the_spread_is_that_of_the_mean_score_and_not_of_a_score() -> None:
    rng = np.random.default_rng(2)
    x, y = np.full((64, 1), 0.5), rng.normal(size=64)
    _, std = GaussianProcess().fit(x, y).predict(x[:1])
    assert std[0] < 0.3  # of 64 scores with deviation 1: 1 / 8, and what the prior adds


def test_length_scales_tell_a_parameter_that_matters_from_one_that_does_not() -> None:
    x = np.random.default_rng(4).random((64, 2))
    lengths = np.exp(GaussianProcess().hyperparameters(x, np.sin(6 * x[:, 0]))[1:-1])
    assert lengths[1] > 3 * lengths[0]


def test_noise_is_not_taken_for_signal() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random((64, 2)), rng.normal(size=64)
    mean, _ = GaussianProcess().fit(x, y).predict(rng.random((200, 2)))
    assert mean.std() < 0.5 * y.std()


def test_memory_is_bounded_and_the_newest_and_the_best_runs_stay() -> None:
    x, y = _data(400, 2)
    posterior = GaussianProcess().fit(x, y)
    kept = posterior.x * posterior.lengths
    assert len(kept) == 256
    newest, best = x[-128:], x[np.argsort(y)[-128:]]
    for wanted in (newest, best):
        apart = np.abs(wanted[:, None, :] - kept[None, :, :]).max(axis=2).min(axis=1)
        assert apart.max() < 1e-12


@pytest.mark.parametrize("n", [1, 5, 40, 200])
@pytest.mark.parametrize("d", [1, 3])
def test_the_posterior_is_that_of_scikit_learn(n: int, d: int) -> None:
    rng = np.random.default_rng(n)
    x, y = _data(n, d)
    if n > 5:
        x[3] = x[4]  # Equal points are told apart by the noise alone.
    model = GaussianProcess()
    theta = model.hyperparameters(x, y)
    center, scale = float(y.mean()), float(y.std()) or 1.0
    amplitude, *lengths, noise = np.exp(theta)
    kernel = ConstantKernel(amplitude) * Matern(lengths, nu=2.5) + WhiteKernel(noise)
    reference = GaussianProcessRegressor(kernel, optimizer=None).fit(x, (y - center) / scale)
    points = np.vstack([rng.random((5000, d)), x])  # more than one block
    mean, std = model.fit(x, y).predict(points)
    expected, spread = reference.predict(points, return_std=True)
    of_mean = np.sqrt(np.maximum(spread**2 - noise, 0.0))
    np.testing.assert_allclose(mean, center + scale * expected, atol=1e-3 * scale)
    np.testing.assert_allclose(std, scale * of_mean, atol=1e-3 * scale)


def test_identical_points_and_no_noise() -> None:
    x = np.vstack([np.full((20, 2), 0.3), np.full((20, 2), 0.3 + 1e-13)])
    mean, std = GaussianProcess().fit(x, np.arange(40.0)).predict(np.array([[0.3, 0.3]]))
    assert np.isfinite([mean[0], std[0]]).all()


@pytest.mark.slow
def test_threads_may_share_a_model() -> None:
    x, y = _data(40, 2)
    points = np.random.default_rng(7).random((20, 2))
    model = GaussianProcess()
    expected = {n: model.fit(x[:n], y[:n]).predict(points)[0] for n in range(1, 41)}
    surrogate.most_probable.cache_clear()
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in [*range(first, 41), *range(1, first)]:
            if not np.array_equal(model.fit(x[:n], y[:n]).predict(points)[0], expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in (1, 15, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
