"""A client's own limits, its ledger, and what it says of them."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optuna_dp as odp

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from flwr.clientapp import ClientApp

from federated.in_process import Wire, objective, vote
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.accounting.skellam import pmf
from optuna_dp.federated import InProcessGrid, PlainSum, VotePolicy, client_statement, voter
from optuna_dp.federated.ledger import MOST_SET_UPS, Answer, FileLedger, now
from optuna_dp.federated.policy import View, total_epsilon
from optuna_dp.federated.query import VoteRefusedError
from optuna_dp.voting import VoteFailedError, VotePlan

TOML = """
max_epsilon = 2.0
total_epsilon = 3.0
min_clients = 3
ledger = "ledger.jsonl"

[search_space]
x = {low = 0.0, high = 10.0}
"""


def node(folder: Path, text: str = TOML) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "votes.toml").write_text(text)
    return folder / "votes.toml"


def nodes(folder: Path, count: int = 4, text: str = TOML, **options: Any) -> InProcessGrid:
    """Clients whose limits are in files of theirs; the app knows of none."""
    made = ClientApp()
    voter(made, **options)(objective)
    configs = [
        {"optimum": 3.0, "vote-policy": str(node(folder / str(i), text))} for i in range(count)
    ]
    return InProcessGrid(made, configs)


def test_limits_of_the_node_hold_over_votes_apps_and_restarts(tmp_path: Path) -> None:
    for i, epsilon in enumerate((2.0, 1.5, 2.0)):
        grid = nodes(tmp_path)  # another app, another run, and nothing in memory
        chosen = vote(epsilon=epsilon)
        if i < 2:  # 2 and then 1.5 are less than 3 together
            chosen.start(grid, grid.server_context())
        else:
            with pytest.raises(VoteFailedError):
                chosen.start(grid, grid.server_context())
    policy = VotePolicy.from_file(tmp_path / "0" / "votes.toml")
    found = [a.event for a in FileLedger(policy.ledger or "").answers()]
    total = odp.Guarantee(odp.compose(*found), "replace_one").epsilon(1e-5)
    assert 2.0 < total <= 3.0
    text = client_statement(tmp_path / "0" / "votes.toml")
    assert "sent 2 noisy vote(s)" in text
    assert f"{total:.2f}" in text
    assert "may have lied" in text
    assert "Its\nlimit is 3 in all, 2 for one vote" in text
    # The noise of one of four clients: with the others invented, nothing else protects it.
    alone = [SkellamDpEvent(e.variance / 4, e.votes, e.candidates) for e in found]
    cost = odp.Guarantee(odp.compose(*alone), "replace_one").epsilon(1e-5)
    assert cost > 4.0
    said = re.search(
        r"had invented\nall other clients, they would have cost epsilon = (\d+\.\d+)", text
    )
    assert said is not None
    assert float(said[1]) == pytest.approx(cost, rel=1e-3)


def test_an_app_cannot_loosen_what_the_node_says(tmp_path: Path) -> None:
    generous = VotePolicy(max_epsilon=1e3, total_epsilon=1e3, server="trusted")
    grid = nodes(tmp_path, policy=generous)
    for chosen in (vote(epsilon=2.5), vote(epsilon=1.0, secure_aggregation=PlainSum())):
        with pytest.raises(VoteFailedError):
            chosen.start(grid, grid.server_context())
    strict = nodes(tmp_path, max_epsilon=0.5)
    with pytest.raises(VoteFailedError):
        vote(epsilon=1.0).start(strict, strict.server_context())
    assert not any((tmp_path / str(i) / "ledger.jsonl").exists() for i in range(4))


def test_without_any_limit_nothing_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    made = ClientApp()
    voter(made)(objective)
    grid = InProcessGrid(made, [{"optimum": 3.0}] * 4)
    with caplog.at_level(logging.WARNING), pytest.raises(VoteFailedError):
        vote().start(grid, grid.server_context())
    assert "'vote-policy'" in caplog.text


@pytest.mark.parametrize(
    ("change", "asked", "reason"),
    [
        ("min_clients = 9", {}, "min_clients"),
        ("max_candidates = 20", {}, "max_candidates"),
        ("max_attempts = 1", {"retries": 1}, "max_attempts"),
        ("search_space = {x = {low = 0.0, high = 9.0}}", {}, "x=9.5"),
        ("search_space = {x = {choices = [0.0, 0.5]}}", {}, "x=1.0"),
        ("search_space = {y = {low = 0.0, high = 9.0}}", {}, "x=0.0"),
        ("", {"secure_aggregation": PlainSum()}, "plain"),
        ("max_clients = 3", {}, "max_clients"),
        ("delta = 1e-9", {}, "delta=1e-09"),
        ("max_colluding = 2", {}, "epsilon="),
        ("max_epsilon = 'much'", {}, "max_epsilon"),
        ("max_epsilons = 1.0", {}, "VotePolicy"),
        ("server = 'honest'", {}, "server"),
        ("!", {}, "cannot be read"),
    ],
)
def test_every_limit_is_kept(
    change: str,
    asked: dict[str, Any],
    reason: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = {
        line.split(" = ")[0]: line
        for line in ("max_epsilon = 2.0", "ledger = 'ledger.jsonl'", *([change] * bool(change)))
    }
    grid = nodes(tmp_path, text="\n".join(lines.values()))
    with caplog.at_level(logging.WARNING), pytest.raises(VoteFailedError):
        vote(epsilon=2.0, **asked).start(grid, grid.server_context())
    refusals = [r.getMessage() for r in caplog.records if "Vote refused" in r.getMessage()]
    assert refusals
    assert all(reason in text for text in refusals)


def test_a_file_must_name_a_ledger(tmp_path: Path) -> None:
    for text in ("max_epsilon = 1.0", "ledger = 'x'"):
        with refuses("policy"):
            VotePolicy.from_file(node(tmp_path, text))
    with refuses("policy") as caught:
        client_statement(VotePolicy(max_epsilon=1.0))
    assert "ledger" in caught.value.why


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("max_epsilon", 0.0),
        ("delta", 1.0),
        ("adjacency", "add_or_remove_one"),
        ("total_epsilon", -1.0),
        ("min_clients", 0),
        ("max_colluding", -1),
        ("server", "nice"),
        ("max_attempts", 0),
        ("max_votes", 0),
        ("search_space", {"x": {"low": 1.0}}),
    ],
)
def test_limits_that_are_none(argument: str, value: Any) -> None:
    with refuses("search_space['x']" if argument == "search_space" else argument):
        VotePolicy(**{"max_epsilon": 1.0, argument: value})
    with refuses("max_epsilon"):
        voter(ClientApp(), max_epsilon=1.0, policy=VotePolicy(max_epsilon=1.0))


# -- the ledger ---------------------------------------------------------------------------------

EVENT = SkellamDpEvent(100.0, 3, 21)


def answer(
    once: str, event: Any = EVENT, vote: str = "v", plan: str = "p", attempts: int = 1
) -> Answer:
    query = f"query {vote}"
    return Answer(once, now(), 1, vote, query, plan, attempts, event, 5, 1 << 24, "malicious")


def few(answers: Any) -> None:
    if len(answers) > 40:
        raise VoteRefusedError("enough")


def _fill(path: str, name: str) -> None:
    for i in range(30):
        try:
            FileLedger(path).append(answer(f"{name} {i}"), few)
        except VoteRefusedError:
            return


def test_processes_that_write_at_once_never_pass_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(str(path), str(i))) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(FileLedger(path).answers()) == 40


def test_every_damage_that_can_be_seen_is_refused(tmp_path: Path) -> None:
    """Cut anywhere but between lines, and changed anywhere at all."""
    path = tmp_path / "ledger"
    ledger = FileLedger(path)
    for i in range(3):
        ledger.append(answer(str(i)), few)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = {sum(map(len, lines[:i])) for i in range(1, 5)}
    damaged = [whole[:cut] for cut in range(len(whole)) if cut not in ends]
    damaged += [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [
        b"garbage",
        b"{}\n",
        bytes(4096),
        whole + bytes(512),
        whole + b"\n",
        b"\n" + whole,
        b"\xff" + whole,
        b"".join([*lines[:2], *lines[3:]]),  # an answer less
        b"".join(lines[1:]),
        b"".join([*lines[:2], lines[3], lines[2]]),
        whole + lines[-1],  # an answer twice
        whole + b"[" * 100_000 + b"\n",
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(VoteRefusedError):
            ledger.append(answer("more"), few)
        assert path.read_bytes() == content
    path.write_bytes(whole[:-1])
    with pytest.raises(VoteRefusedError, match="removed"):
        ledger.answers()


def test_what_is_cut_off_between_lines_cannot_be_seen(tmp_path: Path) -> None:
    """The page on votes says so: whoever restores an older copy forgets what was spent since."""
    path = tmp_path / "ledger"
    FileLedger(path).append(answer("1"), few)
    older = path.read_bytes()
    FileLedger(path).append(answer("2"), few)
    path.write_bytes(older)
    assert [a.once for a in FileLedger(path).answers()] == ["1"]


def test_a_ledger_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path / "pipe"):
        with pytest.raises(VoteRefusedError, match=re.escape(str(path))):
            FileLedger(path).append(answer("1"), few)
    for path in (tmp_path, tmp_path / "no" / "way"):
        with pytest.raises(VoteRefusedError, match=re.escape(str(path))):
            FileLedger(path).append(answer("1"), few)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(VoteRefusedError, match="dangling"):
        FileLedger(tmp_path / "dangling").append(answer("1"), few)


def test_a_name_of_a_vote_is_answered_as_often_as_its_plan_allows() -> None:
    """One name, one attempt, a limit of 1 and of 4 in all: eleven answers before."""
    policy = VotePolicy(max_epsilon=1.0, total_epsilon=4.0)
    event = vote(epsilon=0.9).plan(5).event
    policy.check_answers([answer("1", event)])
    with pytest.raises(VoteRefusedError, match="attempts"):
        policy.check_answers([answer("1", event), answer("2", event)])
    other = dataclasses.replace(answer("2", event, attempts=5), query="another")
    with pytest.raises(VoteRefusedError, match="query"):
        policy.check_answers([answer("1", event, attempts=5), other])
    several = [answer(str(i), event, str(i)) for i in range(30)]
    policy.check_answers(several[:8])
    with pytest.raises(VoteRefusedError, match="total_epsilon"):
        policy.check_answers(several)


def test_rounds_of_one_plan_cost_what_the_plan_costs() -> None:
    plan = vote(epsilon=1.0, rounds=3).plan(5)
    policy = VotePolicy(max_epsilon=1.0)
    rounds = [answer(str(i), plan.event, str(i), attempts=3) for i in range(4)]
    for count in (1, 2, 3):
        policy.check_answers(rounds[:count])
        assert policy.spent(rounds[:count]) == plan.guarantee(3).epsilon(1e-5)
    with pytest.raises(VoteRefusedError, match="total_epsilon"):
        policy.check_answers(rounds)
    # Fewer shares of noise than in its first round, or another plan, are no part of the plan.
    less = SkellamDpEvent(plan.event.variance * 0.99, 3, 21)
    for other in (answer("1", less, "1", attempts=3), answer("1", EVENT, "1", "q", 3)):
        assert policy.spent([rounds[0], other]) > plan.guarantee(3).epsilon(1e-5)


def hockey_stick(mass: np.ndarray, losses: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """E[1 - exp(epsilon - L)]+ of a loss, for each epsilon."""
    gaps = np.minimum(epsilon[:, None] - losses[None, :], 0.0)
    return (mass[None, :] * -np.expm1(gaps)).sum(axis=1)


def losses_of(event: SkellamDpEvent) -> tuple[np.ndarray, np.ndarray]:
    """Masses and privacy losses of a vote, exactly, by convolution of its changed entries."""
    _, f = pmf(event.variance)
    kept = np.minimum(f[1:], f[:-1]) > 1e-13
    mass, losses = f[1:][kept], np.log(f[1:][kept]) - np.log(f[:-1][kept])
    total, out = np.zeros(1), np.ones(1)
    for _ in range(event.changes("replace_one")):
        grid = np.round((total[:, None] + losses[None, :]).ravel(), 3)
        total, at = np.unique(grid, return_inverse=True)
        out = np.bincount(at, weights=(out[:, None] * mass[None, :]).ravel())
        total, out = total[out > 1e-13], out[out > 1e-13]
    return out, total


def test_a_server_that_chooses_by_results_stays_within_the_total() -> None:
    """Exactly, for two steps: the next vote depends on what the first one has shown.

    Each plan that may follow fits exact composition alone; the choice among them does not. The
    filter of the policy refuses them.
    """
    policy = VotePolicy(max_epsilon=2.0, total_epsilon=2.0, delta=1e-3)
    first = SkellamDpEvent(12.0, 1, 2)
    mass, losses = losses_of(first)

    def exact(event: SkellamDpEvent) -> float:
        return total_epsilon(((first, 1), (event, 1)), "replace_one", 1e-3)

    def counted(event: SkellamDpEvent) -> float:
        return policy.spent([answer("1", first, "1"), answer("2", event, "2", "q")])

    def largest(judge: Any, votes: int) -> SkellamDpEvent:
        """The vote of so many changed entries with the least noise that is allowed."""
        low, high = 1.0, 1e3
        for _ in range(16):
            middle = (low * high) ** 0.5
            fits = judge(SkellamDpEvent(middle, votes, 2 * votes)) <= 2.0
            low, high = (low, middle) if fits else (middle, high)
        return SkellamDpEvent(high, votes, 2 * votes)

    def delta(judge: Any) -> float:
        """Of the best choice after each result; to stop is one."""
        left = 2.0 - losses
        options = [np.maximum(-np.expm1(np.minimum(left, 0.0)), 0.0)]
        options += [hockey_stick(*losses_of(largest(judge, k)), left) for k in (1, 8)]
        return float((mass * np.max(options, axis=0)).sum())

    assert delta(exact) > 1.01e-3
    assert delta(counted) < 1e-3


def test_nothing_is_sent_that_is_not_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid, real = nodes(tmp_path), os.write
    for kind, reason in (
        (b"ledger", "ledger cannot be made"),
        (b'": []', "ledger's set-ups cannot be written"),
        (b'["share"]', "ledger's set-ups cannot be written"),
        (b"vote ", "ledger cannot be written"),
    ):

        def full(file: int, data: bytes, kind: bytes = kind) -> int:
            if kind in data:
                raise OSError("no space left on device")
            return real(file, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(VoteFailedError):
            vote(epsilon=1.0).start(grid, grid.server_context())
        assert f"the {reason}: no space left on device" in caplog.text
        caplog.clear()
    monkeypatch.undo()
    assert FileLedger(tmp_path / "0" / "ledger.jsonl").answers() == []


def test_a_line_that_was_written_in_part_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = FileLedger(tmp_path / "ledger")
    ledger.append(answer("1"), few)
    real, parts = os.write, [7]

    def write(file: int, data: bytes) -> int:
        if not parts:
            raise OSError("no space left on device")
        return real(file, data[: parts.pop()])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(VoteRefusedError, match="no space"):
        ledger.append(answer("2"), few)
    monkeypatch.undo()
    ledger.append(answer("3"), few)
    assert [a.once for a in ledger.answers()] == ["1", "3"]


def test_the_same_is_answered_once(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "ledger")
    ledger.append(answer("a"), few)
    ledger.append(answer("b"), few, write=False)
    with pytest.raises(VoteRefusedError):
        ledger.append(answer("a"), few)
    ledger.begin("x")
    ledger.take("x", "open")
    with pytest.raises(VoteRefusedError):
        ledger.take("x", "open")
    assert [a.event for a in ledger.answers()] == [EVENT]


def test_a_flood_of_set_ups_leaves_the_files_as_small_as_they_were(tmp_path: Path) -> None:
    """Each set-up grew the ledger, which was read again at each step."""
    ledger = FileLedger(tmp_path / "ledger")
    ledger.append(answer("a"), few)
    before = (tmp_path / "ledger").read_bytes()
    sizes = []
    for i in range(4 * MOST_SET_UPS):
        name = f"{i:064x}"
        ledger.begin(name)
        ledger.take(name, "share")
        ledger.take(name, "open")
        sizes.append((tmp_path / "ledger.set-ups").stat().st_size)
    assert max(sizes) == sizes[-1] < 10_000
    assert (tmp_path / "ledger").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "ledger.set-ups"]
    # One that was forgotten is not begun anew, and one that is there still is where it was.
    for name, reason in ((f"{0:064x}", str(MOST_SET_UPS)), (f"{200:064x}", "before")):
        with pytest.raises(VoteRefusedError, match=reason):
            ledger.take(name, "share")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', '{"x": [1]}', "\xff"])
def test_set_ups_that_were_lost_are_refused(text: str, tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "ledger")
    ledger.begin("x")
    (tmp_path / "ledger.set-ups").write_text(text, encoding="latin-1")
    with pytest.raises(VoteRefusedError):
        ledger.take("x", "share")
    ledger.begin("y")
    ledger.take("y", "share")


def test_a_client_without_a_ledger_answers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It was asked for 150 votes in 150 runs, and answered each, with a limit for one."""
    made = ClientApp()
    voter(made, max_epsilon=2.0)(objective)
    grid = InProcessGrid(made, [{"optimum": 3.0}] * 4)
    with caplog.at_level(logging.WARNING), pytest.raises(VoteFailedError):
        vote().start(grid, grid.server_context())
    assert "ledger='run'" in caplog.text
    with refuses("ledger"):
        voter(made, ledger="run")


