"""A server that lies finds nothing to ask over a network: SuperLink, SuperNodes, processes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "optuna-dp[federated]"')

from patience import within

from federated.deployment import loopback
from federated.hostile_server import ATTEMPTS, REASONS
from optuna_dp.core.polling import poll

pytestmark = pytest.mark.deployment

APP = Path(__file__).with_name("hostile_app")
NODES = 4

# Within a run clients remember what they have spent: what they answer in part is the last of it.
ANSWERED = ("one name many times", "voted and lost", "over and over")
OTHERS = [name for name in ATTEMPTS if name not in ANSWERED]
RUNS = [[*OTHERS[i::3], last] for i, last in enumerate(ANSWERED)]


def test_every_lie_is_refused_over_a_network(tmp_path: Path) -> None:
    command = ("python", "-m", "federated.quick_supernode")
    with loopback(tmp_path, example=APP, supernode=command) as deployment:
        deployment.env["PYTHONPATH"] = f"{Path(__file__).parents[1]}{os.pathsep}{APP}"
        deployment.start_all(nodes=NODES)
        for i, attempts in enumerate(RUNS):
            names = ", ".join(attempts)
            assert "'" not in names  # which would end the setting
            deployment.run(tmp_path / f"{i}.json", attempts=f"'{names}'", clients=str(NODES))

        def written() -> Any:
            files = [tmp_path / f"{i}.json" for i in range(len(RUNS))]
            if not all(file.exists() for file in files):
                return None
            return {k: v for file in files for k, v in json.loads(file.read_text()).items()}

        found = poll(written, within(600, deployment.tail))
        logs = "".join(deployment.logs[f"supernode-{i}"].read_text() for i in range(NODES))
    assert set(found) == set(ATTEMPTS)
    for name, outcome in found.items():
        assert outcome["nothing"], name
        assert outcome["refusals"] > 0, name
    # One clear line for every refusal, with its reason; nothing went wrong besides.
    lines = re.findall(r"Vote refused: .*", logs)
    assert len(lines) == sum(outcome["refusals"] for outcome in found.values())
    for name, reason in REASONS.items():
        assert any(re.fullmatch("Vote refused: " + reason, line) for line in lines), name
    assert "Traceback" not in logs
