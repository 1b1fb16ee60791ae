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
    part = tmp_path / "optuna_dp" / "logistic"
    part.mkdir()
    (part / "__init__.py").write_text('"""Logistic noise."""\n')
    for file in ("event.py", "part.py"):
        shutil.copy(CHANGE / file, part)
    (tmp_path / "tests" / "logistic").mkdir()
    shutil.copy(CHANGE / "test_logistic.py", tmp_path / "tests" / "logistic")

    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run() -> int:
        return subprocess.run(
            [*command, "tests/logistic"], cwd=tmp_path, env=environment, check=False
        ).returncode

    assert run() != 0, "the record was read although no list names the part"
    door = tmp_path / "optuna_dp" / "__init__.py"
    door.write_text(door.read_text().replace("_FOLDERS = (\n", '_FOLDERS = (\n    "logistic",\n'))
    assert run() == 0
