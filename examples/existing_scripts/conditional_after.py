"""After: the same space. A conditional parameter is drawn where it is asked for."""

import numpy as np
import optuna
from dp_accounting.rdp import RdpAccountant

import optuna_dp as odp
from optuna_dp import digits  # the data, and a training by DP-SGD

data = digits.load()
PLAN = odp.plan_budget(  # 1355 may be public here; of a secret number give a round guess
    epsilon=3.0, delta=1e-5, records=1355, batch_size=64, epochs=5, pilots=(8, 3)
)


def features_of(trial, pixels):
    if trial.suggest_categorical("features", ["pixels", "random"]) == "pixels":
        return pixels
    width = trial.suggest_int("width", 32, 256, log=True)
    scale = trial.suggest_float("scale", 0.1, 2.0, log=True)
    project = np.random.default_rng(0).normal(0, scale, (pixels.shape[1], width))
    return np.hstack([np.tanh(pixels @ project) / width**0.5, np.ones((len(pixels), 1))])


def objective(trial):
    run = odp.start_run(trial)
    features = features_of(trial, data.train_x)
    clipping_norm = trial.suggest_float("clipping_norm", 0.05, 5.0, log=True)
    noise = trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True)
    weights = digits.train(
        features,
        data.train_y,
        learning_rate=run.learning_rate(clipping_norm=clipping_norm, noise_per_weight=noise),
        clipping_norm=clipping_norm,
        steps=run.steps,
        noise_multiplier=run.noise_multiplier,
        sample_rate=run.sample_rate,
    )
    training = odp.dp_sgd(
        noise_multiplier=run.noise_multiplier, sample_rate=run.sample_rate, steps=run.steps
    )
    run.spent(RdpAccountant().compose(training))  # digits.train keeps no accountant of its own
    return run.score(np.argmax(features @ weights, axis=1) == data.train_y)


study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
study.enqueue_trial({"features": "pixels", "noise_per_weight": 0.3, "clipping_norm": 0.5})
study.optimize(objective, callbacks=[odp.PrivacyCallback()])
release = odp.release(study)
print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
