"""The reference page has every public name: all that a part lists in its ``__all__``."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import import_graph
import pytest

from documentation.pages import ROOT

PAGE = (ROOT / "docs" / "reference.md").read_text("utf-8")
_DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)$", re.MULTILINE)


def parts() -> dict[str, Path]:
    """Every module of the package that says which of its names are public."""
    files = [import_graph.FRONT_DOOR, *import_graph.files()]
    with_names = {}
    for file in files:
        tree = ast.parse((import_graph.ROOT / file).read_text())
        names = {
            name.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            for name in getattr(target, "elts", [target])
            if isinstance(name, ast.Name)
        }
        if "__all__" in names:
            dotted = file.removesuffix(".py").replace("/", ".").removesuffix("__init__")
            with_names[f"optuna_dp.{dotted}".rstrip(".")] = import_graph.ROOT / file
    return with_names


PARTS = parts()


def documented(page: str) -> set[str]:
    """The dotted names that a page documents; of a whole module, all that are public in it."""
    names = set()
    for kind, name in _DIRECTIVE.findall(page):
        names.add(name)
        if kind == "module":
            names |= {f"{name}.{each}" for each in importlib.import_module(name).__all__}
    return names


DOCUMENTED = documented(PAGE)


def is_documented(part: str, name: str, names: set[str], page: str) -> bool:
    """Whether a public name is documented, under this dotted name or as the same object."""
    if name == "__version__":
        return f"odp.{name}" in page
    if f"{part}.{name}" in PARTS:  # A part is documented by its names.
        return any(each.startswith(f"{part}.{name}") for each in names)
    if f"{part}.{name}" in names:
        return True
    alike = {each for each in names if each.endswith(f".{name}")}
    return any(loaded(part, name) is loaded(*each.rsplit(".", 1)) for each in alike)


def loaded(part: str, name: str) -> Any:
    return getattr(importlib.import_module(part), name)


@pytest.mark.parametrize("part", PARTS)
def test_every_public_name_is_in_the_reference(part: str) -> None:
    public = importlib.import_module(part).__all__
    assert public
    missing = [name for name in public if not is_documented(part, name, DOCUMENTED, PAGE)]
    assert not missing, f"docs/reference.md has no directive for these names of {part}: {missing}"


def test_the_parts_that_users_import_are_found() -> None:
    names = {"", ".federated", ".voting", ".mechanisms", ".scoring", ".errors"}
    assert {f"optuna_dp{name}" for name in names} <= set(PARTS)


def test_a_name_without_a_directive_is_found() -> None:
    page = PAGE.replace(".. autoclass:: optuna_dp.mechanisms.DoublingPlan", "")
    assert not is_documented("optuna_dp.mechanisms", "DoublingPlan", documented(page), page)
    assert is_documented("optuna_dp.mechanisms", "NoisyMaxPlan", documented(page), page)
    # The same function under two names needs one entry.
    assert is_documented("optuna_dp.mechanisms", "partition", documented(page), page)


@pytest.mark.parametrize("part", PARTS)
def test_the_page_names_every_part(part: str) -> None:
    assert part == "optuna_dp" or part in PAGE or part.replace("optuna_dp", "odp") in PAGE
