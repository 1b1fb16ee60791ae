"""Patterns of a source that give hints, where the name of a call is not enough.

Each function takes one node of the source and returns what in it gives a hint, in the words of the
source; empty if nothing does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from optuna_dp.check.source_scopes import RELEASES, TRAINS, left_alone
from optuna_dp.check.source_syntax import axis_of, called, nodes_in

# What computes one number from an array.
_EXTREMES = {"min", "max", "amin", "amax", "nanmin", "nanmax", "ptp"}
_QUANTILES = {"quantile", "nanquantile", "percentile", "nanpercentile", "median", "nanmedian"}
_CENTRES = {"mean", "nanmean", "average", "mode", *_QUANTILES}
_SPREADS = {"std", "nanstd", "var", "nanvar"}
_STATISTICS = _EXTREMES | _CENTRES | _SPREADS
_COUNTS = {"bincount", "value_counts"}
_SIZES = {"len", "sum"}
_FILLS = {"fillna", "nan_to_num", "fill_null", "fill_nan"}
_MISSING = {"isnan", "isna", "isnull"}
_NOISE = re.compile(r"noise|noisy|normal|gauss|laplace")
# Functions of one record, or of a batch of a model's.
_OF_ONE_RECORD = {"__getitem__", "forward"}

_CODES = {"codes", "categories"}  # of frame["city"].cat
# What a list of values is called, or what it is read off.
_WORDS = re.compile(
    r"(?<![a-z])(vocab\w*|words?|tokens?|texts?|corpus|chars?|class(es)?|categor\w+|labels?|y"
    r"|targets?|frame|df)(?![a-z])"
)
_SIZED = {"len", "sorted", "list", "tuple", "enumerate"}
_SELECTS = {"where", "nonzero", "flatnonzero", "argwhere"}
_JOINS = {"concat", "concatenate", "cat", "vstack"}
_PERSON = re.compile(
    r"(patient|participant)s?"
    r"|(patient|participant|person|user|subject|customer|client|member)_?(id|no|number)s?",
    re.IGNORECASE,
)

# What keeps the weights of a moment.
_KEEPS = {"state_dict", "save", "save_pretrained", "save_checkpoint"}
_KEEPS_BEST = {"load_best_model_at_end", "restore_best_weights", "save_best_only"}
# What a person calls a number that is computed of records, and that has no noise.
_EXACT = re.compile(r"(\w+_)?(loss|losses|acc|accuracy|accuracies|auc|f1)(_\w+)?", re.IGNORECASE)
_NOISELESS = re.compile(r"noisy|private|public|made_up|synthetic", re.IGNORECASE)
_SHOWN_BY = {"print", "info", "debug", "add_scalar", "log_metric", "log_metrics"}
# What makes a study, and what takes the best of several things.
_STUDIES = {"create_study"}
_CHOOSES = {"max", "min", "sorted"}
# Noisy scores, which are divided by a public number.
_SCORES = {"private_accuracy", "private_mean", "score"}
# Results of a study, and plots of them.
_RESULTS = {"best_params", "best_value", "best_values", "best_trial", "best_trials"}
_RESULTS |= {"trials_dataframe"}
_PLOTS = {
    *("plot_contour", "plot_edf", "plot_hypervolume_history", "plot_intermediate_values"),
    *("plot_optimization_history", "plot_parallel_coordinate", "plot_param_importances"),
    *("plot_pareto_front", "plot_rank", "plot_slice", "plot_terminator_improvement"),
    "plot_timeline",
}
# Hyperparameters of which a run's cost is made. "eps" is more often that of an optimizer, and
# "noise" that of a weight, of which the learning rate is made.
_COSTS = {"epsilon", "target_epsilon", "noise_multiplier"}
# Arguments that hold a seed, and calls whose first argument is one.
_SEED_ARGUMENTS = {"random_state", "seed", "random_seed"}
_SEED_CALLS = {
    *("manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed"),
    *("default_rng", "RandomState", "Random", "PRNGKey", "key"),
}
# A fixed split or a study's own seed is no seed of a training's noise.
_SEEDED_WITHOUT_HARM = {"train_test_split", "KFold", "StratifiedKFold", "TPESampler"}


class Source:
    """A source, and what is known of its nodes before any is looked at.

    Args:
        tree: The whole source.

    Attributes:
        nodes: All nodes.
        passed: Nodes that prepare no private records for a training.
        call_names: The last parts of all names that are called.
        keywords: Names of arguments, of calls that are not passed.
        compared: What is compared with something.
        of_one_record: What is in a function of one record.
        in_objectives: What is in an objective.
        in_trainings: What is in a loop that trains.
        in_runs: What is in either.
        assigned_at_the_top: Values that an import of the file assigns.
        chosen_studies: Where the best of several studies is taken.
        kept_across_runs: Where an objective keeps the better of two in what outlives the run.
        whole_numbers: Names of whole numbers at the top.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.passed = left_alone(tree)
        functions = [node for node in self.nodes if isinstance(node, ast.FunctionDef)]
        calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        loops = [node for node in self.nodes if isinstance(node, ast.For | ast.While)]
        self.call_names = {called(call) for call in calls}
        self.keywords = {k.arg for c in calls if c not in self.passed for k in c.keywords}
        # len(np.unique(y)) < 2 shapes no model.
        self.compared = nodes_in(node for node in self.nodes if isinstance(node, ast.Compare))
        self.of_one_record = nodes_in(f for f in functions if f.name in _OF_ONE_RECORD)
        # What a run reads of other trials is seen in the run.
        self.in_objectives = nodes_in(
            f for f in functions if [a.arg for a in f.args.args][:1] == ["trial"]
        )
        self.in_trainings = nodes_in(loop for loop in loops if _calls_one_of(loop, TRAINS))
        self.in_runs = self.in_objectives | self.in_trainings
        self.assigned_at_the_top = set(_assigned_at_the_top(tree.body))
        scopes: list[ast.Module | ast.FunctionDef] = [tree, *functions]
        self.chosen_studies = {n for scope in scopes for n in _choices_among_studies(scope)}
        self.kept_across_runs = {node for f in functions for node in _kept_by(f)}
        # SEED = 42
        self.whole_numbers = {
            target.id
            for statement in tree.body
            if isinstance(statement, ast.Assign) and _is_whole(statement.value)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        # acc = run.score(right)
        self._noisy = {
            target.id
            for node in self.nodes
            if isinstance(node, ast.Assign) and self._is_noisy(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._by_name: dict[str, set[str]] = {}
        for node in self.nodes:
            for target, value in _pairs(node) if isinstance(node, ast.Assign) else ():
                if isinstance(value, ast.Call):
                    names = self._by_name.setdefault(target, set())
                    names |= self._statistics_called([value])

    def exact_names(self, expression: ast.AST) -> set[str]:
        """Returns names of losses and accuracies, but not of those that have noise."""
        names = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)} - self._noisy
        return {n for n in names if _EXACT.fullmatch(n) and not _NOISELESS.search(n)}

    def statistics(self, expression: ast.AST) -> set[str]:
        """Returns the statistics that an expression calls, or names after they were assigned."""
        nodes = list(_outside_lambdas(expression))
        named = {n.id for n in nodes if isinstance(n, ast.Name) and n not in self.passed}
        by_name = (self._by_name.get(name, set()) for name in named)
        return self._statistics_called(nodes).union(*by_name)

    @staticmethod
    def _is_noisy(value: ast.expr) -> bool:
        is_score = isinstance(value, ast.Attribute) and value.attr == "score"
        return is_score or (isinstance(value, ast.Call) and called(value) in _SCORES)

    def _statistics_called(self, nodes: list[ast.AST]) -> set[str]:
        return {
            called(node)
            for node in nodes
            if isinstance(node, ast.Call)
            and node not in self.passed
            and isinstance(node.func, ast.Attribute)  # Not min(a, b).
            and called(node) in _STATISTICS
            and axis_of(node) in (None, 0)  # Others are of each record.
        }

    def calls_in(self, node: ast.AST) -> set[str]:
        """Returns the last parts of the names that a node calls."""
        calls = (n for n in ast.walk(node) if isinstance(n, ast.Call) and n not in self.passed)
        return set(map(called, calls))


def of_each_row(node: ast.AST, source: Source) -> bool:
    """Returns whether a call is given its categories by the program, or is of each row alone."""
    if not isinstance(node, ast.Call):
        return False
    arguments = {keyword.arg for keyword in node.keywords}
    if arguments & {"categories", "minlength"}:
        return True
    return bool(arguments & {"axis", "dim"}) and axis_of(node) not in {None, 0}


def of_each_row_or_compared(node: ast.AST, source: Source) -> bool:
    """Returns whether a node is of each row alone, or only compared with a number."""
    return node in source.compared or of_each_row(node, source)


def values(node: ast.AST, source: Source) -> str:
    """Finds what reads which values there are: ``cat.codes``, ``set(words)``, ``y.max() + 1``."""
    if isinstance(node, ast.Attribute) and node.attr in _CODES:
        is_listed = re.search(r"categories=|astype\((?!['\"])", ast.unparse(node.value))
        is_cat = isinstance(node.value, ast.Attribute) and node.value.attr == "cat"
        return f"cat.{node.attr}" if is_cat and not is_listed else ""
    if isinstance(node, ast.Assign) and _is_set(node.value):
        return "set" if any(_WORDS.search(ast.unparse(t)) for t in node.targets) else ""
    if isinstance(node, ast.Call) and called(node) in _SIZED and node.args:
        return "set" if _is_set(node.args[0]) and _WORDS.search(ast.unparse(node)) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        is_one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if is_one and isinstance(node.left, ast.Call) and called(node.left) in {"int", "item"}:
            return "max() + 1" if ".max(" in ast.unparse(node.left) else ""
    return ""


def _is_set(node: ast.AST) -> bool:
    if isinstance(node, ast.SetComp):
        return True
    return isinstance(node, ast.Call) and called(node) == "set" and bool(node.args)


def statistic(node: ast.AST, source: Source) -> str:
    """Finds numbers that are computed from all of an array.

    Anywhere these are extremes, quantiles and spreads over the first axis, which is that of the
    records; ``x - x.mean(0)``; ``(x - x.mean()) / x.std()``; missing values that a statistic
    fills; and shares of classes. At the top of a file, where no scores and losses are, they are
    also extremes and quantiles of whole arrays, as in ``x.min() * 0.9``, and a mean and a
    standard deviation in one expression.
    """
    if node in source.assigned_at_the_top:
        names = source.statistics(node)
        if names & (_EXTREMES | _QUANTILES) or (names & _CENTRES and names & _SPREADS):
            return "bounds"
    if _is_description(node):
        return "describe"
    if _is_call_over_records(node, _EXTREMES | _QUANTILES | _SPREADS, source):
        return called(node)  # type: ignore[arg-type]
    if _fills(node, source):
        return "filling"
    if not isinstance(node, ast.BinOp):
        return ""
    if isinstance(node.op, ast.Sub) and _is_call_over_records(node.right, _STATISTICS, source):
        return called(node.right)  # type: ignore[arg-type]
    if not isinstance(node.op, ast.Div):
        return ""
    if node not in source.of_one_record and _is_scaled(node, source):
        return "scaling"
    left, right = source.calls_in(node.left), source.calls_in(node.right)
    is_share = bool(left & _COUNTS and right & _SIZES) or bool(right & _COUNTS)
    return "shares" if is_share and not _NOISE.search(ast.unparse(node)) else ""


def _is_description(node: ast.AST) -> bool:
    """Returns whether a call is like ``frame.describe()``, and not this package's own."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = ast.unparse(node.func.value)
    return node.func.attr == "describe" and owner not in {"odp", "optuna_dp"} and not node.args


def _is_call_over_records(node: ast.AST, names: set[str], source: Source) -> bool:
    """Returns whether an expression is like ``x.std(0)``."""
    return (
        isinstance(node, ast.Call)
        and node not in source.passed
        and isinstance(node.func, ast.Attribute)
        and called(node) in names
        and axis_of(node) == 0
    )


def _is_scaled(node: ast.BinOp, source: Source) -> bool:
    """Returns whether a quotient is like ``(x - x.mean()) / x.std()``."""
    is_centred = any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Sub)
        and bool(source.statistics(part.right) & (_CENTRES | _EXTREMES))
        and not source.statistics(part.left)
        for part in ast.walk(node.left)
    )
    scales = _SPREADS | _EXTREMES | _QUANTILES
    return is_centred and bool(source.statistics(node.right) & scales)


def _fills(node: ast.AST, source: Source) -> bool:
    """Returns whether a node fills missing values by a statistic, or from other rows."""
    if isinstance(node, ast.Assign):
        is_of_missing = any(
            isinstance(t, ast.Subscript) and source.calls_in(t.slice) & _MISSING
            for t in node.targets
        )
        return is_of_missing and bool(source.statistics(node.value) & _STATISTICS)
    if not isinstance(node, ast.Call):
        return False
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if called(node) == "where":
        if not any(source.calls_in(a) & _MISSING for a in arguments[:1]):
            return False
    elif called(node) not in _FILLS:
        return False
    by_other_rows = any(k.arg in {"method", "strategy"} for k in node.keywords)
    return by_other_rows or any(source.statistics(a) & _STATISTICS for a in arguments)


def repetition(node: ast.AST, source: Source) -> str:
    """Finds several rows that are made of one, by ``np.repeat``, ``sample`` or ``concat``."""
    if isinstance(node, ast.Subscript):
        return "repeat" if any(_is_repeat(part) for part in ast.walk(node.slice)) else ""
    if not isinstance(node, ast.Call):
        return ""
    name = called(node)
    owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    is_replaced = any(k.arg == "replace" and _is_true(k.value) for k in node.keywords)
    is_repeated = (
        (name == "resample" and owner in {"", "utils", "sklearn.utils"})
        or (name == "sample" and is_replaced)
        or (name == "sample" and owner != "random" and _is_as_many_as_others(node))
        or (name == "repeat" and (owner.endswith("index") or _is_repeat_of_some(node)))
        or (name in _JOINS and bool(node.args) and _joins_twice(node))
    )
    return name if is_repeated else ""


def _is_as_many_as_others(call: ast.Call) -> bool:
    """Returns whether a call is like ``rows.sample(3 * len(others))``: as many as others tell."""
    counts = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "n")]
    is_range = any(isinstance(n, ast.Call) and called(n) == "range" for n in counts)
    return not is_range and any(_is_length(part) for n in counts for part in ast.walk(n))


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


def other_rows(node: ast.AST, source: Source) -> str:
    """Finds a row that is made of several: windows, and differences of all pairs."""
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


def person(node: ast.AST, source: Source) -> str:
    """Finds a variable or a column that says whose record it is, and one row kept of several."""
    name = ""
    if isinstance(node, ast.Call) and called(node) == "drop_duplicates":
        has_columns = node.args or any(keyword.arg == "subset" for keyword in node.keywords)
        return "drop_duplicates" if has_columns else ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        name = str(node.slice.value)
    return name if _PERSON.fullmatch(name) else ""


def stop_on_a_condition(node: ast.AST, source: Source) -> str:
    """Finds a ``break`` on a condition in a loop that trains, and a run pruned by its accuracy."""
    if not isinstance(node, ast.If):
        return ""
    if node in source.in_objectives and source.exact_names(node.test):
        raised = [ast.unparse(part) for part in node.body if isinstance(part, ast.Raise)]
        if any("TrialPruned" in text for text in raised):
            return "pruned on a condition"
    if node not in source.in_trainings:
        return ""
    breaks = any(isinstance(statement, ast.Break) for statement in node.body)
    return "break on a condition" if breaks else ""


def shown(node: ast.AST, source: Source) -> str:
    """Finds a loss or an accuracy that a run prints or logs."""
    if not isinstance(node, ast.Call) or node not in source.in_runs:
        return ""
    is_logged = called(node) == "log" and ast.unparse(node.func).startswith("wandb.")
    if called(node) not in _SHOWN_BY and not is_logged:
        return ""
    names = set().union(*(source.exact_names(argument) for argument in node.args), set())
    return f"{called(node)} of {min(names)}" if names else ""


def weights_of_a_moment(node: ast.AST, source: Source) -> str:
    """Finds weights that are kept on a condition, and libraries that keep the best model."""
    if isinstance(node, ast.Call):
        best = [k.arg for k in node.keywords if k.arg in _KEEPS_BEST and _is_true(k.value)]
        return best[0] or "" if best else ""
    if not isinstance(node, ast.If) or node not in source.in_trainings:
        return ""
    keeps = any(_calls_one_of(statement, _KEEPS) for statement in node.body)
    is_kept = isinstance(node.test, ast.Compare) and keeps
    return "weights kept on a condition" if is_kept else ""


def kept_across_runs(node: ast.AST, source: Source) -> str:
    """Finds an objective that keeps the better of two in what outlives the run."""
    return ", ".join(sorted(_stored_roots(node))) if node in source.kept_across_runs else ""


def several_studies(node: ast.AST, source: Source) -> str:
    """Finds where the best of several studies is taken."""
    return "the best of several studies" if node in source.chosen_studies else ""


def _choices_among_studies(scope: ast.Module | ast.FunctionDef) -> Iterator[ast.AST]:
    """Yields choices in a scope that makes several studies, as ``a.value > b.value``."""
    nodes = [
        node
        for statement in scope.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
    ]
    loops = (ast.For, ast.While, ast.ListComp, ast.DictComp, ast.GeneratorExp)
    studies = [n for n in nodes if isinstance(n, ast.Call) and called(n) in _STUDIES]
    in_loops = nodes_in(node for node in nodes if isinstance(node, loops))
    if len(studies) < 2 and not any(study in in_loops for study in studies):
        return
    for node in nodes:
        is_choice = isinstance(node, ast.Call) and called(node) in _CHOOSES
        if is_choice or (isinstance(node, ast.Compare) and _compares_order(node)):
            parts = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
            if any(part.attr in {"value", *_RESULTS} for part in parts):
                yield node


def _kept_by(function: ast.FunctionDef) -> Iterator[ast.AST]:
    arguments = {a.arg for a in (*function.args.posonlyargs, *function.args.args)}
    if "trial" not in arguments:
        return
    outer_names = _outer_names(function, arguments)
    for node in ast.walk(function):
        if isinstance(node, ast.If) and _compares_order(node.test):
            yield from (
                inner
                for statement in node.body
                for inner in ast.walk(statement)
                if isinstance(inner, ast.Assign | ast.Call) and _stored_roots(inner) & outer_names
            )
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and called(node.value) in {"max", "min"}
            and _stored_roots(node) & outer_names & _roots_in(node.value)
        ):
            yield node


def _outer_names(function: ast.FunctionDef, arguments: set[str]) -> set[str]:
    """Returns the names in a function that outlive a call of it."""
    nodes = list(ast.walk(function))
    scopes = (node for node in nodes if isinstance(node, ast.Global | ast.Nonlocal))
    declared = {name for scope in scopes for name in scope.names}
    stored = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    inner = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return (_roots_in(function) - stored - inner - (arguments - {"self"})) | declared


def _compares_order(test: ast.expr) -> bool:
    return any(
        isinstance(operator, ast.Gt | ast.GtE | ast.Lt | ast.LtE)
        for node in ast.walk(test)
        if isinstance(node, ast.Compare)
        for operator in node.ops
    )


def _stored_roots(node: ast.AST) -> set[str]:
    """Returns the variables that a statement changes, by name, item, attribute or ``update``."""
    if isinstance(node, ast.Assign):
        return {root for target in node.targets for root in _targets(target)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _targets(node.func.value) if node.func.attr == "update" else set()
    return set()


def _targets(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Tuple | ast.List):
        return {root for element in node.elts for root in _targets(element)}
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _roots_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def size_of_a_score(node: ast.AST, source: Source) -> str:
    """Finds a noisy score that is divided by ``len(a)`` or ``a.shape[0]``."""
    if not isinstance(node, ast.Call) or called(node) not in _SCORES:
        return ""
    sizes = (keyword.value for keyword in node.keywords if keyword.arg == "size")
    lengths = [size for size in sizes if _is_length(size)]
    return f"size={ast.unparse(lengths[0])}" if lengths else ""


def _is_length(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Call) and called(node) == "len"


def searched_cost(node: ast.AST, source: Source) -> str:
    """Finds a hyperparameter that is called like what a run spends."""
    if not isinstance(node, ast.Call) or not called(node).startswith("suggest_"):
        return ""
    names = (*node.args[:1], *(k.value for k in node.keywords if k.arg == "name"))
    costs = [n.value for n in names if isinstance(n, ast.Constant) and n.value in _COSTS]
    return str(costs[0]) if costs and "worst_case" not in source.call_names else ""


def unreleased_result(node: ast.AST, source: Source) -> str:
    """Finds results of a study that are shown or used, where nothing is released."""
    if source.call_names & RELEASES:
        return ""
    if isinstance(node, ast.Call):
        return called(node) if called(node) in _PLOTS else ""
    if not isinstance(node, ast.Attribute) or node in source.in_objectives:
        return ""
    is_result = node.attr in _RESULTS or (node.attr == "trials" and "study" in ast.unparse(node))
    return node.attr if is_result else ""


def literal_seed(node: ast.AST, source: Source) -> str:
    """Finds a seed that is a number in the source."""
    if not isinstance(node, ast.Call) or called(node) in _SEEDED_WITHOUT_HARM:
        return ""
    seeds = [keyword.value for keyword in node.keywords if keyword.arg in _SEED_ARGUMENTS]
    seeds += node.args[:1] if called(node) in _SEED_CALLS else []
    is_literal = any(
        _is_whole(seed) or (isinstance(seed, ast.Name) and seed.id in source.whole_numbers)
        for seed in seeds
    )
    # get(name)(seed=3) has no name of its own
    return (called(node) or "a seed") if is_literal else ""


def _is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _calls_one_of(tree: ast.AST, names: set[str]) -> bool:
    return any(isinstance(node, ast.Call) and called(node) in names for node in ast.walk(tree))


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


def _assigned_at_the_top(statements: Iterable[ast.stmt]) -> Iterator[ast.expr]:
    """Yields what statements assign that an import of the file executes."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and statement.value:
            yield statement.value
        elif not (isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)):
            for name in ("body", "orelse", "finalbody"):
                yield from _assigned_at_the_top(getattr(statement, name, []))
