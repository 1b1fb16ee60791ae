"""A logistic regression of diffprivlib, its regularization chosen within epsilon 2.35.

    pip install "scikit-learn<1.8" diffprivlib .
    python with_diffprivlib.py
    optuna-dp check with_diffprivlib.py:objective --event EVENT

The best of a secret, random number of runs is released (RandTune). Every run is pure DP.
"""

import os
import pickle

import numpy as np
import optuna
from diffprivlib.models import LogisticRegression
from sklearn.datasets import load_digits

import optuna_dp as odp

pixels, labels = load_digits(return_X_y=True)
RECORDS = len(labels)  # a public number
# Sixteen blocks of 2 x 2 pixels and a constant, each record within norm 1: public constants.
blocks = pixels.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16) / 16
x, y = np.hstack([blocks, np.ones((RECORDS, 1))]) / 17**0.5, labels % 2
TRAINING = 1.0  # epsilon of one model
SCORE_NOISE = 40.0  # of the number of right predictions, in records / 2: 1.1 % of an accuracy
EVENT = odp.compose(odp.pure_dp(TRAINING), odp.scoring.score_event(SCORE_NOISE))
RUNS = odp.Geometric(mean=5)
os.makedirs("models", exist_ok=True)  # the curator's own folder
MODELS = optuna.artifacts.FileSystemArtifactStore("models")


def objective(trial):
    model = LogisticRegression(
        epsilon=TRAINING,
        C=trial.suggest_float("C", 0.1, 1000.0, log=True),
        data_norm=1.0,  # left out, the largest norm of the private records is taken
        fit_intercept=False,  # the constant is among the features, and within the norm
        # No random_state: then the noise comes from the operating system.
    )
    model.fit(x, y)
    with open("model.pickle", "wb") as file:
        pickle.dump(model, file)
    optuna.artifacts.upload_artifact(
        artifact_store=MODELS, file_path="model.pickle", study_or_trial=trial
    )
    correct = model.predict(x) == y
    return odp.scoring.private_accuracy(correct, size=RECORDS, noise_multiplier=SCORE_NOISE)


def main():
    sampler = odp.RandTuneSampler(trials=RUNS)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback(EVENT)])
    release = odp.release(
        study,
        artifact_store=MODELS,  # release.artifact: the best run's model
        vouched="diffprivlib's training has the epsilon that it was given, and no seed",
    )
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
    print(release.statement())


if __name__ == "__main__":
    main()
