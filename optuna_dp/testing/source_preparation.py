"""Hints at preparation that is outside of a schema: a row's features depend on other rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from optuna_dp.testing.finding import Finding
from optuna_dp.testing.source_syntax import axis_of, called, in_words, nodes_in

_ROW_BY_ROW = "Give what is made row by row as prepare=: schema.encode(frame, prepare=f)."

# What is fitted to records, by the last part of its name.
_FITTED = {
    *("fit_transform", "adapt", "get_dummies", "factorize", "qcut", "groupby"),
    *("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "PowerTransformer"),
    *("QuantileTransformer", "PCA", "IncrementalPCA", "KernelPCA", "TruncatedSVD", "NMF"),
    *("FastICA", "TSNE", "UMAP", "KMeans", "LinearDiscriminantAnalysis", "corr", "corrwith"),
    *("SimpleImputer", "KNNImputer", "IterativeImputer", "zscore", "winsorize"),
    *("SelectKBest", "SelectPercentile", "SelectFromModel", "SelectFdr", "RFE", "RFECV"),
    *("VarianceThreshold", "f_classif", "f_regression", "mutual_info_classif"),
    *("mutual_info_regression", "TargetEncoder", "OrdinalEncoder", "OneHotEncoder"),
    *("LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer", "KBinsDiscretizer"),
    *("SplineTransformer", "CountVectorizer", "TfidfVectorizer", "DictVectorizer"),
    *("compute_class_weight", "compute_sample_weight", "build_vocab_from_iterator"),
    *("build_vocab", "fit_on_texts", "train_from_iterator", "train_new_from_iterator"),
    "Word2Vec",
}
# What reads which values there are, and how often.
_DISTINCT = {
    *("unique", "nunique", "value_counts", "unique_consecutive", "bincount", "Counter"),
    *("Categorical", "pad_sequence"),
}
_CODES = {"codes", "categories"}  # of frame["city"].cat
_REPEATED = {
    *("fit_resample", "SMOTE", "SMOTENC", "SMOTEN", "SMOTETomek", "SMOTEENN", "SVMSMOTE"),
    *("BorderlineSMOTE", "ADASYN", "RandomOverSampler", "RandomUnderSampler"),
    "WeightedRandomSampler",
}
_OTHER_ROWS = {
    *("sliding_window_view", "rolling", "expanding", "ewm", "shift", "pct_change", "ffill"),
    *("bfill", "TimeseriesGenerator", "timeseries_dataset_from_array", "NearestNeighbors"),
    *("kneighbors", "kneighbors_graph", "knn_graph", "pdist", "pairwise_distances"),
}
_SELECTS = {"where", "nonzero", "flatnonzero", "argwhere"}
_JOINS = {"concat", "concatenate", "cat", "vstack"}
_PERSON = re.compile(r"(patient|participant)s?", re.IGNORECASE)
_PERSON_ID = re.compile(
    r"(patient|participant|person|user|subject|customer|client|member)_?(id|no|number)s?",
    re.IGNORECASE,
)
_SPLITS_BY_PERSON = {"GroupKFold", "GroupShuffleSplit", "StratifiedGroupKFold", "LeaveOneGroupOut"}
# What a list of values is called, or what it is read off.
_WORDS = re.compile(
    r"(?<![a-z])(vocab\w*|words?|tokens?|texts?|corpus|chars?|class(es)?|categor\w+|labels?|y"
    r"|targets?|frame|df)(?![a-z])"
)
_SIZED = {"len", "sorted", "list", "tuple", "enumerate"}


@dataclass(frozen=True)
class _Kind:
    """One kind of hint: calls by name, other syntax, what may be wrong, what to write instead."""

    name: str
    names: frozenset[str]
    otherwise: Callable[[ast.AST], str]
    problem: str
    change: str


def preparation_outside(tree: ast.Module, passed: set[ast.AST]) -> Iterator[Finding]:
    """Yields hints at preparation that no schema and no ``prepare=`` makes.

    Args:
        tree: The whole source.
        passed: Nodes in which no hint is given.
    """
    compared = nodes_in(node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    nodes = [node for node in ast.walk(tree) if node not in passed]
    keywords = {k.arg for n in nodes if isinstance(n, ast.Call) for k in n.keywords}
    for kind in _KINDS:
        if kind is _PERSONS and "unit" in keywords:
            continue
        lines: dict[str, set[int]] = {}
        for node in nodes:
            what = kind.otherwise(node)
            if isinstance(node, ast.Call) and called(node) in kind.names:
                what = "" if _is_harmless(node) else called(node)
            # What is only compared with a number shapes no model.
            if what and not (kind is _VALUES and node in compared):
                lines.setdefault(what, set()).add(node.lineno)  # type: ignore[attr-defined]
        if lines:
            words = ", ".join(sorted(lines))
            where = in_words(sorted(set().union(*lines.values())))
            yield Finding(kind.name, f"{words} ({where}). {kind.problem}", kind.change, False)


def _is_harmless(call: ast.Call) -> bool:
    """Returns whether a call is given its categories by the program, or is of each row alone."""
    if any(keyword.arg in {"categories", "minlength"} for keyword in call.keywords):
        return True
    return any(k.arg in {"axis", "dim"} for k in call.keywords) and axis_of(call) not in {None, 0}


def _values(node: ast.AST) -> str:
    """Returns what in a node reads which values there are; empty if nothing does."""
    if isinstance(node, ast.Attribute) and node.attr in _CODES:
        is_listed = re.search(r"categories=|astype\((?!['\"])", ast.unparse(node.value))
        is_cat = isinstance(node.value, ast.Attribute) and node.value.attr == "cat"
        return f"cat.{node.attr}" if is_cat and not is_listed else ""
    if isinstance(node, ast.Assign) and _is_set(node.value):
        return "set" if any(_WORDS.search(ast.unparse(t)) for t in node.targets) else ""
    if isinstance(node, ast.Call) and called(node) in _SIZED and node.args:
        return "set" if _is_set(node.args[0]) and _WORDS.search(ast.unparse(node)) else ""
    # The number of classes, as in int(y.max()) + 1.
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        is_one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if is_one and isinstance(node.left, ast.Call) and called(node.left) in {"int", "item"}:
            return "max() + 1" if ".max(" in ast.unparse(node.left) else ""
    return ""


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.SetComp):
        return True
    return isinstance(node, ast.Call) and called(node) == "set" and bool(node.args)


def _repeats(node: ast.AST) -> str:
    """Returns what in a node makes several rows of one; empty if nothing does."""
    if isinstance(node, ast.Subscript):
        return "repeat" if any(_is_repeat(part) for part in ast.walk(node.slice)) else ""
    if not isinstance(node, ast.Call):
        return ""
    name = called(node)
    owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    is_replaced = any(
        k.arg == "replace" and isinstance(k.value, ast.Constant) and k.value.value is True
        for k in node.keywords
    )
    is_resampled = name == "resample" and owner in {"", "utils", "sklearn.utils"}
    if is_resampled or (name == "sample" and is_replaced):
        return name
    if name == "repeat" and (owner.endswith("index") or _is_repeat_of_some(node)):
        return name
    if name in _JOINS and node.args and _joins_twice(node):
        return name
    return ""


def _is_repeat(node: ast.AST) -> bool:
    """Returns whether a call is like ``np.repeat(rows, 5)``, of whole rows."""
    if not isinstance(node, ast.Call) or called(node) != "repeat" or not node.args:
        return False
    owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    axes = [keyword for keyword in node.keywords if keyword.arg == "axis"]
    return owner in {"np", "numpy"} and (not axes or axis_of(node) == 0)


def _is_repeat_of_some(node: ast.AST) -> bool:
    """Returns whether a call repeats what was selected, as ``np.repeat(x[y == 2], 5)``."""
    return _is_repeat(node) and any(
        isinstance(part, ast.Compare) or (isinstance(part, ast.Call) and called(part) in _SELECTS)
        for part in ast.walk(node)
    )


def _joins_twice(call: ast.Call) -> bool:
    """Returns whether a call is like ``concat([x, x[rare]])`` or ``concat([x] * 3)``."""
    joined = call.args[0]
    repeated = [n for n in ast.walk(joined) if isinstance(n, ast.Call) and _is_repeat(n)]
    if any(isinstance(call.args[0], ast.Name | ast.Subscript) for call in repeated):
        return True
    if isinstance(joined, ast.BinOp) and isinstance(joined.op, ast.Mult):
        return isinstance(joined.left, ast.List)
    if axis_of(call) not in (None, 0) or not isinstance(joined, ast.List | ast.Tuple):
        return False
    whole = [part.id for part in joined.elts if isinstance(part, ast.Name)]
    some = {
        part.value.id
        for part in joined.elts
        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name)
    }
    return len(whole) > len(set(whole)) or bool(some & set(whole))


def _other_rows(node: ast.AST) -> str:
    """Returns what in a node makes a row of several; empty if nothing does."""
    if isinstance(node, ast.Call) and called(node) == "unfold" and node.args:
        first = node.args[0]
        return "unfold" if isinstance(first, ast.Constant) and first.value == 0 else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return "differences of all pairs" if _is_pairwise(node) else ""
    if isinstance(node, ast.FunctionDef) and node.name == "__getitem__":
        names = {argument.arg for argument in node.args.args[1:2]}
        return "windows" if _has_window(node, names) else ""
    if isinstance(node, ast.For | ast.ListComp | ast.GeneratorExp):
        loops = [node] if isinstance(node, ast.For) else node.generators
        names = {
            loop.target.id
            for loop in loops
            if isinstance(loop.target, ast.Name)
            and isinstance(loop.iter, ast.Call)
            and called(loop.iter) == "range"
            and len(loop.iter.args) < 3  # with a step these are batches
        }
        return "windows" if _has_window(node, names) else ""
    return ""


def _is_pairwise(node: ast.BinOp) -> bool:
    """Returns whether an expression is like ``x[:, None] - x[None]``."""
    sides = [side for side in (node.left, node.right) if isinstance(side, ast.Subscript)]
    if len(sides) < 2 or ast.unparse(sides[0].value) != ast.unparse(sides[1].value):
        return False
    return all("None" in ast.unparse(side.slice) for side in sides)


def _has_window(tree: ast.AST, names: set[str]) -> bool:
    """Returns whether something in a loop is like ``series[i : i + length]``."""
    subscripts = (node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript))
    first = (s.elts[0] if isinstance(s, ast.Tuple) and s.elts else s for s in subscripts)
    return any(
        isinstance(part, ast.Slice)
        and isinstance(part.lower, ast.Name)
        and part.lower.id in names
        and isinstance(part.upper, ast.BinOp)
        and isinstance(part.upper.op, ast.Add)
        and ast.unparse(part.upper.left) == part.lower.id
        and ast.unparse(part.upper.right) != "1"
        for part in first
    )


def _persons(node: ast.AST) -> str:
    """Returns what in a node says whose record it is; empty if nothing does."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id if _is_person(node.id) else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        column = str(node.slice.value)
        return column if _is_person(column) else ""
    return ""


