"""A SuperNode that runs the apps of a list and no others.

    python -m optuna_dp.federated.pinned_supernode --apps apps.sha256 [its own arguments]

Flower sends the client's code along with the run: whoever may start runs may run code on every
node's data. The list holds the SHA-256 of the app bundles (``.fab``, made by ``flwr build``) that
this node's people have read and allowed, in the format of ``sha256sum``. Other bundles are refused
before anything of them is unpacked, and the server hears that the app could not be verified.

Flower's reports of use to its makers are switched off, unless the environment variable
FLWR_TELEMETRY_ENABLED is set.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from flwr.supercore import telemetry
from flwr.supercore.fab import Fab
from flwr.supernode import start_client_internal as supernode
from flwr.supernode.cli.flower_supernode import flower_supernode

from optuna_dp.errors import InvalidArgumentError

_logger = logging.getLogger("optuna_dp")


class _Entities(dict[str, str]):
    """Flower's trusted entities; a bundle that is not on the list needs some, and has none."""

    refused = False

    def __bool__(self) -> bool:
        return self.refused or len(self) > 0


def digests_in(text: str) -> frozenset[str]:
    """Returns the digests of a list as ``sha256sum`` writes it; refuses anything else.

    Args:
        text: A line for each bundle: 64 hexadecimal digits, and a name that is for people.

    Raises:
        InvalidArgumentError: If a line is something else, or there is none.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    matches = [re.match(r"([0-9a-f]{64})(\s|$)", line) for line in lines]
    if not lines or not all(matches):
        raise InvalidArgumentError(
            "apps", text[:80], allowed="it must hold lines as sha256sum writes them, at least one"
        )
    return frozenset(match[1] for match in matches if match is not None)


def pinned(pull: Callable[..., object], digests: Collection[str]) -> Callable[..., object]:
    """Returns Flower's ``_pull_and_store_message`` with a look at the app that comes along."""

    @functools.wraps(pull)
    def pull_pinned(
        *,
        get_fab: Callable[..., Fab],
        trusted_entities: Mapping[str, str] | None,
        **settings: object,
    ) -> object:
        entities = _Entities(trusted_entities or {})

        def get_listed(*arguments: object) -> Fab:
            fab = get_fab(*arguments)
            digest = hashlib.sha256(fab.content).hexdigest()
            if digest in digests:
                return fab
            _logger.warning("App refused: its digest %s is not on the list.", digest)
            entities.refused = True
            return Fab(fab.hash_str, b"", {})

        return pull(get_fab=get_listed, trusted_entities=entities, **settings)

    return pull_pinned


def main(arguments: Sequence[str] | None = None) -> None:
    """Starts a SuperNode; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--apps", type=Path, required=True, help="the list of digests")
    options, node_arguments = parser.parse_known_args(arguments)
    digests = digests_in(options.apps.read_text(encoding="utf-8"))
    # Read when Flower is imported; processes that the node starts read the environment.
    telemetry.FLWR_TELEMETRY_ENABLED = os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    supernode._pull_and_store_message = pinned(supernode._pull_and_store_message, digests)
    sys.argv = ["flower-supernode", *node_arguments]
    flower_supernode()


if __name__ == "__main__":
    main()
