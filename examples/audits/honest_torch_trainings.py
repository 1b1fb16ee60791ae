"""How often the checks accuse honest trainings in PyTorch, with Opacus and in a loop of one's own.

Small networks of random size, records, noise and hyperparameters, by turns with Opacus and by
hand; each is checked as an objective and audited as a training, both with its records.

    pip install torch==2.13.0 && pip install ".[opacus]"
    OMP_NUM_THREADS=1 python examples/audits/honest_torch_trainings.py --tries 200

``README.md`` beside it has what it found.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import Counter

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp
from optuna_dp.testing import audit_training

TRIES = int(os.environ.get("HONEST_TRAININGS", "200"))

warnings.filterwarnings("ignore", module="(opacus|torch)")
warnings.filterwarnings("ignore", message="Full backward hook")
torch.set_num_threads(1)


class Training:
    """An honest training of random size; the fault is for showing that faults are found."""

    def __init__(self, rng, opacus, fault):
        self.opacus, self.fault = opacus, fault
        self.batches = int(rng.integers(3, 12))
        self.size = self.batches * int(rng.integers(8, 30))
        self.features, self.classes = int(rng.integers(3, 16)), int(rng.integers(2, 5))
        self.hidden = int(rng.integers(4, 24))
        self.epochs = int(rng.integers(1, 4))
        self.noise, self.norm = float(rng.uniform(0.6, 3.0)), float(rng.uniform(0.3, 2.0))
        self.rate, self.steps = 1 / self.batches, self.epochs * self.batches
        self.momentum = float(rng.choice([0.0, 0.5, 0.9]))

    def __repr__(self):
        return f"Training({', '.join(f'{k}={v}' for k, v in vars(self).items())})"

    @property
    def event(self):
        return odp.dp_sgd(noise_multiplier=self.noise, sample_rate=self.rate, steps=self.steps)

    def records(self):
        y = torch.randint(0, self.classes, (self.size,))
        means = torch.randn(self.classes, self.features)
        return 0.7 * means[y] + torch.randn(self.size, self.features), y

    def network(self):
        return nn.Sequential(
            nn.Linear(self.features, self.hidden),
            nn.Tanh(),
            nn.Linear(self.hidden, self.classes),
        )

    def with_opacus(self, data, lr):
        x, y = data
        model = self.network()
        private, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=lr, momentum=self.momentum),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=self.size // self.batches),
            noise_multiplier=self.noise,
            max_grad_norm=self.norm,
        )
        if self.fault:
            optimizer.noise_multiplier = 0.5 * self.noise
        for _ in range(self.epochs):
            for a, b in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(private(a), b).backward()
                optimizer.step()
        return model

    def by_hand(self, canaries, data, lr):
        x, y = data
        model = self.network()
        weights = list(model.parameters())
        optimizer = torch.optim.SGD(weights, lr=lr, momentum=self.momentum)
        length = sum(w.numel() for w in weights)
        for _ in range(self.steps):
            batch = torch.nonzero(torch.rand(len(x)) < self.rate).flatten()
            losses = nn.functional.cross_entropy(model(x[batch]), y[batch], reduction="none")
            rows = [torch.autograd.grad(loss, weights, retain_graph=True) for loss in losses]
            flat = [torch.cat([part.reshape(-1) for part in row]) for row in rows]
            each = torch.stack(flat) if flat else torch.zeros(0, length)
            each = each if canaries is None else canaries.examples(each, self.norm)
            if not self.fault:
                each = each * (self.norm / each.norm(dim=1, keepdim=True)).clamp(max=1)
            noisy = each.sum(0) + self.noise * self.norm * torch.randn(length)
            noisy = noisy if canaries is None else canaries.observe(noisy)
            parts = (noisy / (self.rate * self.size)).split([w.numel() for w in weights])
            for weight, part in zip(weights, parts, strict=True):
                weight.grad = part.view_as(weight)
            optimizer.step()
        return model

    def objective(self, trial, data):
        lr = trial.suggest_float("lr", 0.05, 1.0, log=True)
        model = self.with_opacus(data, lr) if self.opacus else self.by_hand(None, data, lr)
        x, y = (part.as_subclass(torch.Tensor) for part in data)
        with torch.no_grad():
            right = (model(x).argmax(1) == y).numpy()
        return odp.scoring.private_accuracy(right, size=self.size, noise_multiplier=8.0)

    def audit(self, data):
        if self.opacus:
            return audit_training(
                lambda given: self.with_opacus(given, 0.5), self.event, access="opacus", data=data
            )
        return audit_training(
            lambda canaries, given: self.by_hand(canaries, given, 0.5),
            self.event,
            access="gradients",
            data=data,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=TRIES, help="default: HONEST_TRAININGS")
    parser.add_argument("--faulty", action="store_true", help="half the noise, or no clipping")
    arguments = parser.parse_args()
    rng, found, seconds = np.random.default_rng(), Counter(), []
    for number in range(arguments.tries):
        begun = time.process_time()
        training = Training(rng, opacus=number % 2 == 0, fault=arguments.faulty)
        kind = "Opacus" if training.opacus else "by hand"
        data = training.records()
        event = odp.compose(training.event, odp.scoring.score_event(8.0))
        report = odp.check_objective(training.objective, event, data=data)
        audit = training.audit(data)
        found[f"{kind}: trainings"] += 1
        found[f"{kind}: check_objective says faults"] += not report.ok
        found[f"{kind}: check_objective gives hints only"] += bool(report.ok and report.findings)
        found[f"{kind}: audit_training says violates"] += audit.verdict == "violates"
        seconds.append(time.process_time() - begun)
        if not arguments.faulty and (report.findings or audit.verdict == "violates"):
            print(number, training, report, audit, sep="\n", flush=True)
        if number % 20 == 19:
            print(f"... {number + 1}: {dict(found)}", flush=True)
    for line, count in found.items():
        print(f"{line}: {count}")
    print(f"{np.mean(seconds):.1f} s of CPU time each")


if __name__ == "__main__":
    main()
