"""Before: a PyTorch script with Opacus and Optuna, as people write it. Its epsilon is not true."""

import optuna
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
pixels, labels = load_digits(return_X_y=True)
x = torch.tensor(pixels / 16.0, dtype=torch.float32)
y = torch.tensor(labels)
x_train, y_train = x[:1347], y[:1347]
x_valid, y_valid = x[1347:], y[1347:]
EPOCHS = 5


def objective(trial):
    torch.manual_seed(0)
    rate = trial.suggest_float("rate", 0.05, 5.0, log=True)
    clipping = trial.suggest_float("clipping", 0.1, 3.0, log=True)
    batch_size = trial.suggest_categorical("batch_size", [64, 128, 256])
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    engine = PrivacyEngine()
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate),
        data_loader=DataLoader(TensorDataset(x_train, y_train), batch_size=batch_size),
        noise_multiplier=1.5,
        max_grad_norm=clipping,
    )
    for epoch in range(EPOCHS):
        for batch_x, batch_y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(batch_x), batch_y).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(x_valid).argmax(1) == y_valid).float().mean().item()
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    trial.set_user_attr("epsilon", engine.get_epsilon(delta=1e-5))
    return accuracy


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=8)
    print(study.best_params, study.best_trial.user_attrs["epsilon"])
