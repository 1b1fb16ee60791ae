"""Optuna's private names are used in one file, and the installed Optuna has all of them."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import import_graph
import optuna
import pytest

from optuna_dp import optuna_internals
from optuna_dp.optuna_internals import PRIVATE_NAMES, PrivateName

FACADE = "optuna_internals.py"
# Names that are of a class of ours or of another library as well.
COMMON = {"_lock", "_backend", "_cache", "_setup", "_host", "_port", "_stub", "_channel"}


def module_of(owner: str) -> object:
    """The module that an owner is, or that its class is in."""
    parts = owner.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found if inspect.ismodule(found) else inspect.getmodule(found)
    raise ImportError(owner)


def is_module(path: str) -> bool:
    try:
        return importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:  # What should hold it is no package.
        return False


@pytest.mark.parametrize("name", PRIVATE_NAMES, ids=lambda n: f"{n.owner}.{n.name}")
def test_the_installed_optuna_has_the_name(name: PrivateName) -> None:
    if "_grpc" in name.owner:
        try:
            importlib.import_module("optuna.storages._grpc.servicer")
        except ImportError:
            pytest.skip('needs pip install "optuna-dp[grpc]"')
    module: Any = module_of(name.owner)
    is_there = hasattr(module, name.name) or is_module(f"{name.owner}.{name.name}")
    if not is_there:  # An attribute that an object gets when it is made.
        text = Path(inspect.getfile(module)).read_text(encoding="utf-8")
        is_there = re.search(rf"\b{name.name}\b", text) is not None
    assert is_there, (
        f"Optuna {optuna.__version__} has no {name.owner}.{name.name}: {name.without}. Mend "
        f"{name.user} in optuna_dp/{FACADE}."
    )


def private_uses(source: str) -> set[str]:
    """Private names of Optuna that a file uses by itself."""
    names = {name.name for name in PRIVATE_NAMES if name.name.startswith("_")} - COMMON
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            found |= set() if own else {node.attr}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optuna."):
            parts = [*str(node.module).split("."), *(alias.name for alias in node.names)]
            found |= {part for part in parts if part.startswith("_")}
    return found


@pytest.mark.parametrize("file", [f for f in import_graph.files() if f != FACADE])
def test_private_names_of_optuna_are_used_in_one_file(file: str) -> None:
    assert not private_uses((import_graph.ROOT / file).read_text(encoding="utf-8"))


def test_the_search_finds_what_it_looks_for() -> None:
    assert private_uses("study._storage.get_trial(0)") == {"_storage"}
    assert private_uses("from optuna.study._frozen import FrozenStudy") == {"_frozen"}
    assert private_uses("self._storage = 1") == set()


def test_every_function_of_the_file_says_what_it_uses() -> None:
    listed = {name.user for name in PRIVATE_NAMES}
    members = vars(optuna_internals).values()
    own = {m.__name__ for m in members if inspect.isfunction(m) and m.__module__.endswith("nals")}
    assert own - listed == {"uses"}


def test_studies_and_trials_are_found_in_their_storage() -> None:
    study = optuna.create_study()
    trial = study.ask()
    storage = optuna_internals.storage_of(study)
    number = optuna_internals.trial_id_of(trial)
    assert storage.get_trial(number).number == trial.number
    assert storage.get_study_name_from_id(optuna_internals.study_id_of(study)) == study.study_name
    assert not optuna_internals.is_in_optimize_loop(study)
    seen = []
    study.optimize(
        lambda trial: seen.append(optuna_internals.is_in_optimize_loop(study)) or 0.0, n_trials=1
    )
    assert seen == [True]
