"""What a guarantee depends on is what docs/explanation/trusted-base.md says, and no more."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import import_graph
import pytest
import small_studies
import trusted_base

ROOT = Path(__file__).parent.parent
PAGE = trusted_base.PAGE.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("procedure", small_studies.STUDIES)
def test_the_page_shows_what_a_study_runs(procedure: str) -> None:
    """If not: ``python tests/trusted_base.py --page``, with the extras torch and federated."""
    needed = small_studies.NEEDS.get(procedure)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    assert trusted_base.shown()[procedure] == trusted_base.letters_of(procedure)


def test_the_page_has_every_study() -> None:
    assert list(trusted_base.shown()) == list(small_studies.STUDIES)


def test_every_file_that_is_named_exists() -> None:
    shown = {file for letters in trusted_base.shown().values() for file in letters}
    for name in {*trusted_base.WORDS, *trusted_base.UNTRUSTED, *shown}:
        assert (import_graph.ROOT / name).exists(), name


def test_nothing_that_may_be_wrong_is_named_in_vain() -> None:
    """What never runs in a study is not broken in one either."""
    shown = {file for letters in trusted_base.shown().values() for file in letters}
    for name in {*trusted_base.WORDS, *trusted_base.UNTRUSTED}:
        assert any(file.startswith(name) for file in shown), name


def test_the_trainer_is_trusted_wherever_it_trains() -> None:
    for procedure in ("budget", "private selection", "PyTorch", "density bounds"):
        letters = trusted_base.shown()[procedure]
        for file in ("runs/train.py", "training/exact_step.py", "training/sampling.py"):
            assert letters[file] == "T"


def test_the_page_has_a_row_for_every_package_that_is_trusted() -> None:
    packages = {
        file.rpartition("/")[0]
        for letters in trusted_base.shown().values()
        for file, letter in letters.items()
        if letter in ("N", "T")
    }
    listed = set(re.findall(r"^\| `([\w/]+?)/?` \|", PAGE, re.MULTILINE))
    assert packages - {""} <= listed


def test_links_to_tests_are_to_files_that_exist() -> None:
    for name in set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE)):
        assert (ROOT / name).exists(), name
