"""Tables, lists and words of others in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# What makes bold text, links, code and HTML; "|" is for a table's cells.
_MARKS = "\\`*[]<>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    return "\n".join([_line(heads), "|" + "---|" * len(heads), *map(_line, rows)])


def two_columns(rows: Mapping[str, str], heads: tuple[str, str] = ("", "")) -> str:
    """Returns a table in Markdown, one row for each name."""
    return table(heads, list(rows.items()))


def numbered(sentences: Sequence[str]) -> str:
    """Returns a numbered list in Markdown."""
    return "\n".join(f"{i}. {text}" for i, text in enumerate(sentences, start=1))


def escaped(text: str) -> str:
    """Returns a text of the curator's, or a name, without the marks that Markdown knows."""
    return "".join(f"\\{c}" if c in _MARKS else c for c in text)


def one_line(text: str) -> str:
    """Returns a curator's words without line breaks, which could make them look like ours."""
    return " ".join(text.split())


def counted(number: int, noun: str) -> str:
    """Returns a number and its noun, in the plural if need be."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _line(cells: Sequence[str]) -> str:
    cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]
    return f"| {' | '.join(cells)} |" if any(cells) else "|" + " |" * len(cells)
