"""Formulas as MathML, written when the site is built: no script, no font and no network to read.

A command that the converter does not know would appear as text; the build warns of it instead,
and ``-W`` makes that an error.
"""

from __future__ import annotations

import re
from typing import Any
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


def _visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(node, "inline"))
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
