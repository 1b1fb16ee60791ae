"""Studies with a budget whose runs train by ``odp.opacus.make_private``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from budget_support import budget, sampler
from refusals import refuses
from support import study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytestmark = pytest.mark.filterwarnings("ignore")

RECORDS = 400
PLAN = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=40, epochs=2, pilots=2)


def parts(module: Any = None) -> dict[str, Any]:
    module = torch.nn.Linear(5, 3) if module is None else module
    data = torch.utils.data.TensorDataset(torch.randn(RECORDS, 5), torch.arange(RECORDS) % 3)
    return {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": torch.utils.data.DataLoader(data, batch_size=7),
    }


def train(private: Any, optimizer: Any, batches: Any, steps: int = 10**9) -> int:
    count = 0
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(x), y).backward()
        optimizer.step()
        count += 1
        if count == steps:
            break
    return count


def study_with(training: Callable[[odp.Run], Any], **settings: Any) -> optuna.Study:
    def objective(trial: optuna.Trial) -> float:
        run = odp.start_run(trial)
        training(run)
        return run.score(np.ones(RECORDS, dtype=bool))

    study = study_of(sampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()], **settings)
    return study


@pytest.mark.parametrize("steps", [10**9, 3])
def test_a_whole_study_is_compared(steps: int) -> None:
    def training(run: odp.Run) -> None:
        trained = train(*odp.opacus.make_private(run, **parts()), steps)
        assert trained == min(run.steps, steps)

    spending = odp.release(study_with(training)).spending
    assert spending["training"] == {"compared": 3}, spending
    assert spending["score"] == {"compared": 3}, spending


def test_one_module_for_all_runs_is_refused_by_the_second() -> None:
    module = torch.nn.Linear(5, 3)

    def training(run: odp.Run) -> None:
        train(*odp.opacus.make_private(run, **parts(module)))

    with refuses("module"):
        study_with(training)


def test_what_it_refuses() -> None:
    with refuses("run"):
        odp.opacus.make_private(budget(2).final, **parts())
    with refuses("run"):
        odp.opacus.make_private(None, **parts())  # type: ignore[arg-type]
    with pytest.raises(PlanError):
        odp.opacus.make_private(PLAN.final, **parts())
