"""The page of theorems: numbers without gaps, an anchor for each, files that exist."""

from __future__ import annotations

import re

from documentation.pages import ROOT

TEXT = (ROOT / "docs" / "explanation" / "theorems.md").read_text()


def test_every_theorem_has_its_number_and_an_anchor_of_that_name() -> None:
    found = re.findall(r"^\(theorem-(\d+)\)=\n## Theorem (\d+) \(.+\)$", TEXT, re.MULTILINE)
    assert found == [(str(i), str(i)) for i in range(1, len(found) + 1)]
    assert len(found) == TEXT.count("\n## Theorem ") == 12


def test_proof_code_and_tests_of_every_theorem_exist() -> None:
    for part in TEXT.split("\n## Theorem ")[1:]:
        body = part.split("\n## ")[0]
        files = re.findall(r"`((?:tests|optuna_dp)/[\w/]+\.py)`", body)
        assert any(file.startswith("tests/") for file in files), part[:40]
        for file in files:
            assert (ROOT / file).is_file(), file
        for page in re.findall(r"\(([\w-]+\.md)[#)]", body):
            assert (ROOT / "docs" / "explanation" / page).is_file(), page
        assert "Proof" in body or "*Proof.*" in body


def test_a_cited_assumption_is_stated() -> None:
    stated = set(re.findall(r"^\| \*\*(A\d)\*\*", TEXT, re.MULTILINE))
    assert set(re.findall(r"\bA\d\b", TEXT.split("## Assumptions")[1])) <= stated
