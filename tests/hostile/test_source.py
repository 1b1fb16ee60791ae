"""What the package's source never does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import optuna_dp

ROOT = Path(optuna_dp.__file__).parent
MODULES = {
    *("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"),
    *("subprocess", "pty", "yaml", "telnetlib", "ftplib"),
}
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "spawnv", "execv", "loads"}


# Work is sent to an engine, which pickles it whoever does: what is read there was written by the
# caller, and what the caller reads back by its own workers.
SENT = {
    "distributed/call.py": ["cloudpickle", "loads"],
    "distributed/engines.py": ["joblib"],
    "distributed/worker.py": ["cloudpickle", "loads"],
    # Written (safe_dump), never read.
    "releasing/registry.py": ["yaml"],
}


def offences(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module.split(".")[0] in MODULES else []
        elif isinstance(node, ast.Call):
            found += _calls(node)
    return found


def _calls(node: ast.Call) -> list[str]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = getattr(getattr(function, "value", None), "id", "")
    shell = [k for k in node.keywords if k.arg == "shell"]
    allow_pickle = [k for k in node.keywords if k.arg == "allow_pickle"]
    harmless = (owner, name) in {("json", "loads"), ("re", "compile")}
    # A method of that name on anything else than these modules is not the builtin.
    builtin = isinstance(function, ast.Name) or owner in {"os", "builtins", *MODULES}
    bad = name in CALLS and builtin and not harmless
    return [name] if bad or shell or allow_pickle else []


def test_yaml_is_written_and_never_read() -> None:
    assert "yaml.safe_dump(" in (ROOT / "releasing/registry.py").read_text()
    assert "load" not in (ROOT / "releasing/registry.py").read_text()


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: p.name)
def test_no_pickle_eval_shell_or_yaml(path: Path) -> None:
    sent = SENT.get(path.relative_to(ROOT).as_posix(), [])
    assert [o for o in offences(path.read_text()) if o.split(".")[0] not in sent] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import subprocess as s",
        "eval('1')",
        "exec('1')",
        "import os; os.system('ls')",
        "import os; os.popen('ls')",
        "run('ls', shell=True)",
        "import yaml",
        "np.load('f', allow_pickle=True)",
        "__import__('os')",
    ],
)
def test_the_scan_finds_them(source: str) -> None:
    assert offences(source)
