"""What a guarantee depends on is what docs/explanation/trusted-base.md says, and no more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import import_graph
import pytest
import trusted_base

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "trusted-base.md"

# A study of each procedure from the first trial to the release.
STUDIES = {
    "budget": """odp.BudgetSampler(odp.plan_budget(
        epsilon=3.0, records=500, batch_size=100, epochs=2, pilots=2
    ))""",
    "private selection": """odp.RandTuneSampler(
        trials=odp.Geometric(mean=2), run=odp.gaussian(4.0)
    )""",
    "with density bounds": """odp.DPHyPOSampler(
        {"x": FloatDistribution(0, 1)}, trials=odp.Geometric(mean=2), candidates=4,
        run=odp.gaussian(4.0),
    )""",
    "choice among utilities": """odp.NoisyMaxSampler(
        candidates=[{"x": 0.25}, {"x": 0.75}], n_partitions=500, epsilon=1.0
    )""",
    "doubling": """odp.ProposeTestSampler(
        candidates=[{"x": 0.25}, {"x": 0.75}], n_partitions=20_000, epsilon=0.5, granularity=0.2,
        resolve=0.4,
    )""",
}
RUN = """
import sys, optuna, optuna_dp as odp
from dp_accounting.rdp import RdpAccountant
from optuna.distributions import FloatDistribution
def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    if type(sampler).__name__ != "BudgetSampler":
        return x
    run = odp.start_run(trial)
    run.spent(RdpAccountant().compose(odp.dp_sgd(
        noise_multiplier=run.noise_multiplier, sample_rate=run.sample_rate, steps=run.steps
    )))
    return run.score([x] * 500)
sampler = {study}
planned = set(sys.modules)
study = optuna.create_study(direction="maximize", sampler=sampler)
study.optimize(objective)
release = odp.release(study, vouched={vouched})
release.guarantee.epsilon(delta=1e-6)
print("\\n".join(n for n in sys.modules if n.startswith("optuna_dp") and n not in planned))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "procedure",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] if name in ("doubling", "with density bounds") else []
        )
        for name in STUDIES
    ],
)
def test_nothing_else_is_loaded_from_the_first_trial_to_the_release(procedure: str) -> None:
    is_stated = "odp.gaussian" in STUDIES[procedure]
    code = RUN.format(study=STUDIES[procedure], vouched="'a test'" if is_stated else None)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {f for name in out.stdout.split() if (f := import_graph.file_of(name))}
    # Python runs the __init__.py of every package it passes, and what that imports.
    passed = import_graph.reachable(f for f in loaded if f.endswith("__init__.py"))
    known = {*trusted_base.trusted(procedure), *trusted_base.WORDS, *trusted_base.OF_TRAININGS}
    strangers = {f for f in loaded - known - passed if not trusted_base.is_untrusted(f, procedure)}
    assert strangers == set()


def test_every_file_that_is_named_exists() -> None:
    doors = {file for door in trusted_base.DOORS for file in door}
    for name in {*trusted_base.WORDS, *trusted_base.UNTRUSTED, *doors}:
        assert (import_graph.ROOT / name).exists(), name


def test_a_door_is_inside_a_function() -> None:
    for file, target in trusted_base.DOORS:
        arrows = [i for i in import_graph.imports(file) if import_graph.file_of(i.name) == target]
        assert arrows, f"{file} does not import {target}"
        assert all(arrow.inside for arrow in arrows if not arrow.for_types)


def test_the_page_has_a_row_for_every_package_that_is_trusted() -> None:
    packages = {
        file.rpartition("/")[0] or file
        for procedure in trusted_base.STARTS
        for file in trusted_base.trusted(procedure)
    }
    listed = set(re.findall(r"^\| `([\w/]+?)/?` \|", PAGE.read_text(), re.MULTILINE))
    assert {package for package in packages if not package.endswith(".py")} <= listed


def test_links_to_tests_are_to_files_that_exist() -> None:
    for name in set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE.read_text())):
        assert (ROOT / name).exists(), name
