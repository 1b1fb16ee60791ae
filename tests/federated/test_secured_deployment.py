"""The deployment guide, tried: TLS, SuperNodes with keys, limits and allowed apps on the nodes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import refuses

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from patience import within

from federated.deployment import Loopback, loopback
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.core.polling import poll
from optuna_dp.federated import client_statement
from optuna_dp.federated.pinned_supernode import digests_in, pinned


def result(path: Path, deployment: Loopback) -> Any:
    def written() -> Any:
        try:
            return json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    return poll(written, within(900, deployment.tail))


@pytest.mark.deployment
def test_votes_refusals_and_an_edited_app_in_a_secured_deployment(tmp_path: Path) -> None:
    with loopback(tmp_path, secured=True) as deployment:
        deployment.allow_the_app()
        deployment.start_all(nodes=3)
        # A node whose key nobody has registered stays outside.
        deployment.start_supernode(3, 3, registered=False)

        deployment.run(tmp_path / "release.json", secure="true", epsilon="4.0")
        release = result(tmp_path / "release.json", deployment)
        assert len(release["attributes"]["noisy_votes"]) == 14
        settings = release["statement"]["design"]["settings"]
        assert settings["plan"]["clients"] == 3
        assert settings["attempts"] == 1
        assert settings["sum"] == "secure"
        guarantee = Guarantee.from_json(release["statement"]["guarantee"])
        assert 3.9 < guarantee.epsilon(1e-5) <= 4.0
        for i in range(3):
            text = client_statement(tmp_path / f"node-{i}" / "votes.toml")
            assert "sent 1 noisy vote(s)" in text
        assert not (tmp_path / "node-3" / "votes.ledger").exists()

        # The same app, edited: it would do what it likes with the data.
        task = deployment.app / "federated_vote_app" / "task.py"
        task.write_text(task.read_text() + "\n# edited\n")
        deployment.run(tmp_path / "edited.json", secure="true", epsilon="0.5")

        def refused() -> bool | None:
            logs = [deployment.logs[f"supernode-{i}"].read_text() for i in range(3)]
            return all("App refused: its digest" in log for log in logs) or None

        poll(refused, within(300, deployment.tail))
        assert not (tmp_path / "edited.json").exists()


# -- the list of apps, without a network ----------------------------------------------------

LISTED = "a" * 64


def test_lists_of_digests() -> None:
    assert digests_in(f"# ours\n{LISTED}  app.fab\n\n{'b' * 64}\n") == {LISTED, "b" * 64}
    for wrong in ("", "# nothing\n", "abc  app.fab", f"{LISTED}x app.fab", LISTED.upper()):
        with refuses("apps"):
            digests_in(wrong)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("entities", [None, {"fpk": "ssh-ed25519 key"}])
def test_a_bundle_that_is_not_on_the_list_is_never_unpacked(
    listed: bool, entities: dict[str, str] | None
) -> None:
    import hashlib

    from flwr.supercore.fab import Fab

    content = b"the bundle"
    digest = hashlib.sha256(content).hexdigest()
    seen = SimpleNamespace(fab=None, must_verify=None)

    def pull(*, get_fab: Any, trusted_entities: Any, state: str) -> str:
        """As Flower's own: the bundle first, then whether it has to be verified."""
        assert state == "state"
        seen.fab = get_fab("hash", 7)
        seen.must_verify = bool(trusted_entities)
        return "done"

    wrapped = pinned(pull, {digest if listed else LISTED})
    fab = Fab("hash", content, {"valid_license": "yes"})
    got = wrapped(get_fab=lambda h, r: fab, trusted_entities=entities, state="state")
    assert got == "done"
    if listed:
        assert seen.fab is fab
        assert seen.must_verify is (entities is not None)
    else:
        assert seen.fab.content == b""
        assert seen.fab.verifications == {}
        assert seen.must_verify


@pytest.mark.parametrize(("set_to", "expected"), [(None, "0"), ("1", "1"), ("0", "0")])
def test_a_pinned_node_sends_no_reports_to_flowers_makers_unless_it_is_told_to(
    set_to: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.supercore import telemetry

    from optuna_dp.federated import pinned_supernode

    name, seen = "FLWR_TELEMETRY_ENABLED", []
    (tmp_path / "apps").write_text(f"{LISTED}  app.fab\n")
    monkeypatch.setattr(telemetry, name, "1")
    monkeypatch.setenv(name, "1" if set_to is None else set_to)
    if set_to is None:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["flower-supernode"])
    monkeypatch.setattr(pinned_supernode.supernode, "_pull_and_store_message", lambda **rest: None)
    monkeypatch.setattr(
        pinned_supernode,
        "flower_supernode",
        lambda: seen.append((os.environ[name], telemetry.FLWR_TELEMETRY_ENABLED)),
    )
    pinned_supernode.main(["--apps", str(tmp_path / "apps")])
    assert seen == [(expected, expected)]
