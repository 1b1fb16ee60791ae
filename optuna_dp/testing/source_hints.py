"""Hints at what source code shows and a run may not: preparation, splits, checkpoints, seeds.

A name in a source says what may be done with private records, not that it is done. So each finding
here is a hint, which does not fail a check.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from optuna_dp.testing.finding import Finding
from optuna_dp.testing.source_preparation import preparation_outside
from optuna_dp.testing.source_scopes import left_alone
from optuna_dp.testing.source_statistics import statistics_of_records
from optuna_dp.testing.source_syntax import called, in_words

_STOPS = {"EarlyStopping", "ReduceLROnPlateau"}

# The kind of hint, names of calls that give it, what may be wrong, and what to write instead.
_CALLS = (
    (
        "early stop",
        _STOPS,
        "A score decides how the training goes on. If it is of private records and has no noise, "
        "no guarantee covers it.",
        "take all steps of the run with a schedule that was fixed before, and keep the last "
        "weights.",
    ),
    (
        "checkpoint",
        {"load_state_dict"},
        "An earlier state of the model may come back. If a score without noise decided which, no "
        "guarantee covers it.",
        "keep the last weights, or an average of the last ones.",
    ),
    (
        "split of the records",
        {"train_test_split"},
        "Which records are held back is decided by position, or with stratify= by all labels: one "
        "record more moves others.",
        "optuna_dp.partition, which places each record by itself, or a split that was public "
        "before.",
    ),
)
# What a loop that trains calls, and what keeps the weights of a moment.
_TRAINS = {"backward", "step"}
_KEEPS = {"state_dict", "save", "save_pretrained", "save_checkpoint"}
_KEEPS_BEST = {"load_best_model_at_end", "restore_best_weights", "save_best_only"}
# Noisy scores, which are divided by a public number.
_SCORES = {"private_accuracy", "private_mean", "score"}
# Results of a study, plots of them, and what makes a release of them.
_RESULTS = {"best_params", "best_value", "best_values", "best_trial", "best_trials"}
_RESULTS |= {"trials_dataframe"}
_PLOTS = {
    *("plot_contour", "plot_edf", "plot_hypervolume_history", "plot_intermediate_values"),
    *("plot_optimization_history", "plot_parallel_coordinate", "plot_param_importances"),
    *("plot_pareto_front", "plot_rank", "plot_slice", "plot_terminator_improvement"),
    "plot_timeline",
}
_RELEASES = {"release", "publish"}
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


def hints_in_source(source: str) -> list[Finding]:
    """Returns hints at a Python source, one of each kind, with the lines that they are about.

    Args:
        source: Of a file or of a function; anything that cannot be parsed gives no hint.
    """
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return []
    passed = left_alone(tree)
    hints = [*preparation_outside(tree, passed), *statistics_of_records(tree, passed)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for kind, names, problem, change in _CALLS:
        named_calls = [call for call in calls if called(call) in names]
        if named_calls:
            lines = sorted({call.lineno for call in named_calls})
            words = ", ".join(sorted({called(call) for call in named_calls}))
            hints.append(Finding(kind, f"{words} ({in_words(lines)}). {problem}", change, False))
    hints += _in_training_loops(tree, {hint.name for hint in hints})
    hints += _best_models(calls)
    hints += _kept_across_runs(tree)
    hints += _of_sizes(calls)
    hints += _searched_costs(calls)
    hints += _unreleased_results(tree, calls)
    seeds = _numbers_at_the_top(tree)
    lines = sorted({call.lineno for call in calls if _has_literal_seed(call, seeds)})
    if lines:
        hints.append(
            Finding(
                "literal seed",
                f"A number in the source is a seed ({in_words(lines)}). If noise or batches come "
                "from it, whoever reads the source can repeat and subtract them.",
                "take the seed out, unless it is of public things only, such as a split or the "
                "first weights.",
                certain=False,
                about="literal seed",
            )
        )
    return hints


def hints_at(objective: Callable[..., Any]) -> list[Finding]:
    """Returns hints at the source of an objective; none if its source cannot be had."""
    try:
        return hints_in_source(inspect.getsource(objective))
    except (OSError, TypeError):
        return []


def _in_training_loops(tree: ast.AST, hint_names: set[str]) -> Iterator[Finding]:
    """Yields hints at loops that train and that keep weights, or end, on a condition.

    Args:
        tree: The whole source.
        hint_names: Names of hints that were given already.
    """
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
    conditions = [
        node
        for loop in loops
        if _calls_one_of(loop, _TRAINS)
        for node in ast.walk(loop)
        if isinstance(node, ast.If)
    ]
    keeps = {
        node.lineno
        for node in conditions
        if isinstance(node.test, ast.Compare) and any(_calls_one_of(b, _KEEPS) for b in node.body)
    }
    stops = {
        node.lineno
        for node in conditions
        if any(isinstance(statement, ast.Break) for statement in node.body)
    }
    if keeps and "checkpoint" not in hint_names:
        yield Finding(
            "checkpoint",
            f"The training keeps the weights on a condition ({in_words(sorted(keeps))}). If a "
            "score without noise decides, no guarantee covers it.",
            "keep the last weights, or an average of the last ones.",
            certain=False,
            about="kept on a condition",
        )
    if stops and "early stop" not in hint_names:
        yield Finding(
            "early stop",
            f"The training ends on a condition ({in_words(sorted(stops))}). If a score or a loss "
            "of private records decides, no guarantee covers it.",
            "take all steps of the run, and keep the last weights.",
            certain=False,
            about="ends on a condition",
        )


def _best_models(calls: list[ast.Call]) -> Iterator[Finding]:
    """Yields a hint at libraries that are told to keep the best model by a score."""
    lines = sorted(
        keyword.value.lineno
        for call in calls
        for keyword in call.keywords
        if keyword.arg in _KEEPS_BEST
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is True
    )
    if lines:
        yield Finding(
            "checkpoint",
            f"The training keeps the best model by a score ({in_words(lines)}). If the score is "
            "of private records and has no noise, no guarantee covers it.",
            "keep the last weights, or an average of the last ones.",
            certain=False,
            about="the best model",
        )


def _of_sizes(calls: list[ast.Call]) -> Iterator[Finding]:
    """Yields a hint at noisy scores that are divided by the length of something."""
    lines = sorted(
        call.lineno
        for call in calls
        if called(call) in _SCORES
        for keyword in call.keywords
        if keyword.arg == "size" and _is_length(keyword.value)
    )
    if lines:
        yield Finding(
            "size of the score",
            f"A score is divided by the length of an array ({in_words(lines)}). If a record may "
            "be added or removed, the number of private records is private.",
            "a number that was fixed beforehand: size=1000, not size=len(y).",
            certain=False,
            about="the length of an array",
        )


def _is_length(node: ast.expr) -> bool:
    """Returns whether an expression is ``len(a)`` or ``a.shape[0]``."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Call) and called(node) == "len"


