"""The doubling loop: a threshold that climbs by doubling steps, tested by AboveThreshold."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal

from optuna_dp.core import validation
from optuna_dp.core.json_entries import stored
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.mechanisms.choice_plan import ChoicePlan, ErrorBound
from optuna_dp.mechanisms.sparse_vector import above_threshold, above_threshold_error
from optuna_dp.mechanisms.utility_values import Utilities

if TYPE_CHECKING:
    import dp_accounting

Variant = Literal["bounded", "capped"]

# Utilities are on a grid hardly finer. The cost is a sum with a term per iteration, in memory.
_SMALLEST_GRANULARITY, _MOST_ITERATIONS = 1e-6, 2_000_000


@functools.lru_cache(maxsize=256)
def granules(lower_bound: float, granularity: float) -> int:
    """n = ceil((1 - u0) / g), in exact arithmetic on the decimal numbers the caller wrote.

    In floating point ``(1 - 0.7) / 0.1`` is above 3, and ten additions of 0.1 stay below 1.
    """
    u0, g = _decimal(lower_bound), _decimal(granularity)
    return math.ceil((1 - u0) / g)


@dataclass(frozen=True)
class DoublingPlan(ChoicePlan):
    """What is fixed before the loop looks at the data; the guarantee follows from it alone.

    Attributes:
        epsilon: Privacy of one iteration.
        granularity: Smallest step of the threshold, in (0, 1), at least 1e-6.
        lower_bound: Where the threshold starts, in [0, 1).
        variant: "bounded" stops when the threshold has been pushed to 1 ("Revisiting", Algorithm
            1); "capped" goes on ("Constant-overhead", Algorithm 1) until the step is zero. Both
            stop at the iteration bound.
        max_iterations: Cap on the iterations, fixed beforehand. None: ``2n - 1`` for "bounded",
            ``ceil(5 log2(n + 1))`` for "capped". "bounded" never exceeds ``2n - 1``.

    Guarantees:
        * At most :attr:`iteration_bound` iterations, whatever the utilities and the noise.
        * The sequence of answers, hence the choice and the number of iterations, satisfies
          :meth:`event` with respect to a change of one partition.
    """

    described_as: ClassVar[str] = "The entry of the doubling loop in the study's plan"

    epsilon: float = field(metadata=stored(key="epsilon_per_iteration"))
    granularity: float = 0.01
    lower_bound: float = 0.0
    variant: Variant = "bounded"
    max_iterations: int | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "epsilon", validation.positive("epsilon", self.epsilon))
        set_field(self, "granularity", validation.open_unit("granularity", self.granularity))
        if self.granularity < _SMALLEST_GRANULARITY:
            raise InvalidArgumentError(
                "granularity",
                self.granularity,
                allowed=f"it must be at least {_SMALLEST_GRANULARITY:g}",
            )
        set_field(self, "lower_bound", validation.number("lower_bound", self.lower_bound))
        if not 0.0 <= self.lower_bound < 1.0:
            raise InvalidArgumentError(
                "lower_bound", self.lower_bound, allowed="it must lie in [0, 1)"
            )
        if self.variant not in ("bounded", "capped"):
            raise InvalidArgumentError(
                "variant", self.variant, allowed='it must be "bounded" or "capped"'
            )
        if self.max_iterations is not None:
            cap = validation.whole("max_iterations", self.max_iterations, minimum=1)
            set_field(self, "max_iterations", cap)
        if self.iteration_bound > _MOST_ITERATIONS:
            raise InvalidArgumentError(
                "max_iterations",
                self.max_iterations,
                allowed=f"it must be at most {_MOST_ITERATIONS}",
            )

    @property
    def n(self) -> int:
        """Granules between the lower bound and 1."""
        return granules(self.lower_bound, self.granularity)

    @property
    def iteration_bound(self) -> int:
        """m, the number of iterations that are accounted for."""
        if self.variant == "bounded":
            bound = 2 * self.n - 1
            return bound if self.max_iterations is None else min(bound, self.max_iterations)
        return self.max_iterations or math.ceil(5 * math.log2(self.n + 1))

    def event(self) -> dp_accounting.DpEvent:
        """Returns ``iteration_bound`` adaptive mechanisms, each ``epsilon``-DP."""
        import dp_accounting  # start-up time

        from optuna_dp.accounting.kinds.approximate import pure_dp  # start-up time

        iteration = pure_dp(self.epsilon)
        m = self.iteration_bound
        return iteration if m == 1 else dp_accounting.SelfComposedDpEvent(iteration, m)

    def answers(self, utilities: Utilities) -> tuple[int | None, ...]:
        """See :class:`ChoicePlan`; one answer for each iteration."""
        state, answers = LoopState(self), list[int | None]()
        while not state.finished:
            answers.append(above_threshold(utilities, state.threshold, self.epsilon))
            state = state.after(answers[-1])
        return tuple(answers)

    def error(self, n_candidates: int, beta: float = 0.05) -> ErrorBound:
        """See :class:`ChoicePlan`.

        ``g + 2a``, with a the error of one call at ``beta/m``: all m calls keep within a at once;
        the last accepted candidate is within a below the accumulated u, and nothing reached ``u +
        g + a`` when the step fell to zero. It needs the best utility to be at least ``u0 + g + a``
        (else nothing need be accepted), and a loop that ends before ``max_iterations`` cuts it
        short.
        """
        call = above_threshold_error(n_candidates, self.epsilon, beta / self.iteration_bound)
        return ErrorBound(self.granularity + 2 * call.fixed, 2 * call.scaled)

    def total_epsilon(self, delta: float) -> float:
        """See :class:`ChoicePlan`; by composition of the iterations."""
        from optuna_dp.accounting.guarantee import Guarantee  # start-up time

        return Guarantee(self.event()).epsilon(delta)

    def words(self) -> str:
        """See :class:`ChoicePlan`."""
        return (
            f"the doubling loop ({self.variant}) of at most {self.iteration_bound} iterations of "
            f"AboveThreshold, each {self.epsilon:g}-DP. That epsilon is PER ITERATION, as in the "
            "papers on this method. The guarantee above covers all iterations, whatever their "
            "number"
        )

    def states(self, answers: Sequence[int | None] = ()) -> list[LoopState]:
        """Where the loop stood before the first of its iterations, and after each ``answer``."""
        return list(itertools.accumulate(answers, LoopState.after, initial=LoopState(self)))


@dataclass(frozen=True)
class LoopState:
    """Where a loop stands. A function of the plan and of the answers so far, and nothing else.

    Attributes:
        plan: What was fixed beforehand.
        position: Granules accumulated, ``j``; a whole number, so that nothing is lost in sums.
        step: The next proposal, in granules: a power of two, or 0 when the loop has converged.
        iterations: Iterations done.
        choice: The last accepted index, or None.
    """

    plan: DoublingPlan
    position: int = 0
    step: int = 1
    iterations: int = 0
    choice: int | None = None

    @property
    def finished(self) -> bool:
        """Whether the loop has converged, reached 1 (variant "bounded") or its iteration bound."""
        if self.step == 0 or self.iterations >= self.plan.iteration_bound:
            return True
        return self.plan.variant == "bounded" and self.position >= self.plan.n

    @property
    def threshold(self) -> Fraction:
        """The utility that the next iteration tests, before noise: ``u0 + (j + step) g``."""
        return self._utility_at(self.position + self.step)

    @property
    def utility(self) -> Fraction:
        """The utility accumulated so far, ``u0 + j g``."""
        return self._utility_at(self.position)

    def after(self, answer: int | None) -> LoopState:
        """The state after one more iteration that gave ``answer`` (an index, or None)."""
        if self.finished:
            raise InvalidArgumentError(
                "answer",
                answer,
                problem="the loop has finished",
                fix="Further iterations are not paid for.",
            )
        successor = replace(self, iterations=self.iterations + 1)
        if answer is None:
            return replace(successor, step=self.step // 2)
        choice, position = validation.whole("answer", answer), self.position + self.step
        return replace(successor, position=position, step=2 * self.step, choice=choice)

    def _utility_at(self, position: int) -> Fraction:
        return _decimal(self.plan.lower_bound) + position * _decimal(self.plan.granularity)


def propose_test(utilities: Utilities, plan: DoublingPlan) -> LoopState:
    """Chooses a candidate by the doubling loop over fixed utilities.

    arXiv 2211.01852: "Revisiting", Algorithm 1 (variant "bounded") and "Constant-overhead",
    Algorithm 1 (variant "capped", with the iteration cap that a guarantee needs). Proofs in
    docs/explanation/propose-test.md.

    Returns:
        Where the loop ended: :attr:`LoopState.choice` is the candidate, or None if no candidate
        reached a threshold. The iterations that it took are not the guarantee.

    Guarantees:
        * What ``plan`` promises; ``plan.event()`` is the cost.
    """
    return functools.reduce(LoopState.after, plan.answers(utilities), LoopState(plan))


@functools.lru_cache(maxsize=256)
def _decimal(value: float) -> Fraction:
    # repr gives the shortest decimal that reads back as this float: what the caller wrote.
    return Fraction(repr(value))
