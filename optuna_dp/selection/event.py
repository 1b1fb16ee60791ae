"""The event of a private selection, and the bounds that are used for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

import attr
import numpy as np
from dp_accounting import dp_event

from optuna_dp.accounting.bounds import ProfileMethod
from optuna_dp.accounting.events import as_event
from optuna_dp.accounting.kinds.base import OwnEvent, checked
from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.errors import InvalidArgumentError, UnsupportedEventError
from optuna_dp.selection.bounds.profile_bound import DataProfile
from optuna_dp.selection.bounds.rank_profile import LONGEST_SUM, RankProfile
from optuna_dp.selection.laws.base import TrialCount

if TYPE_CHECKING:
    from optuna_dp.accounting.dominating_pairs import DominatingPair

POLICIES = ("history", "data")
# Beyond, composing all runs costs more than the best of them by the rank profile.
_FEW_RUNS = 8
# At which a profile is read for the Rényi curve.
_POINTS_OF_CURVE = 150


def _as_trials(name: str, value: object) -> TrialCount:
    if not isinstance(value, TrialCount):
        raise InvalidArgumentError(
            name,
            value,
            allowed="it must be a law of the number of runs, such as Geometric(mean=20)",
        )
    return value.checked()


def _as_policy(name: str, value: object) -> str:
    if value not in POLICIES:
        raise InvalidArgumentError(name, value, allowed=f"it must be one of {', '.join(POLICIES)}")
    return str(value)


def _read_trials(name: str, value: object) -> TrialCount:
    """Reads the distribution of T of an entry."""
    if isinstance(value, TrialCount):
        return value
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(name, value, allowed="it must be a JSON object")
    try:
        return TrialCount.from_json(dict(value))
    except (InvalidArgumentError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            name, value, allowed=f"it must be a law of runs ({error})"
        ) from None


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PrivateSelectionDpEvent(OwnEvent):
    """The best of a secret random number of runs, released alone.

    Attributes:
        run: What one run costs, its score included.
        trials: The law of the number of runs.
        density_bounds: (c, C), bounds of each run's density relative to the prior.
        policy: What the density may depend on: "history", the private outputs of earlier runs
            only, or "data", anything (DP-HyPO's own model).
        startup_runs: How many runs, the first ones by slot, draw from the prior itself; at least
            0, and 0 where the policy may depend on the data.
    """

    run: dp_event.DpEvent = checked(as_event, "run")
    trials: TrialCount = checked(_as_trials, "trials")
    density_bounds: tuple[float, float] = attr.ib(
        default=(1.0, 1.0), converter=validation.density_bounds
    )
    policy: str = checked(_as_policy, "policy", default="history")
    startup_runs: int = checked(validation.whole, "startup_runs", default=0)
    readers: ClassVar[Mapping[str, Callable[[str, object], object]]] = {"trials": _read_trials}

    def __attrs_post_init__(self) -> None:
        if self.startup_runs > 0 and self.policy != "history":
            raise InvalidArgumentError(
                "startup_runs",
                self.startup_runs,
                allowed="it must be 0 if the policy may depend on the data",
                fix="Runs from the prior lower the cost "
                'with policy="history" and schedule="batch" '
                "only.",
            )

    @property
    def curve_may_be_smaller(self) -> bool:
        """See :class:`OwnEvent`."""
        return self.trials.rdp_may_be_smaller

    @property
    def learns_from_outputs(self) -> bool:
        """Whether the density may depend on the private outputs of earlier runs, and no more."""
        return self.policy == "history" and self.density_bounds != (1.0, 1.0)

    def children(self) -> list[dp_event.DpEvent]:
        """See :class:`OwnEvent`."""
        return [self.run]

    def words(self, of: Callable[[dp_event.DpEvent], str]) -> str:
        """See :class:`OwnEvent`."""
        c, big_c = self.density_bounds
        density_words = ""
        if (c, big_c) != (1.0, 1.0):
            source = "private outputs" if self.policy == "history" else "anything"
            density_words = f", drawn within [{c:g}, {big_c:g}] of the prior after seeing {source}"
            if self.startup_runs > 0:
                density_words += f" (the first {self.startup_runs} from the prior itself)"
        return f"the best of T runs, T from {self.trials!r}{density_words}, each: {of(self.run)}"

    def methods(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> dict[str, ProfileMethod]:
        """See :class:`OwnEvent`."""
        pair = pair_of(self.run, relation)

        def both_ways(profile: type[DataProfile] | type[RankProfile]) -> ProfileMethod:
            search = self.trials, self.density_bounds
            return ProfileMethod(profile(pair, *search), profile(pair.reversed(), *search))

        bounds = {"data_profile": both_ways(DataProfile)}
        if self.trials.terms <= LONGEST_SUM and not self.learns_from_outputs:
            bounds["rank_profile"] = both_ways(RankProfile)
        all_runs = self._all_runs(relation, pair_of)
        if all_runs is not None:
            bounds["all_runs"] = ProfileMethod(all_runs, all_runs.reversed())
        if self.learns_from_outputs:
            # Start-up time: only searches that learn need it.
            from optuna_dp.selection.bounds.pointwise_bound import pointwise_bound

            bounds["history_profile"] = pointwise_bound(
                pair, self.trials, self.density_bounds, self.startup_runs
            )
        return bounds

    def _all_runs(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair | None:
        """Returns a pair of all runs that there may be, of whose outputs the winner is a function.

        None where it may say nothing new, or the runs' densities may depend on the data directly.
        """
        of_outputs = self.policy == "history" or self.density_bounds == (1.0, 1.0)
        if not of_outputs or (self.trials.maximum or math.inf) > _FEW_RUNS:
            return None
        try:
            return pair_of(dp_event.SelfComposedDpEvent(self.run, self.trials.maximum), relation)
        except UnsupportedEventError:  # so little noise in all that no accountant takes it
            return None

    def pair(
        self, relation: str, pair_of: Callable[[dp_event.DpEvent, str], DominatingPair]
    ) -> DominatingPair:
        """See :class:`OwnEvent`."""
        # Lazy: only compositions with other events need it.
        from optuna_dp.selection.bounds.as_part import pair_of_selection

        return pair_of_selection(self.methods(relation, pair_of).values())

    def pure(self, relation: str, pure_of: Callable[[dp_event.DpEvent, str], float]) -> float:
        """See :class:`OwnEvent`."""
        return selection_epsilon(pure_of(self.run, relation), self.trials, self.density_bounds)

    def curve(
        self, orders: FloatArray, relation: str, curve_of: Callable[[dp_event.DpEvent], FloatArray]
    ) -> FloatArray:
        """See :class:`OwnEvent`."""
        curve = self.trials.rdp(orders, curve_of(self.run), self.density_bounds)
        return np.where(np.isnan(curve), np.inf, curve)

    def best_curve(
        self,
        orders: FloatArray,
        relation: str,
        curve_of: Callable[[dp_event.DpEvent], FloatArray],
        pair_of: Callable[[dp_event.DpEvent, str], DominatingPair],
    ) -> FloatArray:
        """See :class:`OwnEvent`."""
        # Lazy: no epsilon needs it.
        from optuna_dp.accounting.kinds.foreign import pure_of
        from optuna_dp.accounting.profile_rdp import pair_rdp
        from optuna_dp.selection.bounds.as_part import pair_of_selection
        from optuna_dp.selection.bounds.curve_bound import curve_bound

        of_run, run = curve_of(self.run), pair_of(self.run, relation)
        known = np.minimum(
            self.curve(orders, relation, curve_of),
            curve_bound(orders, of_run, run, self.trials, self.density_bounds),
        )
        pair = pair_of_selection(self.methods(relation, pair_of).values(), _POINTS_OF_CURVE)
        return pair_rdp(orders, pair, pure_of(self, relation), known)

    def why_no_curve(self) -> str | None:
        """See :class:`OwnEvent`."""
        return self.trials.why_no_rdp(self.density_bounds)


def selection_epsilon(
    run_epsilon: float, trials: TrialCount, density_bounds: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Returns the pure epsilon of selection: a factor times eps + log(C/c), for eps-DP runs.

    The factor is the law's ``pure_factor``, 2 + eta for a truncated negative binomial T, or the
    largest number of runs n, whichever is smaller. The latter because, given the runs before it,
    the law of each run is at most C times that under the prior on D and at least c times on D',
    and which runs count is independent of the data. ``inf`` where neither is known (a Poisson T
    is not purely private by Theorem 6 of arXiv:2110.03620v2).
    """
    run_epsilon = validation.number("run_epsilon", run_epsilon)
    if run_epsilon < 0.0:
        raise InvalidArgumentError("run_epsilon", run_epsilon, allowed="it must not be negative")
    c, big_c = density_bounds
    factor = min(trials.pure_factor, math.inf if trials.maximum is None else trials.maximum)
    epsilon_with_density = run_epsilon + math.log(big_c) - math.log(c)
    return factor * epsilon_with_density if epsilon_with_density > 0.0 else 0.0
