"""The records, bounds and norms that private trainers of other libraries are given.

Their privacy needs bounds that do not come from the records, and records that were not scaled by
numbers of other records. Both show by comparison. Bounds that equal the extremes of the very
records are a reason to ask. And where a run is repeated with the same randomness and one record
replaced, the bounds may not differ at all, and no record but that one, nor the weight of another.

diffprivlib's models and InterpretML's DP-EBM are watched where they are loaded, by ``fit``.
"""

from __future__ import annotations

import functools
import math
import numbers
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optuna_dp.arrays import FloatArray

# What a setting is called that says where the records lie.
_OF_RANGES = ("bound", "norm", "range", "target_min", "target_max")
_EBM = "interpret.glassbox._ebm._ebm"
_EBM_CLASSES = ("DPExplainableBoostingClassifier", "DPExplainableBoostingRegressor")
# Digits that nobody writes by hand; so few distinct numbers with a fraction may be chance.
_WRITTEN_DIGITS = 8
_FEWEST_FRACTIONS = 3


@dataclass(frozen=True)
class Fit:
    """One call of ``fit``.

    Attributes:
        library: Its name.
        settings: The numbers and texts that the trainer was given, by name; no seed.
        records: Each record with its label, and how often it is there; empty if unreadable.
        weighted: The same with all else that was given for it: its weight, its first score, its
            bag; empty if nothing was.
        from_extremes: Names of the settings that are extremes of the records, if chance or a
            public range would hardly give that.
        kept_count: The exact number of records, if the model holds it when the run ends; else 0.
        spent_before: How many private computations of these libraries the run had made before.
    """

    library: str
    settings: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    records: Counter[bytes] = field(default_factory=Counter)
    weighted: Counter[bytes] = field(default_factory=Counter)
    from_extremes: tuple[str, ...] = ()
    spent_before: int = 0
    kept_count: int = 0


@contextmanager
def watching_fits(fits: list[Fit], spent: Callable[[], int]) -> Iterator[None]:
    """Notes what the known trainers are given meanwhile.

    Args:
        fits: Each call is put in here; calls that another one makes are not.
        spent: Returns how many private computations were made so far.
    """
    depth = [0]
    models: list[Any] = []
    with ExitStack() as undo:
        for library, owner, method in _places():
            _watch(library, owner, method, fits, models, spent, depth, undo)
        yield
    for number, (fit, model) in enumerate(zip(fits, models, strict=True)):
        fits[number] = replace(fit, kept_count=_kept_count(model, fit.records.total()))


def _kept_count(model: Any, count: int) -> int:
    """Returns ``count`` if a DP-EBM holds it as the weight of a bag, else 0."""
    weights = _flat(getattr(model, "bag_weights_", None))
    return count if count in weights else 0


def _places() -> Iterator[tuple[str, type, str]]:
    models = sys.modules.get("diffprivlib.models")
    mixin: Any = getattr(sys.modules.get("diffprivlib.validation"), "DiffprivlibMixin", None)
    for kind in vars(models).values() if models is not None and mixin is not None else ():
        if isinstance(kind, type) and issubclass(kind, mixin):
            for method in ("fit", "fit_transform"):
                if hasattr(kind, method):
                    yield "diffprivlib", kind, method
    for name in _EBM_CLASSES:
        kind = getattr(sys.modules.get(_EBM), name, None)
        if kind is not None:
            yield "DP-EBM", kind, "fit"


def _watch(
    library: str,
    owner: type,
    method: str,
    fits: list[Fit],
    models: list[Any],
    spent: Callable[[], int],
    depth: list[int],
    undo: ExitStack,
) -> None:
    inherited = method not in vars(owner)
    original = getattr(owner, method)

    @functools.wraps(original)
    def watched(self: Any, *arguments: Any, **settings: Any) -> Any:
        if not depth[0]:
            fits.append(fit_of(library, self, arguments, settings, spent()))
            models.append(self)
        depth[0] += 1
        try:
            return original(self, *arguments, **settings)
        finally:
            depth[0] -= 1

    setattr(owner, method, watched)
    if inherited:
        undo.callback(delattr, owner, method)
    else:
        undo.callback(setattr, owner, method, original)


