"""The statement of a client: its answers, what they cost, and under which assumptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from optuna_dp.accounting.event_words import in_words
from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.core.numbers_shown import rounded_up
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.evidence.layout import numbered
from optuna_dp.federated.ledger import Answer, FileLedger
from optuna_dp.federated.policy import RUN_LEDGER, VotePolicy, total_epsilon
from optuna_dp.voting.plan import UNITS, rounded_down

_SERVERS = {
    "malicious": "The server may have lied. What is counted is the noise of the honest clients "
    "that every sum of this client's votes has which the server could open: all of them were "
    "asked the very same (docs/explanation/voting.md, the theorem). The cryptography that keeps "
    "them to it was not broken.",
    "semi-honest": "The server followed the protocol: it may have looked at everything it got, "
    "and told no client anything false. The cryptography that hides single votes from it was not "
    "broken.",
    "trusted": "The server is trusted with this client's noisy votes, and with the number of "
    "clients whose votes it adds.",
}
_RELATIONS = {
    "replace_one": "replacing all data of this client by any other data",
    "null_client": "taking all data of this client away",
}


def client_statement(policy: VotePolicy | str | Path) -> str:
    """Returns in Markdown what a client has answered by its ledger, and what that cost.

    Args:
        policy: The client's policy, or the file it is in.

    Raises:
        InvalidArgumentError: If the policy names no ledger, or its file cannot be read.
        VoteRefusedError: If the ledger is damaged.

    Example:
        >>> print(client_statement("/etc/optuna-dp/votes.toml"))  # doctest: +SKIP
    """
    limits = policy if isinstance(policy, VotePolicy) else VotePolicy.from_file(policy)
    if limits.ledger in (None, RUN_LEDGER):
        raise InvalidArgumentError("policy", policy, allowed="it must name a file as its ledger")
    answers = FileLedger(str(limits.ledger)).answers()
    counts = tuple(Counter(answer.event for answer in answers).items())
    epsilon = rounded_up(total_epsilon(counts, limits.adjacency, limits.delta), 4)
    counts_of_own_share = tuple(Counter(_of_own_share(answer) for answer in answers).items())
    without_others = rounded_up(
        total_epsilon(counts_of_own_share, limits.adjacency, limits.delta), 4
    )
    bound = max([limits.total, *([limits.spent(answers)] if answers else [])])
    rows = "\n".join(_row(answer) for answer in answers)
    return f"""# Votes of this client

It has sent {len(answers)} noisy vote(s). Whatever made the server ask for each, together they are
**differentially private with epsilon = {rounded_up(bound, 4)} and delta = {limits.delta:g}**,
with respect to {_RELATIONS[limits.adjacency]}. Its
limit is {limits.total:g} in all, {min(limits.max_epsilon, limits.total):g} for one vote. Planned
before the first of them was held, all would cost epsilon = {epsilon}. If the server had invented
all other clients, they would have cost epsilon = {without_others}.

| when (UTC) | run | vote | clients seen | what it took part in |
|---|---|---|---|---|
{rows}

## True only if

{numbered(_assumptions(limits, answers))}
"""


def _of_own_share(answer: Answer) -> SkellamDpEvent:
    """What the answer costs with the noise of this client alone."""
    variance = rounded_down(Fraction(answer.share_units, UNITS))
    return SkellamDpEvent(variance, answer.event.votes, answer.event.candidates)


def _row(answer: Answer) -> str:
    cells = (answer.time, answer.run, answer.vote, answer.clients, in_words(answer.event))
    return "".join(f"| {cell} " for cell in cells) + "|"


def _assumptions(limits: VotePolicy, answers: Sequence[Answer]) -> list[str]:
    servers = sorted({answer.server for answer in answers} or {limits.server})
    return [
        *(_SERVERS[server] for server in servers),
        f"Of the clients that were seen, at most {limits.max_colluding}, or as many as the vote "
        "allowed for if that was more, were invented by the server, shown with keys that were "
        "not theirs, told what they knew, or ran other software. A client cannot tell: the "
        "network's authentication says who a node is, and the server says which keys it has.",
        "This node ran optuna-dp as it is, and nothing else that looks at these data.",
        "The limits were not raised after results had been seen.",
        "The ledger is complete: it was not deleted, cut short between lines, exchanged or "
        "restored from an older copy, and these data have no other ledger.",
        "When this client answers, and whether it does, does not depend on its data.",
    ]
