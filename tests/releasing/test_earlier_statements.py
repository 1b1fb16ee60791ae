"""Statements that were written before their words were improved stay verifiable.

The files in ``statements/`` are ``Release.to_json()`` of small studies, as optuna-dp wrote them
before its promises said by what each run is held. They are never written again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slow_cases import slow_if

import optuna_dp as odp

FILES = sorted((Path(__file__).parent / "statements").glob("*.json"))


def test_there_are_statements() -> None:
    assert len(FILES) == 6


@pytest.mark.parametrize(
    "file",
    slow_if(lambda file: file.stem in ("budget_disjoint", "budget_enforced", "dp_hypo"), FILES),
    ids=lambda file: file.stem,
)
def test_an_earlier_statement_agrees_and_is_printed_in_the_words_of_today(file: Path) -> None:
    found = odp.verify(file)
    assert found.ok, str(found)
    assert all(text in found.statement for text in found.believed)
    stated = json.loads(file.read_text())["statement"]["assumptions"]
    is_older = stated != list(found.believed)
    assert any("in an earlier wording" in text for text in found.unchecked) == is_older
    assert is_older == (file.stem != "noisy_max")


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_other_words_in_an_earlier_statement_differ(file: Path) -> None:
    forged = json.loads(file.read_text())
    forged["statement"]["assumptions"].pop()
    assert not odp.verify(forged).ok


def test_an_earlier_description_of_the_trained_records_alone_is_named_as_unchecked() -> None:
    found = odp.verify(FILES[0].parent / "budget_disjoint.json")
    assert any("scores others, which are protected too" in text for text in found.unchecked)