def fit_of(
    library: str, model: Any, arguments: Sequence[Any], named: dict[str, Any], spent: int
) -> Fit:
    """Returns what a trainer is given by one call of ``fit``.

    Args:
        library: Its name.
        model: The trainer, an estimator as scikit-learn's are.
        arguments: Of the call, by position.
        named: Of the call, by name.
        spent: How many private computations the run had made before.
    """
    x = named.get("X", arguments[0] if arguments else None)
    y = named.get("y", arguments[1] if len(arguments) > 1 else None)
    settings = {
        name: values
        for name, value in model.get_params(deep=False).items()
        if name not in ("random_state", "accountant") and (values := _flat(value))
    }
    parts = [part for part in map(_table, (x, y)) if part is not None]
    others = [*arguments[2:], *(named[name] for name in named if name not in ("X", "y"))]
    count = len(parts[0]) if parts else 0
    beside = [part for part in map(_table, others) if part is not None and len(part) == count]
    extremes = tuple(
        name
        for name, values in settings.items()
        if any(word in name for word in _OF_RANGES) and _are_extremes(values, parts)
    )
    weighted = _rows([*parts, *beside]) if beside else Counter()
    return Fit(library, settings, _rows(parts), weighted, extremes, spent)


def _rows(parts: Sequence[FloatArray]) -> Counter[bytes]:
    """Returns how often each row of some tables is there; empty if they are of unequal length."""
    tables = [np.ascontiguousarray(part) for part in parts]
    if len({len(table) for table in tables}) != 1:
        return Counter()
    return Counter(b"".join(table[i].tobytes() for table in tables) for i in range(len(tables[0])))


def _table(values: Any) -> FloatArray | None:
    """Returns records as numbers, a row for each; None if they are none."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array.reshape(len(array), -1) if array.ndim and array.size else None


def _flat(value: Any) -> tuple[Any, ...]:
    """Returns the numbers and texts of a setting, whatever holds them; empty if it has none."""
    if isinstance(value, bool | numbers.Real | str):
        return (value if isinstance(value, str) else float(value),)
    if isinstance(value, dict):
        return _flat(list(value.values()))
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(part for inner in value for part in _flat(inner))
    return ()


def _are_extremes(values: tuple[Any, ...], parts: Sequence[FloatArray]) -> bool:
    """Returns whether bounds are extremes of the records that hardly anybody has written."""
    if not all(isinstance(value, float) and math.isfinite(value) for value in values):
        return False
    extremes = np.sort(np.concatenate([list(_extremes(part)) for part in parts] or [[]]))
    at_extremes = [value for value in values if _has(extremes, value)]
    if any(not _is_written(value) for value in at_extremes):
        return True
    # A few steps, such as quarters: then all bounds, and not the same for each column.
    fractions = {value for value in at_extremes if not value.is_integer()}
    return len(at_extremes) == len(values) and len(fractions) >= _FEWEST_FRACTIONS


def _extremes(part: FloatArray) -> Iterable[float]:
    finite = part[np.isfinite(part).all(axis=1)]
    if not len(finite):
        return
    yield from finite.min(axis=0)
    yield from finite.max(axis=0)
    yield float(np.abs(finite).max())
    for order in (1, 2):
        yield float(np.linalg.norm(finite, ord=order, axis=1).max())


def _has(extremes: FloatArray, value: float) -> bool:
    return bool(np.isclose(extremes, value, rtol=1e-12, atol=0.0).any())


def _is_written(value: float) -> bool:
    """Returns whether a person may have written a number: a short one, its root, or one over it.

    A record of k ones among zeros has norm sqrt(k), and so may a public bound.
    """
    if value == 0.0:
        return True
    forms = (value, value**2, 1.0 / value, value**-2)
    return any(
        math.isclose(form, float(f"{form:.{_WRITTEN_DIGITS - 1}g}"), rel_tol=1e-12)
        for form in forms
    )


def moved(base: Fit, odd: Fit) -> tuple[int, int]:
    """Returns how many records differ, and how many there are; (0, 0) if that is not comparable.

    Args:
        base: Of a run.
        odd: Of the same run with one record replaced.
    """
    count = base.records.total()
    if not count or odd.records.total() != count:
        return 0, 0
    return (base.records - odd.records).total(), count


def moved_weights(base: Fit, odd: Fit) -> int:
    """Returns how many records are the same in two calls, but not what was given beside them.

    Args:
        base: Of a run.
        odd: Of the same run with one record replaced.
    """
    same = (base.records & odd.records).total()
    if not base.weighted and not odd.weighted:
        return 0
    return max(0, same - (base.weighted & odd.weighted).total())


def changed_settings(base: Fit, odd: Fit) -> list[str]:
    """Returns the names of the settings in which two calls differ."""
    names = [*base.settings, *(name for name in odd.settings if name not in base.settings)]
    return [name for name in names if base.settings.get(name) != odd.settings.get(name)]
