"""Writes scripts of the repository into the pages that show them, so that both are one text.

``python docs/inline_scripts.py`` writes; a test compares. A page says what the block below is:

    <!-- file: examples/quickstart.py -->                the whole file
    <!-- file: examples/quickstart.py, objective -->     one function or class of it
    <!-- difference: examples/existing_scripts/opacus --> opacus_before.py to opacus_after.py

A repository's own view of a page shows the code, which it does not for ``literalinclude``.
"""

from __future__ import annotations

import ast
import difflib
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
_BLOCK = re.compile(
    r"(?P<mark>^<!-- (?P<kind>file|difference): (?P<what>[^>]*?) -->\n```(?:python|diff)\n)"
    r"(?P<text>.*?)(?=^```$)",
    re.MULTILINE | re.DOTALL,
)


def text_of(kind: str, what: str) -> str:
    """Returns what stands in a block that a page marks so."""
    path, _, name = what.partition(", ")
    if kind == "difference":
        return _difference(path)
    text = (ROOT / path).read_text("utf-8")
    return _part(text, name) if name else text


def with_scripts(page: str) -> str:
    """Returns a page's text with its marked blocks as the scripts are now."""
    return _BLOCK.sub(lambda found: found["mark"] + text_of(found["kind"], found["what"]), page)


def _difference(path: str) -> str:
    """Returns both scripts whole, with what goes and what comes."""
    before, after = (
        (ROOT / f"{path}_{when}.py").read_text("utf-8").splitlines()
        for when in ("before", "after")
    )
    # All lines as context, and without the lines that name the files.
    lines = list(difflib.unified_diff(before, after, n=len(before), lineterm=""))[3:]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _part(text: str, name: str) -> str:
    """Returns the source of one function or class."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return f"{ast.get_source_segment(text, node)}\n"
    raise ValueError(f"{name} is not defined at the top of the script")


def main() -> None:
    for page in (ROOT / "README.md", *sorted(HERE.rglob("*.md"))):
        text = page.read_text("utf-8")
        page.write_text(with_scripts(text), "utf-8")


if __name__ == "__main__":
    main()
