"""Stored records: read as they were written; a corrupted one is refused, never half-read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from hypothesis import given
from samplers.budget.budget_support import budget
from support import exactly, study_of

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.errors import OptunaDPError
from optuna_dp.evidence.stated_run import RunCost, StatedRun
from optuna_dp.samplers.budget.settings import BudgetSettings
from optuna_dp.samplers.choice.choice import Choice
from optuna_dp.samplers.choice.settings import UtilitySettings
from optuna_dp.samplers.selection.settings import SelectionSettings
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.study.entries import PLAN
from optuna_dp.study.plan import StudyPlan
from optuna_dp.study.trials import SlotEntry

from .junk import damaged, few, outcome, same

X = {"x": optuna.distributions.FloatDistribution(-1.0, 1.0)}
LAWS = [
    odp.NegativeBinomial(shape=0.5, gamma=0.1),
    odp.NegativeBinomial(shape=2.0, mean=7.0),
    odp.Geometric(mean=5),
    odp.Logarithmic(mean=5),
    odp.Poisson(mean=5.0),
    odp.Binomial(10, 4.0),
    odp.Geometric(mean=5).capped(20),
]
TREE = odp.compose(
    odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=10),
    odp.worst_case(odp.gaussian(4.0), odp.laplace(2.0), odp.pure_dp(0.5)),
    odp.bounded_range(0.5),
    odp.rdp([2.0, float("inf")], [0.1, 1.0]),
    odp.zcdp(0.1),
    odp.from_profile([0.0, 1.0], [0.2, 1e-6], reverse_deltas=[0.2, 1e-7]),
    PrivateSelectionDpEvent(odp.approximate_dp(0.1, 1e-6), LAWS[2], (0.5, 2.0), "data"),
)


def plan_with(sampler: Any) -> dict[str, Any]:
    study = study_of(sampler)
    study.ask()
    return dict(study.get_trials()[0].system_attrs[PLAN.key])


LISTED = [{"x": 0.1}, {"x": 0.9}]
PLANS = {
    "rand_tune": plan_with(odp.RandTuneSampler(X, trials=exactly(4))),
    "stated run": plan_with(
        odp.RandTuneSampler(X, trials=exactly(4), run=TREE, output_attributes=["a"])
    ),
    "dp_hypo": plan_with(odp.DPHyPOSampler(X, trials=exactly(4), candidates=8)),
    "budget": plan_with(odp.BudgetSampler(budget(2, 1), search_space=X)),
    "noisy_max": plan_with(odp.NoisyMaxSampler(candidates=LISTED, n_partitions=900, epsilon=1.0)),
    "propose_test": plan_with(
        odp.ProposeTestSampler(
            candidates=LISTED, n_partitions=30_000, epsilon=0.2, granularity=0.2, resolve=0.3
        )
    ),
}
# What is read, by what, and how it is written again.
READERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    **{
        f"law {law!r}": (odp.TrialCount.from_json, lambda read: read.to_json(), law.to_json())
        for law in LAWS
    },
    "event": (event_from_json, event_to_json, event_to_json(TREE)),
    "guarantee": (
        odp.Guarantee.from_json,
        lambda read: read.to_json(),
        odp.Guarantee(TREE).to_json(),
    ),
    "run": (
        RunCost.from_json,
        lambda read: read.to_json(),
        RunCost(StatedRun(TREE), ("a",)).to_json(),
    ),
    "slot": (
        SlotEntry.from_json,
        lambda read: read.to_json(),
        SlotEntry(3, "n" * 32, "f" * 64, 3, "RandTuneSampler", 5, "p" * 64).to_json(),
    ),
    "choice": (
        Choice.from_json,
        lambda read: read.to_json(),
        Choice("n" * 32, (None, 2), 2).to_json(),
    ),
    **{
        f"plan {name}": (StudyPlan.from_json, lambda read: read.to_json(), plan)
        for name, plan in PLANS.items()
    },
    **{
        f"settings {name}": (
            reader.from_json,  # type: ignore[attr-defined]
            lambda read: read.to_json(),
            PLANS[name]["design"]["settings"],
        )
        for name, reader in (
            ("rand_tune", SelectionSettings),
            ("stated run", SelectionSettings),
            ("dp_hypo", SelectionSettings),
            ("budget", BudgetSettings),
            ("noisy_max", UtilitySettings),
            ("propose_test", UtilitySettings),
        )
    },
}


def as_numbers(value: Any) -> Any:
    """JSON in which whole floats and ints are the same, as they are to the readers."""
    if isinstance(value, dict):
        return {key: as_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_numbers(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return repr(float(value) + 0.0) if abs(value) < 2**70 else repr(value)


def reads_wholly_or_refuses(name: str, record: Any) -> None:
    read, written, _ = READERS[name]
    found = outcome(lambda: read(record))
    if not isinstance(found, OptunaDPError):
        # Whatever was accepted was understood to the last field.
        assert same(as_numbers(written(found)), as_numbers(record)), record


@pytest.mark.parametrize("name", READERS)
def test_records_survive_json(name: str) -> None:
    read, written, record = READERS[name]
    assert written(read(json.loads(json.dumps(record)))) == record


@pytest.mark.promise("a disk is full")
@pytest.mark.parametrize("name", READERS)
def test_damaged_records_are_read_wholly_or_refused(name: str) -> None:
    @few
    @given(damaged(READERS[name][2]))
    def check(record: Any) -> None:
        reads_wholly_or_refuses(name, record)

    check()
