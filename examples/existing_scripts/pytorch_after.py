"""After: the same network, tuned within a budget. Its epsilon is that of the whole search."""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

torch.set_num_threads(1)
# 1438 and 359 are public guesses: four fifths of the 1797 records, and one fifth.
PLAN = odp.plan_budget(
    epsilon=3.0,
    delta=1e-5,
    records=1438,
    batch_size=64,
    epochs=20,
    pilots=6,
    pilot_epochs=5,
    score="disjoint",
)
SCHEMA = odp.Schema.images(64, high=16, target=range(10))  # what is public about the records


def load():
    pixels, labels = load_digits(return_X_y=True)
    # Each record by itself. Drawn anew by each process: store the parts before you resume.
    is_valid = odp.partition(len(pixels), 5) == 0
    train = SCHEMA.encode(pixels[~is_valid], labels[~is_valid])
    return train, SCHEMA.encode(pixels[is_valid], labels[is_valid])


TRAIN, VALID = load()


def make_model(width):
    return nn.Sequential(
        nn.Linear(SCHEMA.width, width),
        nn.GroupNorm(8, width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, SCHEMA.outputs),
    )


def objective(trial):
    run = odp.start_run(trial)  # what this trial may spend
    weight_decay = trial.suggest_float("weight_decay", 1e-5, 1e-1, log=True)
    model = make_model(trial.suggest_categorical("width", [32, 128]))

    def make_optimizer(parameters, learning_rate):
        return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay)

    trained = odp.train(
        run,
        model,
        TRAIN,
        optimizer=make_optimizer,
        score_records=VALID,
        score_size=359,
    )
    if not run.is_pilot:  # the last run
        torch.save(trained.model.state_dict(), "model.pt")
    return trained.score


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
