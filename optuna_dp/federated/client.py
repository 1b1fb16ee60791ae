"""The client's part of a vote: judge, evaluate, vote, add a share of the noise, mask, send."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from optuna.trial import FixedTrial

from optuna_dp.accounting.kinds.skellam import SkellamDpEvent
from optuna_dp.core.arrays import IntArray
from optuna_dp.errors import InvalidArgumentError, OptunaDPError, Text
from optuna_dp.federated.ledger import Answer, FileLedger, Ledger, StateLedger, now
from optuna_dp.federated.policy import NODE_CONFIG_KEY, RUN_LEDGER, View, VotePolicy
from optuna_dp.federated.query import (
    PLAIN_RECORD,
    SECURE_RECORD,
    Params,
    VoteQuery,
    VoteRefusedError,
)
from optuna_dp.federated.secure_client import Session, query_text, set_up_view
from optuna_dp.voting.ballots import ballot
from optuna_dp.voting.skellam_noise import Skellam

_logger = logging.getLogger("optuna_dp")

_STATE = "optuna_dp_vote"
# The one thing a client says when something goes wrong: an exception's text may quote the data.
_REFUSED = "refused"

Evaluation = Callable[[Params, Context], float]
Stage = Callable[[ConfigRecord, Context], bytes | list[bytes]]
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
        * Nothing leaves but the noisy vector of votes, masked in a secure sum: no losses, no
          accuracies, no number of records, and no text of an exception. A refusal is one line in
          the client's log, and the word "refused" for the server.
        * What the answers cost is within the limits, and written down before they leave
          (:class:`.VotePolicy`).
        * In a secure sum everybody whose share of the noise is counted was asked the very same:
          plan, candidates, name and run of the vote, set-up, clients and keys.
        * The noise is drawn on the client, from the operating system's entropy, afresh for every
          attempt, before anything is sent.
        * A candidate whose evaluation raises or returns NaN is the worst, ``sys.exit`` included;
          the ballot always has k ones. Ctrl-C alone stops a client.

    Args:
        app: The client app. Messages "query.vote" and "query.vote_secure" are taken; training
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
            raise InvalidArgumentError(
                "max_epsilon", max_epsilon, problem="policy has one already"
            )
        policy = VotePolicy(max_epsilon=max_epsilon, ledger=ledger)
    elif ledger is not None:
        raise InvalidArgumentError(
            "ledger", ledger, problem="it goes with max_epsilon", fix="Give the policy a ledger."
        )

    def register(objective: Objective) -> Objective:
        client = Voter(evaluation_of(objective), policy)
        app.query("vote")(_discreet(client.plain))
        app.query("vote_secure")(_discreet(client.secure))
        return objective

    return register


@dataclass(frozen=True)
class Voter:
    """Answers the messages of votes, within the limits of the node and of the app."""

    evaluate: Evaluation
    policy: VotePolicy | None

    def plain(self, message: Message, context: Context) -> Message:
        """Answers a plain sum, whose server sees the noisy vote."""
        text = query_text(_record(message, PLAIN_RECORD))
        clients = VoteQuery.from_json(text).plan.clients  # nothing of them can be seen
        vote = self.vote(text, View(False, clients, 0), secrets.token_hex(16), context)
        return _reply(message, PLAIN_RECORD, "vote", vote.astype("<i8").tobytes())

    def secure(self, message: Message, context: Context) -> Message:
        """Answers one stage of a secure sum."""
        request = _record(message, SECURE_RECORD)
        stages: dict[object, tuple[str, Stage]] = {
            "set_up": ("keys", self._set_up),
            "share": ("letters", self._share),
            "vote": ("masked", self._masked_vote),
            "open": ("shares", self._open),
        }
        stage = stages.get(request.get("stage"))
        if stage is None:
            raise VoteRefusedError("the message of the secure sum names no stage")
        entry, answer = stage
        return _reply(message, SECURE_RECORD, entry, answer(request, context))

    def _set_up(self, request: ConfigRecord, context: Context) -> list[bytes]:
        limits = Limits.of(context, self.policy)
        # The query is judged before a key is made for it.
        limits.charge(VoteQuery.from_json(query_text(request)), set_up_view(request))
        session = Session.set_up(request, context)
        session.keep(context)
        limits.ledger.begin(session.label)
        return session.public_keys

    def _share(self, request: ConfigRecord, context: Context) -> list[bytes]:
        session = Session.kept(context).introduced(request)
        # Shares of one secret for two lists of clients could give its masks away.
        Limits.of(context, self.policy).ledger.take(session.label, "share")
        session, letters = session.with_own_shares()
        session.keep(context)
        return letters

    def _masked_vote(self, request: ConfigRecord, context: Context) -> bytes:
        session = Session.kept(context).with_shares_of(request)
        view = View(True, session.clients, session.threshold)
        vote = self.vote(session.query, view, f"vote {session.view.hex()}", context)
        session.keep(context)
        return session.masked(vote)

    def _open(self, request: ConfigRecord, context: Context) -> list[bytes]:
        session = Session.kept(context)
        shares = session.opened(request)
        # Two answers about who was lost could give away both masks of a client.
        Limits.of(context, self.policy).ledger.take(session.label, "open")
        # Whoever gets into the node later finds nothing with which votes could be opened.
        Session.forget(context)
        return shares

    def vote(self, text: str, view: View, once: str, context: Context) -> IntArray:
        """Returns the noisy vote, if every limit allows it, once it has been written down.

        Args:
            text: The query.
            view: What was seen of the vote.
            once: A name of the sum: the client answers it once.
            context: Flower's.
        """
        query, limits = VoteQuery.from_json(text), Limits.of(context, self.policy)
        digest = _digest(text)
        answer = Answer(
            once=once,
            time=now(),
            run=context.run_id,
            vote=query.vote,
            query=digest,
            plan=_digest(json.dumps(query.plan.to_json(), sort_keys=True)),
            attempts=query.plan.attempts,
            event=limits.charge(query, view),
            clients=view.clients,
            share_units=query.plan.share_units,
            server=limits.policies[0].server,
        )
        limits.write(answer, draft=True)  # before hours of work for nothing
        ballot_of_client = _ballot(query, digest, self.evaluate, context)
        noise = Skellam(query.plan.share_variance).draw(len(query.candidates))
        limits.write(answer)
        return ballot_of_client + noise


@dataclass(frozen=True)
class Limits:
    """The policies of a client, all of which have to agree, and its ledger."""

    policies: Sequence[VotePolicy]
    ledger: Ledger

    @classmethod
    def of(cls, context: Context, app_policy: VotePolicy | None) -> Limits:
        """Returns the limits of the node and of the app.

        Raises:
            VoteRefusedError: If there is no policy, or none that names a ledger.
        """
        path = context.node_config.get(NODE_CONFIG_KEY)
        node = None if path is None else VotePolicy.from_file(str(path))
        policies = [policy for policy in (node, app_policy) if policy is not None]
        if not policies:
            raise VoteRefusedError(
                f"this client has no limits: name a file as {NODE_CONFIG_KEY!r} in the node's "
                "configuration, or give voter(max_epsilon=...)"
            )
        ledgers = [policy.ledger for policy in policies if policy.ledger is not None]
        if not ledgers:
            raise VoteRefusedError(
                "this client has no ledger, and whoever starts runs could ask it in each of them: "
                "name a file as the policy's ledger, or say ledger='run' if its limits are for "
                "one run only"
            )
        files = [ledger for ledger in ledgers if ledger != RUN_LEDGER]
        return cls(policies, FileLedger(files[0]) if files else StateLedger(context))

    def charge(self, query: VoteQuery, view: View) -> SkellamDpEvent:
        """Returns the dearest charge: policies may differ in what they think of the server.

        Raises:
            VoteRefusedError: If it is not within the limits.
        """
        events = (policy.charge(query, view) for policy in self.policies)
        return min(events, key=lambda event: float(event.variance))

    def write(self, answer: Answer, *, draft: bool = False) -> None:
        """Writes an answer down if every policy allows it; a draft is only judged.

        Raises:
            VoteRefusedError: If it is not allowed.
        """

        def check(answers: Sequence[Answer]) -> None:
            for policy in self.policies:
                policy.check_answers(answers)

        self.ledger.append(answer, check, write=not draft)


def _record(message: Message, name: str) -> ConfigRecord:
    record = message.content.config_records.get(name)
    if record is None:
        raise VoteRefusedError("the message holds no vote")
    return record


def _reply(message: Message, record: str, entry: str, value: bytes | list[bytes]) -> Message:
    return Message(RecordDict({record: ConfigRecord({entry: value})}), reply_to=message)


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
            Text(f"a function of {', '.join(required) or 'nothing'}"),
            allowed="it must take (params, context), or a trial alone",
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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _ballot(
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
