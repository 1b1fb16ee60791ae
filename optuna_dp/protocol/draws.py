"""Draws: every parameter of a run is drawn once, and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    distribution_to_json,
)
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.protocol.records import INDEPENDENT_KEY

# As :data:`optuna_dp.models.prior.Space`, in the form that Optuna's samplers return.
Space = dict[str, BaseDistribution]


def checked_space(space: Space | None) -> Space | None:
    """Returns a search space in the order of its names, None as it is."""
    if space is None:
        return None
    if not isinstance(space, dict) or not all(
        isinstance(name, str) and isinstance(d, BaseDistribution) for name, d in space.items()
    ):
        raise InvalidArgumentError(
            "search_space", space, "it must be a dict of parameter names and Optuna distributions"
        )
    if not space:
        raise InvalidArgumentError(
            "search_space",
            space,
            "it must not be empty",
            "Leave it out, and the sampler finds the parameters while the study runs.",
        )
    for name, distribution in space.items():
        check_choices(name, distribution)
    return dict(sorted(space.items()))


def check_choices(name: str, distribution: BaseDistribution) -> None:
    """Refuses choices that a record cannot hold, before anything is drawn from them."""
    if not isinstance(distribution, CategoricalDistribution):
        return
    try:
        json.dumps(distribution.choices, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"choices of {name!r}",
            distribution.choices,
            "they must be what JSON can hold: text, finite numbers, booleans, None",
            "Give names as choices, and look up their meaning in the objective: "
            "{'relu': nn.ReLU}[trial.suggest_categorical(name, ['relu'])].",
        ) from None


def drawn_once(
    study: Study,
    trial: FrozenTrial,
    name: str,
    distribution: BaseDistribution,
    draw: Callable[[], Any],
) -> Any:
    """Returns what the trial drew for a parameter before, else draws and records it."""
    storage, key = study._storage, INDEPENDENT_KEY + name
    text = distribution_to_json(distribution)
    before = storage.get_trial(trial._trial_id).system_attrs.get(key)
    if before is not None and before["distribution"] == text:
        return distribution.to_external_repr(before["internal"])
    value = draw()
    internal = float(distribution.to_internal_repr(value))
    record: dict[str, Any] = {"distribution": text, "internal": internal}
    storage.set_trial_system_attr(trial._trial_id, key, record)
    return value


def draw_record(params: dict[str, Any], space: Space) -> dict[str, Any]:
    """Returns hyperparameters as the record of a joint draw from ``space``."""
    return {
        "space": {name: distribution_to_json(d) for name, d in space.items()},
        "internal": {name: float(d.to_internal_repr(params[name])) for name, d in space.items()},
    }
