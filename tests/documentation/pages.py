"""The fenced blocks of README and docs, and what is said of each: run how, or not run why.

Directly above a block that Sphinx's doctest does not run stands one of

    <!-- run -->                        run; what is shown must appear, to the digit
    <!-- run: numbers vary -->          run; numbers, braces and None may differ
    <!-- run: numbers vary, slow -->    the same, in the slow suite; "federated": where Flower is
    <!-- not run: REASON -->
    <!-- file: PATH -->                 a script of examples/, which something else runs
    <!-- difference: PATH -->           of two scripts: docs/inline_scripts.py writes both kinds

Python blocks of a page share one namespace, console blocks one shell, in the order of the page. A
page may say ``<!-- in: FOLDER -->`` once: its shell works in a copy of that folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Made by a program, and compared with what that makes: tests/hostile/test_error_messages.py.
_MADE = ROOT / "docs" / "reference-errors.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page != _MADE),
]

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<verb>run|not run|file|difference)(?:: (?P<how>[^>]*?))? -->\n\n?)?"
    r"^ *(?P<fence>```+)(?P<language>[^`\n]*)\n(?P<text>.*?)^ *(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_FOLDER = re.compile(r"^<!-- in: (\S+) -->$", re.MULTILINE)
# Directives that show no code of their own, or that Sphinx's doctest runs.
_DIRECTIVES = {"testcode", "testoutput", "toctree", "figure", "include", "eval-rst"}


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: Where it stands, relative to the repository.
        line: Its first line, from 1.
        language: What follows the fence.
        text: What is inside.
        verb: "run", "not run", "file", "difference" or "" where nothing is said.
        how: The rest of the comment.
    """

    page: str
    line: int
    language: str
    text: str
    verb: str
    how: str

    @property
    def directive(self) -> str:
        found = re.match(r"\{([\w-]+)\}", self.language)
        return found.group(1) if found else ""

    @property
    def is_covered_by_sphinx(self) -> bool:
        return self.directive in _DIRECTIVES

    def has(self, word: str) -> bool:
        return word in self.how.split(", ")


def blocks_of(page: Path) -> list[Block]:
    """Returns the blocks of a page in its order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=str(page.relative_to(ROOT)),
            line=text.count("\n", 0, found.start("fence")) + 1,
            language=found["language"].strip(),
            text=found["text"],
            verb=found["verb"] or "",
            how=found["how"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def folder_of(page: Path) -> Path | None:
    """Returns the folder that the page's shell works in a copy of."""
    found = _FOLDER.search(page.read_text(encoding="utf-8"))
    return ROOT / found.group(1) if found else None


def marked(*words: str) -> list[Path]:
    """Returns the pages with console blocks that are run, of just these kinds."""
    kinds = {"slow", "federated"}
    return [
        page
        for page in PAGES
        if any(
            block.verb == "run"
            and block.language == "console"
            and kinds & set(block.how.split(", ")) == set(words)
            for block in blocks_of(page)
        )
    ]
