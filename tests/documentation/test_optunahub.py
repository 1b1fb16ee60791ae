"""The OptunaHub packages: what the registry's check of headers asks, and its template.

The registry (optuna/optunahub-registry) runs ``optunahub-registry/header_confirm.py`` over every
README. These are its rules in our words; the last test adds what its template says besides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from documentation.pages import ROOT

PACKAGES = sorted(path.parent for path in (ROOT / "examples" / "optunahub").rglob("README.md"))
TAGS = {"samplers": "sampler", "pruners": "pruner", "visualization": "visualization"}


def _header(folder: Path) -> dict[str, Any]:
    _, header, _ = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(header)
    return found


def test_there_are_packages() -> None:
    assert [folder.name for folder in PACKAGES] == ["dp_hypo", "rand_tune"]


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_the_header_is_what_the_registry_confirms(folder: Path) -> None:
    header = _header(folder)
    for name in ("author", "title", "description", "license"):
        assert isinstance(header[name], str), name
    for name in ("tags", "optuna_versions"):
        assert isinstance(header[name], list), name
        assert header[name]
        assert all(isinstance(value, str) for value in header[name]), name
    assert header["license"] == "MIT License"


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_the_folder_is_like_the_template(folder: Path) -> None:
    assert folder.parent.parent.name == "package"
    assert TAGS[folder.parent.name] in _header(folder)["tags"]
    for name in ("__init__.py", "LICENSE", "example.py"):
        assert (folder / name).is_file(), name
    assert "<COPYRIGHT HOLDER>" not in (folder / "LICENSE").read_text("utf-8")
    text = (folder / "README.md").read_text("utf-8")
    assert "\n## Abstract\n" in text
    assert "\n## Example\n" in text
