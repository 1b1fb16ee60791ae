"""Events, the cost of one run: frozen descriptions of private mechanisms.

An event is data, not a judgement: accountants turn it into a profile
(:mod:`~optuna_dp.accounting.run_profile`) or an RDP curve
(:mod:`~optuna_dp.accounting.run_rdp`). The classes are those of dp-accounting; where it has none
there is a small one of ours in :mod:`optuna_dp.accounting.kinds`, or with its procedure
(:mod:`optuna_dp.selection.event`). Noise multipliers are, as there,
the noise over the largest norm of *one record's contribution*: under "replace_one" a contribution
moves by twice that norm, and the accountants of this package count it so.
"""

from __future__ import annotations

from dp_accounting import NeighboringRelation, dp_event

from optuna_dp.accounting import units
from optuna_dp.core import validation
from optuna_dp.errors import InvalidArgumentError

RELATIONS = {
    "add_or_remove_one": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
    # One party's contribution against a null one; the party takes part (and adds its noise) in
    # both worlds. What dp-accounting calls the zero-out relation.
    "null_client": NeighboringRelation.REPLACE_SPECIAL,
}


def neighboring_relation(name: object) -> NeighboringRelation:
    """Returns dp-accounting's constant for a relation named in ``RELATIONS``."""
    if not isinstance(name, str) or name not in RELATIONS:
        raise InvalidArgumentError(
            "neighboring_relation", name, allowed=f"it must be one of {', '.join(RELATIONS)}"
        )
    return RELATIONS[name]


def as_event(name: str, value: object) -> dp_event.DpEvent:
    """Returns ``value`` if it is an event; refuses anything else."""
    if not isinstance(value, dp_event.DpEvent):
        raise InvalidArgumentError(
            name,
            value,
            allowed="it must be a dp_accounting DpEvent",
            fix="Make one with dp_sgd, gaussian, laplace, pure_dp, approximate_dp, bounded_range, "
            "zcdp, rdp, from_profile, from_pld, from_opacus, compose or worst_case. A RunPlan has "
            "one: its attribute event.",
        )
    return value


def as_events(values: object) -> tuple[dp_event.DpEvent, ...]:
    """Returns ``values`` if they are events, at least one; refuses anything else."""
    if isinstance(values, dp_event.DpEvent) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError("events", values, allowed="it must be a sequence of events")
    events = tuple(as_event(f"events[{i}]", value) for i, value in enumerate(values))
    if not events:
        raise InvalidArgumentError("events", values, allowed="it must name at least one event")
    return events


# -- constructors ----------------------------------------------------------------------------


def _noise(name: str, value: object) -> float:
    noise = validation.number(name, value)
    if noise == 0.0:
        raise InvalidArgumentError(
            name, value, allowed="it must be positive", fix="Without noise nothing is private."
        )
    return validation.positive(name, value)


def dp_sgd(*, noise_multiplier: float, sample_rate: float, steps: int) -> dp_event.DpEvent:
    """Returns the event of a DP-SGD training: Poisson-sampled Gaussian steps.

    Abadi et al., arXiv 1607.00133v2, Algorithm 1, every record joining every batch independently
    with probability ``sample_rate``. Shuffled batches of fixed size are another mechanism.

    Args:
        noise_multiplier: Standard deviation of the noise over the clipping norm; positive.
        sample_rate: Expected batch size over the number of records, in (0, 1].
        steps: Number of noisy steps; at least 1.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    noise = _noise("noise_multiplier", noise_multiplier)
    rate = validation.number("sample_rate", sample_rate)
    if not 0.0 < rate <= 1.0:
        raise InvalidArgumentError(
            "sample_rate",
            sample_rate,
            allowed="it must lie in (0, 1]",
            fix="It is the expected batch size divided by the number of records.",
        )
    count = validation.whole("steps", steps, 1)
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    return dp_event.SelfComposedDpEvent(step, count)


def gaussian(noise_multiplier: float) -> dp_event.DpEvent:
    """Returns the event of one Gaussian mechanism.

    Args:
        noise_multiplier: Standard deviation of the noise over the L2 norm of one record's
            contribution; positive.

    Raises:
        InvalidArgumentError: If it is not positive and finite.
    """
    return dp_event.GaussianDpEvent(_noise("noise_multiplier", noise_multiplier))


def laplace(noise_multiplier: float) -> dp_event.DpEvent:
    """Returns the event of one Laplace mechanism.

    Args:
        noise_multiplier: Scale of the noise over the L1 norm of one record's contribution;
            positive. The mechanism is (1 / noise_multiplier)-DP for adding or removing a record.

    Raises:
        InvalidArgumentError: If it is not positive and finite.
    """
    return dp_event.LaplaceDpEvent(_noise("noise_multiplier", noise_multiplier))


def zcdp(rho: float) -> dp_event.DpEvent:
    """Returns the event of any rho-zCDP mechanism.

    Bun & Steinke, arXiv 1605.02065v1, Definition 1.1: Renyi divergence at most rho a for all a.

    Args:
        rho: Non-negative, finite.

    Raises:
        InvalidArgumentError: If it is negative, infinite or NaN.
    """
    return dp_event.ZCDpEvent(validation.non_negative("rho", rho))


def compose(*events: dp_event.DpEvent) -> dp_event.DpEvent:
    """Returns the event of running all of these, adaptively (training and scoring of one run).

    Args:
        events: One or more, in the order in which they take place: each may depend on the outputs
            of those before it. The order matters for :func:`bounded_range` only, which is cheaper
            in the first place. A single one is returned as it is.

    Raises:
        InvalidArgumentError: If there is none, one is not an event, or some are about records
            and others about clients (:func:`per_client`).

    Example:
        >>> import optuna_dp as odp
        >>> run = odp.compose(
        ...     odp.dp_sgd(noise_multiplier=1.0, sample_rate=0.01, steps=100), odp.gaussian(20.0)
        ... )
    """
    checked = as_events(events)
    composition = checked[0] if len(checked) == 1 else dp_event.ComposedDpEvent(list(checked))
    units.unit_of(composition)
    return composition
