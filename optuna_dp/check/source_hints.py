"""Hints at what source code shows and a run may not: preparation, splits, checkpoints, seeds.

A name in a source says what may be done with private records, not that it is done. So each finding
here is a hint, which does not fail a check. A kind of hint is a row of one table: the names of
calls and the other patterns that give it, what may be wrong, and what to write instead.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from optuna_dp.check import source_patterns as patterns
from optuna_dp.check.objective_report import Finding
from optuna_dp.check.source_patterns import Source
from optuna_dp.check.source_syntax import called, in_words


@dataclass(frozen=True)
class _Kind:
    """One kind of hint.

    Attributes:
        name: Of the kind.
        problem: What may be wrong.
        change: What to write instead.
        calls: Names of calls that give it, separated by spaces.
        pattern: Returns what in a node gives it; empty if nothing does. None: only calls.
        exempt: Returns whether a node that would give it does not. None: no node is exempt.
        everywhere: Whether it is also given in parts that prepare no private records.
    """

    name: str
    problem: str
    change: str
    calls: str = ""
    pattern: Callable[[ast.AST, Source], str] | None = None
    exempt: Callable[[ast.AST, Source], bool] | None = None
    everywhere: bool = False


_ROW_BY_ROW = "Give what is made row by row as prepare=: schema.encode(frame, prepare=f)."

_KINDS = (
    _Kind(
        "fitted preprocessing",
        "Statistics of private records have no noise, and no guarantee covers them.",
        "put the ranges in which most values lie and the lists of categories in odp.Schema. "
        f"{_ROW_BY_ROW} What needs a fit is fitted on public records.",
        calls="fit_transform adapt get_dummies factorize qcut groupby pivot_table crosstab "
        "StandardScaler MinMaxScaler "
        "MaxAbsScaler RobustScaler PowerTransformer QuantileTransformer PCA IncrementalPCA "
        "KernelPCA TruncatedSVD NMF FastICA TSNE UMAP KMeans LinearDiscriminantAnalysis corr "
        "corrwith SimpleImputer KNNImputer IterativeImputer zscore winsorize SelectKBest "
        "SelectPercentile SelectFromModel SelectFdr RFE RFECV VarianceThreshold f_classif "
        "f_regression mutual_info_classif mutual_info_regression TargetEncoder OrdinalEncoder "
        "OneHotEncoder LabelEncoder LabelBinarizer MultiLabelBinarizer KBinsDiscretizer "
        "SplineTransformer CountVectorizer TfidfVectorizer DictVectorizer compute_class_weight "
        "compute_sample_weight build_vocab_from_iterator build_vocab fit_on_texts "
        "train_from_iterator train_new_from_iterator Word2Vec",
        exempt=patterns.of_each_row,
    ),
    _Kind(
        "values of the records",
        "Which values, classes or words there are is read off the records. A record may be the "
        "only one of its class, and then changes the shape of the model.",
        'write them down, in odp.Schema(city=["Bern", "Basel"]) or odp.Schema.tokens(words, '
        "length): whatever is not in the list has a code of its own.",
        calls="unique nunique value_counts unique_consecutive bincount Counter Categorical "
        "pad_sequence",
        pattern=patterns.values,
        exempt=patterns.of_each_row_or_compared,
    ),
    _Kind(
        "statistics of the records",
        "A bound, a scale or a filling is computed from an array. If the array holds private "
        "records, no guarantee covers it, also if it was widened or rounded.",
        "the range in which most values lie, in odp.Schema(age=(20, 80)): what is missing has a "
        "code of its own. Or the range of a public table, or a private estimate that the event "
        "charges for.",
        pattern=patterns.statistic,
    ),
    _Kind(
        "repeated records",
        "A record that comes several times, or of which others are made, counts more than once, "
        "and the guarantee is for one. Where rows are drawn, as many as there are others, one "
        "record changes several.",
        "each record once. For a rare class: weights in the loss, of public shares.",
        calls="fit_resample SMOTE SMOTENC SMOTEN SMOTETomek SMOTEENN SVMSMOTE BorderlineSMOTE "
        "ADASYN RandomOverSampler RandomUnderSampler WeightedRandomSampler",
        pattern=patterns.repetition,
        exempt=patterns.of_each_row,
    ),
    _Kind(
        "rows made of other rows",
        "If these are rows of several records, one record is in several rows, and the guarantee "
        "is for one row.",
        f"a row for each record, or windows that share nothing, of a public length. {_ROW_BY_ROW}",
        calls="sliding_window_view rolling expanding ewm shift pct_change ffill bfill "
        "TimeseriesGenerator timeseries_dataset_from_array NearestNeighbors kneighbors "
        "kneighbors_graph knn_graph pdist pairwise_distances",
        pattern=patterns.other_rows,
        exempt=patterns.of_each_row,
    ),
    _Kind(
        "records of one person",
        "A name says whose record it is, or one row is kept of several. If a person has several "
        "records, the guarantee is for one of them, and one more may decide which is kept.",
        'odp.Schema(..., unit="patient", most=10), which keeps that many of each person.',
        calls="GroupKFold GroupShuffleSplit StratifiedGroupKFold LeaveOneGroupOut",
        pattern=patterns.person,
        exempt=lambda node, source: "unit" in source.keywords,
    ),
    _Kind(
        "split of the records",
        "Which records are held back is decided by position, or with stratify= by all labels: "
        "one record more moves others.",
        "optuna_dp.partition, which places each record by itself, or a split that was public "
        "before.",
        calls="train_test_split",
        everywhere=True,
    ),
    _Kind(
        "early stop",
        "A score decides how the training goes on. If a score or a loss of private records "
        "decides and has no noise, no guarantee covers it.",
        "take all steps of the run with a schedule that was fixed before, and keep the last "
        "weights.",
        calls="EarlyStopping ReduceLROnPlateau",
        pattern=patterns.stop_on_a_condition,
        everywhere=True,
    ),
    _Kind(
        "shown without noise",
        "A run shows a loss or an accuracy. If it is computed of private records and has no "
        "noise, no guarantee covers it, and whoever reads the log has seen it.",
        "show what odp.train or run.score returned. Look at losses while you develop, on made-up "
        "records.",
        pattern=patterns.shown,
        everywhere=True,
    ),
    _Kind(
        "checkpoint",
        "An earlier state of the model may come back. If a score without noise decides which, no "
        "guarantee covers it.",
        "keep the last weights, or an average of the last ones.",
        calls="load_state_dict",
        pattern=patterns.weights_of_a_moment,
    ),
    _Kind(
        "kept across runs",
        "The objective keeps the better of two in a variable that outlives the run. If a later "
        "run starts with it, or scores it, no guarantee covers that run.",
        "make what a run uses inside the objective. The best run is chosen by release().",
        pattern=patterns.kept_across_runs,
        everywhere=True,
    ),
    _Kind(
        "size of the score",
        "A score is divided by the length of an array. If a record may be added or removed, the "
        "number of private records is private.",
        "a number that was fixed beforehand: size=1000, not size=len(y).",
        pattern=patterns.size_of_a_score,
        everywhere=True,
    ),
    _Kind(
        "searched cost",
        "A hyperparameter is called like what a run spends. Every run is charged for the one "
        "event that is stated.",
        "fix it for all runs, or state the worst of all: odp.worst_case(...).",
        pattern=patterns.searched_cost,
        everywhere=True,
    ),
    _Kind(
        "unreleased results",
        "Results of the study are shown or used, and release() is not called in the source. A "
        "guarantee covers what release() returns, and nothing else.",
        "release = odp.release(study), and then release.params, release.value.",
        pattern=patterns.unreleased_result,
        everywhere=True,
    ),
    _Kind(
        "several studies",
        "The best of several studies is taken. Each has a cost of its own, and the statement of "
        "one does not count the others.",
        "one study for all settings: the model and the features are hyperparameters. Or add up "
        "the costs: release.guarantee.compose(other.guarantee).",
        pattern=patterns.several_studies,
        everywhere=True,
    ),
    _Kind(
        "literal seed",
        "A number in the source is a seed. If noise or batches come from it, whoever reads the "
        "source can repeat and subtract them.",
        "take the seed out, unless it is of public things only, such as a split or the first "
        "weights.",
        pattern=patterns.literal_seed,
        everywhere=True,
    ),
)


def hints_in_source(text: str) -> list[Finding]:
    """Returns hints at a Python source, one of each kind, with the lines that they are about.

    Args:
        text: Of a file or of a function; anything that cannot be parsed gives no hint.
    """
    try:
        source = Source(ast.parse(textwrap.dedent(text)))
    except SyntaxError:
        return []
    return [hint for kind in _KINDS if (hint := _hint(kind, source)) is not None]


def hints_at(objective: Callable[..., object]) -> list[Finding]:
    """Returns hints at the source of an objective; none if its source cannot be had."""
    try:
        return hints_in_source(inspect.getsource(objective))
    except (OSError, TypeError):
        return []


def _hint(kind: _Kind, source: Source) -> Finding | None:
    """Returns one hint at all places of a kind; None if there is none."""
    calls = set(kind.calls.split())
    lines: dict[str, set[int]] = {}
    for node in source.nodes:
        if node in source.passed and not kind.everywhere:
            continue
        what = kind.pattern(node, source) if kind.pattern else ""
        if isinstance(node, ast.Call) and called(node) in calls:
            what = called(node)
        if what and not (kind.exempt and kind.exempt(node, source)):
            lines.setdefault(what, set()).add(node.lineno)  # type: ignore[attr-defined]
    if not lines:
        return None
    where = in_words(sorted(set().union(*lines.values())))
    words = f"{', '.join(sorted(lines))} ({where}). {kind.problem}"
    return Finding(kind.name, words, kind.change, certain=False)
