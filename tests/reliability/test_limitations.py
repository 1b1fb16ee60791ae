"""The table of losses in the documentation names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "limitations.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not set(line) <= set("|- ") and "| defence |" not in line
]
DEFINED = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *def (test_\w+)", file.read_text(), re.MULTILINE)
}


def test_the_table_is_there() -> None:
    assert len(ROWS) >= 25
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_loss_has_a_test_that_exists(row: list[str]) -> None:
    _, defence, named = row
    tests = re.findall(r"`([^`]+)`", named)
    # Only what software cannot see may do without a test.
    assert tests or "cannot be seen" in defence
    for test in tests:
        if test.startswith("tests/"):
            assert (ROOT / test).exists(), test
        else:
            assert test in DEFINED, test
