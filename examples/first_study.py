"""A first study as it is for real: stored, described, and with files to publish.

    pip install ".[torch]"
    python first_study.py
    optuna-dp check first_study.py:objective --plan PLAN

If the script is stopped, start it again: the study goes on where it was.
"""

import json
import os

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

RECORDS = 1797  # a number that may be public; with a secret one, a round guess
PLAN = odp.plan_budget(epsilon=3.0, delta=1e-5, records=RECORDS, epochs=20, pilots=6)
DATA = load_digits(return_X_y=True)  # pixels and labels, as they come
# What is public about them. No record was looked at.
SCHEMA = odp.Schema.images(64, low=0, high=16, target=range(10))
os.makedirs("curator", exist_ok=True)  # for you alone
MODELS = optuna.artifacts.FileSystemArtifactStore("curator")


def objective(trial, data=DATA):
    run = odp.start_run(trial)
    hidden = trial.suggest_int("hidden", 8, 256, log=True)
    model = nn.Sequential(
        nn.Linear(SCHEMA.width, hidden), nn.ReLU(), nn.Linear(hidden, SCHEMA.outputs)
    )
    trained = odp.train(run, model, SCHEMA.encode(*data))
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
        storage="sqlite:///curator/study.db",
        study_name="digits",
        load_if_exists=True,
    )
    odp.describe(
        study,
        dataset="Digits of scikit-learn",
        records=RECORDS,
        unit="picture",  # whose record one record is: a patient, a customer
        most=1,  # the most records that one of them has
        owner="the owner's name",
        purpose="an example",
    )
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study, artifact_store=MODELS)
    with open("model.pt", "wb") as file:
        file.write(release.artifact)  # the last run's model
    with open("statement.md", "w") as file:
        file.write(release.statement())  # for people
    with open("release.json", "w") as file:
        json.dump(release.to_json(), file)  # for optuna-dp verify
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))


if __name__ == "__main__":
    main()
