"""The scripts that pages show are those of the repository, which CI runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from documentation.pages import PAGES, ROOT, blocks_of
from optuna_dp.check.source_hints import hints_in_source

FOLDER = ROOT / "examples" / "existing_scripts"
PAIRS = sorted(path.stem.removesuffix("_before") for path in FOLDER.glob("*_before.py"))


def writer() -> Any:
    spec = importlib.util.spec_from_file_location(
        "inline_scripts", ROOT / "docs" / "inline_scripts.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_scripts_on_pages_are_as_in_the_repository(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == writer().with_scripts(text), "run: python docs/inline_scripts.py"
    # What the writer has not seen would be compared with nothing.
    marked = [b for b in blocks_of(page) if b.verb in ("file", "difference")]
    assert all(b.text == writer().text_of(b.verb, b.how) for b in marked)


def test_a_changed_script_is_noticed() -> None:
    page = (ROOT / "README.md").read_text("utf-8")
    assert "epsilon=3.0" in page
    changed = page.replace("plan_budget(epsilon=3.0", "plan_budget(epsilon=4.0")
    assert writer().with_scripts(changed) == page


def test_every_pair_is_shown_with_its_difference() -> None:
    assert PAIRS == ["conditional", "opacus", "pytorch", "sklearn"]
    shown = {
        block.how for page in PAGES for block in blocks_of(page) if block.verb == "difference"
    }
    assert shown == {f"examples/existing_scripts/{name}" for name in PAIRS}


def test_the_first_script_is_shown_before_and_after() -> None:
    page = ROOT / "docs" / "tutorials" / "from-an-existing-script.md"
    shown = [block.how for block in blocks_of(page) if block.verb == "file"]
    assert shown == [
        f"examples/existing_scripts/pytorch_{when}.py" for when in ("before", "after")
    ]


def test_the_lines_that_change_are_as_many_as_the_page_says() -> None:
    page = ROOT / "docs" / "tutorials" / "from-an-existing-script.md"
    (shown,) = (block.text for block in blocks_of(page) if block.verb == "difference")
    lines = shown.splitlines()
    gone, come = (sum(line.startswith(sign) for line in lines) for sign in "-+")
    assert f"{gone} lines go and {come} come" in page.read_text()


def test_the_front_page_begins_with_images_a_table_and_fine_tuning() -> None:
    shown = [block.how for block in blocks_of(ROOT / "README.md") if block.verb == "file"]
    assert shown == [
        "examples/quickstart.py",
        "examples/prepare/from_a_table.py",
        "examples/recipes/with_lora.py, objective",
    ]


def test_the_hints_that_the_page_shows_are_those_of_the_check() -> None:
    page = (ROOT / "docs" / "tutorials" / "from-an-existing-script.md").read_text()
    shown = set(re.findall(r"^hint +([\w ]+): .*?\(line (\d+)\)", page, re.MULTILINE))
    hints = hints_in_source((FOLDER / "pytorch_before.py").read_text())
    found = {
        (hint.name, line) for hint in hints for line in re.findall(r"\(line (\d+)\)", hint.what)
    }
    assert len(shown) == 6
    assert shown <= found
