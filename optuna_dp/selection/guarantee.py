"""The guarantee of a private selection, without a study."""

from __future__ import annotations

from dp_accounting import dp_event

from optuna_dp.accounting.guarantee import Guarantee
from optuna_dp.selection.event import PrivateSelectionDpEvent
from optuna_dp.selection.laws.base import TrialCount


def selection_guarantee(
    run: dp_event.DpEvent,
    trials: TrialCount,
    *,
    density_bounds: tuple[float, float] = (1.0, 1.0),
    policy: str = "history",
    startup_runs: int = 0,
    neighboring_relation: str = "add_or_remove_one",
) -> Guarantee:
    """Returns the guarantee of releasing the best of a secret random number of runs.

    Args:
        run: The event of one run; at its worst over the hyperparameters.
        trials: The law of the number of runs.
        density_bounds: (c, C): every run's joint density is within these factors of the prior.
            (1, 1) is selection without adaptivity (RandTune).
        policy: What the density may depend on. ``"history"``: private outputs of runs fixed by
            slot numbers, as under ``DPHyPOSampler(schedule="batch")``
            (``docs/explanation/history-bound.md``). ``"data"``: anything, the data included, as
            DP-HyPO's own model allows (``docs/explanation/profile-bound.md``).
        startup_runs: How many runs, the first ones by slot, are drawn from the prior itself; at
            least 0, and 0 under ``policy="data"``.
        neighboring_relation: ``"add_or_remove_one"`` or ``"replace_one"``.

    Raises:
        InvalidArgumentError: If an argument is not allowed.
        UnsupportedEventError: If no accountant judges ``run``, before any work.

    Example:
        >>> import optuna_dp as odp
        >>> best = odp.selection_guarantee(odp.gaussian(4.0), odp.Geometric(mean=10))
        >>> round(best.epsilon(delta=1e-5), 2)
        1.43
    """
    event = PrivateSelectionDpEvent(
        run=run,
        trials=trials,
        density_bounds=density_bounds,
        policy=policy,
        startup_runs=startup_runs,
    )
    return Guarantee(event, neighboring_relation)
