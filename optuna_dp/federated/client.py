"""The client's part of a vote: judge, evaluate, vote, add a share of the noise, mask, send."""

from __future__ import annotations

import hashlib
import inspect
import json
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
from optuna.trial import FixedTrial

from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError, OptunaDPError
from optuna_dp.federated import masks, secure_messages
from optuna_dp.federated.ledger import Answer, FileLedger, Ledger, StateLedger, now
from optuna_dp.federated.policy import NODE_CONFIG_KEY, RUN_LEDGER, View, VotePolicy
from optuna_dp.federated.query import VOTE_RECORD, Params, VoteQuery, VoteRefusedError
from optuna_dp.voting.ballots import ballot
from optuna_dp.voting.skellam_noise import Skellam

_logger = logging.getLogger("optuna_dp")

_STATE = "optuna_dp_vote"
# The one thing a client says when something goes wrong: an exception's text may quote the data.
_REFUSED = "refused"

Evaluation = Callable[[Params, Context], float]
# Called with the parameters and the context, or as an objective of Optuna with a trial.
Objective = TypeVar("Objective", bound=Callable[..., float])


def voter(
    app: ClientApp,
    *,
    max_epsilon: float | None = None,
    ledger: str | None = None,
    policy: VotePolicy | None = None,
) -> Callable[[Objective], Objective]:
    """Returns a decorator that lets ``app`` answer votes with an objective of its client's data.

    The objective is called with the parameters of a candidate and Flower's context, or, if it
    takes one argument, as an objective of Optuna: with an ``optuna.trial.FixedTrial``, whose user
    attributes are the node's configuration.

    A client answers within its limits only: those of the file that the node's configuration names
    as ``vote-policy`` (:meth:`.VotePolicy.from_file`), and those given here. Without either, or
    without a ledger, it answers nothing.

    Guarantees:
        * Nothing leaves but the noisy vector of votes, masked under SecAgg+: no losses, no
          accuracies, no number of records, and no text of an exception. A refusal is one line in
          the client's log, and the word "refused" for the server.
        * What the answers cost is within the limits, and written down before they leave
          (:class:`.VotePolicy`).
        * Under SecAgg+ everybody whose share of the noise is counted was asked the very same:
          plan, candidates, name and run of the vote, set-up, clients and keys.
        * The noise is drawn on the client, from the operating system's entropy, afresh for every
          attempt, before anything is sent.
        * A candidate whose evaluation raises or returns NaN is the worst, ``sys.exit`` included;
          the ballot always has k ones. Ctrl-C alone stops a client.

    Args:
        app: The client app. Messages "query.vote" and "query.vote_secagg" are taken; training
            and evaluation stay free.
        max_epsilon: Short for ``policy=VotePolicy(max_epsilon=max_epsilon, ledger=ledger)``.
        ledger: Only with ``max_epsilon``: a file, or ``"run"``.
        policy: Limits of the app, in addition to the node's.

    Raises:
        InvalidArgumentError: If ``max_epsilon`` is not positive, or given beside ``policy``, or
            ``ledger`` without ``max_epsilon``; when an objective is decorated that takes neither
            one argument nor two.

    Example:
        >>> from flwr.clientapp import ClientApp  # doctest: +SKIP
        >>> app = ClientApp()  # doctest: +SKIP
        >>> @voter(app, max_epsilon=1.0, ledger="run")  # doctest: +SKIP
        ... def objective(params, context):
        ...     return (params["x"] - context.node_config["optimum"]) ** 2
    """
    if max_epsilon is not None:
        if policy is not None:
            raise InvalidArgumentError("max_epsilon", max_epsilon, "policy has one already")
        policy = VotePolicy(max_epsilon=max_epsilon, ledger=ledger)
    elif ledger is not None:
        raise InvalidArgumentError(
            "ledger", ledger, "it goes with max_epsilon", "Give the policy a ledger."
        )

    def register(objective: Objective) -> Objective:
        evaluate = evaluation_of(objective)

        def plain(message: Message, context: Context) -> Message:
            text = secure_messages.query_text(message)
            clients = VoteQuery.from_json(text).plan.clients  # of whom nothing can be seen
            view = View(False, clients, clients, 0, False)
            vote = answer_to(text, view, secrets.token_hex(16), evaluate, context, policy)
            return Message(
                RecordDict({VOTE_RECORD: ArrayRecord({"sum": Array(vote)})}), reply_to=message
            )

        def secure(message: Message, context: Context) -> Message:
            def vote(question: Message, node_context: Context) -> Message:
                text, view = (
                    secure_messages.query_of(node_context),
                    secure_messages.seen(node_context),
                )
                answer_name = f"vote {secure_messages.sum_name(node_context)}"
                return _as_fit_result(
                    answer_to(text, view, answer_name, evaluate, node_context, policy), question
                )

            secure_messages.check(message, context)
            stage = secure_messages.stage_of(message)
            if stage == "setup":  # judged before a key is made for it
                query = VoteQuery.from_json(secure_messages.query_text(message))
                _charge(query, secure_messages.promised(message), _policies(context, policy))
            elif stage in ("share_keys", "unmask"):
                _once(stage, context, policy)
            if stage == "share_keys":
                secure_messages.sort_keys(message)
            token = masks.view.set(secure_messages.view_of(message, context))
            try:
                if stage == "collect_masked_vectors":
                    # Flower votes first and reads the others' shares then: it is charged by then.
                    secure_messages.check_shares(message, context)
                reply = masks.client_module().secaggplus_mod(message, context, vote)
            finally:
                masks.view.reset(token)
            if stage == "setup":
                secure_messages.remember(message, context)
                name = secure_messages.set_up_name(context)
                _ledger(context, _policies(context, policy)).begin(name)
            return cast(Message, reply)

        app.query("vote")(_discreet(plain))
        app.query("vote_secagg")(_discreet(secure))
        return objective

    return register


