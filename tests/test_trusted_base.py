"""What a guarantee rests on is what docs/explanation/trusted-base.md says, and no more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import import_graph
import pytest
import trusted_base

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "trusted-base.md"
FIRST = "private selection"
# What a reviewer of plain selection reads in a day.
MOST_LINES = 4_000

# A study of each procedure from the first trial to the statement.
STUDIES = {
    "private selection": "odp.RandTuneSampler(trials=odp.Geometric(mean=2)), odp.gaussian(4.0)",
    "another law of T": """odp.RandTuneSampler(
        trials=odp.Poisson(mean=2).capped(3)
    ), odp.gaussian(4.0)""",
    "runs known in part": """odp.RandTuneSampler(trials=odp.Geometric(mean=2)), odp.compose(
        odp.worst_case(odp.pure_dp(0.1), odp.approximate_dp(0.1, 1e-9)),
        odp.rdp([2, 8], [0.1, 0.3]),
    )""",
    "with density bounds": """odp.DPHyPOSampler(
        {"x": FloatDistribution(0, 1)}, trials=odp.Geometric(mean=2), candidates=4
    ), odp.gaussian(4.0)""",
    "pilots": """odp.PilotSampler(
        pilots=1, pilot_run=odp.gaussian(9.0), trials=odp.Geometric(mean=2), candidates=4
    ), odp.gaussian(4.0)""",
    "choice among utilities": """odp.NoisyMaxSampler(
        candidates=[{"x": 0.25}, {"x": 0.75}], n_partitions=500, epsilon=1.0
    ), None""",
    "doubling": """odp.ProposeTestSampler(
        candidates=[{"x": 0.25}, {"x": 0.75}], n_partitions=20_000, epsilon=0.5, granularity=0.2,
        resolve=0.4,
    ), None""",
}
# What the front door shows beside a guarantee is left out: it is no part of it, which is what
# tests/accounting/test_guarantee.py is for.
RUN = """
import sys, numpy, optuna, optuna_dp as odp
from optuna_dp import asides
POINTS = numpy.linspace(0.0, 50.0, 2000)
asides.offer("reminders of a release", lambda evidence: None)
asides.offer("grid of a composition", lambda *question: 1e-3)
asides.offer("points of a profile", lambda *question: POINTS)
asides.offer("bounds of others", lambda *question: {{}})
asides.offer("attack", lambda *question: 0.0)
from optuna.distributions import FloatDistribution
def objective(trial):
    return trial.suggest_float("x", 0, 1)
sampler, run = {study}
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(objective)
release = odp.release(study, run)
release.guarantee.epsilon(delta=1e-6)
print("\\n".join(name for name in sys.modules if name.startswith("optuna_dp")))
print("--")
release.guarantee.rdp()
release.statement()
release.to_json()
print("\\n".join(name for name in sys.modules if name.startswith("optuna_dp")))
"""


# The first worker died, the winner has an artifact, and a training was composed on top.
SELDOM = """
import sys, tempfile, numpy, optuna, optuna_dp as odp
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna_dp import asides
asides.offer("reminders of a release", lambda evidence: None)
asides.offer("grid of a composition", lambda *question: 1e-3)
asides.offer("points of a profile", lambda *question: numpy.linspace(0.0, 50.0, 2000))
store = FileSystemArtifactStore(tempfile.mkdtemp())
def objective(trial):
    upload_artifact(artifact_store=store, file_path=__file__, study_or_trial=trial)
    return trial.suggest_float("x", 0, 1)
