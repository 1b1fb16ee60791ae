"""Before: a loop of plain PyTorch, tuned by Optuna, as people write it. It has no guarantee."""

import copy

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(42)
EPOCHS, PATIENCE, TRIALS = 20, 4, 10


def load():
    pixels, labels = load_digits(return_X_y=True)
    pixels = StandardScaler().fit_transform(pixels)
    x_train, x_valid, y_train, y_valid = train_test_split(
        pixels, labels, test_size=0.2, random_state=42
    )
    train = TensorDataset(torch.tensor(x_train, dtype=torch.float32), torch.tensor(y_train))
    return train, (torch.tensor(x_valid, dtype=torch.float32), torch.tensor(y_valid))


TRAIN, VALID = load()


def make_model(width):
    return nn.Sequential(
        nn.Linear(64, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, 10),
    )


def accuracy_of(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def objective(trial):
    rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
    weight_decay = trial.suggest_float("weight_decay", 1e-5, 1e-1, log=True)
    model = make_model(trial.suggest_categorical("width", [32, 128]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=weight_decay)
    loader = DataLoader(TRAIN, batch_size=64, shuffle=True)
    best, best_state, waited = 0.0, None, 0
    for epoch in range(EPOCHS):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        accuracy = accuracy_of(model, *VALID)
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
        if accuracy > best:
            best, best_state, waited = accuracy, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
        if waited >= PATIENCE:
            break
    torch.save(best_state, f"model-{trial.number}.pt")
    return best


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=TRIALS)
    print(study.best_params, study.best_value)
