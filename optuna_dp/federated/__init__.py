"""Federated search by private voting (DP-HYPE) on Flower.

The server part is :class:`FederatedVote`, the client part the decorator :func:`voter`. Needs the
extra: ``pip install "optuna-dp[federated]"``. Importing this package does not; every name is
loaded when it is first used, and says so if Flower is missing.

``query``      what the server sends
``client``     what a client does with it
``policy``     what it agrees to
``ledger``     its answers so far
``ledger_summary``  that, and what it cost, for people
``secure_messages``  what it checks of each message of a secure sum
``transport``  what both ways to sum the votes share
``plain_sum``  sums of votes that the server sees
``secagg``     sums by Flower's SecAgg+
``masks``      keys bound to what clients were shown, and strong masks, for Flower's SecAgg+
``shamir``     the shares of secrets, for many clients at once
``server``     the vote from the server's side
``strategy``   the same as a strategy of Flower, before a training
``in_process`` clients in this very process, for tests and simulations
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from optuna_dp.errors import MissingExtraError

if TYPE_CHECKING:
    from optuna_dp.federated.client import voter as voter
    from optuna_dp.federated.in_process import InProcessGrid as InProcessGrid
    from optuna_dp.federated.ledger_summary import client_statement as client_statement
    from optuna_dp.federated.plain_sum import PlainSum as PlainSum
    from optuna_dp.federated.policy import VotePolicy as VotePolicy
    from optuna_dp.federated.secagg import SecAggPlus as SecAggPlus
    from optuna_dp.federated.server import FederatedVote as FederatedVote
    from optuna_dp.federated.strategy import VoteStrategy as VoteStrategy
    from optuna_dp.voting.plan import VoteFailedError as VoteFailedError

_HOME_OF = {
    "FederatedVote": "optuna_dp.federated.server",
    "InProcessGrid": "optuna_dp.federated.in_process",
    "PlainSum": "optuna_dp.federated.plain_sum",
    "SecAggPlus": "optuna_dp.federated.secagg",
    "VoteFailedError": "optuna_dp.voting.plan",
    "VotePolicy": "optuna_dp.federated.policy",
    "VoteStrategy": "optuna_dp.federated.strategy",
    "client_statement": "optuna_dp.federated.ledger_summary",
    "voter": "optuna_dp.federated.client",
}

_PACKAGES = ("flwr", "cryptography")

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in _PACKAGES:
            raise MissingExtraError(package, "federated") from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # help() loads every name that it finds; without Flower there is one that loads.
    has_flower = all(importlib.util.find_spec(package) for package in _PACKAGES)
    return __all__ if has_flower else ["VoteFailedError"]
