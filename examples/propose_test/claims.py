"""What the two papers claim. Asymptotic claims with the constants left out: not guarantees.

Nothing in this library uses these numbers for a guarantee. They are here to be compared with what
can be proved (``docs/explanation/propose-test.md``). "log" is the natural logarithm, and every
constant hidden in an O(.) is taken to be 1, which is the reading most favourable to the claim.
"""

from __future__ import annotations

import math

from optuna_dp.core import validation


def asymptotic_claim_epsilon_revisiting(
    epsilon: float, *, utility_gain: float, granularity: float
) -> float:
    """Additional epsilon claimed by "Revisiting" (arXiv 2211.01852), Theorem: sqrt(gain/g) e0.

    Not a guarantee: the constant and the logarithm of 1/delta are missing, and the utility gain
    ``u* - u0`` is itself a property of the private data.
    """
    epsilon = validation.positive("epsilon", epsilon)
    gain = validation.positive("utility_gain", utility_gain)
    return math.sqrt(gain / validation.open_unit("granularity", granularity)) * epsilon


def asymptotic_claim_epsilon_constant_overhead(epsilon: float, *, n: float) -> float:
    """Additional epsilon claimed by "Constant-overhead" (arXiv 2211.01852), Theorem 3: log(n) e0.

    Not a guarantee: it holds, if at all, outside an event of probability delta', see
    :func:`asymptotic_claim_delta_constant_overhead`.
    """
    return math.log(validation.positive("n", n)) * validation.positive("epsilon", epsilon)


def asymptotic_claim_delta_constant_overhead(
    epsilon: float, *, n: float, n_partitions: int, granularity: float
) -> float:
    """The delta' of "Constant-overhead" (arXiv 2211.01852), Theorem 3: n^(-g k e0 / 4) log n.

    Often above 1, where it says nothing: :func:`claim_is_vacuous`.
    """
    epsilon = validation.positive("epsilon", epsilon)
    n = validation.positive("n", n)
    k = validation.whole("n_partitions", n_partitions, minimum=2)
    g = validation.open_unit("granularity", granularity)
    return math.log(n) * math.exp(-g * k * epsilon / 4 * math.log(n))


def claimed_largest_step(position: int) -> int:
    """Equation 11 of "Constant-overhead", and the induction before it: step <= (u - u0)/g + 1.

    True for all answers. After accepts only it is met with equality.

    Args:
        position: (u - u0) / g, the granules accumulated so far.
    """
    return validation.whole("position", position) + 1


def claimed_iterations_to_the_end(step: int, accepts: int) -> int:
    """Equation 14 of "Constant-overhead", as printed: log2(step_c) + 2 A_c iterations are left.

    One too few: a step of 2^s takes s + 1 rejects to be 0, not s.

    Args:
        step: step_c, a power of two.
        accepts: A_c, how many of the iterations that are left accept.
    """
    step = validation.whole("step", step, minimum=1)
    return step.bit_length() - 1 + 2 * validation.whole("accepts", accepts)


def claim_is_vacuous(delta: float) -> bool:
    """Whether a claimed delta says nothing: at 1 or above every mechanism satisfies it."""
    return delta >= 1.0


def partitions_for_claimed_delta(
    delta: float, epsilon: float, *, n: float, granularity: float
) -> int:
    """The k at which the claimed delta' of "Constant-overhead" falls to ``delta``."""
    delta = validation.open_unit("delta", delta)
    n = validation.positive("n", n)
    per_partition = validation.open_unit("granularity", granularity) * validation.positive(
        "epsilon", epsilon
    )
    return max(2, math.ceil(4 * math.log(math.log(n) / delta) / (per_partition * math.log(n))))
