"""The client's part of a vote: evaluate, vote, add a share of the noise, mask, send."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
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
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated import masks
from optuna_dp.federated.query import QUERY_RECORD, VOTE_RECORD, Params, VoteQuery
from optuna_dp.federated.secagg import MODULUS
from optuna_dp.federated.transport import entry_bound
from optuna_dp.validation import positive
from optuna_dp.voting.ballots import ballot
from optuna_dp.voting.skellam_noise import Skellam

_logger = logging.getLogger("optuna_dp")

_STATE = "optuna_dp_vote"
_SECAGG_CONFIG = "secaggplus_configs"
_SECAGG_STATE = "secaggplus_state"
# The one thing a client says when something goes wrong: an exception's text may quote the data.
_FAILURE = "the client could not vote"

Objective = TypeVar("Objective", bound=Callable[[Params, Context], float])


def voter(
    app: ClientApp, *, strong_masks: bool = True, max_epsilon: float | None = None
) -> Callable[[Objective], Objective]:
    """Returns a decorator that lets ``app`` answer votes with an objective of its client's data.

    Guarantees:
        * Nothing leaves but the noisy vector of votes, masked under SecAgg+: no losses, no
          accuracies, no number of records, and no text of an exception.
        * The noise is drawn on the client, from the operating system's entropy, afresh for every
          attempt, before anything is sent.
        * A candidate whose evaluation raises or returns NaN is the worst; the ballot always has
          k ones.

    Args:
        app: The client app. Messages "query.vote" and "query.vote_secagg" are taken; training
            and evaluation stay free.
        strong_masks: ChaCha20 masks under SecAgg+; a server that asks for others is refused.
        max_epsilon: Refuse votes planned for a larger epsilon, or whose noise does not give
            the epsilon they are planned for; None trusts the server's plan. It is a limit for
            each vote; several votes on the same data compose.

    Example:
        >>> from flwr.clientapp import ClientApp  # doctest: +SKIP
        >>> app = ClientApp()  # doctest: +SKIP
        >>> @voter(app)  # doctest: +SKIP
        ... def objective(params, context):
        ...     return (params["x"] - context.node_config["optimum"]) ** 2
    """
    limit = None if max_epsilon is None else positive("max_epsilon", max_epsilon)
    kind = masks.STRONG if strong_masks else masks.FLOWER

    def register(objective: Objective) -> Objective:
        def plain(message: Message, context: Context) -> Message:
            query = VoteQuery.from_json(_query_text(message))
            _check(query, "", limit)
            vote = _noisy_vote(query, objective, context)
            return Message(
                RecordDict({VOTE_RECORD: ArrayRecord({"sum": Array(vote)})}), reply_to=message
            )

        def secure(message: Message, context: Context) -> Message:
            def vote(asked: Message, own: Context) -> Message:
                query = VoteQuery.from_json(_query_text(asked))
                _check(query, kind, limit)
                _check_protocol(query, own)
                return _as_fit_result(_noisy_vote(query, objective, own), asked)

            module = masks.client_module(kind)
            _check_unmasking(message)
            return cast(Message, module.secaggplus_mod(message, context, vote))

        app.query("vote")(_discreet(plain))
        app.query("vote_secagg")(_discreet(secure))
        return objective

    return register


def _discreet(handler: ClientAppCallable) -> ClientAppCallable:
    """Keeps exceptions on the client: Flower would send their text to the server."""

    def handle(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except Exception:
            _logger.exception("The client could not vote; the server is told no more than that.")
            error = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=_FAILURE)
            return Message(error, reply_to=message)

    return handle


def _query_text(message: Message) -> str:
    records = message.content.config_records
    # In Flower's SecAgg+ it travels as the configuration of a training round.
    record = records.get(QUERY_RECORD) or records.get("fitins.config")
    text = None if record is None else record.get("query")
    if not isinstance(text, str):
        raise InvalidArgumentError("query", text, "the message must carry a vote query")
    return text


def _check(query: VoteQuery, kind: str, limit: float | None) -> None:
    if query.masks != kind:
        raise InvalidArgumentError(
            "masks", query.masks, f"this client takes part with masks {kind!r} only"
        )
    plan = query.plan
    if limit is None:
        return
    spent = plan.guarantee(plan.attempts).epsilon(plan.delta)
    if max(spent, plan.epsilon) > limit:
        raise InvalidArgumentError(
            "epsilon", spent, f"this client takes part in votes of at most epsilon={limit:g}"
        )


def _check_protocol(query: VoteQuery, context: Context) -> None:
    """The secure sum is set up as planned: no clipping of the noise, no lower threshold.

    Flower's defaults (clip to 8) would cut the noise off.
    """
    state = context.state.config_records[_SECAGG_STATE]
    plan, clip = query.plan, entry_bound(query.plan)
    shares = cast(int, state["share_num"])
    least = max(shares // 2 + 1, shares - plan.max_dropout)
    expected = {
        "clipping_range": float(clip),
        "target_range": 2 * clip,
        "mod_range": MODULUS,
        "max_weight": 1.0,
    }
    for name, value in expected.items():
        if state[name] != value:
            raise InvalidArgumentError(name, state[name], f"a vote as planned takes {value}")
    if cast(int, state["threshold"]) < least:
        raise InvalidArgumentError(
            "threshold", state["threshold"], f"a vote as planned takes at least {least}"
        )


def _check_unmasking(message: Message) -> None:
    """A node that is called active and dead at once would lose both of its masks."""
    config = message.content.config_records.get(_SECAGG_CONFIG, ConfigRecord())
    active, dead = config.get("active_nids"), config.get("dead_nids")
    if isinstance(active, list) and isinstance(dead, list) and set(active) & set(dead):
        raise InvalidArgumentError("dead_nids", dead, "no node may be both active and dead")


def _noisy_vote(
    query: VoteQuery, objective: Callable[[Params, Context], float], context: Context
) -> IntArray:
    noise = Skellam(query.plan.share_variance).draw(len(query.candidates))
    return _own_ballot(query, objective, context) + noise


def _own_ballot(
    query: VoteQuery, objective: Callable[[Params, Context], float], context: Context
) -> IntArray:
    """Returns this client's ballot; a retry asks for the same search and trains nothing again."""
    key = query.search_key
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
