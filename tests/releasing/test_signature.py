"""A signed release: who has the public key sees whether anything of the file was changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from refusals import refuses
from releasing.forgery import made_again
from typer.testing import CliRunner

import optuna_dp as odp
from optuna_dp.cli.application import app
from optuna_dp.errors import ReleaseRefusedError
from optuna_dp.releasing.signature import is_signed_by

PRIVATE = {
    "pem": serialization.PrivateFormat.PKCS8,
    "openssh": serialization.PrivateFormat.OpenSSH,
}


def keys(folder: Path, form: str = "pem", password: str | None = None) -> tuple[str, str]:
    """Returns the files of a new private key and of its public key."""
    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    secret = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode())
    )
    private, public = folder / f"{form}-{password}", folder / f"{form}-{password}.pub"
    private.write_bytes(key.private_bytes(pem, PRIVATE[form], secret))
    kinds = (
        (pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        if form == "pem"
        else (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    public.write_bytes(key.public_key().public_bytes(*kinds))
    return str(private), str(public)


def searched(storage: Any = None) -> optuna.Study:
    sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=3), run=odp.gaussian(4.0))
    study = optuna.create_study(sampler=sampler, storage=storage, study_name="searched")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1))
    return study


def released(study: optuna.Study) -> odp.Release:
    return odp.release(study, vouched="a test")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, str]:
    private, public = keys(tmp_path_factory.mktemp("keys"))
    study = searched()
    return odp.sign(released(study), study, private), private, public


def values(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all single values in JSON."""
    if isinstance(data, dict | list) and data:
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from values(data[key], (*path, key))
    else:
        yield path


@pytest.mark.promise("statement-file")
@pytest.mark.parametrize("form", PRIVATE)
@pytest.mark.parametrize("password", [None, "open"])
def test_a_signature_is_checked_by_its_public_key(
    tmp_path: Path, form: str, password: str | None
) -> None:
    private, public = keys(tmp_path, form, password)
    study = searched()
    document = odp.sign(released(study), study, private, password=password)
    found = odp.verify(document, key=public)
    assert found.ok, str(found)
    assert any(check.what == "signature" for check in found.checks)
    assert not odp.verify(document, key=keys(tmp_path, "pem", "other")[1]).ok
    without = {k: v for k, v in document.items() if k != "signature"}
    assert odp.verify(without).ok
    assert not odp.verify(without, key=public).ok


@pytest.mark.promise("statement-file")
def test_nothing_of_a_signed_file_can_be_changed(signed: tuple[dict[str, Any], str, str]) -> None:
    """Not even where all that follows is made again, which an unsigned file permits."""
    document, _, public = signed

    def other_score(content: dict[str, Any]) -> None:
        content["value"] = 0.5

    forged = made_again(document, other_score)
    assert odp.verify(forged).ok
    assert not odp.verify(forged, key=public).ok
    assert is_signed_by(document, public)
    for path in values(document):
        changed = copy.deepcopy(document)
        part = changed
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = f"{part[path[-1]]}x" if isinstance(part[path[-1]], str) else "changed"
        assert not is_signed_by(changed, public), path


def test_the_storage_shows_by_its_number_whether_it_is_the_one(tmp_path: Path) -> None:
    private, _ = keys(tmp_path)
    study = searched(f"sqlite:///{tmp_path / 'one.db'}")
    first = odp.sign(released(study), study, private)
    study.set_user_attr("a note", "that a tool has made")
    again = odp.sign(released(study), study, private)
    assert again == first
    copied = f"sqlite:///{tmp_path / 'two.db'}"
    optuna.copy_study(from_study_name="searched", from_storage=study._storage, to_storage=copied)
    other = optuna.load_study(study_name="searched", storage=copied)
    assert odp.sign(released(other), other, private) == first
    digest = first["signature"]["storage_sha256"]
    another = searched()
    assert odp.sign(released(another), another, private)["signature"]["storage_sha256"] != digest


def test_a_study_of_which_nothing_was_released_is_refused(tmp_path: Path) -> None:
    private, _ = keys(tmp_path)
    one, other = searched(), searched()
    release = released(one)
    with pytest.raises(ReleaseRefusedError):
        odp.sign(release, other, private)
    released(other)
    with pytest.raises(ReleaseRefusedError):
        odp.sign(release, other, private)


def test_files_that_are_no_such_key_are_refused(
    tmp_path: Path, signed: tuple[dict[str, Any], str, str]
) -> None:
    document, private, public = signed
    study = searched()
    release = released(study)
    other = tmp_path / "x25519"
    other.write_bytes(
        X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, PRIVATE["pem"], serialization.NoEncryption()
        )
    )
    for file in (str(other), public, str(tmp_path / "none"), __file__):
        with refuses("key"):
            odp.sign(release, study, file)
    for file in (str(other), private, str(tmp_path / "none"), __file__):
        with refuses("key"):
            odp.verify(document, key=file)
    with_password, _ = keys(tmp_path, "openssh", "open")
    with refuses("key"):
        odp.sign(release, study, with_password, password="wrong")
    with refuses("password"):
        odp.sign(release, study, with_password)
    with refuses("password"):
        odp.sign(release, study, private, password="too much")


def test_the_two_commands(tmp_path: Path) -> None:
    private, public = keys(tmp_path, "openssh", "open")
    url = f"sqlite:///{tmp_path / 'study.db'}"
    searched(url)
    command = ["release", url, "searched", "--vouched", "a test", "--sign", private]
    assert CliRunner().invoke(app, command).exit_code == 2  # It signs JSON only.
    result = CliRunner().invoke(app, [*command, "--json"], input="open\n")
    assert result.exit_code == 0, result.output
    file = tmp_path / "release.json"
    file.write_text(result.stdout)
    assert "signature" in json.loads(result.stdout)
    assert CliRunner().invoke(app, ["verify", str(file)]).exit_code == 0
    assert CliRunner().invoke(app, ["verify", str(file), "--key", public]).exit_code == 0
    stranger = keys(tmp_path)[1]
    assert CliRunner().invoke(app, ["verify", str(file), "--key", stranger]).exit_code == 1
