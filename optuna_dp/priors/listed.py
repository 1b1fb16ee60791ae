"""A list of candidates, given by hand, as an Optuna sampler: one for each trial, in order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.value_types import Params, ParamValue
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.space import Space


class Listed(BaseSampler):
    """Proposes the candidates of a list in turn, and learns nothing from trials.

    A parameter that a candidate does not name is drawn at random.

    Args:
        candidates: Parameters by name, different candidates; values as in Optuna, and such as JSON
            can hold.
        space: Distributions by name that all of them must lie in, if they are known.

    Raises:
        InvalidArgumentError: If a candidate is not allowed; in a trial, if its candidate's value
            is outside the range that the objective asks for.
    """

    def __init__(self, candidates: Sequence[Params], space: Space | None) -> None:
        if isinstance(candidates, str | bytes | Mapping) or not isinstance(candidates, Sequence):
            raise InvalidArgumentError(
                "candidates",
                candidates,
                allowed="it must be a list of dicts of parameters by name",
            )
        self.points = tuple(_checked(i, point, space) for i, point in enumerate(candidates))
        texts = [json.dumps(point, sort_keys=True) for point in self.points]
        for i, (point, text) in enumerate(zip(self.points, texts, strict=True)):
            # 1 and 1.0 are one value of a parameter, and a tuple comes back as a list.
            first = min(self.points.index(point), texts.index(text))
            if first < i:
                raise InvalidArgumentError(
                    f"candidates[{i}]",
                    point,
                    problem=f"it is candidates[{first}] again",
                    fix="List every candidate once.",
                )

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """None: parameters are looked up one by one."""
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
        """The value of the trial's candidate; random if it has none."""
        point = self.points[trial.number]
        if param_name not in point:
            return RandomSampler().sample_independent(study, trial, param_name, param_distribution)
        _check_within(trial.number, point, param_name, param_distribution)
        return point[param_name]


def _checked(place: int, point: object, space: Space | None) -> dict[str, ParamValue]:
    name = f"candidates[{place}]"
    if not isinstance(point, Mapping) or not all(isinstance(key, str) for key in point):
        raise InvalidArgumentError(name, point, allowed="it must be a dict of parameters by name")
    try:
        json.dumps(dict(point), allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            name, point, allowed="its values must be None, bool, int, float or str, and finite"
        ) from None
    for parameter in point if space is not None else ():
        assert space is not None
        if parameter not in space:
            raise InvalidArgumentError(
                name, point, problem=f"{parameter!r} is none of the search_space, {sorted(space)}"
            )
        _check_within(place, point, parameter, space[parameter])
    return dict(point)


def _check_within(place: int, point: Params, name: str, distribution: BaseDistribution) -> None:
    if to_internal(distribution, point[name]) is None:
        raise InvalidArgumentError(
            f"candidates[{place}][{name!r}]", point[name], allowed=f"it must lie in {distribution}"
        )
