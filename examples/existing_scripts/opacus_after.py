"""After: the same network, tuned within a budget. Its epsilon is that of everything."""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

import optuna_dp as odp

torch.set_num_threads(1)
pixels, labels = load_digits(return_X_y=True)
SCHEMA = odp.Schema.images(64, high=16, target=range(10))  # what is public about the records
RECORDS = SCHEMA.encode(pixels, labels)
PLAN = odp.plan_budget(epsilon=3.0, records=1797, batch_size=128, epochs=5, pilots=(6, 2))


def objective(trial):
    run = odp.start_run(trial)
    noise = trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True)
    clipping = trial.suggest_float("clipping", 0.1, 3.0, log=True)
    model = nn.Sequential(nn.Linear(SCHEMA.width, 32), nn.ReLU(), nn.Linear(32, SCHEMA.outputs))
    trained = odp.train(
        run,
        model,
        RECORDS,
        optimizer="sgd",
        learning_rate=run.learning_rate("sgd", clipping_norm=clipping, noise_per_weight=noise),
        clipping_norm=clipping,
    )
    if not run.is_pilot:
        torch.save(trained.model.state_dict(), "model.pt")
    return trained.score


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.params, release.guarantee.epsilon(delta=1e-5))