def _kept_across_runs(tree: ast.AST) -> Iterator[Finding]:
    """Yields a hint at objectives that keep the better of two in what outlives the run."""
    lines = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        arguments = {a.arg for a in (*function.args.posonlyargs, *function.args.args)}
        if "trial" not in arguments:
            continue
        outer_names = _outer_names(function, arguments)
        for node in ast.walk(function):
            if isinstance(node, ast.If) and _compares_order(node.test):
                lines |= {
                    inner.lineno
                    for statement in node.body
                    for inner in ast.walk(statement)
                    if isinstance(inner, ast.Assign | ast.Call)
                    and _stored_roots(inner) & outer_names
                }
            elif (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and called(node.value) in {"max", "min"}
                and _stored_roots(node) & outer_names & _roots_in(node.value)
            ):
                lines.add(node.lineno)
    if lines:
        yield Finding(
            "kept across runs",
            "The objective keeps the better of two in a variable that outlives the run "
            f"({in_words(sorted(lines))}). If a later run starts with it, or scores it, no "
            "guarantee covers that run.",
            "make what a run uses inside the objective. The best run is chosen by release().",
            certain=False,
            about="kept across runs",
        )


def _unreleased_results(tree: ast.AST, calls: list[ast.Call]) -> Iterator[Finding]:
    """Yields a hint at results of a study that are shown or used, where nothing is released."""
    if any(called(call) in _RELEASES for call in calls):
        return
    in_objectives = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and [argument.arg for argument in function.args.args][:1] == ["trial"]
        for node in ast.walk(function)  # what a run reads of other trials is seen in the run
    }
    lines = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node not in in_objectives
        and (node.attr in _RESULTS or (node.attr == "trials" and "study" in ast.unparse(node)))
    }
    lines |= {call.lineno for call in calls if called(call) in _PLOTS}
    if lines:
        yield Finding(
            "unreleased results",
            f"Results of the study are shown or used ({in_words(sorted(lines))}), and release() "
            "is not called in the source. A guarantee covers what release() returns, and nothing "
            "else.",
            "release = odp.release(study), and then release.params, release.value.",
            certain=False,
            about="unreleased results",
        )


def _searched_costs(calls: list[ast.Call]) -> Iterator[Finding]:
    """Yields a hint at hyperparameters that are called like what a run spends."""
    if any(called(call) == "worst_case" for call in calls):
        return
    lines = sorted(
        call.lineno
        for call in calls
        if called(call).startswith("suggest_")
        for argument in (*call.args[:1], *(k.value for k in call.keywords if k.arg == "name"))
        if isinstance(argument, ast.Constant) and argument.value in _COSTS
    )
    if lines:
        yield Finding(
            "searched cost",
            f"A hyperparameter is called like what a run spends ({in_words(lines)}). Every run is "
            "charged for the one event that is stated.",
            "fix it for all runs, or state the worst of all: odp.worst_case(...).",
            certain=False,
            about="searched cost",
        )


def _outer_names(function: ast.FunctionDef, arguments: set[str]) -> set[str]:
    """Returns the names in a function that outlive a call of it."""
    declared = {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    inner = {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
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
    is_update = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if is_update and node.func.attr == "update":  # type: ignore[attr-defined]
        return _targets(node.func.value)  # type: ignore[attr-defined]
    return set()


def _targets(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Tuple | ast.List):
        return {root for element in node.elts for root in _targets(element)}
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _roots_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _calls_one_of(tree: ast.AST, names: set[str]) -> bool:
    return any(isinstance(node, ast.Call) and called(node) in names for node in ast.walk(tree))


def _numbers_at_the_top(tree: ast.Module) -> set[str]:
    """Returns the names that are whole numbers, such as ``SEED = 42``."""
    return {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and _is_whole(statement.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _has_literal_seed(call: ast.Call, numbers: set[str]) -> bool:
    name = called(call)
    if name in _SEEDED_WITHOUT_HARM:
        return False
    return any(
        _is_whole(seed) or (isinstance(seed, ast.Name) and seed.id in numbers)
        for seed in _seeds(call, name)
    )


def _seeds(call: ast.Call, name: str) -> Iterator[ast.expr]:
    for keyword in call.keywords:
        if keyword.arg in _SEED_ARGUMENTS:
            yield keyword.value
    if name in _SEED_CALLS and call.args:
        yield call.args[0]


def _is_whole(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int)
        and not isinstance(node.value, bool)
    )
