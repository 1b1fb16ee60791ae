"""The change that docs/contributing/first-change.md makes works as the page says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from documentation.pages import ROOT

CHANGE = ROOT / "examples" / "first_change"


@pytest.mark.slow
def test_the_first_change_adds_an_event(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("optuna_dp", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(CHANGE / "logistic.py", tmp_path / "optuna_dp" / "accounting" / "kinds")
    shutil.copy(CHANGE / "test_logistic.py", tmp_path / "tests" / "accounting")

    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run() -> int:
        return subprocess.run(
            [*command, "tests/accounting/test_logistic.py"],
            cwd=tmp_path,
            env=environment,
            check=False,
        ).returncode

    assert run() != 0, "the record was read although no table names the event"
    table = tmp_path / "optuna_dp" / "accounting" / "event_json.py"
    row = '    "LogisticDpEvent": "optuna_dp.accounting.kinds.logistic",\n'
    table.write_text(table.read_text().replace("_OURS = {\n", "_OURS = {\n" + row))
    assert run() == 0
