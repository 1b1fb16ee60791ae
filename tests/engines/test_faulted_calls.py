"""A few faulted studies on Dask and on Ray, of which the command runs dozens.

They need the extras dask and ray: ``pytest tests/engines/test_faulted_calls.py -m engines -n 0``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .servers import TESTS

STUDIES = os.environ.get("ENGINE_STUDIES", "3")


@pytest.mark.engines
@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_faults_on_a_cluster_cost_no_study_and_repeat_no_run(engine: str, package: str) -> None:
    pytest.importorskip(package)
    # A process of its own: it forks, which one with the threads of an engine must not.
    command = [sys.executable, "-m", "reliability.faulted_studies", "--kinds", engine]
    ended = subprocess.run(
        [*command, "--studies", STUDIES, "--seed", "7000"],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{STUDIES} studies" in ended.stdout
    assert "'released'" in ended.stdout
