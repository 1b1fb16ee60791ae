"""Selections whose first runs draw from the prior itself."""

from __future__ import annotations

from typing import Any

import attr

from optuna_dp import validation
from optuna_dp.accounting.events import PrivateSelectionDpEvent
from optuna_dp.errors import InvalidArgumentError


def _as_startup_runs(value: Any) -> int:
    return validation.whole("startup_runs", value, 1)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class StartedSelectionDpEvent(PrivateSelectionDpEvent):
    """A selection whose first runs draw from the prior itself; later ones see private outputs.

    Attributes:
        run: See :class:`PrivateSelectionDpEvent`.
        trials: See there.
        density_bounds: See there; of the runs after the start-up.
        policy: "history".
        startup_runs: How many runs, the first ones by slot, draw from the prior; at least 1.
    """

    startup_runs: int = attr.ib(converter=_as_startup_runs, kw_only=True)  # type: ignore[misc]

    def __attrs_post_init__(self) -> None:
        if self.policy != "history":
            raise InvalidArgumentError(
                "startup_runs",
                self.startup_runs,
                "it must be 0 if the policy may depend on the data",
                "Runs from the prior cost less only where the later ones see private outputs of "
                'runs fixed by slot numbers: policy="history", schedule="batch".',
            )
