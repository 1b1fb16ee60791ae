"""The clients' noisy votes summed by Flower's SecAgg+.

The server's workflow is Flower's, and what it sends and receives passes through
:class:`SecAggGrid`, which checks, counts and stops in time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Error, Message
from flwr.common.constant import ErrorCode
from flwr.common.typing import FitIns, Parameters
from flwr.server.compat import LegacyContext

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated import masks
from optuna_dp.federated.query import QUERY_RECORD, VoteQuery
from optuna_dp.federated.replies import ReplyChecks, impossible
from optuna_dp.federated.secure_messages import shown_keys
from optuna_dp.federated.transport import (
    MODULUS,
    SECAGG_CONFIG,
    Attempt,
    Server,
    Transport,
    entry_bound,
    rejected,
)
from optuna_dp.voting.plan import VotePlan

_logger = logging.getLogger("optuna_dp")

_STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")


@dataclass(frozen=True)
class SecAggPlus(Transport):
    """Flower's SecAgg+, exact on whole numbers: the server learns the sum and nothing else.

    Bell et al., CCS 2020 (the protocol), against a server that follows it (semi-honest) and at
    most ``max_colluding`` clients that tell what they know.

    Guarantees:
        * The sum equals the plain sum of the votes that arrived, exactly. One that honest votes
          cannot have, or whose masks did not come off, is not released.
        * At least ``clients - max_dropout`` votes are in the sum, or it is not unmasked: with
          ``shares=1`` the threshold of the secret shares enforces it.
        * Masks are ChaCha20 streams keyed by all 256 bits of the seeds, where Flower's own are
          guessed by trying 2^32. The seeds are bound to what clients were shown.

    Args:
        shares: Each client shares its secrets with this part of the clients, in (0, 1]. Less
            than 1 is faster, and the allowances then hold with high probability only.

    Raises:
        InvalidArgumentError: If ``shares`` is not in (0, 1]; when a vote is planned, if the
            protocol cannot keep the plan's promise.
    """

    shares: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < validation.number("shares", self.shares) <= 1.0:
            raise InvalidArgumentError("shares", self.shares, "it must lie in (0, 1]")

    def share_count(self, clients: int) -> int:
        """Returns with how many clients a client shares its secrets, itself included."""
        count = min(max(round(self.shares * clients), 3), clients)
        return count if count == clients or count % 2 else min(count + 1, clients)

    def threshold(self, plan: VotePlan) -> int:
        """Returns how many of its shares recover a secret."""
        shares = self.share_count(plan.clients)
        return max(shares // 2 + 1, shares - plan.max_dropout)

    def check(self, plan: VotePlan) -> None:
        if plan.clients < 3:
            raise InvalidArgumentError(
                "clients",
                plan.clients,
                "secure aggregation needs at least 3",
                "From the sum of two votes each client learns the other's.",
            )
        shares, threshold = self.share_count(plan.clients), self.threshold(plan)
        if shares == plan.clients and plan.max_dropout > shares - threshold:
            raise InvalidArgumentError(
                "max_dropout",
                plan.max_dropout,
                f"secure aggregation of {plan.clients} clients survives {shares - threshold} "
                "dropouts at most",
                "More than half of the shares must be needed to open a mask.",
            )
        if plan.max_colluding >= threshold:
            raise InvalidArgumentError(
                "max_colluding",
                plan.max_colluding,
                f"it must be less than {threshold}, the number of shares that open a mask",
                "Raise SecAggPlus(shares=...) or lower max_dropout.",
            )
        if plan.clients * 2 * entry_bound(plan) >= MODULUS:
            raise InvalidArgumentError(
                "clients",
                plan.clients,
                "the sum of that much noise does not fit into 32 bits",
                "Raise epsilon.",
            )

    def facts(self) -> dict[str, Any]:
        return {"sum": "secagg+", "shares": self.shares}

    def collect(self, server: Server, nodes: Sequence[int], query: VoteQuery) -> Attempt:
        plan = query.plan
        module = masks.server_module()
        clip = entry_bound(plan)  # Beyond it the protocol clips: no honest entry comes near.
        # A quantisation step of one and equal weights: whole numbers pass unchanged.
        workflow = module.SecAggPlusWorkflow(
            num_shares=1.0,
            reconstruction_threshold=1.0,
            max_weight=1.0,
            clipping_range=float(clip),
            quantization_range=2 * clip,
            modulus_range=MODULUS,
            timeout=server.timeout,
        )
        workflow.num_shares = min(self.share_count(plan.clients), len(nodes))
        workflow.reconstruction_threshold = self.threshold(plan)
        strategy = _OneVote(nodes)
        legacy = LegacyContext(
            server.context, strategy=cast(Any, strategy), client_manager=cast(Any, strategy)
        )
        legacy.state.config_records["config"] = ConfigRecord({"current_round": 1})
        legacy.state.array_records["parameters"] = ArrayRecord()
        checked_grid = SecAggGrid(server, query, module)
        masks.opened.set(None)
        token = masks.view.set(b"")

        def failed(reason: str) -> Attempt:
            return Attempt(
                None, checked_grid.voted, checked_grid.asked, checked_grid.present, reason
            )

        try:
            workflow(checked_grid, legacy)
        except StopError as stop:
            return failed(str(stop))
        except Exception as error:  # of the grid, or of a library over a stranger's bytes
            _logger.warning("The secure sum failed.", exc_info=True)
            return failed(f"The secure sum failed ({type(error).__name__}).")
        finally:
            masks.view.reset(token)
            for record in ("config", "parameters"):
                legacy.state.pop(record, None)
        opened_sum = masks.opened.get()
        if opened_sum is None:
            return failed("Too few clients sent the shares that open the sum.")
        factor, vector = opened_sum
        # Every vote has the same weight, a masked number like the others: if it comes out as it
        # should, the masks were all taken off.
        if factor != checked_grid.voted * 2 * clip:
            return failed("The sum does not open: a client sent a wrong share or a wrong vote.")
        sums = vector - checked_grid.voted * clip
        why = impossible(plan, sums, checked_grid.voted)
        if why:
            return failed(f"The sum is not one of votes: {why}.")
        return Attempt(sums, checked_grid.voted, True, checked_grid.present)


class StopError(Exception):
    """This attempt is over."""


class _OneVote:
    """What Flower's workflow asks of a strategy and of a client manager, for one round."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = list(nodes)

    def num_available(self) -> int:
        return len(self._nodes)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: Any
    ) -> list[tuple[Any, FitIns]]:
        order = FitIns(Parameters([], ""), {})
        return [(SimpleNamespace(node_id=node), order) for node in self._nodes]

    def aggregate_fit(
        self, server_round: int, results: list[tuple[Any, Any]], failures: list[Any]
    ) -> tuple[None, dict[str, Any]]:
        return None, {}


