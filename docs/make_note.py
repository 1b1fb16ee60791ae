"""Makes the technical note as a PDF from pages of this site, so that there is one text.

``python docs/make_note.py FILE.pdf`` needs the packages pypandoc-binary and typst. A page or a
section that is missing is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Pages, and which of their sections; None is the whole page.
PIECES: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    ("note.md", None),
    ("explanation/theorems.md", None),
    (
        "explanation/profile-bound.md",
        ("Notation", "Precondition", "Proof", "What the attack assumes"),
    ),
    ("explanation/accountants.md", None),
    ("explanation/profile-bound.md", ("Limits",)),
)
_FENCE = re.compile(r"^```\{.*?^```$\n?", re.MULTILINE | re.DOTALL)
_ANCHOR = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)
_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!http)[^)]*\)")


def section(text: str, title: str) -> str:
    """A section of the second level, its title included."""
    found = re.search(rf"^## {re.escape(title)}$.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"there is no section {title!r}")
    return found[0]


def piece(page: str, titles: tuple[str, ...] | None) -> str:
    text = (HERE / page).read_text().replace("```{testoutput}", "```")
    for pattern in (_FENCE, _ANCHOR, _COMMENT):
        text = pattern.sub("", text)
    text = _LINK.sub(r"\1", text)
    if titles is not None:
        name = text.splitlines()[0]
        text = "\n\n".join([name, *(section(text, title) for title in titles)])
    return text


def main(file: str) -> None:
    import pypandoc
    import typst

    title, _, rest = piece(*PIECES[0]).partition("\n")
    whole = "\n\n".join([rest, *(piece(*which) for which in PIECES[1:])])
    made = pypandoc.convert_text(
        whole,
        "typst",
        format="markdown-smart-fancy_lists",
        extra_args=[
            *("--standalone", f"--metadata=title:{title[2:]}", "-V", "papersize=a4"),
            *("-V", "header-includes=#show table.cell: set align(left)"),
        ],
    )
    # pandoc 3.9 writes the name that older versions of Typst had.
    made = made.replace("times.circle", "times.o")
    Path(file).write_bytes(typst.compile(made.encode()))


if __name__ == "__main__":
    main(sys.argv[1])
