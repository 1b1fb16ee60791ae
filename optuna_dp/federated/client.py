"""The client's part of a vote: judge, evaluate, vote, add a share of the noise, mask, send."""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import ndarrays_to_parameters
from flwr.common.constant import ErrorCode
from flwr.common.typing import Code, FitRes, Status
from flwr.compat.common import recorddict_compat

from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.federated import masks, secure_messages
from optuna_dp.federated.ledger import Answer, FileLedger, Ledger, StateLedger, events_of, now
from optuna_dp.federated.policy import NODE_CONFIG_KEY, View, VotePolicy, VoteRefusedError
from optuna_dp.federated.query import QUERY_RECORD, VOTE_RECORD, Params, VoteQuery
from optuna_dp.voting.ballots import ballot
from optuna_dp.voting.skellam_noise import Skellam

_logger = logging.getLogger("optuna_dp")

_STATE = "optuna_dp_vote"
# The one thing a client says when something goes wrong: an exception's text may quote the data.
_REFUSED = "refused"

Objective = TypeVar("Objective", bound=Callable[[Params, Context], float])


def voter(
    app: ClientApp,
    *,
    strong_masks: bool = True,
    max_epsilon: float | None = None,
    policy: VotePolicy | None = None,
) -> Callable[[Objective], Objective]:
    """Returns a decorator that lets ``app`` answer votes with an objective of its client's data.

    A client answers within its limits only: those of the file that the node's configuration names
    as ``vote-policy`` (:meth:`.VotePolicy.from_file`), and those given here. Without either it
    answers nothing.

    Guarantees:
        * Nothing leaves but the noisy vector of votes, masked under SecAgg+: no losses, no
          accuracies, no number of records, and no text of an exception. A refusal is one line in
          the client's log, and the word "refused" for the server.
        * What the answers cost is within the limits, and written down before they leave
          (:class:`.VotePolicy`).
        * The noise is drawn on the client, from the operating system's entropy, afresh for every
          attempt, before anything is sent.
        * A candidate whose evaluation raises or returns NaN is the worst; the ballot always has
          k ones.

    Args:
        app: The client app. Messages "query.vote" and "query.vote_secagg" are taken; training
            and evaluation stay free.
        strong_masks: ChaCha20 masks under SecAgg+; a server that asks for others is refused.
        max_epsilon: Short for ``policy=VotePolicy(max_epsilon=max_epsilon)``.
        policy: Limits of the app, in addition to the node's.

    Raises:
        InvalidArgumentError: If ``max_epsilon`` is not positive, or both are given.

    Example:
        >>> from flwr.clientapp import ClientApp  # doctest: +SKIP
        >>> app = ClientApp()  # doctest: +SKIP
        >>> @voter(app, max_epsilon=1.0)  # doctest: +SKIP
        ... def objective(params, context):
        ...     return (params["x"] - context.node_config["optimum"]) ** 2
    """
    if max_epsilon is not None:
        if policy is not None:
            raise InvalidArgumentError("max_epsilon", max_epsilon, "policy has one already")
        policy = VotePolicy(max_epsilon=max_epsilon)
    kind = masks.STRONG if strong_masks else masks.FLOWER

    def register(objective: Objective) -> Objective:
        def plain(message: Message, context: Context) -> Message:
            query = VoteQuery.from_json(_query_text(message))
            _check_masks(query, "")
            view = View(False, query.plan.clients, 0, False)
            vote = _answer(query, view, secrets.token_hex(16), objective, context, policy)
            return Message(
                RecordDict({VOTE_RECORD: ArrayRecord({"sum": Array(vote)})}), reply_to=message
            )

        def secure(message: Message, context: Context) -> Message:
            def vote(asked: Message, own: Context) -> Message:
                query = VoteQuery.from_json(_query_text(asked))
                _check_masks(query, kind)
                secure_messages.check_set_up(query, own)
                once = f"vote {secure_messages.session(own)}"
                view = secure_messages.seen(own)
                return _as_fit_result(_answer(query, view, once, objective, own, policy), asked)

            secure_messages.check(message, context)
            if secure_messages.stage_of(message) == "unmask":
                _open_once(context, policy)
            before = masks.view.set(secure_messages.view_of(message, context))
            try:
                module = masks.client_module(kind)
                # Flower votes first and reads the others' shares then: too late, it is charged.
                secure_messages.check_shares(message, context, module.decrypt)
                return cast(Message, module.secaggplus_mod(message, context, vote))
            finally:
                masks.view.reset(before)

        app.query("vote")(_discreet(plain))
        app.query("vote_secagg")(_discreet(secure))
        return objective

    return register


