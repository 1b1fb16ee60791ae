import numpy as np
import pytest

from optuna_dp.models.hyperparameters import Likelihood, most_probable


def _data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n + d)
    x = rng.random((n, d))
    z = np.sin(5 * x[:, 0]) + 0.2 * rng.normal(size=n)
    return x, (z - z.mean()) / z.std()


@pytest.mark.parametrize(("n", "d"), [(4, 1), (20, 3), (40, 7)])
def test_likelihood_and_gradient_agree_with_scikit_learn(n: int, d: int) -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    x, z = _data(n, d)
    kernel = ConstantKernel(1.0) * Matern(np.ones(d), nu=2.5) + WhiteKernel(0.1)
    reference = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-10).fit(x, z)
    for theta in np.random.default_rng(0).normal(-0.5, 0.7, (5, d + 2)):
        value, gradient = Likelihood(x, z)(theta)
        want, slope = reference.log_marginal_likelihood(theta, eval_gradient=True)
        assert value == pytest.approx(want, rel=1e-9)
        np.testing.assert_allclose(gradient, slope, rtol=1e-7, atol=1e-8)


def test_the_maximum_is_one() -> None:
    x, z = _data(40, 2)
    amplitude, lengths, noise = most_probable(x, z)
    best = np.log([amplitude, *lengths, noise])
    start = np.log([1.0, 0.4 * 2**0.5, 0.4 * 2**0.5, 0.1])

    def posterior(theta: np.ndarray) -> float:
        off = (theta - start) / np.array([0.7, 1.0, 1.0, 1.5])
        return Likelihood(x, z)(theta)[0] - 0.5 * float(off @ off)

    top = posterior(best)
    assert all(
        top >= posterior(best + s) - 1e-4 for s in 0.05 * np.vstack([np.eye(4), -np.eye(4)])
    )


def test_repeated_points_without_noise_are_no_error() -> None:
    amplitude, lengths, noise = most_probable(np.full((10, 2), 0.5), np.zeros(10))
    assert np.isfinite([amplitude, *lengths, noise]).all()
