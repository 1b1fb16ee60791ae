"""How often the check for mixing of ``odp.opacus.make_private`` lets a wrong loss pass.

In these losses one record of a batch decides what all others count: the largest, or a quantile.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import optuna
import torch
from torch.utils.data import DataLoader, TensorDataset

import optuna_dp as odp
from optuna_dp.errors import PlanError

RECORDS, TRIES = 200, 40
X = torch.randn(RECORDS, 4)
DATA = TensorDataset(X, (X[:, 0] > 0).long())


def by_largest(losses: Any) -> Any:
    return (losses * (losses / losses.max()).detach()).mean()


def without_largest(losses: Any) -> Any:
    return torch.where(losses > losses.quantile(0.95).detach(), 0.0, losses).mean()


def passes(reduce: Callable[[Any], Any]) -> bool:
    plan = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=20, epochs=1, pilots=0)
    study = optuna.create_study(direction="maximize", sampler=odp.BudgetSampler(plan))
    model = torch.nn.Linear(4, 3)
    private, optimizer, batches = odp.opacus.make_private(
        odp.start_run(study.ask()),
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(DATA, batch_size=20),
    )
    try:
        for (x, y), _ in zip(batches, range(2), strict=False):
            reduce(torch.nn.functional.cross_entropy(private(x), y, reduction="none")).backward()
            optimizer.step()
    except PlanError:
        return False
    return True


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name, reduce in (("largest", by_largest), ("without the largest 5 %", without_largest)):
        print(f"{name}: {sum(passes(reduce) for _ in range(TRIES))} of {TRIES} pass")
