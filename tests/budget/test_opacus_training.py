"""``odp.opacus.make_private`` makes the training that the plan pays for."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest
from budget_support import budget, sampler
from support import study_of

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError, PlanError

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytestmark = pytest.mark.filterwarnings("ignore")

RECORDS = 400
PLAN = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=40, epochs=4, pilots=2)


def parts(rate: float = 0.1, scale: float = 1.0) -> dict[str, Any]:
    module = torch.nn.Linear(5, 3, bias=False)
    x, y = scale * torch.randn(RECORDS, 5), torch.arange(RECORDS) % 3
    data = torch.utils.data.TensorDataset(x, y)
    return {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=rate),
        "data_loader": torch.utils.data.DataLoader(data, batch_size=7),
    }


def train(private: Any, optimizer: Any, batches: Any) -> list[int]:
    sizes = []
    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(x), y).backward()
        optimizer.step()
        sizes.append(len(x))
    return sizes


def test_a_whole_study_is_checked_by_the_accountant() -> None:
    def objective(trial: optuna.Trial) -> float:
        run = odp.fidelity(trial)
        assert len(train(*odp.opacus.make_private(run, **parts()))) == run.steps
        return run.score(np.ones(RECORDS, dtype=bool))

    study = study_of(sampler(PLAN))
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    assert odp.release(study).spending == {"runs": 3, "asked": 3, "checked": 3, "scored": 3}


def test_batches_are_poisson_samples_of_the_planned_rate() -> None:
    plan = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=40, epochs=100, pilots=0)
    sizes = train(*odp.opacus.make_private(plan.final, **parts()))
    assert len(sizes) == plan.final.steps == 1000
    # Binomial(400, 0.1): mean 40, standard deviation 6. Each bound fails once in ten million runs.
    assert abs(np.mean(sizes) - 40) < 5.5 * 6 / np.sqrt(1000)
    assert 0.85 < np.std(sizes) / 6 < 1.15


def test_the_noise_is_the_planned_one_and_no_seed_repeats_it() -> None:
    run = PLAN.final

    def moved() -> Any:
        torch.manual_seed(0)
        given = parts(rate=1.0, scale=0.0)  # no gradient, so nothing but noise
        before = given["module"].weight.detach().clone()
        train(*odp.opacus.make_private(run, clipping_norm=0.5, **given))
        return ((given["module"].weight.detach() - before) * 40 / 0.5).numpy()

    found = np.concatenate([moved().ravel() for _ in range(40)])
    assert not np.allclose(found[:15], found[15:30])
    # Of 600 sums the spread is off by 16 % once in ten million times.
    assert np.std(found) == pytest.approx(run.noise_multiplier * np.sqrt(run.steps), rel=0.16)


def test_no_second_pass_and_no_second_step() -> None:
    private, optimizer, batches = odp.opacus.make_private(PLAN.final, **parts())
    train(private, optimizer, batches)
    with pytest.raises(PlanError, match="loop over epochs"):
        train(private, optimizer, batches)
    optimizer.zero_grad()
    private(torch.ones(4, 5)).sum().backward()
    with pytest.raises(PlanError, match="Step once for each batch"):
        optimizer.step()


def test_what_it_refuses() -> None:
    with pytest.raises(InvalidArgumentError, match="made from a function"):
        odp.opacus.make_private(budget(2).final, **parts())
    with pytest.raises(InvalidArgumentError, match="parameters of the module only"):
        odp.opacus.make_private(PLAN.final, **parts() | {"module": torch.nn.Linear(5, 3)})
    with pytest.raises(InvalidArgumentError, match="fidelity"):
        odp.opacus.make_private(None, **parts())  # type: ignore[arg-type]
    norm = torch.nn.BatchNorm1d(5)
    optimizer = torch.optim.SGD(norm.parameters(), lr=0.1)
    with pytest.raises(Exception, match="BatchNorm"):
        odp.opacus.make_private(PLAN.final, **parts() | {"module": norm, "optimizer": optimizer})
