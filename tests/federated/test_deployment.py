"""One SuperLink, three SuperNodes and the example app, on 127.0.0.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from federated.deployment import loopback
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.polling import poll

pytestmark = pytest.mark.deployment


def test_three_supernodes_vote_for_good_hyperparameters(tmp_path: Path) -> None:
    output = tmp_path / "release.json"
    with loopback(tmp_path) as deployment:
        deployment.start_all(nodes=3)
        deployment.run(output, secure="true", epsilon="5.0")

        def written() -> Any:
            try:
                return json.loads(output.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                return None

        release = poll(written, timeout=500)
        assert release is not None, deployment.tail()
    assert release["params"]["learning_rate"] in (3.0, 1.0, 0.3, 0.1, 1e-3, 1e-5, 1e-7)
    assert len(release["attributes"]["noisy_votes"]) == 14
    settings = release["statement"]["design"]["settings"]
    assert settings["attempts"] == 1
    assert settings["sum"] == "secagg+"
    guarantee = Guarantee.from_json(release["statement"]["guarantee"])
    assert 4.9 < guarantee.epsilon(1e-5) <= 5.0
