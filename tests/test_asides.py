"""What is asked on the way may be answered in any way: no guarantee gets smaller for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support import RUN, finished_study

import optuna_dp as odp
from optuna_dp import asides


@pytest.fixture
def answers() -> Iterator[dict[str, Any]]:
    """The functions that are asked; put back afterwards."""
    before = dict(asides._functions)
    yield asides._functions
    asides._functions.clear()
    asides._functions.update(before)


def test_a_release_does_not_wait_for_what_the_reminders_say(answers: dict[str, Any]) -> None:
    study = finished_study()
    answers["reminders of a release"] = lambda evidence: "nonsense"
    release = odp.release(study, RUN)
    assert odp.release(study, RUN).to_json() == release.to_json()
