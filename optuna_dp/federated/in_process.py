"""Clients in this very process: the same apps as in a deployment, for tests and simulations."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from flwr.supercore.run import Run

# What Flower takes as a configuration: flat, by name.
Config: TypeAlias = Mapping[str, bool | int | float | str]

_RUN_ID = 1
_SERVER_NODE = 1


class InProcessGrid(Grid):
    """A grid whose nodes are client apps called in turn.

    Args:
        app: The client app, one for all nodes or one per node.
        node_configs: One mapping per node, what the client finds in ``context.node_config``.
        run_config: What every client finds in ``context.run_config``.

    Raises:
        InvalidArgumentError: If there is no node, or there are several apps and not one per node.

    Example:
        >>> from optuna_dp.federated import InProcessGrid  # doctest: +SKIP
        >>> grid = InProcessGrid(app, [{"partition-id": i} for i in range(10)])  # doctest: +SKIP
    """

    def __init__(
        self,
        app: Callable[[Message, Context], Message] | Sequence[ClientApp],
        node_configs: Sequence[Config],
        *,
        run_config: Config | None = None,
    ) -> None:
        n = validation.whole("len(node_configs)", len(node_configs), 1)
        apps = [app] * n if callable(app) else list(app)
        if len(apps) != n:
            raise InvalidArgumentError("app", len(apps), allowed=f"there must be one, or {n}")
        self.nodes = {
            node: (apps[i], Context(_RUN_ID, node, dict(config), RecordDict(), run_config or {}))
            for i, (node, config) in enumerate(
                zip(itertools.count(1001), node_configs, strict=False)
            )
        }
        self._run: Run | None = None
        self._count = itertools.count(1)
        self._replies: dict[str, Message] = {}
        for name, value in (
            ("run_id", _RUN_ID),
            ("node_id", _SERVER_NODE),
            ("task_id", _SERVER_NODE),
        ):
            try:
                getattr(TaskIdentity, name)
            except RuntimeError:  # outside of Flower's own processes nobody has set it
                setattr(TaskIdentity, name, value)

    @staticmethod
    def server_context(run_config: Config | None = None) -> Context:
        """Returns a context for the server's side."""
        return Context(_RUN_ID, _SERVER_NODE, {}, RecordDict(), run_config or {})

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run | None:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            ids.append(str(next(self._count)))
            self._replies[ids[-1]] = self._deliver(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [self._deliver(message) for message in messages]

    def _deliver(self, message: Message) -> Message:
        # A wire copies: apps may change what they are given.
        delivered = Message(
            copy.deepcopy(message.content),
            dst_node_id=message.metadata.dst_node_id,
            message_type=message.metadata.message_type,
            group_id=message.metadata.group_id,
        )
        app, context = self.nodes[message.metadata.dst_node_id]
        try:
            return app(delivered, context)
        except Exception as error:  # as a SuperNode does
            reason = f"{type(error)}:<'{error}'>"
            reply = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason)
            return Message(reply, reply_to=delivered)