def test_a_nodes_policy_must_name_a_file(tmp_path: Path) -> None:
    with refuses("ledger"):
        VotePolicy.from_file(node(tmp_path, 'max_epsilon = 1.0\nledger = "run"'))


def test_an_app_for_one_run_keeps_the_nodes_ledger(tmp_path: Path) -> None:
    for _ in range(2):
        grid = nodes(tmp_path, max_epsilon=2.0, ledger="run")
        with contextlib.suppress(VoteFailedError):
            vote(epsilon=2.0).start(grid, grid.server_context())
    assert len(FileLedger(tmp_path / "0" / "ledger.jsonl").answers()) == 1


def test_cheap_votes_are_counted_too() -> None:
    """How long an evaluation takes is no part of epsilon, so that votes have a number."""
    policy = VotePolicy(max_epsilon=1.0, max_votes=3)
    cheap = SkellamDpEvent(1e9, 3, 21)
    answers = [answer(str(i), cheap, str(i)) for i in range(4)]
    policy.check_answers(answers[:3])
    with pytest.raises(VoteRefusedError, match="max_votes"):
        policy.check_answers(answers)


def test_preferences_that_moved_are_voted_for_in_the_next_vote() -> None:
    """One ballot for the attempts of one vote, a fresh one for another."""
    wire = Wire(4)
    calls: list[int] = []
    made = ClientApp()

    @voter(made, policy=VotePolicy(max_epsilon=50.0, total_epsilon=500.0, ledger="run"))
    def moving(params: dict[str, Any], context: Any) -> float:
        calls.append(1)
        return 0.0

    wire.nodes = InProcessGrid(made, [{}] * 4).nodes
    chosen = vote(rounds=2)
    for i in (1, 2):
        chosen.start(wire, wire.server_context())
        assert len(calls) == i * 4 * 21


def test_the_pages_numbers_of_invented_clients() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "federated.md").read_text()
    for clients in (10, 50):
        plan = VotePlan.calibrated(
            clients=clients, candidates=100, votes=5, epsilon=1.0, delta=1e-5
        )
        costs = []
        for invented in (clients // 5, clients // 2, clients - 1):
            policy = VotePolicy(max_epsilon=100.0, max_colluding=invented)
            view = View(True, clients, clients)
            honest = policy.honest(plan, view)
            assert honest == clients - invented
            event = SkellamDpEvent(float(plan.share_variance * honest), 5, 100)
            costs.append(f"{total_epsilon(((event, 1),), 'replace_one', 1e-5):.2f}")
        assert f"| {clients} | {' | '.join(costs)} |" in page
