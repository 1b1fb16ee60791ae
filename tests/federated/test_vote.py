from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import optuna
import pytest
from refusals import refuses

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import optuna_dp as odp
from federated.in_process import SPACE, Wire, app, failing, vote, votes
from optuna_dp.federated import FederatedVote, InProcessGrid, PlainSum, SecureSum
from optuna_dp.federated.client import evaluation_of
from optuna_dp.federated.query import VoteQuery, choose_candidates
from optuna_dp.releasing.publishing import publish
from optuna_dp.voting import VoteFailedError

assert votes  # a fixture

TRANSPORTS = [PlainSum(), SecureSum()]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_sum_is_exactly_that_of_the_votes(transport: Any, votes: dict[int, Any]) -> None:
    wire = Wire(12)
    release = vote(secure_aggregation=transport).start(wire, wire.server_context())
    exact = sum(made[0] for made in votes.values())
    assert len(votes) == 12
    noisy = release.attributes["noisy_votes"]
    assert noisy == exact.tolist()
    assert release.value == max(noisy)
    assert release.params == {"x": 0.5 * noisy.index(max(noisy))} or noisy.count(max(noisy)) > 1
    assert 1.99 < release.guarantee.epsilon(1e-5) <= 2.0


def test_a_clear_majority_wins() -> None:
    wire = Wire(200)
    release = vote(secure_aggregation=PlainSum(), epsilon=5.0).start(wire, wire.server_context())
    assert release.params in ({"x": 2.5}, {"x": 3.0}, {"x": 3.5})


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_release_says_how_it_was_made(transport: Any) -> None:
    wire = Wire(8)
    release = vote(secure_aggregation=transport).start(wire, wire.server_context())
    text = release.statement()
    assert "each client as a whole" in text
    assert "replacing all data of one client" in text
    assert re.search(r"\brecord\b", text.split("## 4. True only if")[0]) is None
    assert ("THE SERVER IS TRUSTED" in text) == isinstance(transport, PlainSum)
    data = json.loads(json.dumps(release.to_json()))
    assert data["statement"]["guarantee"]["neighboring_relation"] == "replace_one"
    assert data["statement"]["epsilon"] <= 2.0
    assert max(release.attributes["noisy_votes"]) == release.value
    published = publish(release, optuna.storages.InMemoryStorage(), "vote")
    assert published.trials[0].params == release.params


def test_a_training_after_a_vote_must_hide_clients_too() -> None:
    wire = Wire(8)
    release = vote(secure_aggregation=PlainSum()).start(wire, wire.server_context())
    training = odp.dp_sgd(noise_multiplier=3.0, sample_rate=1.0, steps=4)
    with refuses("event"):
        release.with_training(training)
    with refuses("event"):
        release.guarantee.compose(training)
    whole = release.with_training(odp.per_client(training))
    assert whole.guarantee.unit == "client"
    assert "for each client as a whole: 4 times" in whole.statement()
    assert "each client as a whole: the output" in whole.statement()
    assert whole.guarantee.epsilon(1e-5) > release.guarantee.epsilon(1e-5)


def test_a_null_client_vote_says_so() -> None:
    wire = Wire(8)
    release = vote(adjacency="null_client").start(wire, wire.server_context())
    assert "taking all data of one client away" in release.statement()
    assert release.guarantee.neighboring_relation == "null_client"
    assert release.guarantee.epsilon(1e-5) <= 2.0


def test_progress_shows_stages_and_counts() -> None:
    lines: list[str] = []
    wire = Wire(7)
    vote(progress=lines.append).start(wire, wire.server_context())
    for number in range(1, 5):
        assert any(f"stage {number} of 4" in x and "7 of 7 nodes" in x for x in lines)


@pytest.mark.parametrize("stage", ["vote", "open"])
def test_dropouts_up_to_the_allowance_leave_the_sum_exact(
    stage: str, votes: dict[int, Any]
) -> None:
    wire = Wire(12, failing(2, 7, 11, stage=stage))
    release = vote(max_dropout=3).start(wire, wire.server_context())
    present = [i for i in range(12) if stage == "open" or i not in (2, 7, 11)]
    assert release.attributes["noisy_votes"] == sum(votes[i][-1] for i in present).tolist()
    assert release.guarantee.epsilon(1e-5) <= 2.0


def test_plain_dropouts_up_to_the_allowance(votes: dict[int, Any]) -> None:
    wire = Wire(12, failing(2, 7, 11, stage="plain"))
    chosen = vote(max_dropout=3, secure_aggregation=PlainSum())
    release = chosen.start(wire, wire.server_context())
    present = set(range(12)) - {2, 7, 11}
    assert release.attributes["noisy_votes"] == sum(votes[i][0] for i in present).tolist()


