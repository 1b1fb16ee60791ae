"""The script from a data frame to a statement runs, and is as short as its page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documentation.pages import ROOT

FOLDER = ROOT / "examples" / "prepare"
MOST_LINES = 14


def test_there_are_few_lines_from_the_file_to_the_statement() -> None:
    _, after = (FOLDER / "from_a_table.py").read_text().split('read_csv("patients.csv")\n')
    lines = [line for line in after.splitlines() if line]
    statement = next(i for i, line in enumerate(lines) if line.endswith(".statement())"))
    assert statement + 1 <= MOST_LINES


@pytest.mark.slow
def test_a_table_with_gaps_is_encoded_by_its_schema(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for script in ("patients.py", "from_a_table.py"):
        done = subprocess.run(
            [sys.executable, str(FOLDER / script)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "**The whole road is enforced**" in done.stdout
    assert "for each patient** with\nup to 2 records" in done.stdout
    predicted = done.stdout.splitlines()[-1].strip("[]").split()
    assert len(predicted) == 5
    assert {*predicted} <= {"'no'", "'yes'"}
