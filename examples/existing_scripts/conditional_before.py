"""Before: a define-by-run space in which one choice decides what else there is to choose."""

import numpy as np
import optuna

from optuna_dp import digits  # the data, and a training by DP-SGD

data = digits.load()


def features_of(trial, pixels):
    if trial.suggest_categorical("features", ["pixels", "random"]) == "pixels":
        return pixels
    width = trial.suggest_int("width", 32, 256, log=True)
    scale = trial.suggest_float("scale", 0.1, 2.0, log=True)
    project = np.random.default_rng(0).normal(0, scale, (pixels.shape[1], width))
    return np.hstack([np.tanh(pixels @ project) / width**0.5, np.ones((len(pixels), 1))])


def objective(trial):
    weights = digits.train(
        features_of(trial, data.train_x),
        data.train_y,
        learning_rate=trial.suggest_float("learning_rate", 0.01, 10.0, log=True),
        clipping_norm=trial.suggest_float("clipping_norm", 0.05, 5.0, log=True),
        epochs=5,
        noise_multiplier=2.0,
    )
    return digits.accuracy(weights, features_of(trial, data.valid_x), data.valid_y)


study = optuna.create_study(direction="maximize")
study.enqueue_trial({"features": "pixels", "learning_rate": 0.5, "clipping_norm": 0.5})
study.optimize(objective, n_trials=12)
print(study.best_params, study.best_value)
