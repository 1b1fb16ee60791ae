"""The notebook of the first tutorial is made from its page; CI executes it."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from typing import Any

from documentation.pages import ROOT


def maker() -> Any:
    spec = importlib.util.spec_from_file_location(
        "make_notebook", ROOT / "docs" / "make_notebook.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stored_notebook_is_the_page() -> None:
    made = maker()
    stored = json.loads(made.NOTEBOOK.read_text())
    assert [(c["id"], c["source"]) for c in stored["cells"]] == [
        (c["id"], c["source"]) for c in made.cells()
    ]


def test_every_block_of_code_became_a_cell() -> None:
    made = maker()
    code = [cell["source"] for cell in made.cells() if cell["cell_type"] == "code"]
    assert len(code) >= made.PAGE.read_text().count("{testcode}")
    for text in code:
        ast.parse(text)


def test_no_link_leads_nowhere() -> None:
    for cell in maker().cells():
        assert not re.search(r"\]\([^)]*\.md", cell["source"])


def test_nothing_of_a_private_study_is_stored_with_it() -> None:
    """Optuna's log would tell every run of the second study, and T."""
    text = maker().NOTEBOOK.read_text()
    assert "set_verbosity" in text
    assert "site-packages" not in text
    assert "finished with value" not in text
