import gzip
from pathlib import Path

import numpy as np
import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

FASHION = Path("/usr/share/datasets/fashion-mnist")  # apt install dataset-fashion-mnist
if FASHION.is_dir():
    images, labels = (
        np.frombuffer(gzip.decompress((FASHION / file).read_bytes()), np.uint8, offset=header)
        for file, header in (("train-images-idx3-ubyte.gz", 16), ("train-labels-idx1-ubyte.gz", 8))
    )
    side, high, size, epochs = 28, 255, 60_000, 2
else:  # handwritten digits, which come with scikit-learn
    images, labels = load_digits(return_X_y=True)
    side, high, size, epochs = 8, 16, 1_797, 20

# What is public: the pixels' range, the classes, and about how many records there are.
schema = odp.Schema.images(1, side, side, high=high, target=range(10))
records = schema.encode(images.reshape(-1, 1, side, side), labels)
plan = odp.plan_budget(
    epsilon=3.0, delta=1e-6, records=size, epochs=epochs, pilots=4, pilot_epochs=epochs / 3
)


def objective(trial):
    run = odp.start_run(trial)  # what this trial may spend
    channels = trial.suggest_int("channels", 4, 16, step=4)
    model = nn.Sequential(
        nn.Conv2d(1, channels, 3, stride=2, padding=1),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * (side // 4) ** 2, schema.outputs),
    )
    trained = odp.train(run, model, records)
    if not run.is_pilot:
        torch.save(trained.model.state_dict(), "model.pt")
    return trained.score  # the accuracy, with noise


def main():
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)  # not study.best_trial
    epsilon = release.guarantee.epsilon(delta=1e-6)  # of everything
    print(release.params, f"accuracy {release.value:.3f}, epsilon {epsilon:.3f}")
    print(release.statement())  # for the privacy reviewer


if __name__ == "__main__":
    main()
