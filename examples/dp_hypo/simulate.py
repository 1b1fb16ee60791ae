"""Searches on landscapes: what a search would have found, thousands of times, without training.

A landscape gives the true mean score of every point of the unit square and the spread of one
run's score around it. All here is simulation: seeded, and private in no way. The density is the
library's own (``AdaptiveDensity``); what is left out is Optuna around it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from landscapes import EPOCHS, key, load, measured_at, read

from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity
from optuna_dp.priors.densities.projection import project_log, scores_to_log_weights
from optuna_dp.priors.scores import clean_scores, standardized

Floats = npt.NDArray[np.float64]
FASHION = Path(__file__).with_name("fashion.npz")


@dataclass(frozen=True, eq=False)
class Landscape:
    """Mean and spread of scores on a grid over the unit square; bilinear in between.

    Attributes:
        mean: Higher is better, shape (rows, columns).
        spread: Standard deviation of one run's score, same shape.
    """

    name: str
    mean: Floats
    spread: Floats

    @property
    def grid(self) -> Floats:
        """The grid's points, rows outermost, (rows * columns, 2)."""
        axes = [np.linspace(0.0, 1.0, n) for n in self.mean.shape]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and spread at points of the unit square, shape (n, 2)."""
        place = x * (np.array(self.mean.shape) - 1.0)
        low = np.minimum(place.astype(np.int64), np.array(self.mean.shape) - 2)
        part = place - low
        i, j, u, v = low[:, 0], low[:, 1], part[:, 0], part[:, 1]

        def blend(table: Floats) -> Floats:
            top = table[i, j] * (1 - v) + table[i, j + 1] * v
            bottom = table[i + 1, j] * (1 - v) + table[i + 1, j + 1] * v
            result: Floats = top * (1 - u) + bottom * u
            return result

        return blend(self.mean), blend(self.spread)

    def noisier(self, noise: float) -> Landscape:
        """The same with noise of this standard deviation on every score."""
        return Landscape(self.name, self.mean, np.hypot(self.spread, noise))


@cache
def _measured(name: str, epochs: float) -> tuple[Floats, Floats]:
    stored, size = read(), len(load(name).valid_y)
    runs = [stored[key(name, noise, epochs)] / size for noise in measured_at()[epochs]]
    shape = (len(runs), 16, 20)
    means = np.stack([r.mean(axis=0) for r in runs]).reshape(shape)
    spreads = np.stack([r.std(axis=0, ddof=1) for r in runs]).reshape(shape)
    return means, spreads


def measured(name: str, noise: float, epochs: float = EPOCHS) -> Landscape:
    """Real DP-SGD runs; between measured noise multipliers, linear in their logarithm."""
    means, spreads = _measured(name, epochs)
    logs = np.log(measured_at()[epochs])
    place = float(np.interp(np.log(noise), logs, np.arange(len(logs))))
    low = min(int(place), len(logs) - 2)
    part = place - low
    return Landscape(
        f"{name}, noise {noise:.3g}",
        (1 - part) * means[low] + part * means[low + 1],
        (1 - part) * spreads[low] + part * spreads[low + 1],
    )


def fashion(noise: float) -> Landscape:
    """Real runs of the paper's network on Fashion-MNIST, of ``fashion.py``; means over runs.

    As in the paper, the mean is taken for the truth, and a score is that with noise.
    """
    with np.load(FASHION) as file:
        runs = [file[name] for name in file if name.startswith(f"noise {noise:g},")]
    mean = np.mean(runs, axis=0) / 10_000
    return Landscape(f"Fashion-MNIST, noise {noise:g}", mean, np.zeros(mean.shape))


@cache
def fashion_e2(noise: float) -> Landscape:
    """Setting E.2 on Fashion-MNIST: what a Gaussian process makes of the runs at one noise.

    As in the paper, the process' mean is taken for the truth, and a score is that with noise as
    large as its standard error. The kernel is BoTorch's: Matern 5/2 with a length of each axis.
    """
    from fashion_e2 import CLIPPING_NORMS, LOG_RATES, read  # Lazy: only E.2 needs them.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rate, norm, right = np.array(read()[f"noise {noise:g}"]).T
    low = np.array([LOG_RATES[0], CLIPPING_NORMS[0]])
    width = np.array([LOG_RATES[-1], CLIPPING_NORMS[-1]]) - low
    places = (np.stack([np.log10(rate), norm], axis=1) - low) / width
    kernel = ConstantKernel() * Matern(np.ones(2), (0.05, 20.0), nu=2.5)
    process = GaussianProcessRegressor(
        kernel + WhiteKernel(1e-2, (1e-4, 1.0)),
        normalize_y=True,
        n_restarts_optimizer=4,
        random_state=0,
    )
    with warnings.catch_warnings():
        # A length at its bound says that this axis hardly matters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(places, right / 10_000)
    name, shape = f"Fashion-MNIST, E.2, noise {noise:g}", (len(LOG_RATES), len(CLIPPING_NORMS))
    grid = Landscape("", np.zeros(shape), np.zeros(shape)).grid
    mean, deviation = process.predict(grid, return_std=True)
    # The deviation of a run, less what runs of one setting vary by: that of the mean.
    of_runs = process.kernel_.k2.noise_level * float(np.var(right / 10_000))
    spread = np.sqrt(np.maximum(deviation**2 - of_runs, 0.0))
    accuracy = np.clip(mean, 0.0, 1.0)  # A process knows no bounds.
    return Landscape(name, accuracy.reshape(shape), spread.reshape(shape))


def like_figure_2(noise: float, n: int = 50) -> Landscape:
    """Shaped like the paper's Figure 2 (CIFAR-10, accuracy): a diagonal ridge, a cliff beyond it.

    Good learning rates fall as the clipping norm rises; too large a step diverges to chance. The
    top is lower for more noise. Our own function; the paper prints a picture, no numbers.
    """
    x = Landscape("", np.zeros((n, n)), np.zeros((n, n))).grid
    rate, norm = -5.0 + 5.0 * x[:, 0], np.log10(2.0 + 98.0 * x[:, 1])
    step = rate + norm  # logarithm of what one clipped example can move
    top = 0.62 - 0.35 * (noise - 0.6)
    ridge = np.exp(-0.5 * ((step + 1.2) / 0.75) ** 2)
    detail = 0.85 + 0.15 * np.exp(-0.5 * ((rate + 2.2) / 0.6) ** 2)
    mean = 0.1 + (top - 0.1) * ridge * detail
    spread = 0.005 + 0.04 * ridge * (1.0 - ridge) * 4.0 * (step > -1.2)
    return Landscape(f"like Figure 2, noise {noise:g}", mean.reshape(n, n), spread.reshape(n, n))


def like_figure_3(n: int = 20) -> Landscape:
    """Shaped like the paper's Figure 3 (federated learning, loss as a negative score): a valley.

    Losses of 0.005 to 0.1 in the two learning rates, best in a small region off the centre.
    """
    x = Landscape("", np.zeros((n, n)), np.zeros((n, n))).grid
    bowl = ((x[:, 0] - 0.62) / 0.35) ** 2 + ((x[:, 1] - 0.38) / 0.3) ** 2
    bowl += 0.8 * (x[:, 0] - 0.62) * (x[:, 1] - 0.38) / 0.1
    loss = 0.0065 + 0.022 * np.maximum(bowl, 0.0) ** 0.8
    loss = np.minimum(loss, 0.1)
    spread = 0.0005 + 0.03 * loss
    return Landscape("like Figure 3", -loss.reshape(n, n), spread.reshape(n, n))


# -- searches ------------------------------------------------------------------------------------


def best_so_far(scores: Floats, truth: Floats) -> Floats:
    """True value of the point with the best score among the first t, for all t; (reps, t)."""
    best = np.maximum.accumulate(scores, axis=1)
    record = np.concatenate(
        [np.ones((len(scores), 1), dtype=bool), best[:, 1:] > best[:, :-1]], axis=1
    )
    last = np.maximum.accumulate(np.where(record, np.arange(scores.shape[1]), 0), axis=1)
    return np.take_along_axis(truth, last, axis=1)


def uniform(
    landscape: Landscape, length: int, reps: int, rng: np.random.Generator, fresh: bool = False
) -> Floats:
    """RandTune: :func:`best_so_far` of ``reps`` searches, (reps, length)."""
    if fresh:
        points = rng.random((reps * length, 2))
        mean, spread = landscape.at(points)
    else:
        i = rng.integers(landscape.mean.size, size=reps * length)
        mean, spread = landscape.mean.ravel()[i], landscape.spread.ravel()[i]
    scores = (mean + spread * rng.standard_normal(mean.shape)).reshape(reps, length)
    return best_so_far(scores, mean.reshape(reps, length))


def log_weights(law: AdaptiveDensity, x: Floats, y: list[float], candidates: Floats) -> Floats:
    """What :meth:`AdaptiveDensity.propose` computes, on points already in the unit cube."""
    z = clean_scores(y, 1.0)
    if law.standardize:
        z = standardized(z)
    mean, std = law.surrogate.fit(x, z).predict(candidates)
    return scores_to_log_weights(mean + law.tau * std, law.beta)


def adaptive(
    landscape: Landscape,
    law: AdaptiveDensity,
    learning: int,
    length: int,
    rng: np.random.Generator,
    fresh: bool = False,
    start: Any = None,
    startup: int = 1,
) -> tuple[Floats, Floats]:
    """One DP-HyPO search: scores and true values of its runs, (length,) each.

    After ``learning`` runs the density is kept (as a policy may, and it makes long
    searches cheap to simulate).

    Args:
        fresh: Fresh candidates for every run; else the landscape's grid.
        start: Prior that fresh candidates are drawn from: a function (n, rng) -> points.
        startup: Runs drawn from the prior whatever is known, at least 1.
    """
    grid = landscape.grid
    x, scores, truth = np.empty((length, 2)), np.empty(length), np.empty(length)
    draw = (lambda n, rng: rng.random((n, 2))) if start is None else start
    density = None
    for t in range(min(learning, length)):
        candidates = draw(law.candidates if t else 1, rng) if fresh else grid
        logs = (
            log_weights(law, x[:t], list(scores[:t]), candidates)
            if t >= startup
            else np.zeros(len(candidates))
        )
        density = project_log(logs, law.bounds, law.projection)
        x[t] = candidates[density.draw(rng)]
        mean, spread = landscape.at(x[t : t + 1])
        truth[t], scores[t] = mean[0], mean[0] + spread[0] * rng.standard_normal()
    if length > learning:
        assert density is not None
        assert not fresh
        p = density.ratios / density.ratios.sum()
        i = rng.choice(len(grid), size=length - learning, p=p)
        truth[learning:] = landscape.mean.ravel()[i]
        spread = landscape.spread.ravel()[i]
        scores[learning:] = truth[learning:] + spread * rng.standard_normal(len(i))
    return scores, truth


def over_t(curves: Floats, law: Any) -> Floats:
    """Each search's expected outcome over T, (reps,); T beyond the curve counts as its end."""
    length = curves.shape[1]
    weights = np.array([law.pmf(k) for k in range(1, length + 1)])
    result: Floats = curves @ weights + curves[:, -1] * max(0.0, 1.0 - weights.sum())
    return result


def interval(values: Floats) -> list[float]:
    """Mean and half the width of its 95 % confidence interval."""
    return [
        round(float(values.mean()), 5),
        round(float(1.96 * values.std(ddof=1) / np.sqrt(len(values))), 5),
    ]
