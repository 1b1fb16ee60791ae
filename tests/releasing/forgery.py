"""Releases that were changed and made consistent again, as anybody can do who holds the file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import optuna_dp as odp
from optuna_dp.accounting.event_json import event_from_json
from optuna_dp.releasing.statement_data import statement_data
from optuna_dp.study.plan import Design


def made_again(
    data: dict[str, Any], change: Callable[[dict[str, Any]], object] = lambda content: None
) -> dict[str, Any]:
    """Returns a release's JSON after ``change(content)``, with all that follows made again."""
    forged = copy.deepcopy(data)
    for content in (forged, forged["statement"]["content"]):
        change(content)
    stated = forged["statement"]
    is_trained = any(fact["name"] == "Final training" for fact in stated["facts"])
    event = stated["guarantee"]["event"]
    forged["statement"] = statement_data(
        odp.Guarantee.from_json(stated["guarantee"]),
        Design.from_json(stated["design"]),
        delta=stated["delta"],
        content=stated["content"],
        training=event_from_json(event["events"][1]) if is_trained else None,
    )
    return dict(json.loads(json.dumps(forged)))
