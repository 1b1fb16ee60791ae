"""The rows of a plan, judged or solved for one at a time.

Two figures need a word:

* ``hit_best``: given any history, a run lands in the best fraction f of the prior with probability
  at most min(1, C f) and at least c f. Hence so does the whole search: adaptivity within [c, C]
  raises the chance of a hit from 1 - phi(1 - f) to at most 1 - phi(1 - C f), and a bad policy
  lowers it to 1 - phi(1 - c f) at worst.
* ``rival_mean``: the mean of the same law that plain selection (C = c = 1, no pilots) could afford
  at the same epsilon. Learning is worth its price only where the extra runs are not to be had.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from optuna_dp import validation
from optuna_dp.accounting.epsilon_methods import epsilons_of
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.accounting.rdp_curves import rdp_to_epsilon
from optuna_dp.accounting.run_profile import pair_of
from optuna_dp.attacks.strongest import strongest_known_attack
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.json_records import Record
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

FEW = 3
"""``few`` is the probability of so few runs that there is hardly anything to choose from."""

PLAIN: Bounds = (1.0, 1.0)
# Of the target epsilon, what a row may leave unused.
_TOLERANCE = 0.02


@dataclass(frozen=True)
class Search(Record):
    """A way to search. ``None`` in ``mean`` or ``density_bounds``: to be solved for.

    Attributes:
        law: Name of the family of T, as :func:`law_of` takes it.
        mean: E[T] before any cap; pilots are not counted.
        density_bounds: (c, C); (1, 1) where the selection's runs do not learn from each other.
        pilots: Number of pilots before the selection, B; 0 for none.
        noise_ratio: Noise of a pilot over that of a selection run; None without pilots.
    """

    law: str
    mean: float | None
    density_bounds: Bounds | None = PLAIN
    pilots: int = 0
    noise_ratio: float | None = None

    @property
    def adaptive(self) -> bool:
        """Whether the densities may leave the prior."""
        return self.density_bounds not in (None, PLAIN)

    @property
    def learns(self) -> bool:
        """Whether runs are drawn in view of others, within density bounds or after pilots."""
        return self.adaptive or self.pilots > 0

    @property
    def name(self) -> str:
        """The law and how the search learns, in words, without the mean."""
        if self.pilots:
            return f"{self.law}, after {self.pilots} pilots at {self.noise_ratio:g}x noise"
        if self.density_bounds is None or not self.adaptive:
            return self.law
        c, big_c = self.density_bounds
        return f"{self.law}, adaptive within [{c:g}, {big_c:g}]"


@dataclass(frozen=True)
class PlanRow(Search):
    """One way to search and what it costs, at the plan's delta.

    ``None`` where there is no such figure.

    Attributes:
        law: Name of the family of T.
        mean: E[T] before any cap; pilots are not counted.
        density_bounds: (c, C); (1, 1) where the selection's runs do not learn from each other.
        pilots: Number of pilots before the selection, B; 0 for none.
        noise_ratio: Noise of a pilot over that of a selection run; None without pilots.
        trials: The law of T.
        noise_multiplier: Solved for, if the plan was asked to.
        epsilon: What the search costs in all, pilots included (:meth:`Guarantee.epsilon`).
        attack: What it certainly costs.
        naive: What publishing ceil(E[T]) runs would cost, composed by the best accounting; None
            where the noise was solved for and in rows of pilots.
        rdp: What dp-accounting's RDP accountant says, without density bounds only.
        theorem_1: What DP-HyPO's Theorem 1 says, as printed (arXiv 2306.05734v2).
        any_schedule: Epsilon if the policy could see the data, as ``schedule="any"`` is charged.
        price: What learning adds to the epsilon of the same law without it.
        few: P[T <= 3].
        hit: Chance that some run lands in the best ``fraction`` of the prior, drawing from it.
            This and the next two are None in rows of pilots: it is not known what they will teach.
        hit_worst: The same at the worst a policy within [c, C] can do.
        hit_best: The same at the best it can do.
        likely_runs: T is at most this with probability 0.95.
        rival_mean: Mean of the same law without learning that costs no more than this row.
        rival_hit: Its chance of a hit.
        note: Why the row is empty, if it is.
    """

    trials: TrialCount | None = None
    noise_multiplier: float | None = None
    epsilon: float = math.inf
    attack: float | None = None
    naive: float | None = None
    rdp: float | None = None
    theorem_1: float | None = None
    any_schedule: float | None = None
    price: float | None = None
    few: float | None = None
    hit: float | None = None
    hit_worst: float | None = None
    hit_best: float | None = None
    likely_runs: int | None = None
    rival_mean: float | None = None
    rival_hit: float | None = None
    note: str = ""


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
class Judge:
    """Fills rows.

    Attributes:
        run: Function noise multiplier -> event of one run at that noise.
        startup_runs: How many runs come from the prior in searches within density bounds.
    """

    run: Callable[[float], Any]
    delta: float
    fraction: float
    policy: str
    relation: str
    attacks: bool
    startup_runs: int = 0

    def guarantee(self, search: Search, trials: TrialCount, noise: float) -> Guarantee:
        """Returns the guarantee of a search whose selection runs have this noise."""
        run, ratio = self.run(noise), search.noise_ratio
        how: dict[str, Any] = {
            "density_bounds": search.density_bounds,
            "policy": self.policy,
            "neighboring_relation": self.relation,
        }
        if ratio is None:
            started = self.startup_runs if search.density_bounds != PLAIN else 0
            return selection_guarantee(run, trials, startup_runs=started, **how)
        raise AssertionError

    def row(
        self, search: Search, trials: TrialCount, noise: float, *, solved: bool = False
    ) -> PlanRow:
        """Returns the row with all its figures; with its noise if that was ``solved`` for."""
        c, big_c = search.density_bounds or PLAIN
        run = self.run(noise)
        found = self.guarantee(search, trials, noise)
        # Only what is shown: a Renyi curve at all our orders takes as long as the rest of a row.
        methods = dict(epsilons_of(found.event, self.relation, self.delta))
        if search.adaptive:
            methods |= found.comparisons(self.delta)
        epsilon = found.epsilon(self.delta)
        row = PlanRow(
            **asdict(search),
            trials=trials,
            noise_multiplier=noise if solved else None,
            epsilon=epsilon,
            attack=self._attack(found),
            naive=None if solved or search.pilots else self._naive(run, trials),
            theorem_1=methods.get("theorem_1"),
            rdp=None if search.adaptive else self._rdp(found),
            few=trials.cdf(FEW),
            likely_runs=trials.quantile(0.95),
        )
        if not search.pilots:
            row = replace(
                row,
                hit=trials.hit_probability(self.fraction),
                hit_worst=trials.hit_probability(c * self.fraction),
                hit_best=trials.hit_probability(min(1.0, big_c * self.fraction)),
            )
        if not search.learns:
            return row
        plain = self.guarantee(Search(search.law, search.mean), trials, noise).epsilon(self.delta)
        rival = self._rival(search.law, trials.mean, noise, epsilon)
        return replace(
            row,
            any_schedule=methods.get("data_profile"),
            price=epsilon - plain if math.isfinite(epsilon) else None,
            rival_mean=None if rival is None else rival.mean,
            rival_hit=None if rival is None else rival.hit_probability(self.fraction),
        )

    def _attack(self, found: Guarantee) -> float | None:
        if not self.attacks:
            return None
        return strongest_known_attack(found.event, self.relation, self.delta)

    def _naive(self, run: Any, trials: TrialCount) -> float:
        """Epsilon of publishing ceil(E[T]) runs; by their dominating pair."""
        runs = dp_event.SelfComposedDpEvent(run, max(1, math.ceil(trials.mean)))
        pair = pair_of(runs, self.relation)
        return max(side.epsilon(self.delta) for side in (pair, pair.reversed()))

    def _rdp(self, found: Guarantee) -> float:
        """What dp-accounting's RDP accountant says, at its own orders."""
        orders = np.asarray(rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=np.float64)
        return rdp_to_epsilon(orders, found.rdp(orders), self.delta)

    def _rival(self, law: str, mean: float, noise: float, epsilon: float) -> TrialCount | None:
        """Returns the law of largest mean that costs ``epsilon`` at most without learning."""
        if not 0.0 < epsilon < math.inf:
            return None
        make = partial(law_of, law)
        scale = calibration.mean_scale(make)

        def cost(u: float) -> float:
            plain = self.guarantee(Search(law, None), make(scale.value(u)), noise)
            return profile_epsilon(plain, self.delta)

        found = largest_within(cost, epsilon, replace(scale, start=math.log(mean)))
        return make(scale.value(found.at)) if found.cost <= epsilon else None


