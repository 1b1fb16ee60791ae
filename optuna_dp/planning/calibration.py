"""Calibration: the noise, the number of runs or the adaptivity that a target epsilon allows.

One of the three arguments that describe a selection is given as a function of one number, and
:func:`calibrate` solves for that number. The answer is always on the private side: it is a number
at which the guarantee was evaluated and found to be within the target, never an interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import attr
from dp_accounting import dp_event

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.core import validation
from optuna_dp.core.json_entries import Entry
from optuna_dp.core.numbers_shown import significant_up
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.target_search import TOLERANCE, Scale, guided, largest_within
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.selection.guarantee import selection_guarantee
from optuna_dp.selection.laws.base import TrialCount

Unknown = Literal["noise_multiplier", "mean", "density_bounds"]

SMALLEST_NOISE, LARGEST_NOISE = 0.1, 1e5
LARGEST_MEAN = 1e4
_SMALLEST_MEAN = 1e-3
LARGEST_RATIO = 1e3

# Cells of the pointwise bound that only say where to look.
_FEW_CELLS = 100
# Epsilon by the bound that counts over what these say, more or less.
CLOSE_OVER_ROUGH = 0.97


@dataclass(frozen=True)
class Calibration(Entry):
    """What a target epsilon allows.

    Guarantees:
        * ``guarantee.epsilon(delta) == epsilon <= target_epsilon``.
        * ``epsilon >= (1 - tolerance) * target_epsilon``, unless ``value`` is at the end of the
          range that is searched (:func:`calibrate` names it).

    Attributes:
        solved_for: "noise_multiplier", "mean" or "density_bounds".
        value: The noise multiplier, the mean of T as given to the law, or the ratio C/c.
        epsilon: What the selection costs at ``value``.
        target_epsilon: What it was allowed to cost.
        delta: At this delta.
        guarantee: The guarantee at ``value``; its event holds the run, the law of T and (c, C).
    """

    solved_for: Unknown
    value: float
    epsilon: float
    target_epsilon: float
    delta: float
    guarantee: Guarantee

    @property
    def run(self) -> dp_event.DpEvent:
        """The event of one run."""
        return self.guarantee.event.run

    @property
    def trials(self) -> TrialCount:
        """The law of T."""
        law: TrialCount = self.guarantee.event.trials
        return law

    @property
    def density_bounds(self) -> tuple[float, float]:
        """(c, C)."""
        bounds: tuple[float, float] = self.guarantee.event.density_bounds
        return bounds


def bounds_of_ratio(ratio: float) -> tuple[float, float]:
    """Returns (c, C) with C/c = ``ratio`` and C = 1/c^2: (1, 1) at 1, about (0.79, 1.59) at 2.

    One natural family of density bounds: a wide bound above the prior, where a policy
    concentrates, is worth more than a wide bound below it.

    Args:
        ratio: C/c, finite and at least 1.

    Raises:
        InvalidArgumentError: If it is less than 1 or not finite.
    """
    value = validation.number("ratio", ratio)
    if not 1.0 <= value < math.inf:
        raise InvalidArgumentError("ratio", ratio, allowed="C/c must be finite and at least 1")
    return validation.density_bounds((value ** (-1.0 / 3.0), value ** (2.0 / 3.0)))


def calibrate(
    *,
    target_epsilon: float,
    delta: float,
    run: dp_event.DpEvent | Callable[[float], dp_event.DpEvent],
    trials: TrialCount | Callable[[float], TrialCount],
    density_bounds: tuple[float, float] | Callable[[float], tuple[float, float]] = (1.0, 1.0),
    policy: str = "history",
    startup_runs: int = 0,
    neighboring_relation: str = "add_or_remove_one",
    tolerance: float = TOLERANCE,
) -> Calibration:
    """Returns the least noise, the most runs or the widest densities within a target epsilon.

    Exactly one of ``run``, ``trials`` and ``density_bounds`` is a function of one number, and that
    number is solved for:

    * ``run``: noise multiplier -> event (``odp.gaussian``, or a lambda around ``odp.dp_sgd``). The
      smallest noise between 0.1 and 100,000.
    * ``trials``: mean -> law of T (``odp.Geometric``). The largest mean up to 10,000.
    * ``density_bounds``: ratio C/c -> (c, C) (:func:`bounds_of_ratio`). The largest ratio from 1
      to 1,000; at 1 it must return (1, 1).

    Guarantees:
        * The target is never exceeded: the guarantee was evaluated at the value returned.
        * The target is used up to ``tolerance``, unless the value is at the end of its range.

    Args:
        target_epsilon: What the released choice may cost in all; positive.
        delta: In (0, 1).
        run: Event of one run, or a function of its noise multiplier.
        trials: Law of the number of runs, or a function of its mean.
        density_bounds: (c, C), or a function of C/c.
        policy: "history" or "data", see :func:`~optuna_dp.selection_guarantee`.
        startup_runs: How many runs are drawn from the prior, see there.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        tolerance: The part of the target that may stay unused, in (0, 1).

    Raises:
        InvalidArgumentError: If the target cannot be reached (the message says what can), or an
            argument is not allowed.
        UnsupportedEventError: If no accountant supports the run.

    Example:
        >>> import optuna_dp as odp
        >>> calibration = odp.calibrate(
        ...     target_epsilon=2.0, delta=1e-5, run=odp.gaussian, trials=odp.Geometric(mean=10)
        ... )
        >>> calibration.guarantee.epsilon(delta=1e-5) <= 2.0
        True
    """
    target = validation.positive("target_epsilon", target_epsilon)
    validation.open_unit("delta", delta)
    spare = validation.open_unit("tolerance", tolerance)
    unknown = _the_unknown(run, trials, density_bounds)

    def guarantee_at(value: float) -> Guarantee:
        arguments: dict[Unknown, Any] = {
            "noise_multiplier": run,
            "mean": trials,
            "density_bounds": density_bounds,
        }
        arguments[unknown] = arguments[unknown](value)
        return selection_guarantee(
            arguments["noise_multiplier"],
            arguments["mean"],
            density_bounds=arguments["density_bounds"],
            policy=policy,
            startup_runs=startup_runs,
            neighboring_relation=neighboring_relation,
        )

    scale = scale_of(unknown, trials)

    def cost(u: float) -> float:
        return guarantee_at(scale.value(u)).epsilon(delta)

    def rough(u: float) -> float:
        return rough_epsilon(guarantee_at(scale.value(u)), delta)

    if policy == "history" and density_bounds != (1.0, 1.0):
        point = guided(cost, rough, target, scale, ratio=CLOSE_OVER_ROUGH, tolerance=spare)
    else:
        if unknown == "noise_multiplier":
            # Nearly all the work of the search is done on a bound that is quick to evaluate.
            scale = scale.starting_at(largest_within(rough, target, scale))
        point = largest_within(cost, target, scale, tolerance=spare)
    if point.cost > target:
        raise _unreachable(unknown, target_epsilon, point.cost, scale.value(point.at))
    value = scale.value(point.at)
    return Calibration(unknown, value, point.cost, target, float(delta), guarantee_at(value))


def profile_epsilon(selection: Guarantee, delta: float) -> float:
    """Returns what a selection costs by the profile bounds alone, which are quick to evaluate.

    Args:
        selection: The guarantee of a selection, or of anything else that has a profile.
        delta: In (0, 1).
    """
    event = selection.judged_event
    if not isinstance(event, PrivateSelectionDpEvent):
        pair = pair_of(event, selection.neighboring_relation)
        return max(pair.epsilon(delta), pair.reversed().epsilon(delta))
    bounds = event.methods(selection.neighboring_relation, pair_of)
    return min(bound.epsilon(delta) for bound in bounds.values())


def rough_epsilon(selection: Guarantee, delta: float) -> float:
    """Returns about what :func:`profile_epsilon` does, a good deal sooner: where to look.

    Args:
        selection: See :func:`profile_epsilon`.
        delta: In (0, 1).
    """
    event = selection.event
    learns = isinstance(event, PrivateSelectionDpEvent) and event.learns_from_outputs
    if not learns:
        return profile_epsilon(selection, delta)
    seeing_data = attr.evolve(event, policy="data", startup_runs=0)
    data_epsilon = profile_epsilon(Guarantee(seeing_data, selection.neighboring_relation), delta)
    # Start-up time: only searches that learn need it.
    from optuna_dp.selection.bounds.pointwise_bound import pointwise_bound

    coarse = pointwise_bound(
        pair_of(event.run, selection.neighboring_relation),
        event.trials,
        event.density_bounds,
        event.startup_runs,
        _FEW_CELLS,
    )
    return min(data_epsilon, float(coarse.epsilon(delta)))


def _the_unknown(run: object, trials: object, density_bounds: object) -> Unknown:
    # Events and laws are not callable; a class such as Geometric is, and makes a law of a mean.
    functions: dict[Unknown, object] = {
        "noise_multiplier": run,
        "mean": trials,
        "density_bounds": density_bounds,
    }
    names = [name for name, argument in functions.items() if callable(argument)]
    if len(names) != 1:
        raise InvalidArgumentError(
            "run, trials, density_bounds",
            (run, trials, density_bounds),
            allowed="exactly one of them must be a function of the number to find",
            fix="To find the noise: run=lambda noise: dp_sgd(noise_multiplier=noise, ...). To "
            "find the mean number of runs: trials=Geometric. To find C/c: "
            "density_bounds=bounds_of_ratio.",
        )
    return names[0]


def _unreachable(
    unknown: Unknown, target: object, cost: float, value: float
) -> InvalidArgumentError:
    # Rounded up, so that the number named is one that works.
    requirement = (
        f"it must be at least {significant_up(cost)}" if cost < math.inf else "no value is enough"
    )
    if unknown == "noise_multiplier":
        condition = f"{requirement}, the cost that remains at noise multiplier {value:g}"
        fix = (
            "Something else has a cost too: another part of the run, densities that depend on "
            'the data (policy="data"), or a delta that is too small.'
        )
    elif unknown == "mean":
        condition = f"{requirement}, the cost at mean {value:g}"
        fix = "Add noise to the run or allow a larger epsilon."
    else:
        condition = f"{requirement}, the cost without adaptivity (C = c = 1)"
        fix = "Use fewer runs, add noise to the run or allow a larger epsilon."
    return InvalidArgumentError("target_epsilon", target, allowed=condition, fix=fix)


# -- what is searched ----------------------------------------------------------------------------

NOISE = Scale(-1.0, -math.log(LARGEST_NOISE), -math.log(SMALLEST_NOISE), 0.0, 1.3)
RATIO = Scale(1.0, 0.0, math.log(LARGEST_RATIO), math.log(2.0), 0.5)


def mean_scale(make: Callable[[float], TrialCount]) -> Scale:
    """Returns the range of means that a law of T takes, within [0.001, 10,000]."""

    def takes(mean: float) -> bool:
        try:
            make(mean)
        except InvalidArgumentError:
            return False
        return True

    # Some laws begin at 1, and a binomial law ends at its n.
    start = next((m for m in (10.0, 2.0, 1.0, 0.5) if takes(m)), None)
    if start is None:
        make(10.0)  # its own message says best what is wrong
        start = 10.0
    low = next(m for m in (_SMALLEST_MEAN, 1.0, start) if takes(m))
    high = LARGEST_MEAN * (1.0 - 1e-12)
    if not takes(high):
        too_high, high = math.log(high), math.log(start)
        while too_high - high > 1e-9:
            middle = 0.5 * (too_high + high)
            too_high, high = (too_high, middle) if takes(math.exp(middle)) else (middle, high)
        high = math.exp(high)
    return Scale(1.0, math.log(low), math.log(high), math.log(start), 0.25)


def scale_of(unknown: Unknown, trials: Any) -> Scale:
    """Returns the range that is searched for an unknown; ``trials`` makes laws of a mean."""
    if unknown == "noise_multiplier":
        return NOISE
    return RATIO if unknown == "density_bounds" else mean_scale(trials)
