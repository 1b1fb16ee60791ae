"""The shape of the package: imports go one way, and importing it costs next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import optuna_dp

ROOT = Path(optuna_dp.__file__).parent

# A module may import from its own layer and from those before it.
LAYERS = [
    {"arrays", "errors", "json_records", "numbers_shown", "validation", "polling"},
    {"trial_counts"},
    {"accounting", "densities"},
    {"planning", "propose_test", "scoring", "voting"},
    {"protocol", "pruners"},
    {"samplers"},
    {"releasing"},
    {"callbacks", "cli", "dashboard", "digits", "federated", "testing", "visualization"},
]
LAYER = {name: level for level, names in enumerate(LAYERS) for name in names}

# Only these may know Optuna. A density's prior is over Optuna's distributions.
OPTUNA_ALLOWED = {
    "protocol",
    "samplers",
    "pruners",
    "releasing",
    "callbacks",
    "cli",
    "digits",
    "federated",
}
OPTUNA_ALLOWED |= {"dashboard", "testing", "visualization"}
DISTRIBUTIONS_ONLY = {"densities"}

# The one arrow back: publishing a release also draws its page, if the dashboard is installed.
ARROWS_BACK = {("releasing/publish.py", "dashboard")}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found |= {node.module}
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    mine = part(path)
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] == "optuna_dp" and len(pieces) > 1 and pieces[1] in LAYER:
            if (path.relative_to(ROOT).as_posix(), pieces[1]) in ARROWS_BACK:
                continue
            assert LAYER[pieces[1]] <= LAYER[mine], f"{path} imports {name}"
            same_layer = LAYER[pieces[1]] == LAYER[mine] and pieces[1] != mine
            assert not (same_layer and {mine, pieces[1]} == {"accounting", "densities"})
        if pieces[0] == "optuna" and mine not in OPTUNA_ALLOWED:
            assert mine in DISTRIBUTIONS_ONLY, f"{path} imports {name}"
            assert name.startswith("optuna.distributions"), f"{path} imports {name}"


def test_every_part_has_a_layer() -> None:
    assert {part(path) for path in modules()} <= set(LAYER)


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


def test_the_samplers_load_nothing_heavier_than_optuna() -> None:
    heavy = {"sklearn", "cvxpy", "opendp", "dp_accounting", "mpmath"}
    assert not _loaded_by("import optuna_dp as o; o.DPHyPOSampler, o.RandTuneSampler") & heavy