class Solver:
    """Finds the unknown of each row, starting where a row like it ended."""

    def __init__(
        self, judge: Judge, unknown: Unknown, noise: float, cap: int | None, target: float
    ) -> None:
        self._judge, self._unknown, self._noise = judge, unknown, noise
        self._cap, self._target = cap, target
        # Noise and ratio hardly change from row to row.
        self._last, self._ratio = calibration.NOISE, calibration.CLOSE_OVER_ROUGH

    def row(self, search: Search) -> PlanRow:
        """Returns the row at the best value within the target, empty if there is none."""
        make = partial(law_of, search.law, cap=self._cap)
        solved = self._unknown == "noise_multiplier"
        scale = self._last if solved else calibration.scale_of(self._unknown, make)

        def parts(u: float) -> tuple[Search, TrialCount, float]:
            value = scale.value(u)
            mean = value if search.mean is None else search.mean
            bounds = search.density_bounds or calibration.bounds_of_ratio(value)
            at = replace(search, mean=mean, density_bounds=bounds)
            return at, make(mean), value if solved else self._noise

        def cost(u: float) -> float:
            # The profile bounds are almost always the smallest, and much the quickest.
            return profile_epsilon(self._judge.guarantee(*parts(u)), self._judge.delta)

        def rough(u: float) -> float:
            return rough_epsilon(self._judge.guarantee(*parts(u)), self._judge.delta)

        if self._judge.policy == "history" and search.density_bounds != PLAIN:
            found = guided(
                cost, rough, self._target, scale, ratio=self._ratio, tolerance=_TOLERANCE
            )
            self._ratio = found.ratio
        else:
            found = largest_within(cost, self._target, scale, tolerance=_TOLERANCE)
        if found.cost > self._target:
            note = f"out of reach: at least {significant_up(found.cost)}"
            return PlanRow(**asdict(search), note=note)
        if solved:
            self._last = scale.starting_at(found)
        return self._judge.row(*parts(found.at), solved=solved)
