"""Formulas as MathML, written when the site is built: no script, no font and no network to read.

A command that the converter does not know would appear as text; the build warns of it instead,
and ``-W`` makes that an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_LOGGER = logging.getLogger(__name__)
_TAG = re.compile(r"\\tag\{([^}]*)\}")
_BARE_LETTER = re.compile(r"\\mathbb ?([A-Z])")
_PRIME = "<mi>&#x02032;</mi>"
_TIGHT_LOG = re.compile(r"(<mi>log</mi>)(?=<mi|<mn|<mfrac|<msu)")
_WITH_LIMITS = re.compile(r"(\\(?:max|min|sup|inf|lim))_")

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
# Browsers do not break a formula, and a telephone has room for about 40 letters. So a formula in a
# sentence with more letters than this is written as several, which begin at these operators.
_LONG = 24
_BREAKS = frozenset("=≤≥<>∈→≠≈∼+−")
_OPENING, _CLOSING = frozenset("([{⌊⌈"), frozenset(")]}⌋⌉")
# Keeps a bracket or a comma on the line of its formula; Chromium heeds it beside text only.
_JOINER = "&#x2060;"


def _mathml(node: nodes.Element, display: str) -> str:
    latex = _BARE_LETTER.sub(r"\\mathbb{\1}", _TAG.sub("", node.astext()).strip())
    if display == "block":
        latex = _WITH_LIMITS.sub(r"\1\\limits_", latex)
    try:
        found: str = convert(latex, display=display)
    except Exception as error:  # The converter's errors have no common base.
        _LOGGER.warning("formula not converted (%r): %s", error, latex, location=node)
        return f"<code>{escape(latex)}</code>"
    if "\\" in found:
        _LOGGER.warning("formula with a command that is not known: %s", latex, location=node)
    found = _TIGHT_LOG.sub(r'\1<mspace width="0.17em"/>', found)
    return found.replace(_PRIME, '<mo class="prime">&#x02032;</mo>')


def _letters(elements: list[ElementTree.Element]) -> int:
    return sum(len("".join(element.itertext())) for element in elements)


def _pieces(
    elements: list[ElementTree.Element], *, in_brackets: bool
) -> Iterator[list[ElementTree.Element]]:
    """Cuts the elements of a row before operators, those in brackets only if told so."""
    piece: list[ElementTree.Element] = []
    depth, before = 0, ""
    for element in elements:
        text = "".join(element.itertext())
        is_break = text in _BREAKS and (before not in _BREAKS | _OPENING | {"", ","})
        if is_break and (in_brackets or depth == 0):
            yield piece
            piece = []
            element.set("form", "infix")  # The first one of a row would have no space.
        piece.append(element)
        depth += sum(letter in _OPENING for letter in text)
        depth -= sum(letter in _CLOSING for letter in text)
        before = text
    yield piece


def _broken(formula: str) -> list[str]:
    """Returns a long formula as several that follow each other, so that a line may end between."""
    ElementTree.register_namespace("", _NAMESPACE)
    root = ElementTree.fromstring(formula)
    if len(root) != 1 or not root[0].tag.endswith("mrow") or _letters([root]) <= _LONG:
        return [formula]
    row = root[0]
    pieces: list[list[ElementTree.Element]] = []
    for piece in _pieces(list(row), in_brackets=False):
        is_long = _letters(piece) > _LONG
        pieces += _pieces(piece, in_brackets=True) if is_long else [piece]
    formulas = []
    for piece in pieces:
        row[:] = piece
        formulas.append(ElementTree.tostring(root, encoding="unicode"))
    return formulas


def _visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    before = node.previous_sibling()
    after = node.next_node(descend=False, siblings=True)
    opens = isinstance(before, nodes.Text) and before.endswith(("(", "[", "“"))
    closes = isinstance(after, nodes.Text) and after.startswith(tuple(",.;:)]?”’-"))
    formulas = _broken(_mathml(node, "inline"))
    if opens:
        formulas[0] = f'<span class="joined">{_JOINER}{formulas[0]}</span>'
    if closes:
        formulas[-1] = f'<span class="joined">{formulas[-1]}{_JOINER}</span>'
    self.body += formulas
    raise nodes.SkipNode


def _visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    label = "".join(f'<span class="eqno">({escape(x)})</span>' for x in _TAG.findall(str(node)))
    self.body.append(f'<div class="math notranslate">{label}{_mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def _find_lost_formulas(app: Sphinx, document: nodes.document, name: str) -> None:
    """Warns of formulas that the Markdown reader took for text (a line that begins with "+")."""
    for text in document.findall(nodes.Text):
        if "$$" in text and not isinstance(text.parent, nodes.literal | nodes.literal_block):
            _LOGGER.warning("formula read as text: %s", text, location=text.parent)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    app.connect("doctree-resolved", _find_lost_formulas)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
