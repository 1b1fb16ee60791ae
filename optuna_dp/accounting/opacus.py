"""Turns the history of an Opacus training into an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dp_accounting import dp_event

from optuna_dp.accounting.events import compose, dp_sgd
from optuna_dp.errors import InvalidArgumentError, Text

if TYPE_CHECKING:
    from opacus import PrivacyEngine
    from opacus.accountants import IAccountant

# dp_sgd-like accountants of Opacus whose history is (noise multiplier, sample rate, steps) of
# Poisson-sampled Gaussian steps.
_OPACUS_MECHANISMS = ("rdp", "prv", "gdp")


def from_opacus(engine_or_accountant: PrivacyEngine | IAccountant) -> dp_event.DpEvent:
    """Returns the event of what an Opacus engine or accountant has recorded so far.

    The history of Opacus 1.x is a list of (noise multiplier, sample rate, steps). It says nothing
    about how batches were drawn: the event is right for ``poisson_sampling=True``, the default
    of ``PrivacyEngine.make_private``, only.

    Args:
        engine_or_accountant: A ``PrivacyEngine`` or one of its accountants.

    Raises:
        InvalidArgumentError: If it is neither, has recorded nothing yet, or is of a mechanism
            whose history means something else.
    """
    accountant = getattr(engine_or_accountant, "accountant", engine_or_accountant)
    history = getattr(accountant, "history", None)
    if not isinstance(history, (list, tuple)):
        raise InvalidArgumentError(
            "engine_or_accountant",
            engine_or_accountant,
            allowed="it must be an Opacus PrivacyEngine or accountant with a history list",
        )
    mechanism = getattr(accountant, "mechanism", None)
    kind = mechanism() if callable(mechanism) else "rdp"
    if kind not in _OPACUS_MECHANISMS:
        raise InvalidArgumentError(
            "engine_or_accountant",
            Text(f"{type(accountant).__name__} of mechanism {kind!r}"),
            allowed=f"its mechanism must be one of {', '.join(_OPACUS_MECHANISMS)}, whose "
            "history counts Poisson-sampled Gaussian steps",
            fix="Describe the run with dp_sgd or another event instead.",
        )
    if not history:
        raise InvalidArgumentError(
            "engine_or_accountant",
            Text("an empty history"),
            allowed="at least one step must have been recorded",
            fix="Call it after training, or describe the run with dp_sgd(...).",
        )
    return compose(*(_opacus_entry(i, entry) for i, entry in enumerate(history)))


def _opacus_entry(index: int, entry: object) -> dp_event.DpEvent:
    name = f"history[{index}]"
    try:
        noise_multiplier, sample_rate, steps = cast("tuple[float, float, int]", entry)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            name, entry, allowed="it must be (noise_multiplier, sample_rate, steps)"
        ) from None
    try:
        return dp_sgd(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)
    except InvalidArgumentError as error:
        raise error.about(f"{name}.{error.argument}") from None
