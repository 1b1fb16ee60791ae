"""What one run costs: frozen descriptions of private mechanisms.

An event is data, not a judgement: accountants turn it into a profile
(:mod:`~optuna_dp.accounting.run_profile`) or an RDP curve
(:mod:`~optuna_dp.accounting.run_rdp`). The classes are those of dp-accounting; where it has none
there is a small one of ours. Noise multipliers are, as there, the noise over the largest norm of
*one record's contribution*: under "replace_one" a contribution moves by twice that norm, and the
accountants of this package count it so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attr
from dp_accounting import NeighboringRelation, dp_event

from optuna_dp import validation
from optuna_dp.accounting import units
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.trial_counts.base import TrialCount

RELATIONS = {
    "add_or_remove_one": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
    # One party's contribution against a null one; the party takes part (and adds its noise) in
    # both worlds. What dp-accounting calls the zero-out relation.
    "null_client": NeighboringRelation.REPLACE_SPECIAL,
}
POLICIES = ("history", "data")


def neighboring_relation(name: Any) -> Any:
    """Returns dp-accounting's constant for a relation named in ``RELATIONS``."""
    if not isinstance(name, str) or name not in RELATIONS:
        raise InvalidArgumentError(
            "neighboring_relation", name, f"it must be one of {', '.join(RELATIONS)}"
        )
    return RELATIONS[name]


# -- events that dp-accounting does not have ---------------------------------------------------
# dp_accounting ships no types, so its classes are Any to mypy: hence the ignores.


def as_event(name: str, value: Any) -> Any:
    """Returns ``value`` if it is an event; refuses anything else."""
    if not isinstance(value, dp_event.DpEvent):
        raise InvalidArgumentError(
            name,
            value,
            "it must be a dp_accounting DpEvent",
            "Make one with dp_sgd, gaussian, laplace, pure_dp, approximate_dp, bounded_range, "
            "zcdp, rdp, from_opacus, compose or worst_case.",
        )
    return value


def _as_epsilon(value: Any) -> float:
    return validation.non_negative("epsilon", value)


def _as_delta(value: Any) -> float:
    delta = validation.number("delta", value)
    if not 0.0 <= delta < 1.0:
        raise InvalidArgumentError(
            "delta", value, "it must lie in [0, 1)", "delta = 1 protects nothing."
        )
    return delta


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ApproximateDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A mechanism known only to be (epsilon, delta)-DP; pure when delta is 0.

    Attributes:
        epsilon: Non-negative, finite.
        delta: In [0, 1).
    """

    epsilon: float = attr.ib(converter=_as_epsilon)
    delta: float = attr.ib(default=0.0, converter=_as_delta)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BoundedRangeDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A mechanism whose privacy loss lies in an interval of length ``epsilon`` that holds zero.

    Which interval may depend on the two neighbouring data sets and on what was released before.

    Attributes:
        epsilon: Non-negative, finite.
    """

    epsilon: float = attr.ib(converter=_as_epsilon)


def _as_numbers(name: str, values: Any) -> tuple[float, ...]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError(name, values, "it must be a sequence of numbers")
    result = tuple(validation.number(f"{name}[{i}]", v) for i, v in enumerate(values))
    if not result:
        raise InvalidArgumentError(name, values, "it must not be empty")
    return result


def _as_orders(values: Any) -> tuple[float, ...]:
    return _as_numbers("orders", values)


def _as_epsilons(values: Any) -> tuple[float, ...]:
    return _as_numbers("epsilons", values)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class RdpDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A mechanism known only by points of its Renyi-DP curve, both directions bounded.

    Attributes:
        orders: Shape (n,), above 1, ascending (sorted by the constructor together with
            ``epsilons``); inf means pure DP.
        epsilons: Shape (n,), non-negative; inf where nothing is known.
    """

    orders: tuple[float, ...] = attr.ib(converter=_as_orders)
    epsilons: tuple[float, ...] = attr.ib(converter=_as_epsilons)

    def __attrs_post_init__(self) -> None:
        if len(self.orders) != len(self.epsilons):
            raise InvalidArgumentError(
                "epsilons", self.epsilons, f"it must be as long as orders, {len(self.orders)}"
            )
        for order in self.orders:
            if not order > 1.0:
                raise InvalidArgumentError("orders", order, "every order must be above 1")
        if len(set(self.orders)) < len(self.orders):
            raise InvalidArgumentError("orders", self.orders, "no order may appear twice")
        for epsilon in self.epsilons:
            if epsilon < 0.0:
                raise InvalidArgumentError("epsilons", epsilon, "every value must be >= 0")
        points = sorted(zip(self.orders, self.epsilons, strict=True))
        object.__setattr__(self, "orders", tuple(order for order, _ in points))
        object.__setattr__(self, "epsilons", tuple(epsilon for _, epsilon in points))


def _as_events(values: Any) -> tuple[Any, ...]:
    if isinstance(values, dp_event.DpEvent) or not hasattr(values, "__iter__"):
        raise InvalidArgumentError("events", values, "it must be a sequence of events")
    events = tuple(as_event(f"events[{i}]", value) for i, value in enumerate(values))
    if not events:
        raise InvalidArgumentError("events", values, "it must name at least one event")
    return events


@attr.s(frozen=True, slots=True, auto_attribs=True)
class WorstCaseDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A run that is one of several mechanisms, depending on its hyperparameters.

    Attributes:
        events: The mechanisms it may be; which one is not secret and does not depend on the data.
    """

    events: tuple[Any, ...] = attr.ib(converter=_as_events)


