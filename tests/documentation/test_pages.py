"""Pages name what exists, are linked, and say how their numbers are made."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from documentation.pages import ROOT, blocks_of

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_NAME = re.compile(r"\b(?:odp|optuna_dp)((?:\.[A-Za-z_]\w*\b(?!\*))+)")
_PATH = re.compile(r"`((?:optuna_dp|tests|examples|docs)/[\w/.*-]*)")
_TEST = re.compile(r"`(test_\w+)`")
_LINK = re.compile(r"\]\(([^)#\s]+\.md)|\{doc\}`([^`]+)`")
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
_NUMBER = re.compile(r"\d\.\d")
# What makes numbers: a command, a block that is run, or a test that recomputes them.
_MAKER = re.compile(r"`python |`optuna-dp |`{3}\{?(?:python|testcode|console)|`tests/|`test_")
# A table of fewer numbers is an example, or a list of what versions were tried.
_FEW = 6


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _exists(dotted: str) -> bool:
    """Returns whether a name of the package exists, without the packages of extras."""
    place = ROOT / "optuna_dp"
    found = importlib.import_module("optuna_dp")
    for part in dotted.split("."):
        is_module = (place / part).is_dir() or (place / f"{part}.py").is_file()
        try:
            found = (
                importlib.import_module(f"{found.__name__}.{part}")
                if is_module and not hasattr(found, part)
                else getattr(found, part)
            )
        except ImportError:  # An extra that is not installed: the source has the name, or not.
            return _is_in_source(place, dotted.split("."))
        except AttributeError:
            return False
        place = place / part
    return True


def _is_in_source(place: Path, parts: list[str]) -> bool:
    package = ROOT / "optuna_dp" / parts[0]
    sources = sorted(package.rglob("*.py")) or [package.with_suffix(".py")]
    text = "".join(file.read_text("utf-8") for file in sources)
    return all(re.search(rf"\b{part}\b", text) or part in str(sources) for part in parts[1:])


def test_a_name_that_is_gone_is_found() -> None:
    assert _exists("plan_budget")
    assert _exists("BudgetPlan.from_json")
    assert _exists("voting.VotePlan")
    assert not _exists("PilotSampler")
    assert not _exists("voting.VoteEverything")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_name_of_the_package_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    for block in blocks_of(page):
        if block.verb == "file":  # A script that runs; it may name what its reader makes.
            text = text.replace(block.text, "")
    named = {found.lstrip(".") for found in _NAME.findall(text)}
    assert not {name for name in named if not _exists(name)}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_path_and_test_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    assert not {path for path in _PATH.findall(text) if not [*ROOT.glob(path)]}
    defined = {
        word
        for file in (ROOT / "tests").rglob("test_*.py")
        for word in (
            file.stem,
            *re.findall(r"^ *def (test_\w+)", file.read_text(), re.MULTILINE),
        )
    }
    assert not set(_TEST.findall(text)) - defined


def test_some_page_links_to_every_page() -> None:
    linked = set()
    for page in PAGES:
        for relative, absolute in _LINK.findall(page.read_text("utf-8")):
            target = DOCS / f"{absolute.lstrip('/')}.md" if absolute else page.parent / relative
            linked.add(target.resolve())
    unlinked = {page for page in PAGES if page.resolve() not in linked}
    assert {_name(page) for page in unlinked} == {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_table_of_numbers_says_what_makes_them(page: Path) -> None:
    """In its section, or before the first one."""
    sections = _HEADING.split(page.read_text("utf-8"))
    beginning = "".join(sections[:2])
    for section in sections:
        rows = [line for line in section.splitlines() if line.startswith("|")]
        numbers = sum(len(_NUMBER.findall(row)) for row in rows)
        assert numbers < _FEW or _MAKER.search(section + beginning), section[:200]


def test_a_table_without_a_command_is_found() -> None:
    assert not _MAKER.search("Measured on digits:\n| 1.1 | 2.2 |")
    assert _MAKER.search("Measured on digits (`python examples/budget/more.py`):")
