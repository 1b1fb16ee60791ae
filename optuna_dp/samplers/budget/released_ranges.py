"""The ranges that a release of a budget states: they hold every value that is released.

Runs of a budget may ask for different ranges, and a person may give a value outside of them
(:meth:`optuna.study.Study.enqueue_trial`). The stated range of a parameter holds the ranges of all
runs and all their values. It is a function of what is charged for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from optuna_dp.core.optuna_internals import contains


def released_ranges(runs: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Returns the range of each parameter of these runs, by name."""
    ranges: dict[str, list[BaseDistribution]] = defaultdict(list)
    values: dict[str, list[Any]] = defaultdict(list)
    for run in runs:
        for name, distribution in run.distributions.items():
            ranges[name].append(distribution)
            values[name].append(run.params[name])
    return {name: _joint(ranges[name], values[name]) for name in ranges}


def _joint(ranges: Sequence[BaseDistribution], values: Sequence[Any]) -> BaseDistribution:
    """Returns a range that holds all of these; Optuna refuses two kinds of range in one study."""
    last = ranges[-1]
    numeric = [d for d in ranges if isinstance(d, FloatDistribution | IntDistribution)]
    if not numeric:
        return last
    low, high = min(d.low for d in numeric), max(d.high for d in numeric)
    is_log = all(d.log for d in numeric)
    is_one_grid = len({(d.step, d.low) for d in numeric}) == 1
    joint = _numbers(last, low, high, step=numeric[0].step if is_one_grid else None, log=is_log)
    if all(contains(joint, joint.to_internal_repr(value)) for value in values):
        return joint
    low, high = min(low, *values), max(high, *values)
    return _numbers(last, low, high, step=None, log=is_log)


def _numbers(
    kind: BaseDistribution, low: float, high: float, *, step: float | None, log: bool
) -> BaseDistribution:
    """Returns a range of the kind of another; without steps if none are given."""
    if isinstance(kind, FloatDistribution):
        return FloatDistribution(low, high, step=step, log=log)
    return IntDistribution(int(low), int(high), step=1 if step is None else int(step), log=log)
