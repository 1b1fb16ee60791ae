import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
plan = odp.plan_budget(epsilon=3.0, delta=1e-5, records=1797, epochs=20, pilots=6)


def objective(trial):
    run = odp.fidelity(trial)  # what this trial may spend
    width = trial.suggest_int("width", 8, 256, log=True)
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    trained = odp.train(run, model, (x, y), loss=nn.functional.cross_entropy, score="accuracy")
    if not run.is_pilot:
        torch.save(trained.model.state_dict(), "model.pt")
    return trained.score  # has noise


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    epsilon = release.guarantee.epsilon(delta=1e-5)  # of everything
    print(release.params, f"accuracy {release.value:.3f}, epsilon {epsilon:.3f}")
    print(release.statement())  # for the privacy reviewer
