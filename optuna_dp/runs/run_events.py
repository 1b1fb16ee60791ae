"""The events of a training and of a whole run, from the numbers of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_accounting import dp_event


def sgd_training(noise_multiplier: float, sample_rate: float, steps: int) -> dp_event.DpEvent:
    """Returns the event of a DP-SGD training."""
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.events import dp_sgd

    return dp_sgd(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)


def run_event(
    training: dp_event.DpEvent, score_noise: float | None, score: str | None
) -> dp_event.DpEvent:
    """Returns what a training and its score cost together.

    Where the training's event is about clients (:func:`optuna_dp.per_client`), so is the score's:
    the mean of one number for each client.

    A record is in the score's data set besides the training's ("training": both are paid), or it
    is in one of the two ("disjoint": the worse of them). Without noise no score is paid for.
    """
    if score_noise is None:
        return training
    # Start-up time: samplers hold plans; dp-accounting is slow.
    from optuna_dp.accounting.events import compose
    from optuna_dp.accounting.kinds.per_client import per_client
    from optuna_dp.accounting.units import CLIENT, unit_of
    from optuna_dp.scoring import score_event

    scoring = score_event(score_noise)
    if unit_of(training) == CLIENT:
        scoring = per_client(scoring)
    if score != "disjoint":
        return compose(training, scoring)
    # Lazy: only scores on disjoint records need it.
    from optuna_dp.accounting.kinds.worst_case import worst_case

    return worst_case(training, scoring)
