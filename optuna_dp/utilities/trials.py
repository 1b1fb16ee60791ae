"""Utilities of a candidate: what an objective reports, one score per partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial

from optuna_dp.errors import InvalidArgumentError, PlanError
from optuna_dp.optuna_internals import storage_of, study_id_of, trial_id_of
from optuna_dp.protocol.records import ended, read_plan
from optuna_dp.utilities.choice import worst
from optuna_dp.utilities.second_evaluations import UTILITIES_KEY, evaluate_again
from optuna_dp.validation import number as real_number


def report_utilities(
    trial: Trial | FrozenTrial,
    utilities: Sequence[float | None],
    *,
    study: Study | None = None,
) -> float:
    """Records a candidate's utilities, one per partition; the objective returns what this returns.

    Use it in the objective of a :class:`optuna_dp.ProposeTestSampler` or
    :class:`optuna_dp.NoisyMaxSampler` study. An objective that returns the mean itself works too
    (computed in double precision; single precision voids the guarantee).

    Args:
        trial: The trial.
        utilities: k scores in [0, 1]; the i-th made from partition i alone. None or NaN stands
            for a training that failed on that partition, and counts as the worst score. Catch
            such failures: a candidate whose whole trial fails blocks the choice.
        study: The study, if ``trial`` is one of its ``study.trials`` whose candidate you have
            evaluated again. An open trial, whose worker has died: tell it what this returns. One
            that has failed: that is all, the utilities are kept in a trial of their own after
            the last candidate.

    Returns:
        The mean, for the curator's dashboard. It is not private.

    Raises:
        InvalidArgumentError: If there are not k utilities, or one is outside [0, 1].
        PlanError: If the study has no plan with partitions; or ``trial`` has ended and is no
            candidate that began and failed, or others have not begun yet.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> def objective(trial):
        ...     x = trial.suggest_float("x", 0, 1, step=0.25)
        ...     return odp.report_utilities(trial, [1 - (x - 0.5) ** 2] * 1000)
        >>> space = {"x": optuna.distributions.FloatDistribution(0, 1, step=0.25)}
        >>> sampler = odp.NoisyMaxSampler(space, n_partitions=1000, epsilon=1.0)
        >>> study = optuna.create_study(direction="maximize", sampler=sampler)
        >>> study.optimize(objective)
        >>> odp.release(study).guarantee.epsilon(delta=1e-5) <= 1.0
        True
    """
    home = trial.study if isinstance(trial, Trial) else study
    if home is None:
        raise InvalidArgumentError(
            "study", None, "it is needed for a trial from outside the objective"
        )
    storage = storage_of(home)
    plan = read_plan(storage, study_id_of(home))
    if plan is None or "n_partitions" not in plan.design.settings:
        raise PlanError(
            "report_utilities needs a study with ProposeTestSampler or NoisyMaxSampler."
        )
    k = int(plan.design.settings["n_partitions"])
    values = [_reported(i, value) for i, value in enumerate(utilities)]
    if len(values) != k:
        raise InvalidArgumentError(
            "utilities",
            f"{len(values)} of them (trial {trial.number})",
            f"there must be one for each of the {k} partitions",
        )
    for i, value in enumerate(values):
        if value is not None:
            check_unit(f"utilities[{i}]", value, trial.number)
    filled = [worst(plan.design.direction) if v is None else v for v in values]
    mean = min(1.0, sum(filled) / k)
    frozen = storage.get_trial(trial_id_of(trial))
    if ended(frozen):
        evaluate_again(home, plan, frozen, values, mean)
    else:
        storage.set_trial_system_attr(trial_id_of(trial), UTILITIES_KEY, values)
    return mean


def _reported(i: int, value: Any) -> float | None:
    """A utility that was reported; None for a training that failed."""
    return None if value is None or value != value else real_number(f"utilities[{i}]", value)


def check_unit(name: str, value: float, trial_number: int) -> None:
    """Refuses a utility outside [0, 1], without showing it.

    Args:
        name: The utility's name in the message.
        value: The utility.
        trial_number: The candidate's trial.
    """
    if not 0.0 <= value <= 1.0:
        raise InvalidArgumentError(
            f"{name} of trial {trial_number}",
            "<hidden>",  # It is made of data without noise.
            "a utility must lie in [0, 1]",
            "Rescale the score by bounds fixed before seeing the data; the study cannot be "
            "released, and starting a new one costs nothing.",
        )