def _is_person(name: str) -> bool:
    return bool(_PERSON.fullmatch(name) or _PERSON_ID.fullmatch(name))


def _nothing(node: ast.AST) -> str:
    return ""


_VALUES = _Kind(
    "values of the records",
    frozenset(_DISTINCT),
    _values,
    "Which values, classes or words there are is read off the records. A record may be the only "
    "one of its class, and then changes the shape of the model.",
    'write them down, in odp.Schema(city=["Bern", "Basel"]) or odp.Schema.tokens(words, length): '
    "whatever is not in the list has a code of its own.",
)
_PERSONS = _Kind(
    "records of one person",
    frozenset(_SPLITS_BY_PERSON),
    _persons,
    "A name says whose record it is. If a person has several records, the guarantee is for one of "
    "them.",
    'odp.Schema(..., unit="patient", most=10), which keeps that many of each person.',
)
_KINDS = (
    _Kind(
        "fitted preprocessing",
        frozenset(_FITTED),
        _nothing,
        "Statistics of private records have no noise, and no guarantee covers them.",
        "put the ranges in which most values lie and the lists of categories in odp.Schema. "
        f"{_ROW_BY_ROW} What needs a fit is fitted on public records.",
    ),
    _VALUES,
    _Kind(
        "repeated records",
        frozenset(_REPEATED),
        _repeats,
        "A record that comes several times, or of which others are made, counts more than once, "
        "and the guarantee is for one.",
        "each record once. For a rare class: weights in the loss, of public shares.",
    ),
    _Kind(
        "rows made of other rows",
        frozenset(_OTHER_ROWS),
        _other_rows,
        "If these are rows of several records, one record is in several rows, and the guarantee "
        "is for one row.",
        f"a row for each record, or windows that share nothing, of a public length. {_ROW_BY_ROW}",
    ),
    _PERSONS,
)
