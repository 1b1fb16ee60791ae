"""The page of reproductions names scripts that exist, and the one command runs them all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from documentation.pages import ROOT

PAGE = (ROOT / "docs" / "explanation" / "reproductions.md").read_text()


def test_every_script_that_is_named_exists() -> None:
    named = re.findall(r"`(examples/[\w/]+\.py)", PAGE)
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).is_file(), name


@pytest.mark.slow
def test_the_one_command_runs_them(tmp_path: Path) -> None:
    """The propose-test ones; the others have tests of their own where their packages are."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reproduce.py"), "--output", str(tmp_path),
         "--only", "table_1"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "report-noisy-max" in found.stdout