class SecAggGrid:
    """Passes the protocol's messages on; adds the query, checks replies, stops in time."""

    def __init__(self, server: Server, query: VoteQuery, module: Any) -> None:
        self._grid, self._progress = server.grid, server.progress
        self._plan, self._query = query.plan, query.to_json()
        self._run = server.context.run_id
        self.numbers: Mapping[str, Any] = {}
        self._checks = ReplyChecks(query.plan, module)
        self.asked = False
        self.voted = 0
        self.present: tuple[int, ...] = ()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Sends one stage's messages, and returns their replies checked; as Flower's grid."""
        questions = list(messages)
        config = questions[0].content.config_records[SECAGG_CONFIG]
        stage = str(config["stage"])
        number = _STAGES.index(stage) + 1
        if stage == "setup":
            self.numbers = dict(config)
            for message in questions:
                message.content[QUERY_RECORD] = ConfigRecord({"query": self._query})
        elif stage == "share_keys":
            keys = shown_keys(config)
            masks.view.set(masks.digest_of(self._run, self._query, self.numbers, keys))
        elif stage == "collect_masked_vectors":
            self.asked = True
        replies = self.checked(
            stage, questions, self._grid.send_and_receive(questions, timeout=timeout)
        )
        good_replies = [r for r in replies if not r.has_error()]
        self.present = tuple(r.metadata.src_node_id for r in good_replies)
        self._progress(
            f"secure sum, stage {number} of 4 ({stage.replace('_', ' ')}): "
            f"{len(good_replies)} of {len(questions)} nodes"
        )
        if number <= 2 and len(good_replies) < len(questions):
            # Flower's protocol cannot do without a node that has been introduced to the others.
            raise StopError(
                f"{len(questions) - len(good_replies)} nodes were lost in stage {number} of 4."
            )
        if stage == "collect_masked_vectors":
            self.voted = len(good_replies)
            if self.voted < self._plan.survivors_needed:
                raise StopError(
                    f"{self.voted} usable votes came, and {self._plan.survivors_needed} are "
                    "needed for the planned noise."
                )
        if stage == "unmask" and masks.complete(self.numbers, self.numbers["sample_num"]):
            # Everybody has a share of everything, and it takes no more of them.
            return good_replies[: self.numbers["threshold"]]
        return replies

    def checked(
        self, stage: str, questions: Sequence[Message], replies: Iterable[Message]
    ) -> list[Message]:
        """Returns one reply per node at most; malformed ones as errors."""
        question_of = {message.metadata.dst_node_id: message for message in questions}
        reply_of: dict[int, Message] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in question_of or node in reply_of:
                rejected(reply, "the node was not asked, or has answered already")
                continue
            if not reply.has_error() and not self._checks.well_formed(
                stage, question_of[node], reply
            ):
                rejected(reply, f"it is malformed for stage {stage!r}")
                error = Error(code=ErrorCode.UNKNOWN, reason="malformed reply")
                reply = Message(error, metadata=reply.metadata)  # type: ignore[call-overload]
            reply_of[node] = reply
        return list(reply_of.values())

    def __getattr__(self, name: str) -> Any:
        """The rest of the interface is the grid's own."""
        return getattr(self._grid, name)
