"""The file of a release, or of its statement, as plain JSON values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.releasing.statement_data import FORMAT, VERSION

RELEASE_FORMAT = "optuna-dp release"
RELEASE_VERSION = 1
# Releases have some hundred values. What takes long to compute is given up: see ``time_limit``.
MOST_BYTES = 10_000_000

_CONTENT = {"params", "value", "attributes", "artifact_sha256", "distributions"}
_OPTIONAL = {"description", "spending", "disclosed_runs"}


def parsed(text: str | bytes) -> object:
    """Returns plain JSON values; refuses large files, keys that stand twice, and NaN."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    document: object = json.loads(
        text, object_pairs_hook=_without_twins, parse_constant=_no_constant
    )
    return document


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        repeated_key = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {repeated_key[:40]!r} is there twice")
    return mapping


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def statement_of(document: object) -> JsonObject:
    """Returns the statement of a release, or of itself, with the keys that it has to have."""
    if not isinstance(document, dict) or document.get("format") not in (RELEASE_FORMAT, FORMAT):
        raise ValueError("it has another format")
    statement: JsonObject = document
    if document["format"] == RELEASE_FORMAT:
        check_keys(
            document, _CONTENT | {"format", "version", "statement"}, _OPTIONAL | {"signature"}
        )
        if document["version"] != RELEASE_VERSION:
            raise ValueError(
                f"it is a release of version {str(document['version'])[:40]}, and this optuna-dp "
                f"reads version {RELEASE_VERSION}: verify it with the optuna-dp that made it"
            )
        statement = document["statement"]
    if statement["format"] != FORMAT or statement["version"] != VERSION:
        raise ValueError(
            f"its statement is of version {str(statement['version'])[:40]}, and this optuna-dp "
            f"reads version {VERSION}: verify it with the optuna-dp that made it"
        )
    check_keys(statement["content"], _CONTENT, _OPTIONAL)
    if not isinstance(statement["content"]["attributes"], dict):
        raise ValueError("its attributes are none")
    return statement


def check_keys(mapping: JsonObject, keys: set[str], optional: set[str] | None = None) -> None:
    """Raises ValueError if a key is missing, or is neither one of these nor optional."""
    wrong_keys = (mapping.keys() ^ keys) - (mapping.keys() & (optional or set()))
    if wrong_keys:
        key = min(wrong_keys)
        raise ValueError(f"the key {key[:40]!r} is {'unknown' if key in mapping else 'missing'}")


def file_refusal(name: str, reason: str) -> InvalidArgumentError:
    """Returns the one refusal of whatever is neither a release nor a statement."""
    return InvalidArgumentError(
        "path_or_json",
        name,
        allowed=f"it must be a release or a statement ({reason[:300]})",
        fix="optuna-dp release --json prints a release.",
    )


def bytes_of(argument: str, file: str | Path, limit: int = -1) -> bytes:
    """Returns what a file holds, at most ``limit`` bytes; refuses the argument that names it."""
    try:
        with Path(file).open("rb") as stream:
            return stream.read(limit)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(
            argument, str(file)[:200], allowed=f"it must be a file that can be read ({reason})"
        ) from error
