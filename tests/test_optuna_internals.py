"""Optuna's private names are used in one file, and the installed Optuna has all of them."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import import_graph
import optuna
import pytest

from optuna_dp.core import optuna_internals
from optuna_dp.core.optuna_internals import PRIVATE_NAMES, PrivateName

FACADE = "core/optuna_internals.py"
# Names that are of a class of ours or of another library as well.
PRIVATE = re.compile(r"\b_[A-Za-z]\w*")
# Names that Optuna has as well, used of something else: by file.
ELSEWHERE = {
    "planning/target_search.py": {"_replace"},  # of a named tuple
}
# Imported for the type checker only: nothing fails without them.
FOR_TYPES = {"ArtifactStore", "_protocol"}
COMMON = {"_lock", "_backend"}


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
    module: Any = module_of(name.owner)
    is_there = hasattr(module, name.name) or is_module(f"{name.owner}.{name.name}")
    if not is_there:  # An attribute that an object gets when it is made.
        text = Path(inspect.getfile(module)).read_text(encoding="utf-8")
        is_there = re.search(rf"\b{name.name}\b", text) is not None
    assert is_there, (
        f"Optuna {optuna.__version__} has no {name.owner}.{name.name}: {name.without}. Mend "
        f"{name.user} in optuna_dp/{FACADE}."
    )


@functools.cache
def names_in_optuna() -> frozenset[str]:
    """Every private name that stands in the source of the installed Optuna."""
    folder = Path(optuna.__file__).parent
    sources = (path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    return frozenset(name for text in sources for name in PRIVATE.findall(text))


@functools.cache
def own_names() -> frozenset[str]:
    """Every private name that a file of this package gives to something of its own."""
    names: set[str] = set()
    for file in import_graph.files():
        for node in ast.walk(ast.parse((import_graph.ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                # What is given to another object may be Optuna's.
                names |= {node.attr} if is_own(node.value) else set()
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return frozenset(names)


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_uses(source: str) -> set[str]:
    """Private names of Optuna that a file uses by itself: dotted, imported, or in a string.

    A string counts wherever it stands: ``getattr``, ``hasattr``, ``vars(x)[...]``, a table.
    """
    listed = {name.name for name in PRIVATE_NAMES if name.name.startswith("_")} - COMMON
    names = listed | (names_in_optuna() - own_names())
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            found |= set() if is_own(node.value) else {node.attr}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {part for part in node.value.split(".") if part in names}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            home = node.module if isinstance(node, ast.ImportFrom) else None
            for alias in node.names:
                parts = f"{home}.{alias.name}".split(".") if home else alias.name.split(".")
                if parts[0] == "optuna":
                    found |= {part for part in parts if part.startswith("_")}
    return found


@pytest.mark.slow
def test_private_names_of_optuna_are_used_in_one_file() -> None:
    uses = {
        file: private_uses((import_graph.ROOT / file).read_text(encoding="utf-8"))
        for file in import_graph.files()
        if file != FACADE
    }
    assert {file: names - ELSEWHERE.get(file, set()) for file, names in uses.items()} == {
        file: set() for file in uses
    }
    for file, names in ELSEWHERE.items():
        assert names & names_in_optuna() <= uses[file], f"an exception of nothing: {file}"


@pytest.mark.slow
def test_every_private_name_in_that_file_is_listed() -> None:
    """Also names in private modules, which have no underscore of their own."""
    source = (import_graph.ROOT / FACADE).read_text(encoding="utf-8")
    names = {name.name for name in PRIVATE_NAMES}
    owners = {part for name in PRIVATE_NAMES for part in name.owner.split(".")}
    listed = names | owners | FOR_TYPES
    assert private_uses(source) <= listed
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and "._" in (node.module or ""):
            assert {alias.name for alias in node.names} <= listed, node.module


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("study._storage.get_trial(0)", {"_storage"}),
        ("from optuna.study._frozen import FrozenStudy", {"_frozen"}),
        ("from optuna import _imports", {"_imports"}),
        ("import optuna.storages._heartbeat", {"_heartbeat"}),
        ("import optuna.storages._heartbeat as heartbeat", {"_heartbeat"}),
        ("getattr(study, '_storage', None)", {"_storage"}),
        ("hasattr(sampler, '_random_sampler')", {"_random_sampler"}),
        ("operator.attrgetter('study._storage')", {"_storage"}),
        ("vars(sampler)['_random_sampler']", {"_random_sampler"}),
        ("monkey.patch('optuna.storages._heartbeat.get')", {"_heartbeat"}),
        # Not listed, and private in Optuna.
        ("trial._cached_frozen_trial", {"_cached_frozen_trial"}),
        ("self._storage = 1", set()),
        ("'a text with a _storage in it'", set()),
    ],
)
def test_the_search_finds_what_it_looks_for(source: str, names: set[str]) -> None:
    assert private_uses(source) == names


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