def evaluation_of(objective: Callable[..., float]) -> Evaluation:
    """Returns the objective as a function of parameters and context.

    Raises:
        InvalidArgumentError: If it takes neither one argument nor two.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [
        name
        for name, parameter in inspect.signature(objective).parameters.items()
        if parameter.kind in kinds and parameter.default is inspect.Parameter.empty
    ]
    if len(required) == 2:
        return objective
    if len(required) != 1:
        raise InvalidArgumentError(
            "objective",
            f"a function of {', '.join(required) or 'nothing'}",
            "it must take (params, context), or a trial alone",
        )

    def with_trial(params: Params, context: Context) -> float:
        trial = FixedTrial(params)
        for name, value in context.node_config.items():
            trial.set_user_attr(name, value)
        return objective(trial)

    return with_trial


def _discreet(handler: ClientAppCallable) -> ClientAppCallable:
    """Keeps reasons on the client: Flower would send an exception's text to the server."""

    def handle(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except OptunaDPError as error:
            # On one line: names of parameters are in it, which the server has chosen.
            reason = " ".join(str(error).split())
            _logger.warning("Vote refused: %.500s.", reason.rstrip("."))
        except KeyboardInterrupt:
            raise
        except BaseException:
            _logger.exception("Vote refused: an error; the server learns no more.")
        refusal = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=_REFUSED)
        return Message(refusal, reply_to=message)

    return handle


def _policies(context: Context, app_policy: VotePolicy | None) -> list[VotePolicy]:
    """The node's and the app's; every one of them has to agree."""
    path = context.node_config.get(NODE_CONFIG_KEY)
    node = None if path is None else VotePolicy.from_file(str(path))
    policies = [policy for policy in (node, app_policy) if policy is not None]
    if not policies:
        raise VoteRefusedError(
            f"this client has no limits: name a file as {NODE_CONFIG_KEY!r} in the node's "
            "configuration, or give voter(max_epsilon=...)"
        )
    if all(policy.ledger is None for policy in policies):
        raise VoteRefusedError(
            "this client has no ledger, and whoever starts runs could ask it in each of them: "
            "name a file as the policy's ledger, or say ledger='run' if its limits are for one "
            "run only"
        )
    return policies


