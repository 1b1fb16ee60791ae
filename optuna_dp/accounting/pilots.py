"""The guarantee of pilot runs and a selection from the prior that they teach."""

from __future__ import annotations

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting import events
from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.trial_counts.base import TrialCount


def pilots_guarantee(
    pilot_run: dp_event.DpEvent,
    pilots: int,
    run: dp_event.DpEvent,
    trials: TrialCount,
    *,
    density_bounds: tuple[float, float] = (1.0, 1.0),
    policy: str = "history",
    neighboring_relation: str = "add_or_remove_one",
) -> Guarantee:
    """Returns the guarantee of pilot runs and a selection from the prior they teach.

    The composition of ``pilots`` times ``pilot_run`` with one selection, whatever method proposes
    the pilots and however sharp the prior (``docs/explanation/pilots.md``).

    Args:
        pilot_run: The event of one pilot.
        pilots: How many there are, at least 1; fixed beforehand.
        run: The event of one selection run.
        trials: The law of the number of selection runs.
        density_bounds: (c, C) relative to the frozen prior; see
            :func:`optuna_dp.selection_guarantee`.
        policy: See :func:`optuna_dp.selection_guarantee`.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant judges an event, before any work.

    Example:
        >>> import optuna_dp as odp
        >>> from optuna_dp.accounting.pilots import pilots_guarantee
        >>> both = pilots_guarantee(odp.gaussian(16.0), 10, odp.gaussian(4.0), odp.Geometric(10))
        >>> round(both.epsilon(delta=1e-5), 2)
        1.73
    """
    count = validation.whole("pilots", pilots, 1)
    selection = events.PrivateSelectionDpEvent(
        run=run, trials=trials, density_bounds=density_bounds, policy=policy
    )
    repeated = dp_event.SelfComposedDpEvent(pilot_run, count)
    return Guarantee(dp_event.ComposedDpEvent([repeated, selection]), neighboring_relation)