def _as_trials(value: Any) -> TrialCount:
    if not isinstance(value, TrialCount):
        raise InvalidArgumentError(
            "trials", value, "it must be a law of the number of runs, such as Geometric(mean=20)"
        )
    return value


def _as_run(value: Any) -> Any:
    return as_event("run", value)


def _as_policy(value: Any) -> str:
    if value not in POLICIES:
        raise InvalidArgumentError("policy", value, f"it must be one of {', '.join(POLICIES)}")
    return str(value)


def _as_startup_runs(value: Any) -> int:
    return validation.whole("startup_runs", value, 1)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PrivateSelectionDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """The best of a secret random number of runs, released alone.

    Attributes:
        run: What one run costs, its score included.
        trials: The law of the number of runs.
        density_bounds: (c, C), bounds of each run's density relative to the prior.
        policy: What the density may depend on: "history", the private outputs of earlier runs
            only, or "data", anything (DP-HyPO's own model).
    """

    run: Any = attr.ib(converter=_as_run)
    trials: TrialCount = attr.ib(converter=_as_trials)
    density_bounds: tuple[float, float] = attr.ib(
        default=(1.0, 1.0), converter=validation.density_bounds
    )
    policy: str = attr.ib(default="history", converter=_as_policy)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class StartedSelectionDpEvent(PrivateSelectionDpEvent):
    """A selection whose first runs draw from the prior itself; later ones see private outputs.

    Attributes:
        run: See :class:`PrivateSelectionDpEvent`.
        trials: See there.
        density_bounds: See there; of the runs after the start-up.
        policy: "history".
        startup_runs: How many runs, the first ones by slot, draw from the prior; at least 1.
    """

    startup_runs: int = attr.ib(converter=_as_startup_runs, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.policy != "history":
            raise InvalidArgumentError(
                "startup_runs",
                self.startup_runs,
                "it must be 0 if the policy may depend on the data",
                "Runs from the prior cost less only where the later ones see private outputs of "
                'runs fixed by slot numbers: policy="history", schedule="batch".',
            )


def startup_runs_of(event: PrivateSelectionDpEvent) -> int:
    """Returns how many runs draw from the prior whatever is known; 0 where nothing says so."""
    return event.startup_runs if isinstance(event, StartedSelectionDpEvent) else 0


def _as_variance(value: Any) -> float:
    return validation.positive("variance", value)


def _as_votes(value: Any) -> int:
    return validation.whole("votes", value, 1)


def _as_candidates(value: Any) -> int:
    return validation.whole("candidates", value, 1)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A sum of 0/1 vectors with ``votes`` ones each, plus Skellam noise in every entry.

    The parties are the clients of a vote: a relation speaks of one client's whole data. It has no
    meaning under "add_or_remove_one", because a client that leaves takes its share of the noise
    along (``docs/explanation/voting.md``).

    Attributes:
        variance: Variance of the noise of one entry of the sum; positive.
        votes: Number of ones in each client's vector, k.
        candidates: Length of the vectors, p; at least k.
    """

    unit: ClassVar[str] = units.CLIENT

    variance: float = attr.ib(converter=_as_variance)
    votes: int = attr.ib(converter=_as_votes)
    candidates: int = attr.ib(converter=_as_candidates)

    def __attrs_post_init__(self) -> None:
        if self.votes > self.candidates:
            raise InvalidArgumentError(
                "votes",
                self.votes,
                f"it must be at most the number of candidates, {self.candidates}",
            )

    def changes(self, relation: str) -> int:
        """Returns how many entries of the sum neighbours may change, by one each.

        Replacing a client's data moves ones to entries that had none: 2 min(k, p - k). Against a
        null vote the k ones appear.
        """
        if relation == "null_client":
            return self.votes
        return 2 * min(self.votes, self.candidates - self.votes)


def _as_inner(value: Any) -> Any:
    return as_event("event", value)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PerClientDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """A mechanism whose neighbours differ in one client with all its records, not in one record.

    Accountants judge it as they judge ``event``; what it changes is whose data are protected.

    Attributes:
        event: The mechanism, one contribution of it being that of one client.
    """

    unit: ClassVar[str] = units.CLIENT

    event: Any = attr.ib(converter=_as_inner)


# -- constructors ----------------------------------------------------------------------------


def _noise(name: str, value: Any) -> float:
    noise = validation.number(name, value)
    if noise == 0.0:
        raise InvalidArgumentError(
            name, value, "it must be positive", "Without noise nothing is private."
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
            "it must lie in (0, 1]",
            "It is the expected batch size divided by the number of records.",
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


def pure_dp(epsilon: float) -> ApproximateDpEvent:
    """Returns the event of any epsilon-DP mechanism.

    Args:
        epsilon: Non-negative, finite.

    Raises:
        InvalidArgumentError: If it is negative, infinite or NaN.
    """
    return ApproximateDpEvent(epsilon, 0.0)


def approximate_dp(epsilon: float, delta: float) -> ApproximateDpEvent:
    """Returns the event of any (epsilon, delta)-DP mechanism.

    Args:
        epsilon: Non-negative, finite.
        delta: In [0, 1).

    Raises:
        InvalidArgumentError: If an argument is not allowed.
    """
    return ApproximateDpEvent(epsilon, delta)


def bounded_range(epsilon: float) -> BoundedRangeDpEvent:
    """Returns the event of any epsilon-bounded-range mechanism.

    For neighbouring data sets the privacy losses of any two outputs differ by at most ``epsilon``
    (Durfee & Rogers, arXiv 1905.04273). The exponential mechanism with weights
    ``exp(epsilon * utility / (2 * sensitivity))`` is one; so is report-noisy-max with Gumbel
    noise of scale ``2 * sensitivity / epsilon``. Permute-and-flip (exponential noise) is not.
    Such a mechanism is ``epsilon``-DP, and in a composition it costs about half as much as
    ``pure_dp(epsilon)``, least where it comes first (:func:`compose`).

    Args:
        epsilon: Non-negative, finite.

    Raises:
        InvalidArgumentError: If it is negative, infinite or NaN.

    Example:
        >>> import optuna_dp as odp
        >>> choice, training = odp.bounded_range(0.5), odp.gaussian(4.0)
        >>> round(odp.Guarantee(odp.compose(choice, training)).epsilon(delta=1e-5), 2)
        1.24
        >>> round(odp.Guarantee(odp.compose(odp.pure_dp(0.5), training)).epsilon(delta=1e-5), 2)
        1.4
    """
    return BoundedRangeDpEvent(epsilon)


def zcdp(rho: float) -> dp_event.DpEvent:
    """Returns the event of any rho-zCDP mechanism.

    Bun & Steinke, arXiv 1605.02065v1, Definition 1.1: Renyi divergence at most rho a for all a.

    Args:
        rho: Non-negative, finite.

    Raises:
        InvalidArgumentError: If it is negative, infinite or NaN.
    """
    return dp_event.ZCDpEvent(validation.non_negative("rho", rho))


def rdp(orders: Sequence[float], epsilons: Sequence[float]) -> RdpDpEvent:
    """Returns the event of any mechanism with these points on its Renyi-DP curve.

    Args:
        orders: Above 1, none twice, any order; inf means pure DP.
        epsilons: One for each order, non-negative; inf where nothing is known.

    Raises:
        InvalidArgumentError: If they differ in length, an order is not above 1 or appears twice,
            or an epsilon is negative.
    """
    return RdpDpEvent(orders, epsilons)


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
    checked = _as_events(events)
    whole = checked[0] if len(checked) == 1 else dp_event.ComposedDpEvent(list(checked))
    units.unit_of(whole)
    return whole


def worst_case(*events: dp_event.DpEvent) -> dp_event.DpEvent:
    """Returns the event of a run that is one of these, depending on its hyperparameters.

    Args:
        events: One or more; repeated ones count once. A single one is returned as it is.

    Raises:
        InvalidArgumentError: If there is none, one is not an event, or some are about records
            and others about clients (:func:`per_client`).
    """
    checked: list[Any] = []
    for event in _as_events(events):
        if event not in checked:
            checked.append(event)
    whole = checked[0] if len(checked) == 1 else WorstCaseDpEvent(tuple(checked))
    units.unit_of(whole)
    return whole


def per_client(event: dp_event.DpEvent) -> dp_event.DpEvent:
    """Returns the event of a mechanism that hides one client with all its records.

    For federated training in which each client's whole contribution to a round is clipped and the
    noise is in proportion to that (DP-FedAvg). DP-SGD *within* a client clips single records; it
    protects records, and this must not be said of it.

    Args:
        event: The mechanism; a contribution, a noise multiplier and a sampling rate in it are
            about clients. One that is about clients already is returned as it is.

    Raises:
        InvalidArgumentError: If it is not an event.

    Example:
        >>> import optuna_dp as odp
        >>> rounds = odp.dp_sgd(noise_multiplier=2.0, sample_rate=1.0, steps=10)
        >>> odp.Guarantee(odp.per_client(rounds), "replace_one").unit
        'client'
    """
    checked = as_event("event", event)
    return checked if units.unit_of(checked) == units.CLIENT else PerClientDpEvent(checked)
