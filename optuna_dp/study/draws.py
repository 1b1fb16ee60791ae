"""Draws: every parameter of a run is drawn once, and stored.

A storage keeps ranges as JSON, and JSON has neither tuples nor keys that are numbers: a choice
``(64, 64)`` comes back as ``[64, 64]`` from a database, and as it was from memory. So entries,
search spaces and proposers have choices as JSON gives them back (:func:`as_stored`), and what an
objective is given is its own choice of the same index (:func:`own_form`). A run is trained with
what is stored, and with nothing else (:func:`value_of_run`).
"""

from __future__ import annotations

import enum
import functools
import json
import warnings
from collections.abc import Callable

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.value_types import Params
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.study.entries import DRAW, SINGLE_DRAWS, stored_trial

# As :data:`optuna_dp.priors.prior.Space`, in the form that Optuna's samplers return.
Space = dict[str, BaseDistribution]


def checked_space(space: Space | None) -> Space | None:
    """Returns a search space in the order of its names, None as it is."""
    if space is None:
        return None
    if not isinstance(space, dict) or not all(
        isinstance(name, str) and isinstance(d, BaseDistribution) for name, d in space.items()
    ):
        raise InvalidArgumentError(
            "search_space",
            space,
            allowed="it must be a dict of parameter names and Optuna distributions",
        )
    if not space:
        raise InvalidArgumentError(
            "search_space",
            space,
            allowed="it must not be empty",
            fix="Leave it out, and the sampler finds the parameters while the study runs.",
        )
    for name, distribution in space.items():
        check_choices(name, distribution)
    return {name: as_stored(distribution) for name, distribution in sorted(space.items())}


def is_by_index(distribution: BaseDistribution) -> bool:
    """Returns whether a storage may give choices back in another form than it was given them."""
    return isinstance(distribution, CategoricalDistribution) and not all(
        choice is None or isinstance(choice, bool | int | float | str)
        for choice in distribution.choices
    )


def as_stored(distribution: BaseDistribution) -> BaseDistribution:
    """Returns a distribution as every storage could have given it back."""
    if not is_by_index(distribution):
        return distribution
    return _from_json(distribution_to_json(distribution))


@functools.lru_cache(maxsize=64)
def _from_json(text: str) -> BaseDistribution:
    with warnings.catch_warnings():
        # Optuna has said to the objective's author that such choices are not for every storage.
        warnings.simplefilter("ignore", UserWarning)
        return json_to_distribution(text)


def own_form(distribution: BaseDistribution, value: object) -> object:
    """Returns the choice of a distribution that ``value`` of :func:`as_stored` of it stands for.

    Raises:
        ValueError: If there is none.
    """
    if not is_by_index(distribution):
        return value
    index = as_stored(distribution).to_internal_repr(value)
    return distribution.to_external_repr(index)


def stored_form(trial: FrozenTrial) -> tuple[dict[str, object], Space]:
    """Returns a trial's hyperparameters and their ranges as every storage could give them back."""
    params, space = dict(trial.params), dict(trial.distributions)
    for name, distribution in trial.distributions.items():
        if is_by_index(distribution):
            space[name] = as_stored(distribution)
            index = distribution.to_internal_repr(params[name])
            params[name] = space[name].to_external_repr(index)
    return params, space


def value_of_run(distribution: BaseDistribution, value: object) -> object:
    """Returns what a storage keeps of a value, which is what the run gets.

    A storage keeps whole numbers as floats, which changes those beyond 2**53.
    """
    return distribution.to_external_repr(float(distribution.to_internal_repr(value)))


def check_choices(name: str, distribution: BaseDistribution) -> None:
    """Refuses choices that no entry can hold or tell apart, before anything is drawn from them."""
    if not isinstance(distribution, CategoricalDistribution):
        return
    choices = distribution.choices
    if any(isinstance(choice, enum.Enum) for choice in choices):
        raise InvalidArgumentError(
            f"choices of {name!r}",
            choices,
            problem="they are members of an enumeration, and a storage keeps what these stand for",
            fix="Give their names, and look them up in the objective: "
            f"Kind[trial.suggest_categorical({name!r}, [kind.name for kind in Kind])].",
        )
    try:
        texts = [json.dumps(choice, allow_nan=False) for choice in choices]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"choices of {name!r}",
            choices,
            allowed="they must be what JSON can hold: text, finite numbers, booleans, None",
            fix="Give names as choices, and look up their meaning in the objective: "
            "{'relu': nn.ReLU}[trial.suggest_categorical(name, ['relu'])].",
        ) from None
    for place, (choice, text) in enumerate(zip(choices, texts, strict=True)):
        # What is equal in one way only would be taken for the other one.
        same = (choices.index(choice), texts.index(text))
        if same[0] != same[1]:
            raise _not_told_apart(name, choices, choices[min(same)], choices[place])


def _not_told_apart(
    name: str, choices: tuple[object, ...], first: object, second: object
) -> InvalidArgumentError:
    are_equal = first == second
    why = "are equal in Python" if are_equal else "are the same in JSON"
    return InvalidArgumentError(
        f"choices of {name!r}",
        choices,
        problem=f"{first!r} and {second!r} {why}, so Optuna would keep {first!r} for a run with "
        f"{second!r}",
        fix="Give names as choices, and look up their meaning in the objective: "
        f"{{'first': {first!r}, 'second': {second!r}}}[trial.suggest_categorical({name!r}, "
        "['first', 'second'])]. Then start a new study.",
    )


def drawn_once(
    study: Study,
    trial: FrozenTrial,
    name: str,
    distribution: BaseDistribution,
    draw: Callable[[], object],
) -> object:
    """Returns what the trial drew for a parameter before, else draws and stores it."""
    entry, text = SINGLE_DRAWS.named(name), distribution_to_json(distribution)
    stored_draw = entry.of(stored_trial(study, trial))
    if stored_draw is not None and stored_draw["distribution"] == text:
        return distribution.to_external_repr(stored_draw["internal"])
    value = draw()
    internal = float(distribution.to_internal_repr(value))
    entry.write(study, trial, {"distribution": text, "internal": internal})
    return value


def drawn_jointly(trial: FrozenTrial, name: str, distribution: BaseDistribution) -> float | None:
    """Returns what the entry of a trial's joint draw has for a parameter, if the range is its.

    Args:
        trial: The trial, as its storage has it.
        name: Of the parameter.
        distribution: As the objective asks for it.

    Returns:
        The value in Optuna's internal representation, an index for choices; None if it was not
        drawn, or from another range.
    """
    entry = DRAW.of(trial)
    if entry is None or entry["space"].get(name) != distribution_to_json(distribution):
        return None
    return float(entry["internal"][name])


def draw_entry(params: Params, space: Space) -> dict[str, dict[str, str] | dict[str, float]]:
    """Returns hyperparameters as the entry of a joint draw from ``space``."""
    return {
        "space": {name: distribution_to_json(d) for name, d in space.items()},
        "internal": {name: float(d.to_internal_repr(params[name])) for name, d in space.items()},
    }
