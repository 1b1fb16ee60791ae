"""Before: a loop of plain PyTorch over a grid, as people write it. It has no guarantee at all."""

import copy
import itertools

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(42)
RATES, WIDTHS = [3e-4, 3e-3], [32, 128]
EPOCHS, PATIENCE = 20, 5


def load():
    pixels, labels = load_digits(return_X_y=True)
    pixels = StandardScaler().fit_transform(pixels)
    splits = train_test_split(pixels, labels, test_size=0.2, random_state=42)
    x, x_valid = (torch.tensor(part, dtype=torch.float32) for part in splits[:2])
    y, y_valid = (torch.tensor(part) for part in splits[2:])
    return TensorDataset(x, y), (x_valid, y_valid)


def make_model(width):
    return nn.Sequential(
        nn.Linear(64, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, 10),
    )


def train(rate, width, records, valid):
    loader = DataLoader(records, batch_size=64, shuffle=True)
    model = make_model(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    best, best_state, waited = 0.0, None, 0
    for _ in range(EPOCHS):
        model.train()
        for batch_x, batch_y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch_x), batch_y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(valid[0]).argmax(1) == valid[1]).float().mean().item()
        if accuracy > best:
            best, best_state, waited = accuracy, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
        if waited >= PATIENCE:
            break
    return best, best_state


if __name__ == "__main__":
    records, valid = load()
    results = []
    for rate, width in itertools.product(RATES, WIDTHS):
        accuracy, state = train(rate, width, records, valid)
        print(f"rate {rate:g}, width {width}: {accuracy:.3f}")
        results.append((accuracy, width, state))
    accuracy, width, state = max(results, key=lambda result: result[0])
    print({"width": width}, accuracy)
    torch.save(state, "model.pt")
