"""Small trainings with ``odp.opacus.make_private``, in a trial of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optuna
import pytest
from support import budget_sampler, study_of

import optuna_dp as odp
from optuna_dp.errors import PlanError
from optuna_dp.runs.run import Run
from optuna_dp.runs.run_endings import finalise
from optuna_dp.runs.trial_notes import claims, noted
from optuna_dp.study.entries import SPENT, TRAININGS

torch = pytest.importorskip("torch", reason="needs the extra opacus")
pytest.importorskip("opacus", reason="needs the extra opacus")

RECORDS, BATCH = 200, 20
PLAN = odp.plan_budget(epsilon=3.0, records=RECORDS, batch_size=BATCH, epochs=1, pilots=0)
X, Y = torch.randn(RECORDS, 5), torch.arange(RECORDS) % 3


@dataclass
class Begun:
    """A trial that is under way."""

    study: optuna.Study
    trial: optuna.Trial
    run: Run

    def end(self) -> None:
        """Ends the trial, as the study's sampler does."""
        finalise(self.study, self.stored)

    @property
    def stored(self) -> optuna.trial.FrozenTrial:
        return self.study.trials[self.trial.number]

    @property
    def claims(self) -> list[Any]:
        return list(claims(self.stored, TRAININGS).values())

    @property
    def is_finished(self) -> bool:
        return len(self.claims) == 1 and bool(self.claims[0].get("finished"))

    @property
    def recorded_steps(self) -> int:
        """Steps of what was spent, as the second reading has it."""
        spent = noted(self.stored, SPENT)
        assert spent is not None
        assert spent["final"]
        from optuna_dp.accounting.event_json import event_from_json

        event = event_from_json(spent["event"])
        return int(getattr(event, "count", 1))


def begin(plan: Any = PLAN) -> Begun:
    study = study_of(budget_sampler(plan))
    trial = study.ask()
    return Begun(study, trial, odp.start_run(trial))


def dense(inputs: int = 5, outputs: int = 3) -> Any:
    return torch.nn.Linear(inputs, outputs)


def loader_of(dataset: Any = None, **settings: Any) -> Any:
    data = torch.utils.data.TensorDataset(X, Y) if dataset is None else dataset
    return torch.utils.data.DataLoader(data, **{"batch_size": 7} | settings)


def parts(module: Any = None, dataset: Any = None, rate: float = 0.1, **loading: Any) -> Any:
    module = dense() if module is None else module
    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return {
        "module": module,
        "optimizer": torch.optim.SGD(weights, lr=rate),
        "data_loader": loader_of(dataset, **loading),
    }


def cross_entropy(private: Any, batch: Any) -> Any:
    return torch.nn.functional.cross_entropy(private(batch[0]), batch[1])


def train(
    private: Any, optimizer: Any, batches: Any, loss: Callable[..., Any] = cross_entropy
) -> int:
    """An ordinary loop; returns how many batches it got."""
    count = 0
    for batch in batches:
        optimizer.zero_grad()
        loss(private, batch).backward()
        optimizer.step()
        count += 1
    return count


@contextmanager
def refused_at_the_end(begun: Begun, because: BaseException | None = None) -> Iterator[None]:
    """A trial whose loop raises nothing, and whose end does, for the reason of this error."""
    yield
    with pytest.raises(PlanError) as caught:
        begun.end()
    assert because is None or str(because) in str(caught.value)
    assert not begun.is_finished
