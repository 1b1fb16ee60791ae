"""A prior around a good guess: what is known of a learning rate without data, for a search."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core import validation
from optuna_dp.core.arrays import FloatArray
from optuna_dp.core.value_types import JsonValue, ParamValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.prior import Candidates, Prior, from_unit, value_at
from optuna_dp.priors.space import Space, check_space

# Of ln(best rate / rule) over kinds of models: docs/explanation/known-without-data.md.
SPREAD = 1.0


def around(centers: Mapping[str, float], sd: float = SPREAD) -> Around:
    """Returns a prior in which some parameters are close to a good guess.

    The logarithm of ``value / center`` is normal, cut off at the ends of the parameter's range.
    Parameters that are not named keep Optuna's uniform law. The default spread is that of the
    best learning rate around the one that follows from public numbers, over kinds of models, so
    for a search this is the prior to take::

        space = {"noise_per_weight": FloatDistribution(0.03, 3, log=True)}
        guess = odp.around({"noise_per_weight": 0.3})
        odp.RandTuneSampler(space, prior=guess)
        odp.DPHyPOSampler(space, prior=guess)
        odp.BudgetSampler(plan, search_space=space, proposer=guess)  # the first pilot at the guess

    with ``odp.learning_rate(..., noise_per_weight=...)`` or ``run.learning_rate(...)`` in the
    objective. The guess must not come from the private data. A model's best ``noise_per_weight``
    is about the same at every epsilon: search it once, on public data or at one epsilon, and keep
    it.

    Args:
        centers: The median by parameter name, positive and within the parameter's range, which
            must be a ``FloatDistribution`` with ``log=True``.
        sd: Standard deviation of the natural logarithm; positive. 1.0: about a factor of
            three.

    Raises:
        InvalidArgumentError: If an argument is not allowed; from a sampler, if the search space
            does not have the parameters.

    Example:
        >>> import optuna_dp as odp
        >>> from optuna.distributions import FloatDistribution
        >>> space = {"noise_per_weight": FloatDistribution(0.03, 3, log=True)}
        >>> sampler = odp.RandTuneSampler(space, prior=odp.around({"noise_per_weight": 0.3}))
    """
    if not isinstance(centers, Mapping) or not centers:
        raise InvalidArgumentError(
            "centers",
            centers,
            allowed="it must be a dictionary from a parameter's name to its center",
        )
    checked_centers = {
        str(name): validation.positive(f"centers[{name!r}]", center)
        for name, center in centers.items()
    }
    return Around(checked_centers, validation.positive("sd", sd))


class Around(Prior, BaseSampler):
    """The law of :func:`around`, and an Optuna sampler that draws from it.

    As a sampler it puts the first trial of a study at the guess, and learns nothing from trials.

    Attributes:
        centers: The first guess, by parameter name.

    Guarantees:
        Candidates are independent of each other and of every earlier call, and parameters of each
        other. Equal fingerprints mean equal laws.
    """

    def __init__(self, centers: dict[str, float], sd: float) -> None:
        self.centers = centers
        self._sd = sd

    def sample(self, space: Space, n: int, rng: np.random.Generator) -> Candidates:
        self._check(space)
        space = check_space(space)
        units = rng.random((validation.whole("n", n, 1), len(space)))
        columns = {
            name: self._column(name, distribution, units[:, j])
            for j, (name, distribution) in enumerate(space.items())
        }
        return Candidates(space, columns, n)

    def draw_one(
        self, name: str, distribution: BaseDistribution, rng: np.random.Generator
    ) -> ParamValue:
        if name not in self.centers:
            return value_at(distribution, rng.random())
        self._check_range(name, distribution)
        return float(self._column(name, distribution, rng.random(1))[0])

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """None: parameters are drawn one by one, for they are independent."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, ParamValue]:
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> ParamValue:
        """The guess in the first trial; a draw from the prior in others."""
        draw = self.draw_one(param_name, param_distribution, np.random.default_rng())
        return self.centers.get(param_name, draw) if trial.number == 0 else draw

    def fingerprint(self, space: Space) -> dict[str, JsonValue]:
        """The law as plain data; refuses a space that it does not fit."""
        self._check(space)
        return {"prior": "around", "centers": dict(sorted(self.centers.items())), "sd": self._sd}

    def _column(self, name: str, distribution: BaseDistribution, u: FloatArray) -> FloatArray:
        from scipy.special import ndtr, ndtri  # start-up time

        if name not in self.centers:
            return from_unit(distribution, u)
        assert isinstance(distribution, FloatDistribution)
        middle = math.log(self.centers[name])
        ends = (math.log(end) for end in (distribution.low, distribution.high))
        below, above = (float(ndtr((end - middle) / self._sd)) for end in ends)
        values = np.exp(middle + self._sd * ndtri(below + u * (above - below)))
        return np.asarray(np.clip(values, distribution.low, distribution.high))

    def _check(self, space: Space) -> None:
        for name in self.centers:
            if name not in space:
                raise InvalidArgumentError(
                    "centers",
                    name,
                    problem=f"the search space has only the parameters {sorted(space)}",
                )
            self._check_range(name, space[name])

    def _check_range(self, name: str, distribution: BaseDistribution) -> None:
        d, center = distribution, self.centers[name]
        if not isinstance(d, FloatDistribution) or not d.log:
            raise InvalidArgumentError(
                f"search_space[{name!r}]",
                d,
                allowed="it must be a FloatDistribution with log=True to have a prior around a "
                "guess",
            )
        if not d.low <= center <= d.high:
            raise InvalidArgumentError(
                f"centers[{name!r}]",
                center,
                allowed=f"it must be within the range, {d.low} to {d.high}",
            )
