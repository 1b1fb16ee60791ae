"""Search spaces: Optuna's distributions by parameter name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from optuna_dp.errors import InvalidArgumentError

Space: TypeAlias = Mapping[str, BaseDistribution]


def check_space(space: Space) -> dict[str, BaseDistribution]:
    """Returns the space as a dict; refuses unknown distributions and infinite ranges."""
    distributions: dict[str, BaseDistribution] = {}
    for name, distribution in space.items():
        if not isinstance(
            distribution, (FloatDistribution, IntDistribution, CategoricalDistribution)
        ):
            raise InvalidArgumentError(
                f"search_space[{name!r}]",
                distribution,
                allowed="it must be a FloatDistribution, IntDistribution or "
                "CategoricalDistribution",
            )
        if isinstance(distribution, FloatDistribution) and not (
            math.isfinite(distribution.low) and math.isfinite(distribution.high)
        ):
            raise InvalidArgumentError(
                f"search_space[{name!r}]", distribution, allowed="its range must be finite"
            )
        distributions[name] = distribution
    return distributions
