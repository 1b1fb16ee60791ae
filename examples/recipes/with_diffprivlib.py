"""A logistic regression of diffprivlib, its regularization chosen within epsilon 2.43.

    pip install "scikit-learn<1.8" diffprivlib .
    python with_diffprivlib.py
    optuna-dp check with_diffprivlib.py:objective --event EVENT

About five models of epsilon 1 are trained; the exact number is random and stays secret (RandTune).
Only the best model, its settings and its noisy score are released. If the script is stopped, start
it again: the study goes on where it was.
"""

import json
import os
import pickle

import numpy as np
import optuna
from diffprivlib.models import LogisticRegression
from sklearn.datasets import load_digits

import optuna_dp as odp

optuna.logging.set_verbosity(optuna.logging.WARNING)  # Optuna's log tells every trial

pixels, labels = load_digits(return_X_y=True)
RECORDS = 1797  # a number that may be public; of a secret one a round guess
# Sixteen blocks of 2 x 2 pixels and a constant, each record within norm 1: public constants.
blocks = pixels.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16) / 16
DATA = np.hstack([blocks, np.ones((len(blocks), 1))]) / 17**0.5, labels % 2

EPSILON = 1.0  # of one model
SCORE_NOISE = 20.0  # 20 / (2 * 1797): the accuracy has noise of 0.6 points
EVENT = odp.compose(odp.pure_dp(EPSILON), odp.scoring.score_event(SCORE_NOISE))
RUNS = odp.Geometric(mean=5)

# The curator's own: nobody else may see the folder, the trials or how many there are.
os.makedirs("curator", exist_ok=True)
STORAGE = "sqlite:///curator/diffprivlib.db"
MODELS = optuna.artifacts.FileSystemArtifactStore("curator")


def objective(trial, data=DATA):
    # Without a record of each class the training would fail. These two are zero: no weight.
    x, y = np.vstack([data[0], np.zeros((2, 17))]), np.append(data[1], [0, 1])
    model = LogisticRegression(
        epsilon=EPSILON,
        C=trial.suggest_float("C", 0.1, 1000.0, log=True),
        data_norm=1.0,  # left out, the largest norm of the private records is taken
        fit_intercept=False,  # the constant is among the features, and within the norm
        # No random_state: then the noise comes from the operating system.
    )
    model.fit(x, y)
    with open("curator/model.pickle", "wb") as file:
        pickle.dump(model, file)
    optuna.artifacts.upload_artifact(
        artifact_store=MODELS, file_path="curator/model.pickle", study_or_trial=trial
    )
    correct = model.predict(data[0]) == data[1]
    return odp.scoring.private_accuracy(correct, size=RECORDS, noise_multiplier=SCORE_NOISE)


def main():
    study = optuna.create_study(
        direction="maximize",
        sampler=odp.RandTuneSampler(trials=RUNS, run=EVENT),
        storage=STORAGE,
        study_name="diffprivlib",
        load_if_exists=True,
    )
    odp.describe(
        study,
        dataset="Digits of scikit-learn",
        records=RECORDS,
        unit="picture",
        most=1,
        sampling="no batches: each training reads all records",
        owner="the curator's name",
        purpose="an example",
    )
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(
        study,
        artifact_store=MODELS,  # release.artifact: the best run's model
        vouched="diffprivlib was given epsilon 1, a public norm and no seed",
    )
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
    print(release.statement())
    with open("release.json", "w") as file:
        json.dump(release.to_json(), file)  # for the reviewer
    with open("model.pickle", "wb") as file:
        file.write(release.artifact)  # the best run's model


if __name__ == "__main__":
    main()
