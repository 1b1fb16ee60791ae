"""A first study as it is for real: stored, described, and with files to publish.

    pip install ".[torch]"
    python first_study.py
    optuna-dp check first_study.py:objective --plan PLAN

If the script is stopped, start it again: the study goes on where it was. Started twice at the same
time, it shares the runs.
"""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

FASHION = Path("/usr/share/datasets/fashion-mnist")  # apt install dataset-fashion-mnist
if FASHION.is_dir():
    DATA = tuple(  # pixels and labels, as they come
        np.frombuffer(gzip.decompress((FASHION / file).read_bytes()), np.uint8, offset=header)
        for file, header in (("train-images-idx3-ubyte.gz", 16), ("train-labels-idx1-ubyte.gz", 8))
    )
    # The number of records may be public here; of a secret one give a round guess.
    NAME, SIDE, HIGH, RECORDS, EPOCHS = "Fashion-MNIST", 28, 255, 60_000, 3
else:
    DATA = load_digits(return_X_y=True)
    NAME, SIDE, HIGH, RECORDS, EPOCHS = "Digits of scikit-learn", 8, 16, 1_797, 20
PLAN = odp.plan_budget(
    epsilon=3.0, delta=1e-6, records=RECORDS, epochs=EPOCHS, pilots=4, pilot_epochs=EPOCHS / 3
)
# What is public about the records. None was looked at.
SCHEMA = odp.Schema.images(1, SIDE, SIDE, high=HIGH, target=range(10))
os.makedirs("curator", exist_ok=True)  # for you alone
MODELS = optuna.artifacts.FileSystemArtifactStore("curator")


def make_model(channels):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, stride=2, padding=1),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * (SIDE // 4) ** 2, SCHEMA.outputs),
    )


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    pixels, labels = data
    records = SCHEMA.encode(pixels.reshape(-1, 1, SIDE, SIDE), labels)
    trained = odp.train(run, make_model(trial.suggest_int("channels", 4, 16, step=4)), records)
    if not run.is_pilot:
        torch.save(trained.model.state_dict(), "curator/last.pt")
        optuna.artifacts.upload_artifact(
            artifact_store=MODELS, file_path="curator/last.pt", study_or_trial=trial
        )
    return trained.score


def main():
    study = optuna.create_study(
        direction="maximize",
        sampler=odp.BudgetSampler(PLAN),
        storage=JournalStorage(JournalFileBackend("curator/study.log")),
        study_name="first",
        load_if_exists=True,
    )
    odp.describe(
        study,
        dataset=NAME,
        records=RECORDS,
        unit="picture",  # whose record one record is: a patient, a customer
        most=1,  # the most records that one of them has
        earlier_releases=0,  # how many results of these records were published before
        owner="the owner's name",
        purpose="an example",
    )
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, artifact_store=MODELS, wait=True)
    with open("model.pt", "wb") as file:
        file.write(release.artifact)  # the last run's model
    with open("statement.md", "w") as file:
        file.write(release.statement())  # for people
    with open("release.json", "w") as file:
        json.dump(release.to_json(), file)  # for optuna-dp verify
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-6))


if __name__ == "__main__":
    main()
