"""The core knows no part: each can be deleted, and the core and the README's script still work.

The core is every file that belongs to no part. That it imports no part, by a statement or by a
name in a string, is read from the source. The slow test deletes each part in a copy, and all of
them in another one, where the tests of the core run too.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import import_graph
import pytest

from optuna_dp import parts

ROOT = Path(__file__).parent.parent

# The folders of each part, and the parts that it needs at whatever it does. What a part needs for
# some things only, it imports when it does them: a figure of votes needs the part of votes.
FOLDERS = {
    "engines": ("distributed",),
    "figures": ("visualization", "dashboard"),
    "votes": ("voting", "federated"),
    "audits": ("testing", "attacks"),
    "selection planner": ("selection_planner",),
    "choice over partitions": ("utilities",),
    "adaptive selection": ("adaptive_selection",),
}

# Tests of the core that run in a copy without a part. They are quick, and import no part.
CORE_TESTS = (
    "budget/test_events_of_plans.py",
    "private_selection/test_accountant.py",
    "releasing/test_description.py",
    "releasing/test_unit_of_statement.py",
    "training/test_draws_and_noise.py",
    "training/test_what_a_training_refuses.py",
)

# Both procedures of the core, from the plan to the verified release, and their commands.
SCRIPT = """
import json, optuna, subprocess, sys
from dp_accounting.rdp import RdpAccountant
import optuna_dp as odp
from optuna_dp.cli import app
optuna.logging.set_verbosity(optuna.logging.ERROR)

def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    run = odp.fidelity(trial)
    run.spent(RdpAccountant().compose(odp.dp_sgd(
        noise_multiplier=run.noise_multiplier, sample_rate=run.sample_rate, steps=run.steps
    )))
    return run.score([x] * 500)

plan = odp.plan_budget(epsilon=3.0, records=500, batch_size=100, epochs=2, pilots=2)
run = odp.RunPlan(
    records=500, batch_size=100, steps=10, noise_multiplier=2.0, score_noise_multiplier=20.0
)
for sampler in (
    odp.BudgetSampler(plan), odp.RandTuneSampler(trials=odp.Geometric(mean=2), run=run)
):
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[odp.PrivacyCallback()])
    release = odp.release(study)
    assert "epsilon" in release.statement()
    assert release.guarantee.bounds(1e-5)[1] == release.guarantee.epsilon(1e-5)
    assert release.guarantee.by_method(1e-5)
    assert odp.verify(json.loads(json.dumps(release.to_json()))).ok
    odp.publish(release, optuna.storages.InMemoryStorage(), "public")
    repr(plan), plan._repr_html_(), release._repr_html_()
for name in odp.__all__:
    getattr(odp, name)
for command in app.registered_commands:
    app([command.callback.__name__, "--help"], standalone_mode=False)
"""


def _files_of(part: str) -> set[str]:
    folders = tuple(f"{folder}/" for folder in FOLDERS[part])
    return {file for file in import_graph.files() if file.startswith(folders)}


def _core() -> list[str]:
    of_parts = set().union(*map(_files_of, FOLDERS))
    return [file for file in import_graph.files() if file not in of_parts]


def _modules_in_strings(file: str) -> set[str]:
    """Returns the files of modules that a file names in strings, prose left out."""
    tree = ast.parse((import_graph.ROOT / file).read_text())
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    words = {text.partition(":")[0] for text in texts if " " not in text}
    return {found for word in words if (found := import_graph.file_of(word))}


@pytest.mark.slow
@pytest.mark.parametrize("part", FOLDERS)
def test_the_core_imports_no_part(part: str) -> None:
    theirs = _files_of(part)
    assert theirs
    for file in _core():
        known = import_graph.neighbours(file, types=True) | _modules_in_strings(file)
        assert not known & theirs, file


@pytest.mark.parametrize("part", FOLDERS)
def test_a_part_is_loaded_with_no_other_part_present(part: str) -> None:
    """Inside functions a part may import another one: what that function is about needs both."""
    others = set().union(*(_files_of(name) for name in FOLDERS if name != part))
    for file in _files_of(part):
        known = {
            import_graph.file_of(item.name)
            for item in import_graph.imports(file)
            if not item.inside and not item.for_types
        }
        assert not known & others, file


def test_every_part_that_is_registered_can_be_deleted() -> None:
    registrations = {file for file in import_graph.files() if file.endswith("/part.py")}
    assert registrations == {
        f"{folder}/part.py" for folders in FOLDERS.values() for folder in folders
    }
    assert len(registrations) == len([*parts.registered()]) - 1  # The core adds a remark.


def test_everything_that_a_part_adds_can_be_loaded() -> None:
    for part in parts.registered():
        entries = [entry for entry in part[6:] if isinstance(entry, str)]
        entries += [command.function for command in part.commands]
        entries += [
            entry for procedure in part.procedures.values() for entry in procedure if entry
        ]
        entries += [
            f"{module}:{name}" for module, names in part.names.items() for name in names.split()
        ]
        entries += [f"{module}:{name}" for name, module in part.events.items()]
        for entry in entries:
            assert parts.load(entry) is not None
        for module in (*part.modules.values(), *part.laws.values()):
            assert importlib.util.find_spec(module) is not None


def test_a_name_that_two_parts_add_is_refused() -> None:
    with pytest.raises(ValueError, match="both add"):
        parts.register(parts.Part(name="another", procedures=parts.table("procedures")))
    with pytest.raises(ValueError, match="twice"):
        parts.register(parts.Part(name="votes"))
    assert "another" not in {part.name for part in parts.registered()}


@pytest.mark.slow
@pytest.mark.parametrize("part", [*FOLDERS, "all of them"])
def test_the_core_works_when_a_part_is_deleted(part: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("optuna_dp", "tests", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in FOLDERS if part == "all of them" else (part,):
        for folder in FOLDERS[name]:
            shutil.rmtree(tmp_path / "optuna_dp" / folder)
    _run(tmp_path, "-c", SCRIPT)
    if importlib.util.find_spec("torch") is not None:
        _run(tmp_path, "examples/quickstart.py")  # The README's script.
    if part == "all of them":
        tests = [f"tests/{name}" for name in CORE_TESTS]
        _run(tmp_path, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)


def _run(copy: Path, *arguments: str) -> None:
    # In front of the installed package, which is the one with all parts.
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
