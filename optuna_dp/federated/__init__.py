"""Federated search by private voting (DP-HYPE) on Flower.

The server part is :class:`FederatedVote`, the client part the decorator :func:`voter`. Needs the
extra: ``pip install "optuna-dp[federated]"``. Importing this package does not; every name is
loaded when it is first used, and says so if Flower is missing.

``query``      what the server sends
``client``     what a client does with it
``policy``     what it agrees to
``ledger``     its answers so far
``ledger_summary``  that, and what it cost, for people
``secure_client``  its side of the secure sum, stage by stage
``secure_sum``  the server's side of it
``secure_keys``  keys, masks, letters and shares of secrets, for both sides
``plain_sum``  sums of votes that the server sees
``transport``  what both ways to sum the votes share
``server``     the vote from the server's side
``strategy``   the same as a strategy of Flower, before a training
``in_process`` clients in this very process, for tests and simulations
"""

from __future__ import annotations

import importlib.util

import lazy_loader

from optuna_dp.errors import MissingExtraError

_PACKAGES = ("flwr", "cryptography")

_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in _PACKAGES:
            raise MissingExtraError(package, "federated") from error
        raise


def __dir__() -> list[str]:
    # help() loads every name that it finds, and without Flower none loads.
    return __all__ if all(importlib.util.find_spec(package) for package in _PACKAGES) else []
