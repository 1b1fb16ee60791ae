"""What trainings spent by their own accountants, and whether that is within what they may."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from optuna_dp.errors import InvalidArgumentError, type_of

if TYPE_CHECKING:
    from dp_accounting import dp_event

    from optuna_dp.accounting.dominating_pairs import DominatingPair

# Where epsilons of two events are compared, if it cannot be seen which is smaller.
_DELTAS = tuple(10.0**-k for k in range(1, 13))
_TOLERANCE = 1e-3
_LARGEST_EPSILON = 500.0


def spent_event(what: object) -> dp_event.DpEvent:
    """Returns the event of what a training spent: an event, or what its accountant recorded.

    Args:
        what: A ``DpEvent``; an Opacus engine or accountant; a ``dp_accounting`` accountant, by its
            ledger; a ``BudgetAccountant`` of diffprivlib; or anything with an event as
            ``dp_event``, such as a plan of JAX Privacy.

    Raises:
        InvalidArgumentError: If it is none of these, or one that has recorded nothing.
    """
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from dp_accounting import PrivacyAccountant, dp_event

    event = what
    if isinstance(what, PrivacyAccountant):
        event = what.ledger
    elif isinstance(own_event := getattr(what, "dp_event", None), dp_event.DpEvent):
        event = own_event
    if isinstance(event, dp_event.DpEvent):
        if _is_nothing(event):
            raise InvalidArgumentError(
                "what",
                type_of(what),
                problem="it has recorded nothing, and a training spends something",
                fix="Call run.spent after the training, with the accountant that recorded its "
                "steps.",
            )
        return event
    other: Any = what  # Of a library that is known by its attributes.
    if isinstance(getattr(what, "spent_budget", None), list):
        # Lazy: only trainings with diffprivlib need it.
        from optuna_dp.accounting.diffprivlib import from_diffprivlib

        return from_diffprivlib(other)
    if hasattr(getattr(what, "accountant", what), "history"):
        # Lazy: only trainings with Opacus need it.
        from optuna_dp.accounting.opacus import from_opacus

        return from_opacus(other)
    raise InvalidArgumentError(
        "what",
        type_of(what),
        allowed="it must be an event or an accountant of the training",
        fix="Pass a dp_accounting event or accountant, an Opacus PrivacyEngine or accountant, a "
        "BudgetAccountant of diffprivlib, or an object with a dp_event.",
    )


def is_stated(what: object) -> bool:
    """Returns whether what was handed in is an event that somebody wrote, and no accountant's."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from dp_accounting import dp_event

    return isinstance(what, dp_event.DpEvent)


def _is_nothing(event: dp_event.DpEvent) -> bool:
    """Returns whether an event is that of no step at all."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.kinds.foreign import kind_of

    return kind_of(event).is_nothing


def costs_no_more(
    event: dp_event.DpEvent, allowed: dp_event.DpEvent, neighboring_relation: str
) -> bool:
    """Returns whether an event costs at most what another does, in every composition.

    It does if each of its parts is a part of the other, at most as often; or if both are DP-SGD
    trainings, and it has no less noise, no larger sampling rate and no more steps. Otherwise

    * its epsilon may be larger by 0.1 % at most, at every delta of the dominating pairs
      (:func:`_dominates`), because compositions are bounded by those of the pairs;
    * where Renyi curves are used for the other event, its curve must be no larger, because curves
      of a composition are added first. A pair that is made of one curve says nothing about the
      sum. If only some parts of the other event are known by a curve, nothing else is accepted.
    """
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.epsilon_methods import curve_may_be_smallest
    from optuna_dp.accounting.guarantee import Guarantee
    from optuna_dp.accounting.run_profile import counted, known_by_curve, pair_of

    guarantee, limit = (
        Guarantee(event, neighboring_relation),
        Guarantee(allowed, neighboring_relation),
    )
    # Accountants of trainings do not know whether they speak of records or of clients.
    event, allowed = guarantee.judged_event, limit.judged_event
    parts, allowance = (counted(e, neighboring_relation) for e in (event, allowed))
    if all(key in allowance and part.times <= allowance[key].times for key, part in parts.items()):
        return True
    sgd, allowed_sgd = _as_sgd(event), _as_sgd(allowed)
    if (
        sgd
        and allowed_sgd
        and all(a <= b * (1.0 + 1e-9) for a, b in zip(sgd, allowed_sgd, strict=True))
    ):
        return True
    if curve_may_be_smallest(allowed, neighboring_relation):
        # Lazy: only such events need it.
        from optuna_dp.accounting.run_rdp import rdp_of

        if (
            len({known_by_curve(part.event, neighboring_relation) for part in allowance.values()})
            > 1
        ):
            return False
        curve, largest = (rdp_of(e, neighboring_relation) for e in (event, allowed))
        if np.any(curve > largest * (1.0 + 1e-9)):
            return False
    if any(guarantee.epsilon(d) > limit.epsilon(d) * (1.0 + _TOLERANCE) for d in _DELTAS):
        return False
    larger, smaller = (pair_of(e, neighboring_relation) for e in (allowed, event))
    return _dominates(larger, smaller) and _dominates(larger.reversed(), smaller.reversed())


def _dominates(larger: DominatingPair, smaller: DominatingPair) -> bool:
    """Returns whether one pair's delta is at least the other's, at 0.1 % more epsilon for that.

    For every epsilon, by finitely many: deltas fall, so what holds between the left end of a step
    (where the smaller is largest) and its right end (where the larger is smallest) holds in all
    of it. Below the first point and beyond the last, delta may be larger by 1e-12.
    """
    steps = np.concatenate([[0.0], np.geomspace(1e-12, _LARGEST_EPSILON, 70_000), [np.inf]])
    upper = np.append(larger.delta(steps[1:-1]), larger.infinite_mass)
    return bool(np.all(smaller.delta(steps[:-1] * (1.0 + _TOLERANCE)) <= upper + 1e-12))


def took_fewer_steps(event: dp_event.DpEvent, allowed: dp_event.DpEvent) -> bool:
    """Returns whether a DP-SGD training stopped before it had taken all steps that it may."""
    sgd, allowed_sgd = _as_sgd(event), _as_sgd(allowed)
    return sgd is not None and allowed_sgd is not None and sgd[2] < allowed_sgd[2]


def _as_sgd(event: dp_event.DpEvent) -> tuple[float, float, int] | None:
    """Returns 1 / noise, sampling rate and steps of a DP-SGD training, None of others."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from dp_accounting import dp_event

    steps = 1
    if isinstance(event, dp_event.SelfComposedDpEvent):
        event, steps = event.event, event.count
    if not isinstance(event, dp_event.PoissonSampledDpEvent):
        return None
    if not isinstance(event.event, dp_event.GaussianDpEvent):
        return None
    noise = event.event.noise_multiplier
    return 1.0 / noise if noise > 0.0 else math.inf, event.sampling_probability, steps
