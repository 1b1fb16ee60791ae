"""``help()`` on every public name says what its arguments mean and what it raises.

That there is a docstring, with a summary of one line and blank lines where they belong, is ruff's
business (``D`` in ``pyproject.toml``), and that every argument has a type is mypy's. No linter
knows what a class inherits, which public name is a front door's, or what a validator raises.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pydoc
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import import_graph
import pytest

import optuna_dp as odp

# Public parts with names of their own; the accounting's beside those of optuna_dp itself.
PARTS = (
    "optuna_dp",
    "optuna_dp.dashboard",
    "optuna_dp.errors",
    "optuna_dp.scoring",
    "optuna_dp.visualization",
    "optuna_dp.voting",
)
MORE = {
    "optuna_dp.planning.calibration": ("Calibration", "bounds_of_ratio"),
    "optuna_dp.planning.selection_plan": ("PlanRow", "SelectionPlan"),
}
# The arguments of one of these are its fields, which "Attributes:" explains.
FIELDS = ("Args:", "Attributes:")


def public() -> Iterator[tuple[str, Any]]:
    """Yields every public class and function with its name, and the modules themselves."""
    for part in PARTS:
        module = importlib.import_module(part)
        yield part, module
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == part
        ]
        for name in names:
            value = None if name in ("__version__", "federated") else getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"{part}.{name}", value
    for part, more in MORE.items():
        for name in more:
            yield f"{part}.{name}", getattr(importlib.import_module(part), name)


PUBLIC = dict(public())


def parameters(value: Any) -> list[str]:
    """Returns what a caller may give, as it is written in the signature."""
    return [
        name
        for name, parameter in inspect.signature(value).parameters.items()
        if name not in ("self", "cls") and not name.startswith("_")
        if parameter.kind is not parameter.VAR_KEYWORD
    ]


def made_by_users(value: Any) -> bool:
    """Whether users call it: not an exception, not an abstract class."""
    return not inspect.isclass(value) or not (
        inspect.isabstract(value) or issubclass(value, Exception)
    )


def methods() -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties of the public classes that are ours."""
    for name, cls in PUBLIC.items():
        if not inspect.isclass(cls):
            continue
        for key, value in inspect.getmembers(cls):
            home = getattr(getattr(value, "fget", value), "__module__", "") or ""
            # The tests of the contract suite are named in sentences.
            if not key.startswith(("_", "test_")) and home.startswith("optuna_dp"):
                yield f"{name}.{key}", value


@pytest.mark.parametrize("name", [n for n, v in PUBLIC.items() if inspect.isclass(v)])
def test_no_class_shows_the_docstring_of_its_base(name: str) -> None:
    value = PUBLIC[name]
    assert value.__doc__
    assert value.__doc__ not in [base.__doc__ for base in value.__mro__[1:]]


@pytest.mark.parametrize("name", [n for n, v in PUBLIC.items() if not inspect.ismodule(v)])
def test_every_argument_is_explained(name: str) -> None:
    value, doc = PUBLIC[name], inspect.cleandoc(PUBLIC[name].__doc__ or "")
    if not made_by_users(value):
        return
    given = parameters(value)
    if not given:
        return
    assert any(section in doc for section in FIELDS), f"{name} takes {given}, without Args"
    for argument in given:
        assert re.search(rf"(^|\W){argument}(,|:| \()", doc), f"{name} does not explain {argument}"


