"""Every promise of docs/limitations.md that the software keeps has a test."""

from __future__ import annotations

import itertools
import re

import defences
import pytest

from documentation.pages import ROOT

PAGE = ROOT / "docs" / "limitations.md"
_ANCHOR = re.compile(r"\(promise-([a-z-]+)\)=")
_SOFTWARE = "* *Software*:"
_FAULTS = "| what happens | what the software does |"


def rows(page: str) -> list[str]:
    """The anchors of a page, and the first words of the lines of its table of faults."""
    lines = page.splitlines()
    first = lines.index(_FAULTS) + 2
    faults = lines[first : lines.index("", first)]
    return [
        *_ANCHOR.findall(page),
        *(line.split(" | ")[0].removeprefix("| ").split(",")[0] for line in faults),
    ]


def without_an_anchor(page: str) -> list[str]:
    """The bold sentences that say what the software does, and cannot be named by a test."""
    sections = re.split(r"^(?=\(promise-|\*\*|## )", page, flags=re.MULTILINE)
    return [
        section.splitlines()[0]
        for before, section in itertools.pairwise(sections)
        if _SOFTWARE in section and not _ANCHOR.match(before)
    ]


ROWS = rows(PAGE.read_text("utf-8"))


def test_what_the_software_does_can_be_named_by_a_test() -> None:
    assert not without_an_anchor(PAGE.read_text("utf-8"))
    assert len(ROWS) == len(set(ROWS))


def test_a_row_without_an_anchor_is_found() -> None:
    named = "(promise-noise)=\n**The noise.**\n\n* *Software*: draws it.\n\n"
    unnamed = "**The sum.**\n\n* *Why*: it moves.\n* *Software*: adds exactly.\n"
    assert without_an_anchor(f"# Page\n\n{named}{unnamed}") == ["**The sum.**"]


@pytest.mark.parametrize("row", ROWS)
def test_what_the_software_does_is_shown_by_a_test(row: str) -> None:
    assert defences.marked_files().get(row)


def test_no_test_shows_what_the_page_does_not_say() -> None:
    assert not set(defences.marked_files()) - set(ROWS)