def _ledger(context: Context, policies: Sequence[VotePolicy]) -> Ledger:
    """The first file that is named; else the run's state."""
    files = [p.ledger for p in policies if p.ledger is not None and p.ledger != RUN_LEDGER]
    return FileLedger(files[0]) if files else StateLedger(context)


def _charge(query: VoteQuery, view: View, policies: Sequence[VotePolicy]) -> SkellamDpEvent:
    """The dearest of what the policies count; they may differ in what they think of the server."""
    return min((p.charge(query, view) for p in policies), key=lambda e: float(e.variance))


def answer_to(
    text: str,
    view: View,
    answer_name: str,
    objective: Evaluation,
    context: Context,
    app_policy: VotePolicy | None,
) -> IntArray:
    """Returns the noisy vote, if every limit allows it, once it has been written down."""
    query, policies = VoteQuery.from_json(text), _policies(context, app_policy)
    event, server = _charge(query, view, policies), policies[0].server
    digest, plan = _digest(text), _digest(json.dumps(query.plan.to_json(), sort_keys=True))
    answer = Answer(
        once=answer_name,
        time=now(),
        run=context.run_id,
        vote=query.vote,
        query=digest,
        plan=plan,
        attempts=query.plan.attempts,
        event=event,
        clients=view.clients,
        share_units=query.plan.share_units,
        server=server,
    )

    def check(answers: Sequence[Answer]) -> None:
        for policy in policies:
            policy.check_answers(answers)

    ledger = _ledger(context, policies)
    ledger.append(answer, check, write=False)  # before hours of work for nothing
    own_ballot = _own_ballot(query, digest, objective, context)
    noise = Skellam(query.plan.share_variance).draw(len(query.candidates))
    ledger.append(answer, check)
    return own_ballot + noise


def _once(stage: str, context: Context, app_policy: VotePolicy | None) -> None:
    """Writes down a step that is taken once in a set-up.

    Shares of one secret for two lists of clients, or two answers about who has dropped out, could
    give away both masks of a client.
    """
    ledger = _ledger(context, _policies(context, app_policy))
    ledger.take(secure_messages.set_up_name(context), stage)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _own_ballot(
    query: VoteQuery,
    digest: str,
    objective: Evaluation,
    context: Context,
) -> IntArray:
    """Returns this client's ballot; a retry asks the same query and trains nothing again."""
    record = context.state.config_records.get(_STATE)
    if record is not None and record.get("query") == digest:
        result = np.zeros(len(query.candidates), dtype=np.int64)
        result[np.array(record["chosen"], dtype=np.int64)] = 1
        return result
    scores = [_score(objective, params, context) for params in query.candidates]
    result = ballot(scores, query.plan.votes, maximize=query.direction == "maximize")
    candidates = [int(i) for i in np.flatnonzero(result)]
    context.state.config_records[_STATE] = ConfigRecord({"query": digest, "chosen": candidates})
    return result


def _score(objective: Evaluation, params: Params, context: Context) -> float:
    try:
        return float(objective(dict(params), context))
    except KeyboardInterrupt:
        raise
    except BaseException:
        _logger.warning(
            "A candidate failed on this client and counts as the worst.", exc_info=True
        )
        return math.nan


def _as_fit_result(vote: IntArray, question: Message) -> Message:
    """The shape that Flower's SecAgg+ reads; the weight is one for everybody."""
    result = FitRes(
        status=Status(Code.OK, ""),
        parameters=ndarrays_to_parameters([vote.astype(np.float64)]),
        num_examples=1,
        metrics={},
    )
    return Message(recorddict_compat.fitres_to_recorddict(result, False), reply_to=question)
