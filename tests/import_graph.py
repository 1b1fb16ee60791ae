"""Which file of the package imports which, read from the source: nothing is run."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna_dp

ROOT = Path(optuna_dp.__file__).parent
FRONT_DOOR = "__init__.py"  # loads every name when it is first used, so it imports nothing


@dataclass(frozen=True)
class Import:
    """One name that a file imports, for the type checker only included.

    Attributes:
        name: The module, dotted.
        line: Where.
        inside: Whether it is inside a function.
        for_types: Whether only the type checker sees it.
        reason: Whether a comment stands on its line, or above the block of imports it is in.
    """

    name: str
    line: int
    inside: bool
    for_types: bool
    reason: bool


def files() -> list[str]:
    """Every file of the package but its front door, relative to the package."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
    return [file for file in found if file != FRONT_DOOR]


def _only_for_types(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _statements(
    node: ast.AST, inside: bool = False, for_types: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside, for_types
        here = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _statements(child, here, for_types or _only_for_types(child))


def _has_reason(statement: ast.Import | ast.ImportFrom, lines: list[str]) -> bool:
    """A comment on the line itself, or above the imports that stand together with it."""
    first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
    if any("#" in line for line in lines[first : last + 1]):
        return True
    above = first - 1
    while (
        lines[above].strip().startswith(("import ", "from ", ")"))
        or (not lines[above].strip())
        or (lines[above].strip().endswith(",") and lines[above].startswith("    " * 2))
    ):
        above -= 1
    return lines[above].strip().startswith("#")


@functools.cache
def imports(file: str) -> tuple[Import, ...]:
    """What a file imports, in the order of its lines."""
    source = (ROOT / file).read_text()
    lines, found = source.splitlines(), []
    for statement, inside, for_types in _statements(ast.parse(source)):
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        else:
            assert statement.level == 0, f"{file}: relative import"
            names = [_module(statement.module or "", alias.name) for alias in statement.names]
        reason = inside and _has_reason(statement, lines)
        found += [Import(name, statement.lineno, inside, for_types, reason) for name in names]
    return tuple(found)


def _module(package: str, name: str) -> str:
    """``from package import name`` imports a module, or a name of one."""
    whole = f"{package}.{name}"
    return whole if file_of(whole) or not package.startswith("optuna_dp") else package


@functools.cache
def file_of(module: str) -> str | None:
    """The file of a module of this package, or None."""
    first, *rest = module.split(".")
    if first != "optuna_dp" or not rest:
        return None
    path = "/".join(rest)
    for candidate in (f"{path}.py", f"{path}/__init__.py"):
        if (ROOT / candidate).is_file():
            return candidate
    return None


@functools.cache
def neighbours(file: str, *, types: bool = False) -> frozenset[str]:
    """The files that a file imports, imports inside its functions included.

    Python also runs the ``__init__.py`` of every package above a module that it imports. What
    that file imports is run, and not used, so it does not count here.

    Args:
        file: The file.
        types: Whether imports for the type checker count as well.
    """
    found = {file_of(item.name) for item in imports(file) if types or not item.for_types}
    return frozenset(found - {None, file})  # type: ignore[arg-type]


def loads_by_name(file: str) -> bool:
    """Whether a file loads modules whose names do not stand in it."""
    calls = [n for n in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(n, ast.Call)]
    return any(
        getattr(call.func, "attr", getattr(call.func, "id", "")) in ("import_module", "__import__")
        and not (
            isinstance(call.args[0], ast.Constant)
            and not str(call.args[0].value).startswith("optuna_dp")
        )
        for call in calls
    )


def reachable(starts: Iterable[str], *, types: bool = False) -> set[str]:
    """These files, and every file that they import, directly or not."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += neighbours(file, types=types)
    return found


@functools.cache
def code_lines(file: str) -> int:
    """Lines that hold code: not blank, not only a comment, not a docstring."""
    source = (ROOT / file).read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                prose |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in empty:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - prose)


def _is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.startswith("__")


def private_names(source: str) -> set[str]:
    """The private names that a file gives to something: to itself, it is no other's business."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if _is_private(name)}


def private_names_used(source: str) -> set[tuple[int, str]]:
    """Private names of other objects that a file uses: line and name.

    What a class takes from its base is its own. Names in strings count where something is set or
    read by name.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value.func if isinstance(node.value, ast.Call) else node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls", "super")):
                found.add((node.lineno, node.attr))
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("setattr", "delattr", "getattr", "patch", "object"):
                texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
                found |= {(node.lineno, str(text).split(".")[-1]) for text in texts}
    return {(line, name) for line, name in found if _is_private(name)}