@pytest.mark.parametrize("stage", ["set_up", "share"])
def test_losses_before_the_vote_are_set_up_again_for_free(
    stage: str, votes: dict[int, Any]
) -> None:
    wire = Wire(10, failing(4, stage=stage))
    release = vote(max_dropout=2).start(wire, wire.server_context())
    assert set(votes) == set(range(10)) - {4}
    assert release.attributes["noisy_votes"] == sum(v[0] for v in votes.values()).tolist()
    assert release.design.settings["attempts"] == 1
    assert all(len(made) == 1 for made in votes.values())


@pytest.mark.parametrize(
    ("transport", "stage"),
    [(PlainSum(), "plain"), (SecureSum(), "vote"), (SecureSum(), "open")],
)
def test_retries_have_fresh_noise_and_are_charged(
    transport: Any, stage: str, votes: dict[int, Any]
) -> None:
    wire = Wire(10, failing(1, 2, stage=stage, times=1))
    chosen = vote(max_dropout=1, retries=2, secure_aggregation=transport)
    release = chosen.start(wire, wire.server_context())
    assert release.design.settings["attempts"] == 2
    plan = chosen.plan(10)
    assert release.guarantee.epsilon(1e-5) == plan.guarantee(2).epsilon(1e-5)
    assert plan.guarantee(1).epsilon(1e-5) < release.guarantee.epsilon(1e-5) <= 2.0
    assert "2 attempts, all counted" in release.statement()
    for made in votes.values():
        assert len(made) == 2
        assert (made[0] != made[1]).any()
    assert release.attributes["noisy_votes"] == sum(made[1] for made in votes.values()).tolist()


@pytest.mark.parametrize(("transport", "stage"), [(PlainSum(), "plain"), (SecureSum(), "vote")])
def test_too_few_survivors_are_refused_and_what_is_spent_is_said(
    transport: Any, stage: str
) -> None:
    wire = Wire(10, failing(0, 5, 9, stage=stage))
    chosen = vote(max_dropout=2, retries=1, secure_aggregation=transport)
    with pytest.raises(VoteFailedError) as caught:
        chosen.start(wire, wire.server_context())
    assert caught.value.attempts == 2
    assert caught.value.guarantee.epsilon(1e-5) == chosen.plan(10).guarantee(2).epsilon(1e-5)
    # The sum of too few was never opened.
    assert not [s for s, _ in wire.transcript if s == "open"]


def test_a_lost_set_up_spends_nothing(votes: dict[int, Any]) -> None:
    wire = Wire(10, failing(0, 5, 9, stage="set_up"))
    with pytest.raises(VoteFailedError) as caught:
        vote(max_dropout=2).start(wire, wire.server_context())
    assert caught.value.attempts == 0
    assert caught.value.guarantee is None
    assert votes == {}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rounds_are_priced_together(transport: Any, votes: dict[int, Any]) -> None:
    wire = Wire(6)
    chosen = vote(rounds=3, secure_aggregation=transport)
    plan = chosen.plan(6)
    assert plan.attempts == 3
    costs = []
    for i in range(3):
        release = chosen.start(wire, wire.server_context())
        assert release.design.settings["attempts"] == i + 1
        assert release.attributes["noisy_votes"] == sum(v[i] for v in votes.values()).tolist()
        costs.append(release.guarantee.epsilon(1e-5))
        assert costs[-1] == plan.guarantee(i + 1).epsilon(1e-5)
    assert costs[0] < costs[1] < costs[2] <= 2.0
    with refuses("rounds"):
        chosen.start(wire, wire.server_context())


def test_a_round_that_failed_is_charged_to_the_next() -> None:
    wire = Wire(6, failing(0, 1, stage="plain", times=1))
    chosen = vote(rounds=2, secure_aggregation=PlainSum())
    with pytest.raises(VoteFailedError) as caught:
        chosen.start(wire, wire.server_context())
    assert caught.value.attempts == 1
    release = chosen.start(wire, wire.server_context())
    assert release.guarantee.epsilon(1e-5) == chosen.plan(6).guarantee(2).epsilon(1e-5)


def test_rounds_have_the_same_number_of_clients() -> None:
    wire = Wire(6)
    chosen = vote(rounds=2, secure_aggregation=PlainSum())
    chosen.start(wire, wire.server_context())
    with refuses("clients"):
        chosen.start(Wire(7), wire.server_context())


def test_a_round_in_which_nobody_was_asked_is_not_counted() -> None:
    lost = Wire(6, failing(0, 1, stage="set_up", times=1))
    chosen = vote()
    with pytest.raises(VoteFailedError) as caught:
        chosen.start(lost, lost.server_context())
    assert caught.value.attempts == 0
    assert chosen.start(lost, lost.server_context()).design.settings["attempts"] == 1


