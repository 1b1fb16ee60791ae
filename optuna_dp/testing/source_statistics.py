"""Hints at bounds and scales that a source computes from records."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from optuna_dp.testing.finding import Finding
from optuna_dp.testing.source_syntax import called, in_words

_EXTREMES = {"min", "max", "amin", "amax", "nanmin", "nanmax", "ptp"}
_QUANTILES = {"quantile", "nanquantile", "percentile", "nanpercentile", "median", "nanmedian"}
_CENTRES = {"mean", "nanmean", "average", *_QUANTILES}
_SPREADS = {"std", "nanstd", "var", "nanvar"}
# diffprivlib's tools of the same names have noise.
_PRIVATE = {"tools", "dp", "diffprivlib"}


def statistics_of_records(tree: ast.Module) -> Iterator[Finding]:
    """Yields a hint at numbers that are computed from all of an array.

    At the top of a file these are extremes, also with arithmetic as in ``x.min() * 0.9``;
    quantiles; and a mean and a standard deviation in one expression. In functions, where scores
    and losses have them, too, they are extremes, quantiles and spreads over the first axis, which
    is that of the records, and ``(x - x.mean()) / x.std()``.

    Args:
        tree: The whole source.
    """
    lines = {
        expression.lineno
        for statement in _at_the_top(tree.body)
        for expression in _expressions(statement)
        if _names(expression) & (_EXTREMES | _QUANTILES) or _has_scale(expression)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines |= {
                inner.lineno
                for inner in ast.walk(node)
                if isinstance(inner, ast.expr) and (_is_scaled(inner) or _is_over_records(inner))
            }
    if lines:
        yield Finding(
            "statistics of the records",
            f"A bound or a scale is computed from an array ({in_words(sorted(lines))}). If the "
            "array holds private records, no guarantee covers it, also if it was widened or "
            "rounded.",
            "what is possible at all (an age of 0 to 120), the range of a public table, or a "
            "private estimate that the event charges for.",
            certain=False,
        )


def _names(expression: ast.AST) -> set[str]:
    """Returns the names of the methods of arrays that an expression calls."""
    calls = [node for node in ast.walk(expression) if isinstance(node, ast.Call)]
    return {called(call) for call in calls if _is_of_an_array(call)}


def _has_scale(expression: ast.AST) -> bool:
    names = _names(expression)
    return bool(names & _CENTRES) and bool(names & _SPREADS)


def _is_scaled(node: ast.AST) -> bool:
    """Returns whether an expression is like ``(x - x.mean()) / x.std()``."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and bool(_names(node.left) & _CENTRES)
        and bool(_names(node.right) & _SPREADS)
    )


def _is_over_records(node: ast.AST) -> bool:
    """Returns whether a call is like ``x.std(0)`` or ``np.quantile(x, 0.9, axis=0)``."""
    if not isinstance(node, ast.Call) or not _is_of_an_array(node):
        return False
    if called(node) not in _EXTREMES | _QUANTILES | _SPREADS:
        return False
    # The first argument of a method; np.std(0) is nobody's.
    axes = [*node.args[:1], *(k.value for k in node.keywords if k.arg in {"axis", "dim"})]
    return any(isinstance(axis, ast.Constant) and axis.value == 0 for axis in axes)


def _at_the_top(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements that an import of the file executes, those of blocks one by one."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        if not any(blocks):
            yield statement
        elif not _is_main_guard(statement):
            for block in blocks:
                yield from _at_the_top(block)


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yields what a statement assigns to names; what it only shows is no bound."""
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and statement.value:
        yield statement.value


def _is_of_an_array(call: ast.Call) -> bool:
    """Returns whether a call is ``x.min()`` or ``np.min(x)``, and not ``min(a, b)``."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    owners = {node.id for node in ast.walk(function.value) if isinstance(node, ast.Name)}
    owners |= {n.attr for n in ast.walk(function.value) if isinstance(n, ast.Attribute)}
    return not owners & _PRIVATE
