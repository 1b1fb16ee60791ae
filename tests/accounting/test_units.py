"""A guarantee for records and one for clients are never added up to one epsilon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dp_accounting import dp_event
from refusals import refuses

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_from_json, event_to_json
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.accounting.kinds.worst_case import WorstCaseDpEvent
from optuna_dp.accounting.units import unit_of

VOTE = SkellamDpEvent(160.0, 5, 100)
TRAINING = odp.dp_sgd(noise_multiplier=2.0, sample_rate=0.1, steps=50)
OF_CLIENTS = odp.per_client(TRAINING)
TREES = {
    "composed": lambda run: dp_event.ComposedDpEvent([odp.gaussian(9.0), run]),
    "repeated": lambda run: dp_event.SelfComposedDpEvent(
        dp_event.ComposedDpEvent([run, odp.gaussian(9.0)]), 3
    ),
    "one of": lambda run: WorstCaseDpEvent((run, odp.gaussian(9.0))),
    "selected": lambda run: (
        odp.selection_guarantee(
            dp_event.ComposedDpEvent([run, odp.gaussian(9.0)]), odp.Geometric(mean=5)
        ).event
    ),
}


@contextmanager
def a_mixture_is_refused() -> Iterator[None]:
    """Parts about records and about clients, with the function that makes them agree."""
    with refuses("event") as caught:
        yield
    assert "per_client" in caught.value.fix


@pytest.mark.parametrize("relation", ["replace_one", "null_client"])
def test_a_vote_and_a_training_on_records_do_not_compose(relation: str) -> None:
    vote = odp.Guarantee(VOTE, relation)
    with a_mixture_is_refused():
        vote.compose(TRAINING)
    with a_mixture_is_refused():
        vote.compose(odp.Guarantee(TRAINING, relation))
    with a_mixture_is_refused():
        odp.compose(TRAINING, VOTE)
    with a_mixture_is_refused():
        odp.worst_case(TRAINING, VOTE)
    both = vote.compose(OF_CLIENTS)
    assert both.unit == "client"
    assert both.epsilon(1e-5) > max(
        vote.epsilon(1e-5), odp.Guarantee(TRAINING, relation).epsilon(1e-5)
    )


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("part", [VOTE, OF_CLIENTS], ids=["vote", "per_client"])
def test_no_tree_hides_a_mixture(kind: str, part: Any) -> None:
    with a_mixture_is_refused():
        odp.Guarantee(TREES[kind](part), "replace_one")
    record = {"event": event_to_json(dp_event.ComposedDpEvent([TRAINING, part]))}
    read = event_from_json(record["event"])
    with a_mixture_is_refused():
        odp.Guarantee(read, "replace_one")


def test_units() -> None:
    assert unit_of(dp_event.NoOpDpEvent()) is None
    assert unit_of(dp_event.ComposedDpEvent([])) is None
    assert unit_of(dp_event.ComposedDpEvent([dp_event.NoOpDpEvent(), VOTE])) == "client"
    assert odp.Guarantee(TRAINING).unit == "record"
    assert odp.Guarantee(TRAINING, "null_client").unit == "record"
    assert odp.per_client(VOTE) is VOTE
    assert odp.per_client(OF_CLIENTS) is OF_CLIENTS
    with refuses("event"):
        odp.per_client(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "relation", ["add_or_remove_one", pytest.param("replace_one", marks=pytest.mark.slow)]
)
def test_the_unit_changes_whose_data_and_no_number(relation: str) -> None:
    plain, of_clients = odp.Guarantee(TRAINING, relation), odp.Guarantee(OF_CLIENTS, relation)
    assert of_clients.by_method(1e-5) == plain.by_method(1e-5)
    assert of_clients.bounds(1e-5) == plain.bounds(1e-5)
    assert of_clients.delta(0.5) == plain.delta(0.5)
    assert of_clients.mu() == plain.mu()
    assert list(of_clients.rdp([2.0, 8.0])) == list(plain.rdp([2.0, 8.0]))
    assert odp.Guarantee.from_json(of_clients.to_json()) == of_clients
    assert "for each client as a whole" in repr(of_clients)


def test_a_search_over_client_level_runs_is_judged_as_any() -> None:
    trials, run = odp.Geometric(mean=5), odp.gaussian(4.0)
    found = odp.selection_guarantee(odp.per_client(run), trials)
    assert found.unit == "client"
    assert found.epsilon(1e-5) == odp.selection_guarantee(run, trials).epsilon(1e-5)
