import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

pixels, labels = load_digits(return_X_y=True)
schema = odp.Schema.images(64, high=16, target=range(10))  # public: no record was looked at
records = schema.encode(pixels, labels)
plan = odp.plan_budget(epsilon=3.0, delta=1e-5, records=1797, epochs=20, pilots=6)


def objective(trial):
    run = odp.start_run(trial)  # what this trial may spend
    hidden = trial.suggest_int("hidden", 8, 256, log=True)
    model = nn.Sequential(
        nn.Linear(schema.width, hidden), nn.ReLU(), nn.Linear(hidden, schema.outputs)
    )
    trained = odp.train(run, model, records)
    if not run.is_pilot:
        torch.save(trained.model.state_dict(), "model.pt")
    return trained.score  # the accuracy, with noise


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    epsilon = release.guarantee.epsilon(delta=1e-5)  # of everything
    print(release.params, f"accuracy {release.value:.3f}, epsilon {epsilon:.3f}")
    print(release.statement())  # for the privacy reviewer
