"""After: the same script, tuned within a budget. Its epsilon is that of everything."""

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp

torch.set_num_threads(1)
pixels, labels = load_digits(return_X_y=True)
x = torch.tensor(pixels / 16.0, dtype=torch.float32)
y = torch.tensor(labels)
PLAN = odp.plan_budget(epsilon=3.0, records=1797, batch_size=128, epochs=5, pilots=(6, 2))


def objective(trial):
    run = odp.fidelity(trial)
    noise = trial.suggest_float("noise_per_weight", 0.03, 3.0, log=True)
    clipping = trial.suggest_float("clipping", 0.1, 3.0, log=True)
    rate = run.learning_rate("sgd", clipping_norm=clipping, noise_per_weight=noise)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    private, optimizer, loader = odp.opacus.make_private(
        run,
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=DataLoader(TensorDataset(x, y)),
        clipping_norm=clipping,
    )
    for batch_x, batch_y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(batch_x), batch_y).backward()
        optimizer.step()
    if not run.is_pilot:
        torch.save(model.state_dict(), "model.pt")
    with torch.no_grad():
        return run.score(model(x).argmax(1) == y)


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    print(release.params, release.guarantee.epsilon(delta=1e-5))