def refuses(function: Any) -> bool:
    """Whether a function itself raises one of our errors or has an argument checked."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    scope = function.__globals__
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            error = scope.get(getattr(node.exc.func, "id", ""))
            if inspect.isclass(error) and issubclass(error, odp.errors.OptunaDPError):
                return True
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") in scope:
                home = scope[called.value.id]  # type: ignore[attr-defined]
                if getattr(home, "__name__", "") == "optuna_dp.core.validation":
                    return True
            found = scope.get(getattr(called, "id", ""))
            if getattr(found, "__module__", "") == "optuna_dp.core.validation":
                return True
    return False


def made_by(value: Any) -> list[Any]:
    """Returns what runs when a public name is called: itself, or what makes the instance."""
    if inspect.isfunction(value):
        return [value]
    return [
        vars(base)[key]
        for base in value.__mro__
        if base.__module__.startswith("optuna_dp")
        for key in ("__init__", "__post_init__")
        if key in vars(base)
        # What a dataclass makes has no source, and checks nothing.
        and vars(base)[key].__code__.co_filename != "<string>"
    ]


@pytest.mark.parametrize("name", [n for n, v in PUBLIC.items() if not inspect.ismodule(v)])
def test_what_refuses_arguments_says_so(name: str) -> None:
    value = PUBLIC[name]
    if made_by_users(value) and any(map(refuses, made_by(value))):
        assert "Raises:" in (value.__doc__ or ""), f"{name} does not say what it raises"


@pytest.mark.parametrize("name", [n for n, v in PUBLIC.items() if not inspect.ismodule(v)])
def test_signatures_are_short(name: str) -> None:
    value = PUBLIC[name]
    if not made_by_users(value):
        return
    for argument, parameter in inspect.signature(value).parameters.items():
        assert len(repr(parameter.default)) < 80, f"the default of {name}({argument}) is long"


METHODS = dict(methods())


def silent_methods() -> Iterator[str]:
    """Yields public methods without a docstring, unless they override one that has it.

    ``help()`` shows the docstring of the base then. Bases outside of the package have theirs.
    """
    classes: dict[str, list[ast.ClassDef]] = {}
    for file in import_graph.files():
        for node in ast.walk(ast.parse((import_graph.ROOT / file).read_text())):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)

    def methods_of(node: ast.ClassDef) -> dict[str, str | None]:
        parts = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        return {part.name: ast.get_docstring(part) for part in parts}

    def says(node: ast.ClassDef, method: str) -> bool:
        bases = {re.sub(r".*\.|\[.*", "", ast.unparse(base)) for base in node.bases}
        return bool(methods_of(node).get(method)) or any(
            base not in classes or any(says(one, method) for one in classes[base])
            for base in bases - {"NamedTuple"}
        )

    for name, nodes in classes.items():
        for node in [] if name.startswith("_") else nodes:
            for method in methods_of(node):
                if not method.startswith(("_", "test_")) and not says(node, method):
                    yield f"{name}.{method}"


def arguments_of(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """Returns the names that calls may give: of a class, what makes it."""
    if isinstance(node, ast.FunctionDef):
        listed = (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)
        named = [argument for arguments in listed for argument in arguments]
        named += [rest for rest in (node.args.vararg, node.args.kwarg) if rest is not None]
        return {argument.arg for argument in named}
    makers = [p for p in node.body if isinstance(p, ast.FunctionDef) and p.name == "__init__"]
    fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
    return {field.id for field in fields if isinstance(field, ast.Name)}.union(
        *map(arguments_of, makers)
    )


def explained(doc: str) -> Iterator[str]:
    """Yields the names that stand under ``Args:`` in a docstring."""
    _, _, section = inspect.cleandoc(doc).partition("\nArgs:\n")
    for line in section.splitlines():
        if line and not line.startswith(" "):
            return  # The next section.
        if entry := re.match(r"    ([\w*][\w*, ]*?)(?: \(.*?\))?:", line):
            yield from (name.strip(" *") for name in entry[1].split(","))


def test_docstrings_explain_arguments_that_exist() -> None:
    wrong = []
    for file in import_graph.files():
        for node in ast.walk(ast.parse((import_graph.ROOT / file).read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and arguments_of(node):
                strangers = set(explained(ast.get_docstring(node) or "")) - arguments_of(node)
                wrong += [f"{file}:{node.lineno} {name}" for name in sorted(strangers)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_every_method_says_what_it_does_or_overrides_one_that_does() -> None:
    assert sorted(silent_methods()) == []


@pytest.mark.parametrize("name", METHODS)
def test_methods_have_a_docstring_and_no_long_defaults(name: str) -> None:
    value = METHODS[name]
    assert inspect.getdoc(value), f"{name} has no docstring"
    if inspect.isfunction(value):
        for parameter in inspect.signature(value).parameters.values():
            assert len(repr(parameter.default)) < 80, name


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_refuse_arguments_say_so(name: str) -> None:
    """In their own docstring, or once for all methods in that of the class."""
    value = METHODS[name]
    function = inspect.unwrap(value) if inspect.isroutine(value) else None
    function = getattr(function, "__func__", function)
    owner = PUBLIC.get(name.rpartition(".")[0])
    if inspect.isfunction(function) and refuses(function):
        docs = (inspect.getdoc(value) or "") + (inspect.getdoc(owner) or "")
        assert "Raises:" in docs, f"{name} does not say what it raises"


@pytest.mark.parametrize("name", [*PUBLIC, *METHODS])
def test_nothing_returns_any(name: str) -> None:
    value = {**PUBLIC, **METHODS}[name]
    value = getattr(value, "fget", value)
    # A parameter's value, and a mechanism's answer, may be of any type.
    if inspect.isroutine(value) and not name.endswith((".sample_independent", ".ask")):
        returned = str(inspect.signature(value).return_annotation)
        assert returned not in ("Any", "typing.Any"), f"{name} returns Any"


@pytest.mark.parametrize("part", PARTS)
def test_help_on_a_module_shows_its_names_and_nothing_borrowed(part: str) -> None:
    module = importlib.import_module(part)
    assert set(module.__all__) <= set(dir(module))
    shown = pydoc.render_doc(module, renderer=pydoc.plaintext)
    assert "typing.Literal" not in shown
    if part != "optuna_dp":
        for name in module.__all__:
            home = getattr(getattr(module, name), "__module__", "optuna_dp")
            assert home.startswith("optuna_dp"), f"{part} shows {name} of {home}"


def test_help_works_without_what_a_part_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("optuna_dp.federated")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "flwr" else find(name)
    )
    asked: list[str] = []
    load = module.__getattr__
    monkeypatch.setattr(module, "__getattr__", lambda name: asked.append(name) or load(name))
    for name in {"voter"} & set(vars(module)):  # loaded before
        monkeypatch.delattr(module, name)
    assert pydoc.render_doc(module, renderer=pydoc.plaintext)
    assert "voter" not in asked


def test_events_say_that_they_are_events() -> None:
    """``Any`` tells a reader nothing, even if dp-accounting ships no types to check."""
    makers = ("dp_sgd", "gaussian", "laplace", "zcdp", "compose", "worst_case", "from_opacus")
    for name in makers:
        annotation = inspect.signature(getattr(odp, name)).return_annotation
        assert "DpEvent" in str(annotation), f"{name} returns {annotation}"
    for name in ("selection_guarantee", "PrivacyCallback", "Guarantee", "RandTuneSampler"):
        given = inspect.signature(getattr(odp, name)).parameters.values()
        found = [str(parameter.annotation) for parameter in given]
        assert any("DpEvent" in text for text in found), f"{name}: {found}"
