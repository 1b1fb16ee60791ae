"""The ranges that a release of a budget states: they hold every value that is released.

Runs of a budget may ask for different ranges, and a person may give a value outside of them
(:meth:`optuna.study.Study.enqueue_trial`). The stated range of a parameter holds the ranges of all
runs and all their values. It is a function of what is charged for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial

from optuna_dp.optuna_internals import contains


def released_ranges(runs: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Returns the range of each parameter of these runs, by name."""
    ranges: dict[str, BaseDistribution] = {}
    for run in runs:
        for name, distribution in run.distributions.items():
            joint = _joint(ranges.get(name, distribution), distribution)
            ranges[name] = _with_value(joint, run.params[name])
    return ranges


def _joint(one: BaseDistribution, other: BaseDistribution) -> BaseDistribution:
    """Returns a range that holds two; Optuna has refused two of different kinds in one study."""
    if one == other or isinstance(one, CategoricalDistribution):
        return other
    assert isinstance(one, FloatDistribution | IntDistribution)
    assert isinstance(other, FloatDistribution | IntDistribution)
    low, high = min(one.low, other.low), max(one.high, other.high)
    is_grid = one.step == other.step and one.low == other.low
    return _numbers(
        other, low, high, step=one.step if is_grid else None, log=one.log and other.log
    )


def _with_value(distribution: BaseDistribution, value: Any) -> BaseDistribution:
    """Returns the range with a value in it."""
    internal = distribution.to_internal_repr(value)
    if isinstance(distribution, CategoricalDistribution) or contains(distribution, internal):
        return distribution
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = min(distribution.low, value), max(distribution.high, value)
    return _numbers(distribution, low, high, step=None, log=distribution.log and low > 0)


def _numbers(
    kind: FloatDistribution | IntDistribution,
    low: float,
    high: float,
    *,
    step: float | None,
    log: bool,
) -> BaseDistribution:
    """Returns a range of the kind of another; without steps if none are given."""
    if isinstance(kind, FloatDistribution):
        return FloatDistribution(low, high, step=step, log=log)
    whole_step = 1 if step is None else int(step)
    return IntDistribution(int(low), int(high), step=whole_step, log=log)
