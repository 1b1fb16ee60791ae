"""After: the same network, its width chosen within a budget. Its epsilon is that of everything."""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

torch.set_num_threads(1)
WIDTHS = [32, 128]
EPOCHS = 20
PLAN = odp.plan_budget(epsilon=3.0, records=1797, batch_size=64, epochs=EPOCHS, pilots=4)


def load():
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels)


def make_model(width):
    return nn.Sequential(
        nn.Linear(64, width),
        nn.GroupNorm(8, width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, 10),
    )


def objective(trial):
    run = odp.fidelity(trial)
    model = make_model(trial.suggest_categorical("width", WIDTHS))
    loss = nn.functional.cross_entropy
    trained = odp.train(run, model, load(), loss=loss, score="accuracy")
    if not run.is_pilot:
        torch.save(trained.model.state_dict(), "model.pt")
    return trained.score


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.params, release.value, release.guarantee.epsilon(delta=1e-5))
