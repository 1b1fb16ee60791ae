"""How long tests wait for other processes: far beyond what anything takes, for busy machines."""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 120.0


def within(
    seconds: float = PATIENCE, said: Callable[[], str] = lambda: "it never happened"
) -> Callable[[float], None]:
    """For :func:`optuna_dp.core.polling.poll`: fails the test when so many seconds have passed."""

    def still_patient(waited: float) -> None:
        assert waited < seconds, said()

    return still_patient
