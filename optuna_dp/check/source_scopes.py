"""Parts of a source in which no hint at preparation is given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from optuna_dp.check.source_syntax import called, nodes_in

# Libraries whose functions of the same names have noise, and names that they are often given.
_WITH_NOISE = {"diffprivlib", "opendp", "pipeline_dp", "snsql", "snsynth", "tmlt"}
_NAMES_WITH_NOISE = {"tools", "dp", "diffprivlib"}
# Of scikit-learn: their fit learns nothing.
_LEARN_NOTHING = {
    *("Normalizer", "Binarizer", "FunctionTransformer", "HashingVectorizer", "FeatureHasher"),
    *("PolynomialFeatures", "GaussianRandomProjection", "SparseRandomProjection", "RBFSampler"),
}
_PUBLIC = re.compile(r"(?<![a-z])(public|made_up|synthetic)(?![a-z])", re.IGNORECASE)
# What a trained model says, and what is computed from that.
_OUTPUT = re.compile(
    r"(\w+_)?(pred|preds|predictions?|predicted|guess|guesses|outputs?|logits|scores|losses"
    r"|accuracies)"
)
# Functions of tests, and of one batch.
_ELSEWHERE = re.compile(r"test_\w+|\w*collate\w*")
_SHOWS = {"print", "info", "debug", "warning"}
_FITS = {"fit", "fit_transform", "adapt"}
RELEASES = {"release", "publish"}
# What a loop that trains calls.
TRAINS = {"backward", "step"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def left_alone(tree: ast.Module) -> set[ast.AST]:
    """Returns the nodes that prepare no private records for a training.

    These are functions that are given as ``prepare=``, which are tried by running them; calls on
    what the source says is public or made up, and on outputs of a model; calls of libraries that
    add noise; tests, and what is only shown; and what comes after a release.
    """
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    passed = _prepares(tree, functions)
    passed += [f for f in functions if _ELSEWHERE.fullmatch(f.name) or _PUBLIC.search(f.name)]
    passed += [f for f in functions if _is_of_one_batch(f)]
    passed += [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    passed += [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in _SHOWS
    ]
    passed += _after_a_release(tree, functions)
    return nodes_in(passed) | _harmless_calls(tree)


def _is_of_one_batch(function: _Function) -> bool:
    """Returns whether a function is given a batch, and not the size of one for its training."""
    trains = any(isinstance(n, ast.Call) and called(n) in TRAINS for n in ast.walk(function))
    return any(a.arg == "batch" for a in function.args.args) and not trains


def _prepares(tree: ast.Module, functions: Iterable[_Function]) -> list[ast.AST]:
    """Returns the functions that are given as ``prepare=``, and those that these call."""
    prepares: list[ast.AST] = []
    waiting: list[ast.AST] = [
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "prepare"
    ]
    while waiting:
        node = waiting.pop()
        prepares.append(node)
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        names |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        waiting += [f for f in functions if f.name in names and f not in prepares + waiting]
    return prepares


def _after_a_release(tree: ast.Module, functions: Iterable[_Function]) -> Iterator[ast.AST]:
    """Yields the statements that follow a release in the same function, or in the file."""
    for scope in (tree, *functions):
        own_calls = [
            node
            for statement in scope.body
            if not isinstance(statement, _Function | ast.ClassDef)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and called(node) in RELEASES
        ]
        first_line = min((call.lineno for call in own_calls), default=None)
        if first_line is None:
            continue
        for statement in scope.body:
            if not isinstance(statement, _Function | ast.ClassDef):
                yield from (
                    node
                    for node in ast.walk(statement)
                    if isinstance(node, ast.stmt) and node.lineno > first_line
                )


def _harmless_calls(tree: ast.Module) -> set[ast.AST]:
    """Returns calls that learn nothing without noise, or from public data or outputs only."""
    harmless_names = _NAMES_WITH_NOISE | _LEARN_NOTHING | set(_imported_with_noise(tree))
    public: set[str] = set()
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for assignment in sorted(assignments, key=lambda node: node.lineno):
        # Not df of df["city"] = ...
        targets = {
            part.id
            for target in assignment.targets
            for part in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(part, ast.Name)
        }
        if _is_public(assignment.value, public):
            public |= targets
        elif isinstance(assignment.value, ast.Call) and _makes_harmless(
            assignment.value, harmless_names
        ):
            harmless_names |= targets
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    harmless: list[ast.AST] = []
    for call in calls:
        reads = [call.func, *call.args[:1]]
        if _is_public(call, public) or any(_is_listed(node, harmless_names) for node in reads):
            # Not the arguments: bounds that a library is given may be of the records.
            harmless += [call.func, *_by_public_fits(assignments, calls, call, public)]
    return nodes_in(harmless) | {c for c in calls if c.func in set(harmless)}


def _by_public_fits(
    assignments: Iterable[ast.Assign],
    calls: Iterable[ast.Call],
    call: ast.Call,
    public: set[str],
) -> Iterator[ast.AST]:
    """Yields what makes the transformer that a call fits, if it is fitted on public records."""
    if called(call) not in _FITS or not isinstance(call.func, ast.Attribute):
        return
    owner = ast.unparse(call.func.value)
    fits = [
        fit
        for fit in calls
        if called(fit) in _FITS
        and isinstance(fit.func, ast.Attribute)
        and ast.unparse(fit.func.value) == owner
    ]
    if all(_is_public(fit, public) for fit in fits):
        yield from (a for a in assignments if owner in map(ast.unparse, a.targets))


def _imported_with_noise(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _WITH_NOISE:
            yield from (alias.asname or alias.name for alias in node.names)
        if isinstance(node, ast.Import):
            yield from (
                alias.asname or alias.name.split(".")[0]
                for alias in node.names
                if alias.name.split(".")[0] in _WITH_NOISE
            )


def _makes_harmless(call: ast.Call, harmless_names: set[str]) -> bool:
    """Returns whether a call makes a transformer that learns nothing of the records."""
    return called(call)[:1].isupper() and _is_listed(call, harmless_names)


def _is_listed(node: ast.AST, harmless_names: set[str]) -> bool:
    """Returns whether an expression is of something harmless, or is given its categories."""
    if isinstance(node, ast.Call):
        has_categories = any(keyword.arg == "categories" for keyword in node.keywords)
        return has_categories or _is_listed(node.func, harmless_names)
    if isinstance(node, ast.Attribute):
        return node.attr in harmless_names or _is_listed(node.value, harmless_names)
    return isinstance(node, ast.Name) and node.id in harmless_names


def _is_public(node: ast.AST, public: set[str]) -> bool:
    """Returns whether an expression is of what the source calls public, or of model outputs.

    Args:
        node: Any expression. Of two operands the first decides: ``x / PUBLIC_SCALE`` is of x.
        public: Names that were assigned such expressions.
    """
    if isinstance(node, ast.Name):
        names_it = _PUBLIC.search(node.id) or _OUTPUT.fullmatch(node.id)
        return node.id in public or bool(names_it)
    if isinstance(node, ast.Attribute):
        return bool(_PUBLIC.search(node.attr)) or _is_public(node.value, public)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(_PUBLIC.search(node.value))
    if isinstance(node, ast.Call):
        return any(_is_public(part, public) for part in (node.func, *node.args[:1]))
    if isinstance(node, ast.BinOp):
        return _is_public(node.left, public)
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(_is_public(element, public) for element in node.elts)
    return isinstance(node, ast.Subscript) and _is_public(node.value, public)
