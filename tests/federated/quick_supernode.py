"""Flower's SuperNode, but the hostile app's client is called in this very process.

``flower-supernode`` starts a program for every message, which takes seconds where a lie takes ten
messages of every client. What comes over the network, the state that is kept for a run, and what
is sent are the SuperNode's own.

    python -m federated.quick_supernode ARGUMENTS OF flower-supernode
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import flwr.supernode.start_client_internal as node
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.cli import flower_supernode
from hostile_app.client_app import app

_push_messages = node._push_messages


def answer_and_push(state: Any, object_store: Any, **sending: Any) -> None:
    """Does the work of ``flwr-clientapp`` before the SuperNode looks for its reply."""
    for message in state.get_messages_legacy(is_reply=False):
        name = message.metadata.message_id
        parts = [
            part.object_id for part in iterate_object_tree(object_store.get_object_tree(name))
        ]
        contents = {part: object_store.get(part) for part in parts}
        asked: Any = inflate_object_from_contents(name, contents)
        asked.metadata.__dict__["_message_id"] = name
        run = state.get_run(message.metadata.run_id)
        context = state.get_run_series_context(run.series_id)
        TaskIdentity.run_id, TaskIdentity.node_id = run.run_id, context.node_id
        TaskIdentity.task_id = 1
        state.record_message_processing_start(message_id=name)
        reply = app(asked, context)
        state.record_message_processing_end(message_id=name)
        state.set_run_series_context(run.series_id, context)
        node._insert_message(reply, state, object_store)
    _push_messages(state=state, object_store=object_store, **sending)


if __name__ == "__main__":
    node._push_messages = answer_and_push
    # It looks for messages every three seconds.
    node.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.2)))  # type: ignore[assignment]
    sys.argv += ["--isolation", "process"]
    flower_supernode()
