"""The utilities of a candidate: reported by its objective, read for the private choice.

The sum of the k utilities, as a whole number, is all that is kept of them. So a record has the
same size for any number of partitions, on every storage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.validation import number as real_number
from optuna_dp.errors import (
    InvalidArgumentError,
    PlanError,
    ReleaseRefusedError,
    Text,
    UnfinishedStudyError,
)
from optuna_dp.mechanisms.utility_values import RESOLUTION, Utilities
from optuna_dp.study.entries import SLOT, TOTAL_UTILITY
from optuna_dp.study.trials import did_nothing, ended, read_plan

START_AGAIN = (
    "Start a new study: that costs nothing, because no answer has been published. Scores that you "
    "have kept need not be computed again."
)


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
        study: The study, if ``trial`` is one of its ``study.trials`` that is still open, because
            its worker has died. You have evaluated its candidate again: tell the trial what this
            returns.

    Returns:
        The mean, for the curator's dashboard. It is not private.

    Raises:
        InvalidArgumentError: If there are not k utilities, or one is outside [0, 1].
        PlanError: If the study has no plan with partitions, or ``trial`` has ended.

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
            "study", None, problem="it is needed for a trial from outside the objective"
        )
    plan = read_plan(home)
    if plan is None or "n_partitions" not in plan.design.settings:
        raise PlanError(
            "report_utilities needs a study with ProposeTestSampler or NoisyMaxSampler."
        )
    k = int(plan.design.settings["n_partitions"])
    # The worst score stands for a training that failed.
    worst = 0.0 if plan.design.direction == "maximize" else 1.0
    scores = [
        worst if value is None or value != value else real_number(f"utilities[{i}]", value)
        for i, value in enumerate(utilities)
    ]
    if len(scores) != k:
        raise InvalidArgumentError(
            "utilities",
            Text(f"{len(scores)} of them (trial {trial.number})"),
            allowed=f"there must be one for each of the {k} partitions",
        )
    for i, score in enumerate(scores):
        check_unit(f"utilities[{i}]", score, trial.number)
    total = int(Utilities.from_scores([scores]).totals[0])
    try:
        TOTAL_UTILITY.write(home, trial, total)
    except UpdateFinishedTrialError:
        raise PlanError(
            f"Trial {trial.number} has ended, so utilities can no longer be reported for it. "
            f"{START_AGAIN}"
        ) from None
    return min(1.0, sum(scores) / k)


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
            Text("hidden"),  # It is made of data without noise.
            allowed="a utility must lie in [0, 1]",
            fix="Rescale the score by bounds fixed before seeing the data; the study cannot be "
            "released, and starting a new one costs nothing.",
        )


def never_began(trial: FrozenTrial) -> bool:
    """Returns whether a trial's worker died in this package's own code, before its objective.

    An objective that failed before it asked for a parameter has begun: it may have read data.
    """
    return not SLOT.is_in(trial) and ended(trial) and did_nothing(trial)


def utilities_of(trials: Sequence[FrozenTrial], n_partitions: int, direction: str) -> Utilities:
    """Returns the utilities of the candidates that trials hold.

    Args:
        trials: The candidates' trials.
        n_partitions: k.
        direction: The study's direction; "minimize" for costs in [0, 1].

    Raises:
        UnfinishedStudyError: If a trial is open.
        ReleaseRefusedError: If a candidate has no utility, or one outside [0, 1].
    """
    means = [_mean(trial) for trial in trials]
    totals: list[int | None] = [TOTAL_UTILITY.of(trial) for trial in trials]
    without = [t.number for t, total in zip(trials, totals, strict=True) if total is None]
    if not without:
        utilities = Utilities(np.array(totals, dtype=np.int64), n_partitions, RESOLUTION)
    elif len(without) < len(trials):
        raise ReleaseRefusedError(
            "it returned a mean, but other candidates used report_utilities.",
            trial_number=without[0],
            fix="Use report_utilities for every candidate.",
        )
    else:
        utilities = Utilities.from_means(_in_double_precision(means), n_partitions)
    if direction == "maximize":
        return utilities
    # A cost in [0, 1]. The complement is taken in whole numbers, so that it moves as far.
    return Utilities(utilities.unit - utilities.totals, n_partitions, utilities.sensitivity)


def _mean(trial: FrozenTrial) -> float:
    """Returns the mean that a candidate's trial ended with; refuses a trial without one."""
    if not ended(trial):
        raise UnfinishedStudyError("Its candidates have not all been evaluated.")
    if trial.state != TrialState.COMPLETE or trial.value is None:
        raise ReleaseRefusedError(
            f"it has no utility (its state is {trial.state.name}). Whether it failed may depend "
            "on one record, so its candidate cannot be left out.",
            trial_number=trial.number,
            fix="Report None for each partition whose training fails, so that the candidate "
            f"itself does not. {START_AGAIN}",
        )
    if not 0.0 <= trial.value <= 1.0:
        raise ReleaseRefusedError(
            "its utility does not lie in [0, 1].",  # Which it is, is not private.
            trial_number=trial.number,
            fix=f"Scale it by bounds that do not depend on the data. {START_AGAIN}",
        )
    return trial.value


# Means of round numbers (accuracies of small partitions) have few binary digits in any precision.
_FEW_DIGITS = 1 << 12


def _in_double_precision(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Returns the means; refuses them if all look as if computed in single precision.

    A storage keeps a number and not its type, so digits are all that is left to be seen: every
    mean has at most those of single precision, and one uses many of them. Of means in double
    precision that are no round numbers, one in 2^29 looks so.
    """
    means = np.array(values, dtype=np.float64)
    are_single = means == means.astype(np.float32).astype(np.float64)
    are_round = means * _FEW_DIGITS == np.rint(means * _FEW_DIGITS)
    if np.all(are_single) and not np.all(are_round):
        raise ReleaseRefusedError(
            "All means have single precision, and the guarantee does not cover its rounding.",
            fix="Average in double precision, or use report_utilities.",
        )
    return means
