"""A vote as a strategy of Flower, before a training by another strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refuses

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from optuna.distributions import CategoricalDistribution

from federated.in_process import app, objective, vote
from optuna_dp.federated import FederatedVote, InProcessGrid, PlainSum, VotePolicy, VoteStrategy
from optuna_dp.voting import VoteFailedError

CLIENTS = 6


def grid_of(seen: list[dict[str, Any]], **options: Any) -> InProcessGrid:
    """Clients that vote, and note the configurations that they train and are evaluated with."""
    made = app(objective, **options)

    @made.train()
    def train(message: Message, context: Context) -> Message:
        seen.append(dict(message.content.config_records["config"]))
        content = {
            "arrays": message.content.array_records["arrays"],
            "metrics": MetricRecord({"num-examples": 1}),
        }
        return Message(RecordDict(content), reply_to=message)

    @made.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        seen.append(dict(message.content.config_records["config"]))
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": 1, "loss": 0.0})}),
            reply_to=message,
        )

    return InProcessGrid(made, [{"optimum": 3.0}] * CLIENTS)


def strategy_of(grid: InProcessGrid, chosen: FederatedVote) -> VoteStrategy:
    return VoteStrategy(chosen, FedAvg(min_available_nodes=CLIENTS), grid.server_context())


def test_every_round_trains_and_evaluates_with_the_winner() -> None:
    seen: list[dict[str, Any]] = []
    grid = grid_of(seen)
    strategy = strategy_of(grid, vote(epsilon=20.0))
    assert strategy.release is None
    result = strategy.start(
        grid,
        ArrayRecord([np.zeros(2)]),
        num_rounds=2,
        train_config=ConfigRecord({"epochs": 3}),
    )
    assert strategy.release is not None
    winner = strategy.release.params
    assert len(result.train_metrics_clientapp) == 2
    assert len(seen) == 2 * 2 * CLIENTS
    assert all(config["x"] == winner["x"] for config in seen)
    assert sum(config.get("epochs") == 3 for config in seen) == 2 * CLIENTS
    assert strategy.release.guarantee.epsilon(1e-5) <= 20.0
    # Trained again, with the winner that is known: the vote has only one round.
    release = strategy.release
    strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
    assert strategy.release is release


def test_nobody_trains_if_the_vote_fails() -> None:
    seen: list[dict[str, Any]] = []
    grid = grid_of(seen, policy=VotePolicy(max_epsilon=0.1))
    with pytest.raises(VoteFailedError):
        strategy_of(grid, vote()).start(grid, ArrayRecord([np.zeros(2)]), num_rounds=1)
    assert seen == []


def test_a_configuration_of_a_parameters_name_is_refused() -> None:
    grid = grid_of([])
    strategy = strategy_of(grid, vote(secure_aggregation=PlainSum()))
    with refuses("train_config"):
        strategy.start(
            grid, ArrayRecord([np.zeros(2)]), train_config=ConfigRecord({"x": 1.0}), num_rounds=1
        )


def test_choices_that_no_message_carries_are_refused_before_the_vote() -> None:
    space = {"layer": CategoricalDistribution([None, "wide"])}
    chosen = FederatedVote(space, k=1, epsilon=1.0)
    with refuses("candidates['layer']"):
        strategy_of(grid_of([]), chosen)
