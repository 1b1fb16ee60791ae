"""The Kubernetes manifests of examples/clusters have the form and the fields they need.

No cluster has seen them: this is what can be said without one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FOUND: dict[str, Any] = {
    document["kind"]: document
    for document in yaml.safe_load_all((EXAMPLES / "clusters" / "kubernetes.yaml").read_text())
}


def pod(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = FOUND[kind]["spec"]["template"]
    return found


def test_each_has_its_version_name_and_namespace() -> None:
    assert {kind: document["apiVersion"] for kind, document in FOUND.items()} == {
        "Deployment": "apps/v1",
        "Service": "v1",
        "NetworkPolicy": "networking.k8s.io/v1",
        "Job": "batch/v1",
    }
    assert {document["metadata"]["namespace"] for document in FOUND.values()} == {"tuning"}
    assert all(document["metadata"]["name"] for document in FOUND.values())


def test_they_fit_each_other() -> None:
    """Labels, ports and names that are the same where they must be."""
    labels = pod("Deployment")["metadata"]["labels"]
    assert FOUND["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert FOUND["Service"]["spec"]["selector"] == labels
    policy = FOUND["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": pod("Job")["metadata"]["labels"]}}]
    (proxy,), (worker,) = (pod(kind)["spec"]["containers"] for kind in ("Deployment", "Job"))
    (port,) = {p["containerPort"] for p in proxy["ports"]}
    (served,) = FOUND["Service"]["spec"]["ports"]
    assert served == {"port": port, "targetPort": port}
    assert f"port={port}" in proxy["command"][-1]
    address = f"grpc://{FOUND['Service']['metadata']['name']}:{port}"
    assert worker["command"] == ["python", "tune.py", "work", address]


def test_the_proxys_program_is_one() -> None:
    compile(pod("Deployment")["spec"]["containers"][0]["command"][-1], "proxy", "exec")


def test_a_worker_that_dies_is_replaced_and_the_database_is_the_proxys_alone() -> None:
    job = FOUND["Job"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["parallelism"] == job["completions"]
    assert job["backoffLimit"] > 0
    (proxy,), (worker,) = (pod(kind)["spec"]["containers"] for kind in ("Deployment", "Job"))
    assert "env" not in worker
    assert [e["valueFrom"]["secretKeyRef"]["key"] for e in proxy["env"]] == ["url"]
    assert FOUND["Deployment"]["spec"]["replicas"] == 1
    # What workers start is the tutorial's script.
    assert '"work"' in (EXAMPLES / "many_workers" / "tune.py").read_text()
