"""Real data and a real private training run, small enough for a demonstration.

A softmax regression on scikit-learn's handwritten digits. It is here so that the command line's
demo and the first example run offline.

:class:`BudgetObjective` trains by :func:`optuna_dp.train`. :func:`train` is a loop of one's own,
as others write it (DP-SGD by Abadi et al. 2016, arXiv:1607.00133v2), for examples of studies that
hand in what such a loop spent. Its noise is numpy's, seeded by the operating system: Gaussian up
to floating-point rounding (see the page on limitations). The noise of the score is OpenDP's.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import optuna_dp as odp
from optuna_dp.core.arrays import FloatArray

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent
    from optuna.trial import Trial

    from optuna_dp.samplers.budget.plan import BudgetPlan


NOISE_MULTIPLIER = 2.0
BATCH = 64
EPOCHS = (5, 10, 20)
BUDGET_EPOCHS, BUDGET_WORK = 10, 4
SCORE_NOISE = 8.0
VALIDATION_SIZE = 442
_CLASSES = 10
_VALIDATION_SHARE = 0.25
# 64 pixels between -1 and 1, and a constant: what is public about the records.
SCHEMA = odp.Schema.images(65, low=-1, high=1, target=range(_CLASSES))


@dataclass(frozen=True)
class Digits:
    """The digits, split into training and validation records.

    Attributes:
        train_x: (n, 65) pixels scaled to [-1, 1], and a constant.
        train_y: (n,) labels.
        valid_x: (v, 65) as ``train_x``.
        valid_y: (v,) labels.
    """

    train_x: FloatArray
    train_y: npt.NDArray[np.int64]
    valid_x: FloatArray
    valid_y: npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def load() -> Digits:
    """Returns the data; the split is fixed and does not look at the records."""
    from sklearn.datasets import load_digits  # start-up time: scikit-learn is slow to load

    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 8.0 - 1.0, np.ones((len(x), 1))])
    held_out = np.random.default_rng(0).random(len(x)) < _VALIDATION_SHARE
    return Digits(x[~held_out], y[~held_out], x[held_out], y[held_out])


def cost_of_one_run() -> DpEvent:
    """Returns what one call of :func:`objective` costs: training and score, at worst."""
    n = len(load().train_x)
    rate = BATCH / n
    trainings = [
        odp.dp_sgd(noise_multiplier=NOISE_MULTIPLIER, sample_rate=rate, steps=_steps(epochs, n))
        for epochs in EPOCHS
    ]
    return odp.compose(odp.worst_case(*trainings), odp.scoring.score_event(SCORE_NOISE))


def objective(trial: Trial) -> float:
    """Trains privately with the trial's hyperparameters and returns a private score."""
    data = load()
    epochs = trial.suggest_categorical("epochs", EPOCHS)
    rate = odp.learning_rate(
        noise_multiplier=NOISE_MULTIPLIER,
        steps=_steps(epochs, len(data.train_x)),
        batch_size=BATCH,
        noise_per_weight=trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True),
    )
    weights = train(
        data.train_x,
        data.train_y,
        learning_rate=rate,
        clipping_norm=1.0,
        epochs=epochs,
        noise_multiplier=NOISE_MULTIPLIER,
    )
    return private_accuracy(weights, data.valid_x, data.valid_y, score_noise=SCORE_NOISE)


def budget(epsilon: float, pilots: int | tuple[int, ...] = 0) -> BudgetPlan:
    """Returns a plan for the training records, of an epsilon at delta 1e-5.

    Batch and steps are what accounting favors for the computing of 40 passes over the data.
    """
    return odp.plan_budget(
        epsilon=epsilon,
        delta=1e-5,
        records=len(load().train_x),
        epochs=BUDGET_EPOCHS,
        work=BUDGET_WORK,
        pilots=pilots,
    )


class BudgetObjective:
    """The objective of a study with a budget: trains as planned, scores privately.

    The learning rate is rehearsed on made-up pixels. In a plan with pilots, which are there to
    search, the noise of a weight that the rate stands for is a hyperparameter. Scores are computed
    on the training records; the validation records are used for nothing.

    Attributes:
        weights: The model of the run that was trained last, (65, 10); None before any.
    """

    def __init__(self) -> None:
        self.weights: FloatArray | None = None

    def __call__(
        self, trial: Trial, records: tuple[FloatArray, npt.NDArray[np.int64]] | None = None
    ) -> float:
        """Returns the noisy accuracy of the trial's model on its training records.

        Args:
            trial: The trial.
            records: Other records (x, y) than the digits, as ``check_objective`` leaves one out.
        """
        run = odp.start_run(trial)
        x, y = (load().train_x, load().train_y) if records is None else records
        rate = None  # rehearsed
        if run.is_pilot or run.rung > 0:
            noise = trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True)
            rate = run.learning_rate(noise_per_weight=noise)
        model = odp.SoftmaxRegression(SCHEMA.width, _CLASSES)
        training = odp.train(run, model, SCHEMA.encode(x, y), optimizer="sgd", learning_rate=rate)
        self.weights = model.weights
        assert training.score is not None
        return training.score


def train(
    x: FloatArray,
    y: npt.NDArray[np.int64],
    *,
    learning_rate: float,
    clipping_norm: float,
    epochs: float = 0.0,
    steps: int | None = None,
    noise_multiplier: float = NOISE_MULTIPLIER,
    batch: float = BATCH,
    sample_rate: float | None = None,
) -> FloatArray:
    """Returns (65, 10) weights trained by DP-SGD on (n, 65) features with (n,) labels.

    It takes ``steps`` with ``batch`` records each in expectation or, with the usual batch, passes
    ``epochs`` times over the data; the noise multiplier is relative to the clipping norm. A record
    joins a step with chance ``sample_rate``, by default ``batch`` over the number of records.
    """
    rng = np.random.default_rng(secrets.randbits(256))
    n = len(x)
    rate = batch / n if sample_rate is None else sample_rate
    weights = np.zeros((x.shape[1], _CLASSES))
    for _ in range(_steps(epochs, n) if steps is None else steps):
        mask = rng.random(n) < rate
        features, labels = x[mask], y[mask]
        logits = features @ weights
        errors = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[np.arange(len(labels)), labels] -= 1.0
        # One example's gradient is the outer product of its features and its errors.
        norms = np.linalg.norm(features, axis=1) * np.linalg.norm(errors, axis=1)
        errors *= np.minimum(1.0, clipping_norm / np.maximum(norms, 1e-12))[:, None]
        noise = rng.normal(0.0, noise_multiplier * clipping_norm, weights.shape)
        weights -= learning_rate * (features.T @ errors + noise) / batch
    return weights


def accuracy(weights: FloatArray, x: FloatArray, y: npt.NDArray[np.int64]) -> float:
    """Returns the share of records that are classified correctly (not private)."""
    return float(np.mean(np.argmax(x @ weights, axis=1) == y))


def private_accuracy(
    weights: FloatArray,
    x: FloatArray,
    y: npt.NDArray[np.int64],
    *,
    size: int = VALIDATION_SIZE,
    score_noise: float = SCORE_NOISE,
) -> float:
    """Returns the accuracy with noise of ``score_noise`` contributions on the count."""
    correct = np.argmax(x @ weights, axis=1) == y
    return odp.scoring.private_accuracy(correct, size=size, noise_multiplier=score_noise)


def _steps(epochs: float, n: int) -> int:
    return int(np.ceil(epochs * n / BATCH))
