"""Tables of private selections: what each would cost, before any data are touched.

One row is one law of T and one way to learn: not at all, or within density bounds (c, C). Its
figures:

* ``epsilon``: what releasing the choice costs in all; ``attack`` what it certainly costs.
* ``naive``: what publishing ceil(E[T]) runs would cost, composed by the best accounting.
* ``rdp``: what Rényi accounting says, or DP-HyPO's Theorem 1 for searches within density bounds.
* ``few``: P[T <= 3]; ``hit``: the chance that some run lands in the best 5 % of the prior. Within
  density bounds the chance of one run is between c and C times that, so ``hit`` has the worst and
  the best policy.
* ``price``: what learning adds to the epsilon of the same law without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from optuna_dp.accounting import events, supported_events
from optuna_dp.accounting.event_json import event_to_json
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import rdp_to_epsilon
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.accounting.run_rdp import rdp_of
from optuna_dp.core import by_name, validation
from optuna_dp.core.json_entries import plain
from optuna_dp.core.value_types import JsonValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.planning.calibration import calibrate
from optuna_dp.selection.guarantee import selection_guarantee
from optuna_dp.selection.laws.base import TrialCount
from optuna_dp.selection.laws.binomial import Binomial
from optuna_dp.selection.laws.logarithmic import Logarithmic
from optuna_dp.selection.laws.negative_binomial import Geometric, NegativeBinomial
from optuna_dp.selection.laws.poisson import Poisson

Bounds = tuple[float, float]
V = TypeVar("V")

LAWS = ("negative-binomial:-0.5", "logarithmic", "geometric", "poisson")
MEANS = (10.0, 30.0, 100.0)
DENSITY_BOUNDS: Bounds = (0.75, 2.0)
# The law of rows within density bounds.
_LEARNING_LAW = "geometric"
_PLAIN: Bounds = (1.0, 1.0)
# ``few`` is the probability of so few runs that there is hardly anything to choose from.
FEW = 3
# ``hit`` is the chance of a run in this best part of the prior.
BEST = 0.05
# The part of a target epsilon that a row may leave unused.
TOLERANCE = 0.02

FIGURES = (
    "noise_multiplier",
    "epsilon",
    "attack",
    "naive",
    "rdp",
    "few",
    "hit",
    "price",
    "note",
)


def law_of(name: str, mean: float) -> TrialCount:
    """Returns a law of T by the name of its family.

    Args:
        name: "geometric", "logarithmic", "poisson", "negative-binomial:SHAPE" or "binomial:N".
        mean: E[T].
    """
    families: dict[str, Callable[[float], TrialCount]] = {
        "geometric": Geometric,
        "logarithmic": Logarithmic,
        "poisson": Poisson,
    }
    family, _, parameter = name.partition(":") if isinstance(name, str) else ("", "", "")
    try:
        if name in families:
            return families[name](mean)
        if family == "negative-binomial":
            return NegativeBinomial(shape=float(parameter), mean=mean)
        if family == "binomial":
            return Binomial(int(parameter), mean)
    except InvalidArgumentError:
        raise
    except ValueError:
        pass  # A parameter that is no number: refused like an unknown name.
    raise InvalidArgumentError(
        "law",
        name,
        allowed="it must be geometric, logarithmic, poisson, negative-binomial:SHAPE or "
        "binomial:N",
        fix="For example negative-binomial:-0.5.",
    )


class _Solution(NamedTuple):
    """The guarantee of a row, and the noise at which it holds if that was solved for.

    If no noise reaches the target, ``guarantee`` is None and ``note`` says what could be reached.
    """

    guarantee: Guarantee | None
    noise_multiplier: float | None = None
    note: str = ""


class PlanRow:
    """One way to search and what it costs, at the plan's delta.

    A figure is computed when it is first read, and kept; so is the noise that the plan solves for.
    If the row is out of reach, ``note`` says so, ``epsilon`` is ``inf`` and other costs are None.

    Args:
        plan: The plan that it belongs to.
        law: Name of the family of T, as :func:`~optuna_dp.selection_plan` takes it.
        mean: E[T].
        density_bounds: (c, C), (1, 1) for runs that do not learn.
    """

    def __init__(self, plan: SelectionPlan, law: str, mean: float, density_bounds: Bounds) -> None:
        self.law, self.mean, self.density_bounds = law, mean, density_bounds
        self.trials = law_of(law, mean)
        self._plan = plan

    def __repr__(self) -> str:
        return f"PlanRow({self.name!r}, mean={self.mean:g})"

    def to_json(self, *, attack: bool = True) -> dict[str, JsonValue]:
        """Returns all figures as plain JSON values.

        Args:
            attack: Whether to search for the attack too, the slowest figure.
        """
        names = [name for name in FIGURES if attack or name != "attack"]
        settings = ("law", "mean", "density_bounds", "trials")
        return {name: plain(getattr(self, name)) for name in (*settings, *names)}

    @property
    def adaptive(self) -> bool:
        """Returns whether the densities may leave the prior."""
        return self.density_bounds != _PLAIN

    @property
    def name(self) -> str:
        """The law and how the search learns, in words, without the mean."""
        if not self.adaptive:
            return self.law
        c, big_c = self.density_bounds
        return f"{self.law}, adaptive within [{c:g}, {big_c:g}]"

    # What it costs.

    @property
    def noise_multiplier(self) -> float | None:
        """The noise of a run, if the plan was asked to solve for it."""
        return self._solution.noise_multiplier

    @property
    def note(self) -> str:
        """Why the row is out of reach; empty if it is not."""
        return self._solution.note

    @cached_property
    def epsilon(self) -> float:
        """What the search costs in all (:meth:`Guarantee.epsilon`)."""
        guarantee = self._guarantee
        return math.inf if guarantee is None else guarantee.epsilon(self._plan.delta)

    @cached_property
    def attack(self) -> float | None:
        """What the search certainly costs: an explicit attack shows it."""
        if self._guarantee is None:
            return None
        plan = self._plan
        return by_name.attack(self._guarantee.event, plan.neighboring_relation, plan.delta)

    @cached_property
    def naive(self) -> float | None:
        """What publishing ceil(E[T]) runs would cost, composed by the best accounting."""
        if self._guarantee is None:
            return None
        count = max(1, math.ceil(self.trials.mean))
        runs = dp_event.SelfComposedDpEvent(self._guarantee.event.run, count)
        pair = pair_of(runs, self._plan.neighboring_relation)
        return max(side.epsilon(self._plan.delta) for side in (pair, pair.reversed()))

    @cached_property
    def rdp(self) -> float | None:
        """What Rényi accounting by published theorems says, at dp-accounting's orders.

        Within density bounds: what DP-HyPO's Theorem 1 says, as printed (arXiv 2306.05734v2).
        """
        if self._guarantee is None:
            return None
        if self.adaptive:
            return self._guarantee.comparisons(self._plan.delta).get("theorem_1")
        orders = np.asarray(rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=np.float64)
        # The library's own bounds of Rényi divergences are smaller.
        curve = rdp_of(self._guarantee.event, self._plan.neighboring_relation, orders)
        return rdp_to_epsilon(orders, curve, self._plan.delta)

    @cached_property
    def price(self) -> float | None:
        """What learning adds to the epsilon of the same law without it."""
        if self._guarantee is None or not self.adaptive or self.epsilon == math.inf:
            return None
        without = self._guarantee_of(self._guarantee.event.run, _PLAIN)
        return self.epsilon - without.epsilon(self._plan.delta)

    # What it finds.

    @cached_property
    def few(self) -> float:
        """P[T <= 3]."""
        return self.trials.cdf(FEW)

    @cached_property
    def hit(self) -> tuple[float, float]:
        """Chance that some run is in the best 5 %: by the worst policy, by the best."""
        shares = (min(1.0, bound * BEST) for bound in self.density_bounds)
        worst, best = map(self.trials.hit_probability, shares)
        return worst, best

    # The work.

    def _guarantee_of(self, run: dp_event.DpEvent, density_bounds: Bounds) -> Guarantee:
        return selection_guarantee(
            run,
            self.trials,
            density_bounds=density_bounds,
            neighboring_relation=self._plan.neighboring_relation,
        )

    @property
    def _guarantee(self) -> Guarantee | None:
        return self._solution.guarantee

    @cached_property
    def _solution(self) -> _Solution:
        plan = self._plan
        if plan.target_epsilon is None:
            return _Solution(self._guarantee_of(plan.run, self.density_bounds))
        try:
            calibration = calibrate(
                target_epsilon=plan.target_epsilon,
                delta=plan.delta,
                run=plan.run,
                trials=self.trials,
                density_bounds=self.density_bounds,
                neighboring_relation=plan.neighboring_relation,
                tolerance=TOLERANCE,
            )
        except InvalidArgumentError as error:
            if error.argument != "target_epsilon":
                raise
            return _Solution(None, note=f"out of reach: {error.why}")
        return _Solution(calibration.guarantee, calibration.value)


@dataclass(frozen=True)
class SelectionPlan:
    """A table to choose a search from.

    Attributes:
        run: Event of one run; a function of its noise multiplier if the noise is solved for.
        delta: Of every epsilon here.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        target_epsilon: What every row may cost, or None.
        searches: Law, mean and density bounds of each row.
    """

    run: dp_event.DpEvent | Callable[[float], dp_event.DpEvent]
    delta: float
    neighboring_relation: str
    target_epsilon: float | None
    searches: tuple[tuple[str, float, Bounds], ...]

    @cached_property
    def rows(self) -> tuple[PlanRow, ...]:
        """One row for each search. It does its work when its figures are read."""
        return tuple(PlanRow(self, *search) for search in self.searches)

    @cached_property
    def one_run(self) -> float | None:
        """Epsilon of one run, alone and published; None if its noise is solved for."""
        if self.target_epsilon is not None:
            return None
        return Guarantee(self.run, self.neighboring_relation).epsilon(self.delta)

    def to_json(self, *, attack: bool = True) -> dict[str, JsonValue]:
        """Returns the plan with all figures of all rows, as plain JSON values.

        Args:
            attack: Whether to look for attacks too, a good part of the work.
        """
        names = ("delta", "neighboring_relation", "target_epsilon", "one_run")
        return {
            "format": "optuna-dp plan",
            "version": 1,
            "run": event_to_json(self.run) if self.target_epsilon is None else None,
            **{name: plain(getattr(self, name)) for name in names},
            "rows": [row.to_json(attack=attack) for row in self.rows],
        }


def selection_plan(
    run: dp_event.DpEvent | Callable[[float], dp_event.DpEvent],
    *,
    delta: float = 1e-5,
    laws: Sequence[str] = LAWS,
    means: Sequence[float] = MEANS,
    density_bounds: Sequence[Bounds] | None = None,
    neighboring_relation: str = "add_or_remove_one",
    target_epsilon: float | None = None,
) -> SelectionPlan:
    """Returns what searches would cost and find, or the noise that a target epsilon needs.

    Without ``target_epsilon`` every row is judged as it is. With it, ``run`` is a function of its
    noise multiplier, and every row gets the least noise with which it costs at most that much (the
    white-box setting of DP-HyPO). To solve for the mean or for density bounds: :func:`calibrate`.

    The plan is returned at once. A row is judged, or solved for, when its figures are read: a few
    tenths of a second without density bounds, a few seconds with them.

    Guarantees:
        * Every ``epsilon`` is the guarantee's own and is never above ``target_epsilon``; rows that
          cannot reach it are kept, empty, with a note.
        * At least 98 % of ``target_epsilon`` is used, unless the noise is at an end of its range
          (:func:`calibrate` names it).
        * No figure depends on which others were read, or in which order.
        * All arguments are checked, and whether the run is supported, before any work.

    Args:
        run: Event of one run, or with ``target_epsilon`` a function noise multiplier -> event.
        delta: In (0, 1).
        laws: Families of searches that do not learn: "geometric", "logarithmic", "poisson",
            "negative-binomial:SHAPE" or "binomial:N".
        means: E[T] of the rows.
        density_bounds: Pairs (c, C) of searches that learn, with a geometric law, at every mean.
            By default (0.75, 2) at the smallest mean only: such a row takes seconds.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        target_epsilon: What each row may cost; positive.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant supports the run.

    Example:
        >>> import optuna_dp as odp
        >>> plan = odp.selection_plan(odp.gaussian(4.0), laws=["geometric"], means=[10])
        >>> round(plan.rows[0].epsilon, 2)
        1.43
    """
    laws, means = _several("laws", laws), _several("means", means)
    means = [validation.positive("means", mean) for mean in means]
    validation.open_unit("delta", delta)
    events.neighboring_relation(neighboring_relation)
    if target_epsilon is not None:
        target_epsilon = validation.positive("target_epsilon", target_epsilon)
    is_function = callable(run) and not isinstance(run, dp_event.DpEvent)
    if is_function != (target_epsilon is not None):
        raise InvalidArgumentError(
            "run",
            run,
            allowed="it must be a function of the noise multiplier if there is a target_epsilon, "
            "and an event otherwise",
            fix="For example lambda noise: dp_sgd(noise_multiplier=noise, ...).",
        )
    event: Any = run(1.0) if is_function else run
    if not isinstance(event, dp_event.DpEvent):
        raise InvalidArgumentError(
            "run", run, allowed="it must be an event or a function that makes one"
        )
    supported_events.check_supported(event, neighboring_relation)
    searches: list[tuple[str, float, Bounds]] = []
    for mean in means:
        searches += [(law, mean, _PLAIN) for law in laws]
        pairs: Sequence[Bounds] = [DENSITY_BOUNDS] if mean == min(means) else []
        if density_bounds is not None:
            pairs = [*map(validation.density_bounds, _several("density_bounds", density_bounds))]
        searches += [
            (_LEARNING_LAW, mean, pair) for pair in dict.fromkeys(pairs) if pair != _PLAIN
        ]
    if not searches:
        empty = "laws" if means else "means"
        raise InvalidArgumentError(
            empty, (), problem="nothing would be planned", fix="Give at least one."
        )
    for law, mean, _ in searches:
        law_of(law, mean)  # Refuses unknown names, and means that a law does not take.
    return SelectionPlan(
        run=run,
        delta=float(delta),
        neighboring_relation=neighboring_relation,
        target_epsilon=target_epsilon,
        searches=tuple(searches),
    )


def _several(name: str, value: Iterable[V]) -> tuple[V, ...]:
    """Returns a sequence as a tuple; refuses one thing instead of a list of it."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidArgumentError(
            name, value, allowed="it must be a list", fix=f"Give {name}=[...]."
        )
    elements = tuple(value)
    if name == "density_bounds" and not all(isinstance(pair, Iterable) for pair in elements):
        raise InvalidArgumentError(
            name,
            value,
            allowed="it must be a list of pairs (c, C)",
            fix="For one pair: [(0.75, 2.0)].",
        )
    return elements
