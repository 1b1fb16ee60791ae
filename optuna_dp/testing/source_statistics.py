"""Hints at bounds, scales and fillings that a source computes from records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from optuna_dp.testing.finding import Finding
from optuna_dp.testing.source_syntax import axis_of, called, in_words, nodes_in

_EXTREMES = {"min", "max", "amin", "amax", "nanmin", "nanmax", "ptp"}
_QUANTILES = {"quantile", "nanquantile", "percentile", "nanpercentile", "median", "nanmedian"}
_CENTRES = {"mean", "nanmean", "average", "mode", *_QUANTILES}
_SPREADS = {"std", "nanstd", "var", "nanvar"}
_ALL = _EXTREMES | _CENTRES | _SPREADS
_COUNTS = {"bincount", "value_counts"}
_SIZES = {"len", "sum"}
_FILLS = {"fillna", "nan_to_num", "fill_null", "fill_nan"}
_MISSING = {"isnan", "isna", "isnull"}
_NOISE = re.compile(r"noise|noisy|normal|gauss|laplace")
# Functions of one record, or of a batch of a model's.
_OF_ONE_RECORD = {"__getitem__", "forward"}


def statistics_of_records(tree: ast.Module, passed: set[ast.AST]) -> Iterator[Finding]:
    """Yields a hint at numbers that are computed from all of an array.

    Anywhere these are extremes, quantiles and spreads over the first axis, which is that of the
    records; ``x - x.mean(0)``; ``(x - x.mean()) / x.std()``; missing values that a statistic
    fills; and shares of classes. At the top of a file, where no scores and losses are, they are
    also extremes and quantiles of whole arrays, as in ``x.min() * 0.9``, and a mean and a
    standard deviation in one expression.

    Args:
        tree: The whole source.
        passed: Nodes in which no hint is given.
    """
    statistics = _Statistics(tree, passed)
    of_one_record = nodes_in(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in _OF_ONE_RECORD
    )
    lines: set[int] = set()
    for value in _assigned_at_the_top(tree.body):
        names = statistics.names(value)
        if names & (_EXTREMES | _QUANTILES) or (names & _CENTRES and names & _SPREADS):
            lines.add(value.lineno)
    for node in ast.walk(tree):
        if (
            statistics.are_over_records(node)
            or statistics.are_shares(node)
            or statistics.fill(node)
            or (node not in of_one_record and statistics.scale(node))
        ):
            lines.add(node.lineno)  # type: ignore[attr-defined]
    if lines:
        where = in_words(sorted(lines))
        yield Finding(
            "statistics of the records",
            f"A bound, a scale or a filling is computed from an array ({where}). If the array "
            "holds private records, no guarantee covers it, also if it was widened or rounded.",
            "the range in which most values lie, in odp.Schema(age=(20, 80)): what is missing has "
            "a code of its own. Or the range of a public table, or a private estimate that the "
            "event charges for.",
            certain=False,
        )


class _Statistics:
    """What expressions compute from whole arrays.

    Args:
        tree: The whole source.
        passed: Nodes that count for none.
    """

    def __init__(self, tree: ast.Module, passed: set[ast.AST]) -> None:
        self._passed = passed
        self._by_name: dict[str, set[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target, value in _pairs(node):
                    if isinstance(value, ast.Call):
                        self._by_name.setdefault(target, set()).update(self._own_names([value]))

    def names(self, expression: ast.AST) -> set[str]:
        """Returns the statistics that an expression calls, or names after they were assigned."""
        nodes = list(_outside_lambdas(expression))
        named = {n.id for n in nodes if isinstance(n, ast.Name) and n not in self._passed}
        return self._own_names(nodes).union(*(self._by_name.get(name, set()) for name in named))

    def scale(self, node: ast.AST) -> bool:
        """Returns whether an expression is like ``(x - x.mean()) / x.std()``."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            return False
        is_centred = any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Sub)
            and bool(self.names(part.right) & (_CENTRES | _EXTREMES))
            and not self.names(part.left)
            for part in ast.walk(node.left)
        )
        return is_centred and bool(self.names(node.right) & (_SPREADS | _EXTREMES | _QUANTILES))

    def are_over_records(self, node: ast.AST) -> bool:
        """Returns whether an expression is like ``x.std(0)`` or ``x - x.mean(0)``."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return self._is_call_over_records(node.right, _ALL)
        return self._is_call_over_records(node, _EXTREMES | _QUANTILES | _SPREADS)

    def are_shares(self, node: ast.AST) -> bool:
        """Returns whether an expression is like ``np.bincount(y) / len(y)``, and has no noise."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            return False
        left, right = (self._calls(list(ast.walk(side))) for side in (node.left, node.right))
        is_share = bool(left & _COUNTS and right & _SIZES) or bool(right & _COUNTS)
        return is_share and not _NOISE.search(ast.unparse(node))

    def fill(self, node: ast.AST) -> bool:
        """Returns whether a node fills missing values by a statistic, or from other rows."""
        if isinstance(node, ast.Assign):
            is_of_missing = any(
                isinstance(t, ast.Subscript) and self._calls(list(ast.walk(t.slice))) & _MISSING
                for t in node.targets
            )
            return is_of_missing and bool(self.names(node.value) & _ALL)
        if not isinstance(node, ast.Call) or node in self._passed:
            return False
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if called(node) == "where":
            if not any(self._calls(list(ast.walk(a))) & _MISSING for a in arguments[:1]):
                return False
        elif called(node) not in _FILLS:
            return False
        by_other_rows = any(k.arg in {"method", "strategy"} for k in node.keywords)
        return by_other_rows or any(self.names(argument) & _ALL for argument in arguments)

    def _is_call_over_records(self, node: ast.AST, names: set[str]) -> bool:
        return (
            isinstance(node, ast.Call)
            and node not in self._passed
            and isinstance(node.func, ast.Attribute)
            and called(node) in names
            and axis_of(node) == 0
        )

    def _own_names(self, nodes: list[ast.AST]) -> set[str]:
        return {
            called(node)
            for node in nodes
            if isinstance(node, ast.Call)
            and node not in self._passed
            and isinstance(node.func, ast.Attribute)  # Not min(a, b).
            and called(node) in _ALL
            and axis_of(node) in (None, 0)  # Others are of each record.
        }

    def _calls(self, nodes: list[ast.AST]) -> set[str]:
        return {called(n) for n in nodes if isinstance(n, ast.Call) and n not in self._passed}


def _outside_lambdas(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, ast.Lambda):
            yield from _outside_lambdas(part)


def _pairs(assignment: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yields names and what is assigned to each, of ``low, high = x.min(), x.max()`` too."""
    for target in assignment.targets:
        if isinstance(target, ast.Name):
            yield target.id, assignment.value
        elif isinstance(target, ast.Tuple) and isinstance(assignment.value, ast.Tuple):
            for element, value in zip(target.elts, assignment.value.elts, strict=False):
                if isinstance(element, ast.Name):
                    yield element.id, value


def _assigned_at_the_top(statements: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yields what statements assign that an import of the file executes."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and statement.value:
            yield statement.value
        elif not _is_main_guard(statement):
            for block in blocks:
                yield from _assigned_at_the_top(block)


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
