"""A few of the faulted studies, of which the command runs hundreds."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("grpc")

from .faulted_studies import run

# About a second of the processor each; before a release set it to hundreds.
STUDIES = int(os.environ.get("FAULTED_STUDIES", "12"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_faults_cost_no_study_and_repeat_no_run() -> None:
    counts = run(STUDIES, 1000)
    assert counts.studies == STUDIES
    assert counts.faults["kill"] > 0
    assert counts.outcomes["released"] > 0
    assert counts.is_clean, counts


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_faults_of_a_database_server_cost_no_study_and_repeat_no_run() -> None:
    pytest.importorskip("psycopg")
    counts = run(STUDIES, 5000, ["postgresql"])
    assert counts.studies == STUDIES
    assert counts.faults["crash"] + counts.faults["restart"] > 0
    assert counts.outcomes["released"] > 0
    assert counts.is_clean, counts