def test_too_few_nodes() -> None:
    wire = Wire(3)
    with pytest.raises(VoteFailedError) as caught:
        vote(clients=5, timeout=0.02).start(wire, wire.server_context())
    assert caught.value.attempts == 0
    assert wire.transcript == [], "nobody is asked"


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"adjacency": "add_or_remove_one"}, "adjacency"),
        ({"candidates": "all"}, "candidates"),
        ({"candidates": 0}, "candidates"),
        ({"candidates": 100}, "candidates"),
        ({"candidates": []}, "candidates"),
        ({"candidates": [{"x": 0.3}]}, "candidates[0]['x']"),
        ({"candidates": [{"y": 0.5}]}, "candidates[0]"),
        ({"k": 22}, "k"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"direction": "up"}, "direction"),
        ({"secure_aggregation": True}, "secure_aggregation"),
        ({"clients": 2}, "clients"),
        ({"clients": 10, "max_dropout": 5}, "max_dropout"),
        ({"clients": 10, "max_dropout": 2, "max_colluding": 8}, "max_dropout + max_colluding"),
        ({"clients": 10, "max_dropout": 1, "max_colluding": 9}, "max_dropout + max_colluding"),
        ({"retries": -1}, "retries"),
        ({"rounds": 0}, "rounds"),
        ({"clients": 10, "rounds": 60, "retries": 1}, "attempts"),
    ],
)
def test_bad_votes_are_refused_at_construction(changes: dict[str, Any], argument: str) -> None:
    with refuses(argument):
        vote(**changes)


def test_candidates_of_every_kind() -> None:
    rng = np.random.default_rng(0)
    space = {
        "a": CategoricalDistribution(["relu", None, 3]),
        "n": IntDistribution(1, 3),
        "x": FloatDistribution(0.0, 1.0, step=0.1),
    }
    grid = choose_candidates(space, "grid", rng)
    assert len(grid) == 99
    assert grid[0] == {"a": "relu", "n": 1, "x": 0.0}
    few = choose_candidates(space, 40, rng)
    assert len({json.dumps(c) for c in few}) == 40
    chosen = FederatedVote(space, candidates=[grid[5], grid[7]], k=1, epsilon=1.0)
    assert chosen.candidates == [grid[5], grid[7]]
    log = {"lr": FloatDistribution(1e-5, 1.0, log=True)}
    with refuses("search_space['lr']"):
        choose_candidates(log, "grid", rng)
    assert len(choose_candidates(log, 7, rng)) == 7


def test_queries_survive_json_exactly() -> None:
    space = {"lr": FloatDistribution(1e-5, 1.0, log=True), "a": CategoricalDistribution([None, 2])}
    candidates = choose_candidates(space, 50, np.random.default_rng(0))
    plan = FederatedVote(space, candidates=list(candidates), k=3, epsilon=1.0).plan(10)
    query = VoteQuery(space, candidates, "maximize", plan, "a-name")
    again = VoteQuery.from_json(query.to_json())
    assert again == query
    for broken in ("", "{}", "[]", query.to_json().replace('"version": 1', '"version": 2')):
        with refuses("query"):
            VoteQuery.from_json(broken)


@pytest.mark.parametrize("k", [1, 2])
def test_a_vote_for_all_candidates_is_refused(k: int) -> None:
    with refuses("k"):
        FederatedVote(SPACE, candidates=[{"x": 1.0}, {"x": 2.0}][:k], k=k, epsilon=1.0)


def test_an_objective_of_optuna_votes() -> None:
    """One argument is a trial, whose user attributes are the node's configuration."""
    tried: list[float] = []

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 10.0, step=0.5)
        trial.report(0.0, 1)
        if trial.should_prune():
            raise optuna.TrialPruned
        tried.append(x)
        return abs(x - trial.user_attrs["optimum"])

    grid = InProcessGrid(app(objective), [{"optimum": 3.0}] * 40)
    release = vote(secure_aggregation=PlainSum(), epsilon=20.0).start(grid, grid.server_context())
    assert release.params in ({"x": 2.5}, {"x": 3.0}, {"x": 3.5})
    assert len(tried) == 40 * 21


@pytest.mark.parametrize("objective", [lambda: 0.0, lambda a, b, c: 0.0])
def test_an_objective_of_neither_kind_is_refused(objective: Any) -> None:
    with refuses("objective"):
        app(objective)


def test_defaults_and_bound_arguments_of_an_objective_do_not_count() -> None:
    def of_trial(trial: Any, epochs: int = 3) -> float:
        return float(trial.suggest_float("x", 0.0, 10.0) + epochs)

    def of_params(params: Any, context: Any, *more: Any, **options: Any) -> float:
        return float(params["x"])

    for made, expected in ((of_trial, 4.0), (of_params, 1.0)):
        evaluate = evaluation_of(made)
        context = InProcessGrid(app(), [{}]).nodes[1001][1]
        assert evaluate({"x": 1.0}, context) == expected
