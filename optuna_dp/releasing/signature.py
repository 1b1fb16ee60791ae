"""The signature of a release: who made it, and of which storage, so that nobody can change it.

Ed25519 (RFC 8032) by the ``cryptography`` package. What is signed is the JSON of the release with
the digest of the study that it was made of (:attr:`StudySnapshot.digest`), as one text with sorted
keys and no spaces.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import InvalidArgumentError, MissingExtraError, ReleaseRefusedError
from optuna_dp.releasing.make_release import mark_of
from optuna_dp.releasing.statement_file import bytes_of, check_keys
from optuna_dp.study.entries import RELEASED
from optuna_dp.study.snapshot import StudySnapshot
from optuna_dp.study.storage_errors import clear_storage_errors
from optuna_dp.study.trials import checked_study

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from optuna.study import Study

    from optuna_dp.releasing.release import Release

ALGORITHM = "Ed25519"
_KEYS = {"algorithm", "public_key", "storage_sha256", "signature"}
_MAKE_A_KEY = (
    "ssh-keygen -t ed25519 -f curator makes a pair: curator to sign, curator.pub to give."
)


def sign(
    release: Release, study: Study, key: str | Path, *, password: str | None = None
) -> dict[str, Any]:
    """Returns the JSON of a release with a signature, for a file that others pass on.

    Who has the public key sees whether anything of the file was changed
    (``optuna-dp verify FILE --key KEY``). The signature also holds the SHA-256 of the study's
    stored runs and entries. Who holds the storage can sign a release of it once more, and sees by
    this number whether the storage is the same. The stored entries hold 128 secret random bits for
    each run, so the number tells nothing of them to whoever cannot guess these bits.

    Args:
        release: What :func:`optuna_dp.release` made of ``study``.
        study: The study, in its storage.
        key: A file with an Ed25519 private key: PEM or OpenSSH.
        password: The password of the file, if it has one.

    Returns:
        ``release.to_json()`` with the key ``"signature"`` besides.

    Raises:
        ReleaseRefusedError: If the study has not been released, or another release was made of it.
        InvalidArgumentError: If the file is no such key, or the password is missing or wrong.
        MissingExtraError: If the ``cryptography`` package is not installed.
    """
    private_key = _private_key(key, password)
    with clear_storage_errors(study):
        snapshot = StudySnapshot.of(checked_study(study))
    _check_is_of(release, snapshot)
    document: dict[str, Any] = json.loads(json.dumps(release.to_json()))
    signed = document | {
        "signature": {
            "algorithm": ALGORITHM,
            "public_key": _base64(private_key.public_key().public_bytes_raw()),
            "storage_sha256": snapshot.digest,
        }
    }
    signed["signature"]["signature"] = _base64(private_key.sign(_message(signed)))
    return signed


def _check_is_of(release: Release, snapshot: StudySnapshot) -> None:
    """Refuses a study that another release was made of, as far as its mark shows it."""
    mark = RELEASED.of(snapshot.attributes)
    if mark is None:
        raise ReleaseRefusedError(
            "It has not been released, so there is nothing of it to sign.",
            fix="Give sign the study of the release, in a storage that can be written to.",
        )
    # A final training may have replaced the score, which the mark holds.
    if release.training is None and mark != mark_of(mark.get("nonce", ""), release):
        raise ReleaseRefusedError(
            "Another release was made of it.", fix="Give sign the study of this release."
        )


def check_form(signature: object) -> None:
    """Raises ValueError if this is not the signature of a release."""
    if not isinstance(signature, dict):
        raise ValueError("its signature is none")
    check_keys(signature, _KEYS)
    if signature["algorithm"] != ALGORITHM:
        raise ValueError(f"its signature is not by {ALGORITHM}")
    if not all(isinstance(text, str) for text in signature.values()):
        raise ValueError("its signature is none")


def is_signed_by(document: JsonObject, key: str | Path) -> bool:
    """Returns whether a release was signed with a key, and is what was signed.

    Args:
        document: The release's JSON, with a signature.
        key: A file with the Ed25519 public key: PEM or OpenSSH.

    Raises:
        InvalidArgumentError: If the file is no such key.
        MissingExtraError: If the ``cryptography`` package is not installed.
    """
    from cryptography.exceptions import InvalidSignature  # an extra

    public_key = _public_key(key)
    stated = document["signature"]
    try:
        raw = base64.b64decode(stated["signature"], validate=True)
        public_key.verify(raw, _message(document))
    except (InvalidSignature, ValueError):
        return False
    return bool(stated["public_key"] == _base64(public_key.public_bytes_raw()))


def _message(document: JsonObject) -> bytes:
    """Returns what is signed: the whole file but for the bytes of the signature itself."""
    about = {name: text for name, text in document["signature"].items() if name != "signature"}
    return json.dumps(
        {**document, "signature": about}, sort_keys=True, separators=(",", ":")
    ).encode()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _private_key(file: str | Path, password: str | None) -> Ed25519PrivateKey:
    """Reads a private key."""
    serialization, kinds = _cryptography()
    content = bytes_of("key", file)
    read = (
        serialization.load_ssh_private_key
        if b"OPENSSH PRIVATE KEY" in content
        else serialization.load_pem_private_key
    )
    secret = None if password is None else password.encode()
    try:
        found = read(content, secret)
    except Exception as error:
        # Of a password too few or too many the versions of cryptography raise different errors.
        is_about_password = isinstance(error, TypeError) or "password-protected" in str(error)
        if password is None and is_about_password:
            raise InvalidArgumentError(
                "password", None, problem=f"the key in {file} has one", fix="Give it."
            ) from error
        if password is not None and isinstance(error, TypeError):
            raise InvalidArgumentError(
                "password", "...", problem=f"the key in {file} has none", fix="Leave it out."
            ) from error
        raise _refusal(file, "private", str(error)) from error
    if not isinstance(found, kinds.Ed25519PrivateKey):
        raise _refusal(file, "private", f"it is {type(found).__name__}")
    return found


def _public_key(file: str | Path) -> Ed25519PublicKey:
    """Reads a public key."""
    serialization, kinds = _cryptography()
    content = bytes_of("key", file).strip()
    read = (
        serialization.load_ssh_public_key
        if content.startswith(b"ssh-")
        else serialization.load_pem_public_key
    )
    try:
        found = read(content)
    except Exception as error:
        raise _refusal(file, "public", str(error)) from error
    if not isinstance(found, kinds.Ed25519PublicKey):
        raise _refusal(file, "public", f"it is {type(found).__name__}")
    return found


def _refusal(file: str | Path, kind: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "key",
        str(file),
        problem=reason.splitlines()[0][:200].rstrip(".?") if reason else "",
        allowed=f"it must be a file with an {ALGORITHM} {kind} key, PEM or OpenSSH",
        fix=_MAKE_A_KEY,
    )


def _cryptography() -> tuple[Any, Any]:
    """Returns the two modules of ``cryptography`` that keys need."""
    try:
        # An extra.
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError("cryptography", "sign") from None
    return serialization, ed25519
