"""Base of ProposeTestSampler and NoisyMaxSampler: candidates as slots, utilities, the choice.

=====================  =========================================================================
slot i                 candidate i; its objective returns k utilities (or their mean)
the trial after those  waits until all have ended, makes the private choice, and has no parameters
=====================  =========================================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner, NopPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.errors import InvalidArgumentError, PlanError, WaitError
from optuna_dp.models.given_points import to_internal
from optuna_dp.models.prior import UniformPrior
from optuna_dp.optuna_internals import storage_of, study_id_of, trial_id_of
from optuna_dp.protocol import entropy
from optuna_dp.protocol.drawn_slots import DrawnSlotSampler
from optuna_dp.protocol.draws import Space, as_stored, check_choices, drawn_once, own_form
from optuna_dp.protocol.plan import StudyPlan
from optuna_dp.protocol.pruners import SilencedPruner
from optuna_dp.protocol.records import ended, read_plan
from optuna_dp.protocol.slots import Drawn
from optuna_dp.protocol.storage_errors import storage_failure
from optuna_dp.protocol.visible_runs import completed_batches
from optuna_dp.utilities.candidate_lists import candidate_list
from optuna_dp.utilities.choice import settle, worst
from optuna_dp.utilities.doubling import DoublingPlan
from optuna_dp.utilities.partitions_needed import plan_utilities
from optuna_dp.utilities.report_noisy_max import NoisyMaxPlan
from optuna_dp.utilities.second_evaluations import UTILITIES_KEY, evaluate_again
from optuna_dp.utilities.settings import UtilitySettings
from optuna_dp.utilities.utility_values import MOST_PARTITIONS_OF_MEANS
from optuna_dp.validation import number as real_number
from optuna_dp.validation import whole

# Attributes of MySQL hold 65,535 bytes; every storage has room for so many utilities.
_ROOM_EVERYWHERE = 1000
_ROOM_KEY = "optuna_dp:room"
_LONGEST_NUMBER = 0.00012345678901234567

_logger = logging.getLogger("optuna_dp")


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
            _check_unit(f"utilities[{i}]", value, trial.number)
    filled = [worst(plan.design.direction) if v is None else v for v in values]
    mean = min(1.0, sum(filled) / k)
    frozen = storage.get_trial(trial_id_of(trial))
    if ended(frozen):
        evaluate_again(home, plan, frozen, values, mean)
    else:
        storage.set_trial_system_attr(trial_id_of(trial), UTILITIES_KEY, values)
    return mean


class UtilityPruner(SilencedPruner):
    """Never prunes: a candidate that is dropped half-way has no utility of bounded sensitivity."""

    because = (
        "whether a candidate is pruned may depend on one record, and that record would then move "
        "its utility by more than 1/k."
    )


class UtilitySampler(DrawnSlotSampler):
    """Base of the samplers whose private choice comes after trainings without privacy.

    Args:
        plan: The mechanism that chooses. Other arguments as of NoisyMaxSampler.
    """

    def __init__(
        self,
        search_space: dict[str, BaseDistribution] | None,
        *,
        plan: DoublingPlan | NoisyMaxPlan,
        candidates: Sequence[Mapping[str, Any]] | int | None,
        n_partitions: int,
        resolve: float,
        seed: int | None,
    ) -> None:
        super().__init__(search_space, seed=seed)
        self._plan = plan
        self._n_partitions = whole("n_partitions", n_partitions, 2)
        self._candidates, self._points = candidate_list(self._search_space, candidates)
        plan_utilities(
            plan,
            n_candidates=self._candidates.count,
            n_partitions=self._n_partitions,
            resolve=resolve,
        ).warn(stacklevel=3)

    def _in_words(self) -> dict[str, Any]:
        settings = {**super()._in_words(), "candidates": self._candidates.count}
        return {**settings, "n_partitions": self._n_partitions, **asdict(self._plan)}

    # The plan.

    def _settings(self) -> UtilitySettings:
        """Returns the settings that the plan records."""
        return UtilitySettings(
            plan=self._plan,
            n_partitions=self._n_partitions,
            candidates=self._candidates,
            search_space=self._recorded_space(),
        )

    def _draw_slots(self, bits: entropy.Bits) -> int:
        settings = self._settings()
        return settings.first(settings.stages)

    def _last_to_start(self, plan: StudyPlan) -> int:
        return plan.slots  # The choice is made by the trial after the last candidate.

    # Optuna's hooks, where they differ.

    def _guarded(self, pruner: BasePruner) -> BasePruner:
        """Nothing prunes in these studies."""
        is_harmless = isinstance(pruner, NopPruner | UtilityPruner)
        return pruner if is_harmless else UtilityPruner(type(pruner).__name__)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Space:
        """Returns what is drawn jointly; the trial after the last candidate makes the choice."""
        self._refuse_several_objectives(study)
        plan = self._plan_of(study, trial)
        if trial.number >= plan.slots:
            self._choose_at_the_end(study, plan, trial)
        return super().infer_relative_search_space(study, trial)

    def _value_of(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        """Returns the candidate's value; draws it where candidates are drawn."""
        points = self._points
        if points is None or trial.number >= len(points):
            return super()._value_of(study, trial, name, distribution)
        point = points[trial.number]
        if name not in point:
            raise InvalidArgumentError(
                f"candidates[{trial.number}]",
                point,
                f"the objective asks for {name!r}, which it does not have",
            )
        check_choices(name, distribution)
        if to_internal(as_stored(distribution), point[name]) is None:
            raise InvalidArgumentError(
                f"candidates[{trial.number}][{name!r}]",
                point[name],
                f"the objective asks for {distribution}, which does not contain this value",
            )
        value = own_form(distribution, point[name])
        return drawn_once(study, trial, name, distribution, lambda: value)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        """Refuses a utility that cannot be used at once, not after the last candidate."""
        super().after_trial(study, trial, state, values)
        plan = read_plan(storage_of(study), study_id_of(study))
        is_candidate = plan is not None and trial.number < plan.slots
        if state == TrialState.COMPLETE and values is not None and is_candidate:
            self._check_value(trial, values[0])

    def _check_value(self, trial: FrozenTrial, value: float) -> None:
        _check_unit("objective value", value, trial.number)
        if (
            self._n_partitions > MOST_PARTITIONS_OF_MEANS
            and UTILITIES_KEY not in trial.system_attrs
        ):
            raise InvalidArgumentError(
                "n_partitions",
                self._n_partitions,
                f"above {MOST_PARTITIONS_OF_MEANS} the rounding of a mean is not accounted for",
                "Return report_utilities(trial, utilities) from the objective.",
            )

    def _mark(self, study: Study, trial: FrozenTrial) -> None:
        """Refuses a storage that has no room for a candidate's utilities, before any training."""
        super()._mark(study, trial)
        if trial.number == 0 and self._n_partitions > _ROOM_EVERYWHERE:
            _check_room(study, trial, self._n_partitions)

    # Draws.

    def _draw(self, study: Study, plan: StudyPlan, number: int, space: Space) -> Drawn:
        points = self._points
        if points is not None:
            return points[number], {}
        rng = entropy.generator(self._seed, "joint", number)
        return UniformPrior().sample(space, 1, rng).params(0), {}

    # The choice.

    def _choose_at_the_end(self, study: Study, plan: StudyPlan, trial: FrozenTrial) -> None:
        try:
            self._ended(study, plan.slots)
        except WaitError as error:
            _logger.info("The private choice is left to release(): %s", error)
            return
        settings = UtilitySettings.from_json(plan.design.settings)
        settle(study, plan, settings.stages - 1)

    def _ended(self, study: Study, end: int) -> None:
        """Returns when all trials below ``end`` have ended."""
        completed_batches(
            study,
            end,
            is_own=lambda trial: self._asked_by_this_thread(study, trial),
            batches=f"{type(self).__name__} a batch_size",
            otherwise="",
        )


