"""Checks of arguments that every part shares."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar, cast

from optuna_dp.errors import InvalidArgumentError

_logger = logging.getLogger("optuna_dp")
_P = ParamSpec("_P")
_R = TypeVar("_R")

# What numpy and databases can hold.
_LARGEST_WHOLE = 2**63 - 1
# Up to here each whole number has a float of its own.
_LARGEST_EXACT = 2**53


def number(name: str, value: object) -> float:
    """Returns ``value`` as a float; refuses what is not a number, and NaN."""
    if isinstance(value, bool | str | bytes):
        raise InvalidArgumentError(name, value, allowed="it must be a real number")
    try:
        result = float(value)  # type: ignore[arg-type]  # others are refused
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(name, value, allowed="it must be a real number") from None
    if math.isnan(result):
        raise InvalidArgumentError(name, value, allowed="it must not be NaN")
    return result


def positive(name: str, value: object) -> float:
    """Returns ``value`` as a finite float above zero."""
    result = number(name, value)
    if not 0.0 < result < math.inf:
        raise InvalidArgumentError(name, value, allowed="it must be positive and finite")
    return result


def non_negative(name: str, value: object) -> float:
    """Returns ``value`` as a finite float of at least zero."""
    result = number(name, value)
    if not 0.0 <= result < math.inf:
        raise InvalidArgumentError(name, value, allowed="it must be non-negative and finite")
    return result


def open_unit(name: str, value: object) -> float:
    """Returns ``value`` as a float strictly between 0 and 1."""
    result = number(name, value)
    if not 0.0 < result < 1.0:
        raise InvalidArgumentError(name, value, allowed="it must lie strictly between 0 and 1")
    return result


def whole(name: str, value: object, minimum: int = 0) -> int:
    """Returns ``value`` as an int of at least ``minimum``; refuses fractions and booleans.

    A float is refused even if it is whole: arguments stand in plans, which workers compare.
    """
    requirement = f"it must be a whole number >= {minimum}"
    try:
        result = operator.index(value)  # type: ignore[arg-type]  # others are refused
    except TypeError:
        fix = ""
        if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_EXACT:
            fix = f"Write it without a point or an exponent: {name}={int(value):_}."
        raise InvalidArgumentError(name, value, allowed=requirement, fix=fix) from None
    if isinstance(value, bool) or result < minimum:
        raise InvalidArgumentError(name, value, allowed=requirement)
    if result > _LARGEST_WHOLE:
        raise InvalidArgumentError(name, value, allowed=f"{requirement} and at most 2**63 - 1")
    return result


def density_bounds(value: object) -> tuple[float, float]:
    """Returns (c, C), the bounds of the density relative to the prior, with 0 < c <= 1 <= C."""
    c, big_c = any_bounds(value)
    if (c == 1.0) != (big_c == 1.0):
        # A density that is nowhere below (above) the prior equals the prior.
        return (1.0, 1.0)
    return (c, big_c)


def any_bounds(value: object) -> tuple[float, float]:
    """Returns (c, C) with 0 < c <= 1 <= C, as they are."""
    try:
        lower, upper = cast("tuple[object, object]", value)  # What is no pair is refused.
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            "density_bounds", value, allowed="it must be a pair (c, C) with 0 < c <= 1 <= C"
        ) from None
    c, big_c = number("density_bounds[0]", lower), number("density_bounds[1]", upper)
    if not 0.0 < c <= 1.0 <= big_c < math.inf:
        raise InvalidArgumentError(
            "density_bounds",
            (lower, upper),
            allowed="it must be a pair (c, C) with 0 < c <= 1 <= C < inf",
            fix="A density averages to one over the prior, so it cannot stay above or below one.",
        )
    return (c, big_c)


# A delta that is too large for any data set worth protecting.
LARGE_DELTA = 1e-3
# Times the number of records, above which plans, releases and statements point out a delta.
LARGEST_PRODUCT = 0.1


def warn_of_large_delta(delta: float, records: float | None) -> None:
    """Warns if delta is no smaller than one over the number of records, and logs if it is near.

    A mechanism that publishes one record drawn at random has that delta and epsilon 0.

    Args:
        delta: In (0, 1).
        records: The public number of records; None if it is not known. A delta above 0.001 is
            warned of then.
    """
    if records is None and delta > LARGE_DELTA:
        warnings.warn(
            f"delta={delta:g} is large: among 1,000 records or more, publishing one whole record, "
            "drawn at random, would satisfy it. Take delta well below one over the number of "
            "records.",
            UserWarning,
            stacklevel=3,
        )
    if records is not None and delta * records >= 1.0:
        warnings.warn(
            f"delta={delta:g} is not below 1/{records:,.0f}, one over the number of records: "
            "publishing one whole record, drawn at random, would satisfy it. Take delta well "
            f"below that, {0.01 / records:.1g} for example.",
            UserWarning,
            stacklevel=3,
        )
    elif records is not None and is_large_delta(delta, records):
        _logger.warning(
            "delta=%g is large: times the %s records it is %.2g, and the statement says so above "
            "%g. Take a smaller one, %.1g for example.",
            delta,
            f"{records:,.0f}",
            delta * records,
            LARGEST_PRODUCT,
            0.01 / records,
        )


def is_large_delta(delta: float, records: float) -> bool:
    """Returns whether a delta is more than a tenth of one over the number of records."""
    return delta * records > LARGEST_PRODUCT * (1.0 + 1e-9)


def answers_familiar_names(
    answers: Mapping[str, tuple[str, str]],
    refused_in: Callable[..., AbstractContextManager[None]] | None = None,
    package: str = "odp",
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Returns a decorator that answers arguments a function has not, as other libraries name them.

    Python says only that an argument is unexpected. The function's signature stays as it is.

    Args:
        answers: By a name from another library, what is the case and what to do.
        refused_in: From the arguments of a call that does not fit to the context in which its
            error is raised; None is none.
        package: Where users find the function.
    """

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def answering(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                name = f"{package}.{function.__name__}"
                answer = _unexpected(name, signature, answers, args, kwargs)
                context = (
                    contextlib.nullcontext() if not refused_in else refused_in(*args, **kwargs)
                )
                with context:
                    if answer is None:
                        raise
                    raise answer from None
            return function(*args, **kwargs)

        return answering

    return decorated


def _unexpected(
    function: str,
    signature: inspect.Signature,
    answers: Mapping[str, tuple[str, str]],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> InvalidArgumentError | None:
    """Returns what to say of a call that does not fit; None if Python says it well."""
    parameters = signature.parameters.values()
    names = ", ".join(f"{parameter.name}=" for parameter in parameters)
    for name, value in kwargs.items():
        if name not in signature.parameters:
            default = (f"{function} has no such argument", f"It has {names}.")
            problem, fix = answers.get(name, default)
            return InvalidArgumentError(name, value, problem=problem, fix=fix)
    places = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(args) > len(places):
        keyword = next(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
        return InvalidArgumentError(
            f"argument {len(places) + 1}",
            args[len(places)],
            problem=f"{function} takes it by name, so that none is taken for another",
            fix=f"Write {keyword}=... . The names are {names}.",
        )
    return None


def by_another_name(name: str) -> tuple[str, str]:
    """Returns the answer to an argument that is called otherwise here."""
    return f"its name here is {name}", f"Write {name}=... ."
