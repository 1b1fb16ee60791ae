"""The shape of the package, as far as ``lint-imports`` does not look: start-up, private names.

That imports go one way, and none goes through a front door, is in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import import_graph
import pytest

import optuna_dp

# The public faces of packages, which load a name when it is first used. They name for type
# checkers what stands above their package, and nobody inside goes through them.
DOORS = {
    f"{package}/__init__.py"
    for package in (
        *("dashboard", "federated", "mechanisms"),
        *("visualization", "voting"),
    )
}
# The files that load modules of this package by a name made while they run, which the import graph
# cannot see: the table of what stands above its user, and the table of laws. lazy-loader loads
# public names.
LOADED_BY_NAME = {
    *("core/by_name.py", "selection/laws/base.py"),
}


@pytest.mark.parametrize("file", import_graph.files())
def test_an_import_inside_a_function_says_why(file: str) -> None:
    """An extra that may be missing, or start-up time: in a comment on the line or above it."""
    silent = {i.line for i in import_graph.imports(file) if i.inside and not i.reason}
    assert not silent, f"{file}, lines {sorted(silent)}"


@pytest.mark.slow
def test_only_two_closed_tables_load_modules_by_name() -> None:
    files = [*import_graph.files(), import_graph.FRONT_DOOR]
    assert {file for file in files if import_graph.loads_by_name(file)} <= LOADED_BY_NAME


def test_no_public_name_of_a_package_is_that_of_a_file_in_it() -> None:
    """Python gives the name to the file when somebody imports it, and the public name is gone."""
    for door in sorted(DOORS):
        package = door.removesuffix("/__init__.py").replace("/", ".")
        module = importlib.import_module(f"optuna_dp.{package}")
        public = set(getattr(module, "__all__", None) or module.__dir__())
        files = {path.stem for path in (import_graph.ROOT / door).parent.glob("*.py")}
        assert not (public | {"annotations"}) & files, door  # Every file imports "annotations".


# Names that other libraries use as well, and mean there: Optuna, dp-accounting, threads, IPython.
OF_OTHERS = {
    *("_backend", "_lock", "_orders", "_repr_html_", "_rng"),
    *("_search_space", "_storage", "_study", "_study_id", "_target", "_trial_id"),
}


@pytest.mark.slow
def test_nobody_uses_the_private_names_of_another_file() -> None:
    own = {
        path: import_graph.private_names(path.read_text())
        for path in (import_graph.ROOT / file for file in import_graph.files())
    }
    private = set().union(*own.values()) - OF_OTHERS
    # Benchmarks test the examples, which have names of their own. Defences are switched off where
    # they stand, whatever their names.
    tests = (
        file
        for file in Path(__file__).parent.rglob("*.py")
        if file.parent.name != "benchmarks" and file.name != "defences.py"
    )
    found = []
    for path in (*own, *tests):
        source = path.read_text()
        others = private & set(re.findall(r"\b_\w+", source))
        others -= own[path] if path in own else import_graph.private_names(source)
        if others:
            used = import_graph.private_names_used(source)
            found += [f"{path}:{line} {name}" for line, name in used if name in others]
    assert not found, "\n".join(found)


def test_every_public_name_can_be_loaded() -> None:
    for name in optuna_dp.__all__:
        assert getattr(optuna_dp, name) is not None


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(chr(10).join(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _loaded_by("import optuna_dp")
    assert not loaded & {"optuna", "numpy", "scipy", "sklearn", "cvxpy", "opendp", "dp_accounting"}


@pytest.mark.slow
def test_the_samplers_load_nothing_heavier_than_optuna() -> None:
    heavy = {"sklearn", "cvxpy", "opendp", "dp_accounting", "mpmath"}
    assert not _loaded_by("import optuna_dp as o; o.DPHyPOSampler, o.RandTuneSampler") & heavy


def test_names_of_tests_are_their_own() -> None:
    """pytest takes two files of one name for one module, where folders are no packages."""
    names = [
        path.name
        for path in Path(__file__).parent.rglob("test_*.py")
        if not (path.parent / "__init__.py").exists()
    ]
    assert sorted(names) == sorted(set(names))


# Names of Optuna's by which system attributes of studies and trials are read and written.
ATTRIBUTES = {"system_attrs", "set_trial_system_attr", "set_study_system_attr"}
ATTRIBUTES |= {"get_study_system_attrs", "get_trial_system_attrs"}


def test_only_the_ledger_touches_system_attributes() -> None:
    found = []
    for file in import_graph.files():
        if file.startswith("study/"):
            continue
        tree = ast.parse((import_graph.ROOT / file).read_text())
        for node in ast.walk(tree):
            name = getattr(node, "attr", getattr(node, "arg", None))
            if name in ATTRIBUTES:
                found.append(f"{file}:{node.lineno} {name}")  # type: ignore[attr-defined]
            if isinstance(node, ast.Constant) and str(node.value).startswith("optuna_dp:"):
                found.append(f"{file}:{node.lineno} {node.value}")
    assert not found, "\n".join(found)
