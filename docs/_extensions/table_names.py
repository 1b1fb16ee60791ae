"""Long names in tables, which may break after a slash, an underscore, a dot, a bracket or a comma.

A table has little room for a path or the name of a test. Without these places a browser breaks it
between any two letters, or makes its column as wide as the name.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
_NAME = re.compile(r'(?<=<span class="pre">)[^<]{13,}(?=</span>)')
_PLACE = re.compile(r"(?<=[\w)\]][/_.(,=])(?!py\b)(?=[A-Za-z0-9])")


def _with_places(table: re.Match[str]) -> str:
    return _NAME.sub(lambda name: _PLACE.sub("<wbr>", name[0]), table[0])


def _let_names_break(
    app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None
) -> None:
    if "body" in context:
        context["body"] = _TABLE.sub(_with_places, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", _let_names_break)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