def _discreet(handler: ClientAppCallable) -> ClientAppCallable:
    """Keeps reasons on the client: Flower would send an exception's text to the server."""

    def handle(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except OptunaDPError as error:
            # On one line: names of parameters are in it, which the server has chosen.
            reason = " ".join(str(error).split())
            _logger.warning("Vote refused: %.500s.", reason.rstrip("."))
        except Exception:
            _logger.exception("Vote refused: an error; the server is told no more than that.")
        refusal = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=_REFUSED)
        return Message(refusal, reply_to=message)

    return handle


def _query_text(message: Message) -> str:
    records = message.content.config_records
    # In Flower's SecAgg+ it travels as the configuration of a training round.
    record = records.get(QUERY_RECORD) or records.get("fitins.config")
    text = None if record is None else record.get("query")
    if not isinstance(text, str):
        raise VoteRefusedError("the message carries no vote query")
    return text


def _check_masks(query: VoteQuery, kind: str) -> None:
    if query.masks != kind:
        raise VoteRefusedError(f"masks {query.masks!r}, and this client takes {kind!r} only")


def _policies(context: Context, own: VotePolicy | None) -> list[VotePolicy]:
    """The node's and the app's; every one of them has to agree."""
    path = context.node_config.get(NODE_CONFIG_KEY)
    node = None if path is None else VotePolicy.from_file(str(path))
    found = [policy for policy in (node, own) if policy is not None]
    if not found:
        raise VoteRefusedError(
            f"this client has no limits: name a file as {NODE_CONFIG_KEY!r} in the node's "
            "configuration, or give voter(max_epsilon=...)"
        )
    return found


def _ledger(context: Context, policies: Sequence[VotePolicy]) -> Ledger:
    for policy in policies:
        if policy.ledger is not None:
            return FileLedger(policy.ledger)
    return StateLedger(context)


def _answer(
    query: VoteQuery,
    view: View,
    once: str,
    objective: Callable[[Params, Context], float],
    context: Context,
    own: VotePolicy | None,
) -> IntArray:
    """Returns the noisy vote, if every limit allows it, once it has been written down."""
    policies = _policies(context, own)
    # The dearest of what they count; they may differ in what they think of the server.
    event = min((p.charge(query, view) for p in policies), key=lambda e: float(e.variance))
    server = policies[0].server
    answer = Answer(now(), context.run_id, query.search_key, event, view.clients, server, once)

    def check(answers: Sequence[Answer]) -> None:
        for policy in policies:
            policy.check_total(events_of(answers))

    ledger = _ledger(context, policies)
    ledger.append(answer, check, write=False)  # before hours of work for nothing
    chosen = _own_ballot(query, objective, context)
    noise = Skellam(query.plan.share_variance).draw(len(query.candidates))
    ledger.append(answer, check)
    return chosen + noise


def _open_once(context: Context, own: VotePolicy | None) -> None:
    """Two answers for one set-up, with other lists, could give away both masks of a client."""
    policies = _policies(context, own)
    once = f"open {secure_messages.session(context)}"
    answer = Answer(now(), context.run_id, "", None, 0, policies[0].server, once)
    _ledger(context, policies).append(answer, lambda answers: None)


def _own_ballot(
    query: VoteQuery, objective: Callable[[Params, Context], float], context: Context
) -> IntArray:
    """Returns this client's ballot; a retry asks for the same search and trains nothing again."""
    key = f"{query.vote} {query.search_key}"
    kept = context.state.config_records.get(_STATE)
    if kept is not None and kept.get("search") == key:
        result = np.zeros(len(query.candidates), dtype=np.int64)
        result[np.array(kept["chosen"], dtype=np.int64)] = 1
        return result
    scores = [_score(objective, params, context) for params in query.candidates]
    result = ballot(scores, query.plan.votes, maximize=query.direction == "maximize")
    chosen = [int(i) for i in np.flatnonzero(result)]
    context.state.config_records[_STATE] = ConfigRecord({"search": key, "chosen": chosen})
    return result


def _score(
    objective: Callable[[Params, Context], float], params: Params, context: Context
) -> float:
    try:
        return float(objective(dict(params), context))
    except Exception:
        _logger.warning(
            "A candidate failed on this client and counts as the worst.", exc_info=True
        )
        return math.nan


def _as_fit_result(vote: IntArray, asked: Message) -> Message:
    """The shape that Flower's SecAgg+ reads; the weight is one for everybody."""
    result = FitRes(
        status=Status(Code.OK, ""),
        parameters=ndarrays_to_parameters([vote.astype(np.float64)]),
        num_examples=1,
        metrics={},
    )
    return Message(recorddict_compat.fitres_to_recorddict(result, False), reply_to=asked)
