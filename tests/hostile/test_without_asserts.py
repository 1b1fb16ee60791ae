"""No ``assert`` validates: under ``python -O`` it is not there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import optuna_dp
from optuna_dp import errors

from .error_messages import cases

ROOT = Path(optuna_dp.__file__).parent
TESTS = Path(__file__).parents[1]
CHAPTERS = (
    "Laws of the number of runs",
    "What one run costs",
    "Guarantees, calibration and plans",
    "Budgets",
    "Samplers, callback and pruner",
    "Scores and votes",
)
PROVOKE_ALL = f"""
import warnings
from hostile.error_messages import cases, provoke
warnings.simplefilter("ignore")
for chapter in {CHAPTERS!r}:
    for case in cases()[chapter]:
        print(type(provoke(case)).__name__, case.what, sep=": ")
"""


@pytest.mark.slow
def test_arguments_are_refused_without_asserts_too() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{ROOT.parent}"}
    done = subprocess.run(
        [sys.executable, "-O", "-c", PROVOKE_ALL],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    refused = [line.split(": ", 1) for line in done.stdout.splitlines()]
    table = cases()
    assert [what for _, what in refused] == [c.what for name in CHAPTERS for c in table[name]]
    assert {kind for kind, _ in refused} <= set(errors.__all__)


def _narrows(test: ast.expr) -> bool:
    """Returns whether a test tells a type checker what a value is: not None, or of a class."""
    if isinstance(test, ast.Compare):
        last = test.comparators[-1]
        is_none = isinstance(last, ast.Constant) and last.value is None
        return is_none and isinstance(test.ops[0], ast.IsNot)
    return isinstance(test, ast.Call) and ast.unparse(test.func) == "isinstance"


def _catches_asserts(handler: ast.ExceptHandler) -> bool:
    words = "BaseException" if handler.type is None else ast.unparse(handler.type)
    return any(name in words for name in ("AssertionError", "Exception"))


def validating_asserts(source: str) -> list[int]:
    """Returns the lines of asserts on which what a function does or accepts depends.

    These are asserts that narrow no type, that stand where their error is caught, or that are
    about an argument of a function whose name is public.
    """
    tree, lines = ast.parse(source), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and not _narrows(node.test):
            lines.add(node.lineno)
        elif isinstance(node, ast.Try) and any(map(_catches_asserts, node.handlers)):
            inner = (part for statement in node.body for part in ast.walk(statement))
            lines |= {part.lineno for part in inner if isinstance(part, ast.Assert)}
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
            for part in ast.walk(node):
                if isinstance(part, ast.Assert):
                    asserted = part.test.args[0] if isinstance(part.test, ast.Call) else None
                    asserted = part.test.left if isinstance(part.test, ast.Compare) else asserted
                    if isinstance(asserted, ast.Name) and asserted.id in arguments:
                        lines.add(part.lineno)
    return sorted(lines)


def test_no_assert_validates() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path in sorted(ROOT.rglob("*.py"))
        if (lines := validating_asserts(path.read_text()))
    }
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    assert x > 0",
        "def f(x):\n    assert isinstance(x, int)",
        "def f(x):\n    assert x is not None",
        "assert plan.rows",
        "try:\n    assert isinstance(data, dict)\nexcept (ValueError, AssertionError):\n    pass",
    ],
)
def test_an_assert_that_validates_is_seen(source: str) -> None:
    assert validating_asserts(source)


def test_an_assert_for_the_type_checker_is_allowed() -> None:
    assert not validating_asserts("def f(x):\n    y = x.rate\n    assert y is not None")
