"""Laws of T from their JSON records."""

from __future__ import annotations

from typing import Any

from optuna_dp import validation
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.trial_counts.base import TrialCount
from optuna_dp.trial_counts.bounded import Binomial, Capped
from optuna_dp.trial_counts.negative_binomial import (
    Geometric,
    Logarithmic,
    NegativeBinomial,
    mean_from_gamma,
)
from optuna_dp.trial_counts.poisson import Poisson

_KEYS: dict[str, tuple[frozenset[str], ...]] = {
    "negative_binomial": (
        frozenset({"law", "shape", "gamma"}),
        frozenset({"law", "shape", "gamma", "mean"}),
    ),
    "geometric": (frozenset({"law", "shape", "gamma", "mean"}),),
    "logarithmic": (frozenset({"law", "shape", "gamma", "mean"}),),
    "poisson": (frozenset({"law", "mean"}),),
    "binomial": (frozenset({"law", "n", "mean"}),),
    "capped": (frozenset({"law", "n", "base"}),),
}


def read(record: Any) -> TrialCount:
    """Returns the law of a record; raises InvalidArgumentError on anything unexpected."""
    law = record.get("law") if isinstance(record, dict) else None
    if not isinstance(law, str) or law not in _KEYS:
        raise _corrupted(record, f"a law of T is a mapping with 'law' among {sorted(_KEYS)}")
    if frozenset(record) not in _KEYS[law]:
        wanted = " or ".join(str(sorted(keys)) for keys in _KEYS[law])
        raise _corrupted(record, f"a record of the {law} law has exactly the keys {wanted}")
    if law == "poisson":
        return Poisson(record["mean"])
    if law == "binomial":
        return Binomial(record["n"], record["mean"])
    if law == "capped":
        base = read(record["base"])
        if isinstance(base, Capped):
            raise _corrupted(record, "a capped law is not capped again")
        return Capped(base, record["n"])
    return _negative_binomial(law, record)


def _negative_binomial(law: str, record: dict[str, Any]) -> NegativeBinomial:
    shape = validation.number("shape", record["shape"])
    if "mean" not in record:
        return NegativeBinomial(shape=shape, gamma=record["gamma"])
    mean = validation.number("mean", record["mean"])
    result: NegativeBinomial
    if law == "negative_binomial":
        result = NegativeBinomial(shape=shape, mean=mean)
    else:
        result = Geometric(mean) if law == "geometric" else Logarithmic(mean)
        if shape != result.shape:
            raise _corrupted(record, f"the shape of the {law} law is {result.shape}")
    gamma = validation.number("gamma", record["gamma"])
    consistent = 0.0 < gamma <= 1.0 and abs(mean_from_gamma(shape, gamma) / mean - 1.0) < 1e-9
    if not consistent:
        raise _corrupted(record, f"mean {mean!r} belongs to gamma {result.gamma!r}")
    # The recorded gamma is the law; solving for it again may differ in the last digit.
    object.__setattr__(result, "gamma", gamma)
    return result


def _corrupted(record: Any, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "record", record, allowed, "The record is corrupted or of another version."
    )