def _check_room(study: Study, trial: FrozenTrial, n_partitions: int) -> None:
    """Writes a record as large as utilities may be, and takes it away again."""
    storage = storage_of(study)
    largest = [_LONGEST_NUMBER] * n_partitions
    try:
        storage.set_trial_system_attr(trial_id_of(trial), _ROOM_KEY, largest)
    except Exception as error:
        if storage_failure(error) is None:
            raise
        raise InvalidArgumentError(
            "n_partitions",
            n_partitions,
            f"the storage refuses a record of {len(json.dumps(largest)):,} characters, which the "
            "utilities of one candidate may take",
            "Use fewer partitions (MySQL and MariaDB hold about 2,700), or a journal, SQLite or "
            "PostgreSQL. Nothing was trained; start a new study.",
        ) from error
    storage.set_trial_system_attr(trial_id_of(trial), _ROOM_KEY, None)


def _reported(i: int, value: Any) -> float | None:
    """A utility that was reported; None for a training that failed."""
    return None if value is None or value != value else real_number(f"utilities[{i}]", value)


def _check_unit(name: str, value: float, trial_number: int) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidArgumentError(
            f"{name} of trial {trial_number}",
            "<hidden>",  # It is made of data without noise.
            "a utility must lie in [0, 1]",
            "Rescale the score by bounds fixed before seeing the data; the study cannot be "
            "released, and starting a new one costs nothing.",
        )
