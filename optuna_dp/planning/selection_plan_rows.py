"""The rows of a plan, each computed or solved for when its figures are read.

Two figures need a word:

* ``hit_best``: given any history, a run lands in the best fraction f of the prior with probability
  at most min(1, C f) and at least c f. Hence so does the whole search: adaptivity within [c, C]
  raises the chance of a hit from 1 - phi(1 - f) to at most 1 - phi(1 - C f), and a bad policy
  lowers it to 1 - phi(1 - c f) at worst.
* ``rival_mean``: the mean of the same law that plain selection (C = c = 1) could afford at the
  same epsilon. Learning is worth its price only where the extra runs are not to be had.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from optuna_dp import validation
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import rdp_to_epsilon
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.strongest import strongest_known_attack
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import plain
from optuna_dp.numbers_shown import significant_up
from optuna_dp.planning import calibration
from optuna_dp.planning.calibration import Unknown, profile_epsilon, rough_epsilon
from optuna_dp.planning.target_search import guided, largest_within
from optuna_dp.private_selection.guarantee import selection_guarantee
from optuna_dp.private_selection.trial_counts.base import TrialCount
from optuna_dp.private_selection.trial_counts.binomial import Binomial
from optuna_dp.private_selection.trial_counts.logarithmic import Logarithmic
from optuna_dp.private_selection.trial_counts.negative_binomial import Geometric, NegativeBinomial
from optuna_dp.private_selection.trial_counts.poisson import Poisson

Bounds = tuple[float, float]
T = TypeVar("T")

FEW = 3
"""``few`` is the probability of so few runs that there is hardly anything to choose from."""

TOLERANCE = 0.02
"""The part of a target epsilon that a row may leave unused."""

PLAIN: Bounds = (1.0, 1.0)
# Logarithm of the noise between two points of the lattice that all rows are first judged on.
_LATTICE = 0.1


def law_of(name: str, mean: float, cap: int | None = None) -> TrialCount:
    """Returns a law of T by the name of its family.

    Args:
        name: "geometric", "logarithmic", "poisson", "negative-binomial:SHAPE" or "binomial:N".
        mean: E[T].
        cap: Largest T, or None.
    """
    families: dict[str, Callable[[float], TrialCount]] = {
        "geometric": Geometric,
        "logarithmic": Logarithmic,
        "poisson": Poisson,
    }
    family, _, parameter = name.partition(":") if isinstance(name, str) else ("", "", "")
    try:
        if name in families:
            law = families[name](mean)
        elif family == "negative-binomial":
            law = NegativeBinomial(shape=float(parameter), mean=mean)
        elif family == "binomial":
            law = Binomial(int(parameter), mean)
        else:
            raise ValueError
    except InvalidArgumentError:
        raise
    except ValueError:
        raise InvalidArgumentError(
            "law",
            name,
            "it must be geometric, logarithmic, poisson, negative-binomial:SHAPE or binomial:N",
            "For example negative-binomial:-0.5.",
        ) from None
    return law if cap is None else law.capped(validation.whole("cap", cap, 1))


@dataclass(frozen=True)
class Question:
    """What the rows of a plan have in common: the arguments of the planner.

    Attributes:
        run: Function noise multiplier -> event of one run at that noise.
        noise: The noise multiplier, not used where it is solved for.
        startup_runs: How many runs come from the prior in searches within density bounds.
        unknown: What is solved for, or None.
        target: The epsilon that a row may cost; not used if nothing is solved for.
    """

    run: Callable[[float], Any]
    noise: float
    delta: float
    fraction: float
    policy: str
    neighboring_relation: str
    startup_runs: int
    cap: int | None
    unknown: Unknown | None
    target: float

    def guarantee(self, search: Search) -> Guarantee:
        """Returns the guarantee of a search."""
        return selection_guarantee(
            self.run(search.noise),
            search.trials,
            density_bounds=search.density_bounds,
            policy=self.policy,
            startup_runs=0 if search.density_bounds == PLAIN else self.startup_runs,
            neighboring_relation=self.neighboring_relation,
        )


class Search(NamedTuple):
    """A way to search, with nothing left to be solved for."""

    trials: TrialCount
    mean: float
    density_bounds: Bounds
    noise: float


def _figure(compute: Callable[[PlanRow, Search], T]) -> cached_property[T | None]:
    """A figure that is computed when it is first read; None in a row out of reach."""

    def read(row: PlanRow) -> T | None:
        return None if row._search is None else compute(row, row._search)

    read.__doc__ = compute.__doc__
    return cached_property(read)


class PlanRow:
    """One way to search and what it costs, at the plan's delta.

    A figure is computed when it is first read, and kept; so is what the plan solves for. If the
    row is out of reach, ``note`` says so, ``epsilon`` is ``inf`` and other figures are None.

    Args:
        question: What the rows of the plan have in common.
        law: Name of the family of T, as :func:`~optuna_dp.selection_plan` takes it.
        mean: E[T] before any cap; None if it is solved for.
        density_bounds: (c, C), (1, 1) for runs that do not learn; None if they are solved for.
    """

    def __init__(
        self, question: Question, law: str, mean: float | None, density_bounds: Bounds | None
    ) -> None:
        self.law = law
        self._question, self._mean, self._density_bounds = question, mean, density_bounds

    def __repr__(self) -> str:
        # As given: to show a row must not take the time to solve it.
        mean, bounds = self._mean, self._density_bounds
        return f"PlanRow(law={self.law!r}, mean={mean}, density_bounds={bounds})"

    def to_json(self, *, attack: bool = True) -> dict[str, Any]:
        """Returns all figures as plain JSON values.

        Args:
            attack: Whether to search for the attack too, the slowest figure.
        """
        names = ("law", *(name for name in FIGURES if attack or name != "attack"))
        return {name: plain(getattr(self, name)) for name in names}

    # -- the search ------------------------------------------------------------------------------

    @property
    def adaptive(self) -> bool:
        """Returns whether the densities may leave the prior."""
        return self.density_bounds not in (None, PLAIN)

    @property
    def name(self) -> str:
        """The law and how the search learns, in words, without the mean."""
        if self.density_bounds is None or not self.adaptive:
            return self.law
        c, big_c = self.density_bounds
        return f"{self.law}, adaptive within [{c:g}, {big_c:g}]"

    @property
    def mean(self) -> float | None:
        """E[T] before any cap; None if it was to be solved for and is out of reach."""
        if self._mean is not None or self._search is None:
            return self._mean
        return self._search.mean

    @property
    def density_bounds(self) -> Bounds | None:
        """(c, C); (1, 1) where runs do not learn from each other; None likewise."""
        if self._density_bounds is not None or self._search is None:
            return self._density_bounds
        return self._search.density_bounds

    @_figure
    def trials(self, search: Search) -> TrialCount:
        """The law of T."""
        return search.trials

    @_figure
    def noise_multiplier(self, search: Search) -> float | None:
        """The noise of a run, if the plan was asked to solve for it."""
        return search.noise if self._question.unknown == "noise_multiplier" else None

    @property
    def note(self) -> str:
        """Why the row is out of reach; empty if it is not."""
        return self._solved[1]

    # -- what it costs ---------------------------------------------------------------------------

    @cached_property
    def epsilon(self) -> float:
        """What the search costs in all (:meth:`Guarantee.epsilon`)."""
        return math.inf if self._search is None else self._epsilon(self._search)

    @_figure
    def attack(self, search: Search) -> float:
        """What the search certainly costs: an explicit attack shows it."""
        question, event = self._question, self._question.guarantee(search).event
        return strongest_known_attack(event, question.neighboring_relation, question.delta)

    @_figure
    def naive(self, search: Search) -> float:
        """What publishing ceil(E[T]) runs would cost, composed by the best accounting."""
        question = self._question
        count = max(1, math.ceil(search.trials.mean))
        runs = dp_event.SelfComposedDpEvent(question.run(search.noise), count)
        pair = pair_of(runs, question.neighboring_relation)
        return max(side.epsilon(question.delta) for side in (pair, pair.reversed()))

    @_figure
    def rdp(self, search: Search) -> float | None:
        """What dp-accounting's RDP accountant says at its own orders; without density bounds."""
        if self.adaptive:
            return None
        orders = np.asarray(rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=np.float64)
        curve = self._question.guarantee(search).rdp(orders)
        return rdp_to_epsilon(orders, curve, self._question.delta)

    @_figure
    def theorem_1(self, search: Search) -> float | None:
        """What DP-HyPO's Theorem 1 says, as printed (arXiv 2306.05734v2); with density bounds."""
        found = self._question.guarantee(search).comparisons(self._question.delta)
        return found.get("theorem_1") if self.adaptive else None

    @_figure
    def price(self, search: Search) -> float | None:
        """What learning adds to the epsilon of the same law without it."""
        if not self.adaptive or not math.isfinite(self.epsilon):
            return None
        return self.epsilon - self._epsilon(search._replace(density_bounds=PLAIN))

    # -- what it finds ---------------------------------------------------------------------------

    @_figure
    def few(self, search: Search) -> float:
        """P[T <= 3]."""
        return search.trials.cdf(FEW)

    @_figure
    def hit(self, search: Search) -> float:
        """Chance that some run lands in the best ``fraction`` of the prior, drawing from it."""
        return search.trials.hit_probability(self._question.fraction)

    @_figure
    def hit_worst(self, search: Search) -> float:
        """The same at the worst that a policy within [c, C] can do."""
        return search.trials.hit_probability(search.density_bounds[0] * self._question.fraction)

    @_figure
    def hit_best(self, search: Search) -> float:
        """The same at the best it can do."""
        reached = search.density_bounds[1] * self._question.fraction
        return search.trials.hit_probability(min(1.0, reached))

    @property
    def rival_mean(self) -> float | None:
        """Mean of the same law without learning that costs no more than this row."""
        return None if self._rival is None else self._rival.mean

    # -- the work --------------------------------------------------------------------------------

    def _epsilon(self, search: Search) -> float:
        return self._question.guarantee(search).epsilon(self._question.delta)

    @_figure
    def _rival(self, search: Search) -> TrialCount | None:
        if not self.adaptive or not 0.0 < self.epsilon < math.inf:
            return None
        make = partial(law_of, self.law)
        scale = calibration.mean_scale(make)

        def cost(u: float) -> float:
            other = search._replace(trials=make(scale.value(u)), density_bounds=PLAIN)
            return profile_epsilon(self._question.guarantee(other), self._question.delta)

        start = replace(scale, start=math.log(search.trials.mean))
        found = largest_within(cost, self.epsilon, start)
        return make(scale.value(found.at)) if found.cost <= self.epsilon else None

    @property
    def _search(self) -> Search | None:
        return self._solved[0]

    @cached_property
    def _solved(self) -> tuple[Search | None, str]:
        """What is searched in the end, None if out of reach, and then the note that says so."""
        question, unknown = self._question, self._question.unknown
        make = partial(law_of, self.law, cap=question.cap)

        def at(value: float) -> Search:
            mean = value if self._mean is None else self._mean
            bounds = self._density_bounds or calibration.bounds_of_ratio(value)
            noise = value if unknown == "noise_multiplier" else question.noise
            return Search(make(mean), mean, bounds, noise)

        if unknown is None:
            return at(math.nan), ""
        scale = calibration.scale_of(unknown, make)

        def cost(u: float) -> float:
            # The profile bounds are almost always the smallest, and much the quickest.
            return profile_epsilon(question.guarantee(at(scale.value(u))), question.delta)

        def rough(u: float) -> float:
            return rough_epsilon(question.guarantee(at(scale.value(u))), question.delta)

        slow = self._density_bounds != PLAIN and question.policy == "history"
        if slow or unknown == "noise_multiplier":
            found = guided(
                cost,
                _on_lattice(rough) if unknown == "noise_multiplier" else rough,
                question.target,
                scale,
                ratio=calibration.CLOSE_OVER_ROUGH if slow else 1.0,
                tolerance=TOLERANCE,
            )
        else:
            found = largest_within(cost, question.target, scale, tolerance=TOLERANCE)
        if found.cost > question.target:
            return None, f"out of reach: at least {significant_up(found.cost)}"
        return at(scale.value(found.at)), ""


FIGURES = tuple(
    name
    for name, value in vars(PlanRow).items()
    if isinstance(value, cached_property | property) and not name.startswith("_")
)


def _on_lattice(cost: Callable[[float], float]) -> Callable[[float], float]:
    """Returns about the cost, by its values at a few points that are the same for all rows.

    Most of the time goes into the dominating pair of a run, which is kept for each noise: so rows
    share those pairs.
    """

    @cache
    def height(k: int) -> float:
        value = cost(k * _LATTICE)
        return math.log(value) if value > 0.0 else -math.inf

    def between(u: float) -> float:
        k = math.floor(u / _LATTICE)
        low, high, share = height(k), height(k + 1), u / _LATTICE - k
        if not math.isfinite(low + high):
            return math.exp(high)
        return math.exp((1.0 - share) * low + share * high)

    return between
