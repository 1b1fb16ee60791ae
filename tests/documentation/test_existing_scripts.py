"""The differences that the page shows are those between the scripts, which CI runs."""

from __future__ import annotations

import difflib

import pytest

from documentation.pages import ROOT

FOLDER = ROOT / "examples" / "existing_scripts"
PAIRS = sorted(path.stem.removesuffix("_before") for path in FOLDER.glob("*_before.py"))


def difference(name: str) -> str:
    """The whole scripts, with what goes and what comes."""
    before, after = (
        (FOLDER / f"{name}_{when}.py").read_text().splitlines() for when in ("before", "after")
    )
    # All lines as context, and without the lines that name the files.
    found = list(difflib.unified_diff(before, after, n=len(before), lineterm=""))[3:]
    return "\n".join(line.rstrip() for line in found) + "\n"


def test_there_are_four() -> None:
    assert PAIRS == ["conditional", "opacus", "pytorch", "sklearn"]


@pytest.mark.parametrize("name", PAIRS)
def test_the_stored_difference_is_the_one_between_the_scripts(name: str) -> None:
    assert (FOLDER / f"{name}.diff").read_text() == difference(name)
    pages = "".join(
        (ROOT / "docs" / "tutorials" / f"{page}.md").read_text()
        for page in ("from-an-existing-script", "three-scripts")
    )
    assert f"examples/existing_scripts/{name}.diff" in pages


def test_the_lines_that_change_are_as_many_as_the_page_says() -> None:
    lines = (FOLDER / "opacus.diff").read_text().splitlines()
    gone, come = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    page = (ROOT / "docs" / "tutorials" / "from-an-existing-script.md").read_text()
    assert f"{gone} lines go and {come} come" in page
    assert come <= 25


def test_the_front_page_shows_the_script_that_ci_runs() -> None:
    script = (ROOT / "examples" / "quickstart.py").read_text()
    assert f"```python\n{script}```" in (ROOT / "README.md").read_text()