sampler = odp.RandTuneSampler(trials=odp.Geometric(mean=2))
study = optuna.create_study(direction="maximize", sampler=sampler)
study._storage.create_new_trial(study._study_id)
odp.recover(study, fail=[0])
study.optimize(objective)
release = odp.release(study, odp.gaussian(4.0), artifact_store=store)
assert release.artifact is not None
release.with_training(odp.gaussian(9.0)).guarantee.delta(0.5)
print("\\n".join(name for name in sys.modules if name.startswith("optuna_dp")))
"""


def test_nothing_else_is_loaded_where_seldom_things_happen(tmp_path: Path) -> None:
    (tmp_path / "seldom.py").write_text(SELDOM)
    command = [sys.executable, str(tmp_path / "seldom.py")]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "optuna_dp.protocol.succession" in out.stdout.split()
    found = _unforeseen(out.stdout, trusted_base.trusted("what seldom happens"))
    assert found == {"protocol/recovery.py"}  # which only tells that a worker has died


@pytest.mark.parametrize("procedure", STUDIES)
def test_nothing_else_is_loaded_from_the_first_trial_to_the_statement(procedure: str) -> None:
    code = RUN.format(study=STUDIES[procedure])
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = out.stdout.split("--")
    guarantee, whole = trusted_base.trusted(procedure), trusted_base.statement(procedure)
    assert _unforeseen(before, guarantee) == set()
    assert _unforeseen(after, [*guarantee, *whole]) == set()


def _unforeseen(names: str, files: list[str]) -> set[str]:
    """What was loaded and is not among the files."""
    loaded = {file for name in names.split() if (file := import_graph.file_of(name))}
    # Python runs the __init__.py of every package it passes, and what that imports.
    passed = import_graph.reachable(f for f in loaded if f.endswith("__init__.py"))
    return loaded - set(files) - passed


def test_words_are_loaded_for_whoever_asks_for_them() -> None:
    assert trusted_base.words_loaded_at_once() == []


def test_a_door_is_inside_a_function() -> None:
    for file, target in trusted_base.DOORS:
        arrows = [i for i in import_graph.imports(file) if import_graph.file_of(i.name) == target]
        assert arrows, f"{file} does not import {target}"
        assert all(arrow.inside for arrow in arrows)


def section(procedure: str) -> str:
    text = PAGE.read_text()
    heading = f"## {procedure[0].upper()}{procedure[1:]}\n"
    assert heading in text
    return text.split(heading)[1].split("\n## ")[0]


def listed(procedure: str) -> list[str]:
    return re.findall(r"^\| `([\w/]+\.py)` \|", section(procedure), re.MULTILINE)


@pytest.mark.parametrize("procedure", trusted_base.STARTS)
def test_the_page_lists_the_files_and_no_others(procedure: str) -> None:
    found = set(trusted_base.trusted(procedure))
    if procedure != FIRST:
        found -= set(trusted_base.trusted(FIRST))
    assert sorted(listed(procedure)) == sorted(found)


def test_the_page_lists_what_statements_rest_on() -> None:
    found = {
        file for procedure in trusted_base.STARTS for file in trusted_base.statement(procedure)
    }
    assert sorted(listed("statements")) == sorted(found)


def test_a_file_is_described_in_one_way() -> None:
    rows: dict[str, str] = {}
    for procedure in [*trusted_base.STARTS, "statements"]:
        for line in section(procedure).splitlines():
            if match := re.match(r"\| `([\w/]+\.py)` \|", line):
                assert rows.setdefault(match[1], line) == line


@pytest.mark.parametrize("procedure", trusted_base.STARTS)
def test_the_counts_are_true(procedure: str) -> None:
    files = trusted_base.trusted(procedure)
    said = re.search(
        rf"^\| {procedure} \| (\d+) \| ([\d,]+) \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE
    )
    assert said is not None
    assert int(said[1]) == len(files)
    for column, counted in ((2, files), (3, trusted_base.statement(procedure))):
        lines = int(said[column].replace(",", ""))
        assert abs(lines - trusted_base.lines(counted)) <= 0.02 * lines


def test_links_to_tests_are_to_files_that_exist() -> None:
    here = PAGE.parent.parent.parent
    for name in set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE.read_text())):
        assert (here / name).exists(), name


def test_what_plain_selection_rests_on_does_not_grow() -> None:
    assert trusted_base.lines(trusted_base.trusted(FIRST)) <= MOST_LINES
