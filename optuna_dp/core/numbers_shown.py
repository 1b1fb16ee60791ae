"""Numbers as people and JSON are shown them: rounded toward less privacy, infinity said."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

# The Renyi orders that statements and dashboards list.
SHOWN_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)


def rounded_up(value: float | None, places: int = 2) -> str:
    """Returns a number with so many decimals, never below it; "infinite" for inf and None."""
    if value is None or math.isinf(value):
        return "infinite"
    # By way of its shortest decimals, so that 1.1 stays 1.1.
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-places), ROUND_CEILING))


def rounded_down(value: float, places: int = 2) -> str:
    """Returns a finite number with so many decimals, never above it."""
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-places), ROUND_FLOOR))


def significant_up(value: float, digits: int = 4) -> str:
    """Returns a positive number with so many significant digits, never below it."""
    if value <= 0.0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return f"{math.ceil(value / unit) * unit:.{digits}g}"


def finite(value: float) -> float | None:
    """Returns a number as JSON can hold it: None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def reach_of_means(deviation: float, deviations: float) -> tuple[float, float]:
    """Returns from where to where a noisy mean of numbers from 0 to 1 is shown.

    The sum is divided by a public number of records. Of up to twice as many, each adds up to 1/2
    to the middle of the range, 1/2, or takes it away.

    Args:
        deviation: Standard deviation of the noise of the mean.
        deviations: How many of them the noise is given.
    """
    return -0.5 - deviations * deviation, 1.5 + deviations * deviation
