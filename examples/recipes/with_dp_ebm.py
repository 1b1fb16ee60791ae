"""A DP-EBM of InterpretML, its settings chosen within epsilon 2.43 for everything.

    pip install interpret-core .
    python with_dp_ebm.py
    optuna-dp check with_dp_ebm.py:objective --event EVENT

About five models of epsilon 1 are trained; the exact number is random and stays secret (RandTune).
Only the best model, its settings and its noisy score are released. If the script is stopped, start
it again: the study goes on where it was.
"""

import json
import logging
import os
import pickle

import optuna
from interpret.privacy import DPExplainableBoostingClassifier
from sklearn.datasets import load_digits

import optuna_dp as odp

# Optuna logs each trial, and InterpretML what it does where logging is set up. Only the curator
# may see that.
optuna.logging.set_verbosity(optuna.logging.WARNING)
logging.getLogger("interpret").setLevel(logging.ERROR)

pixels, labels = load_digits(return_X_y=True)
RECORDS = 1797  # a number that may be public; of a secret one a round guess
DATA = pixels.reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16), labels % 2

EPSILON, DELTA = 1.0, 1e-7  # of one model
SCORE_NOISE = 20.0  # 20 / (2 * 1797): the accuracy has noise of 0.6 points
EVENT = odp.compose(odp.approximate_dp(EPSILON, DELTA), odp.scoring.score_event(SCORE_NOISE))
RUNS = odp.Geometric(mean=5)

# The curator's own: nobody else may see the folder, the trials or how many there are.
os.makedirs("curator", exist_ok=True)
STORAGE = "sqlite:///curator/dp_ebm.db"
MODELS = optuna.artifacts.FileSystemArtifactStore("curator")


def objective(trial, data=DATA):
    x, y = data
    model = DPExplainableBoostingClassifier(
        epsilon=EPSILON,
        delta=DELTA,
        max_rounds=trial.suggest_int("max_rounds", 10, 300, log=True),
        max_leaves=trial.suggest_int("max_leaves", 2, 4),
        feature_types=["continuous"] * x.shape[1],  # left out, they are read off the records
        privacy_bounds=[(0, 16)] * x.shape[1],  # left out, they are the records' own
        n_jobs=1,  # no random_state: the noise comes from the operating system
    )
    model.fit(x, y)
    del model.bag_weights_  # the exact number of records, which one record more would change
    with open("curator/model.pickle", "wb") as file:
        pickle.dump(model, file)
    optuna.artifacts.upload_artifact(
        artifact_store=MODELS, file_path="curator/model.pickle", study_or_trial=trial
    )
    correct = model.predict(x) == y
    return odp.scoring.private_accuracy(correct, size=RECORDS, noise_multiplier=SCORE_NOISE)


def main():
    study = optuna.create_study(
        direction="maximize",
        sampler=odp.RandTuneSampler(trials=RUNS, run=EVENT),
        storage=STORAGE,
        study_name="dp-ebm",
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
        artifact_store=MODELS,
        vouched=f"InterpretML's DP-EBM was given epsilon {EPSILON:g} and delta {DELTA:g}, public "
        "bounds, and no seed",
    )
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
    print(release.statement())
    with open("release.json", "w") as file:
        json.dump(release.to_json(), file)  # for the reviewer
    with open("model.pickle", "wb") as file:
        file.write(release.artifact)  # the best run's model


if __name__ == "__main__":
    main()
