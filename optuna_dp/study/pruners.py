"""Pruning that is part of the run: decided from the trial's own values only.

A pruner that compares a trial with others makes the run's law depend on the history, which no
guarantee here covers (under a budget: which trials have ended by then depends on how long they
took, and nobody has paid for that). Optuna's default is such a pruner (``MedianPruner``).
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import cast

from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    NopPruner,
    PatientPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    ThresholdPruner,
    WilcoxonPruner,
)
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.optuna_internals import wrapped_pruner
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.study.entries import PRUNED_BY

_logger = logging.getLogger("optuna_dp")

_CROSS_TRIAL = (PercentilePruner, SuccessiveHalvingPruner, HyperbandPruner, WilcoxonPruner)


class WithinTrialPruner(BasePruner):
    """Lets a pruner see one trial and nothing else.

    The samplers of optuna-dp put this around the study's pruner when a trial starts, so that
    ``NopPruner``, ``ThresholdPruner`` and ``PatientPruner(None)`` work as they are. Wrap a pruner
    of your own to say that it decides from the trial's own values.

    A pruned run counts as a run with the lowest outcome. The values it reported are part of the
    run: their cost belongs in the run's event.

    Guarantees:
        * The wrapped pruner is given a study that holds only the trial in question.
        * A pruner of Optuna that compares trials is refused at construction.

    Args:
        pruner: The pruner that decides.

    Raises:
        InvalidArgumentError: If ``pruner`` compares trials with each other.

    Example:
        >>> import optuna, optuna_dp as odp
        >>> pruner = odp.WithinTrialPruner(optuna.pruners.ThresholdPruner(lower=0.2))
        >>> study = optuna.create_study(sampler=odp.RandTuneSampler(), pruner=pruner)
    """

    def __init__(self, pruner: BasePruner) -> None:
        if not isinstance(pruner, BasePruner):
            raise InvalidArgumentError("pruner", pruner, allowed="it must be an Optuna pruner")
        if _compares_trials(pruner):
            raise InvalidArgumentError(
                "pruner",
                pruner,
                problem="it compares a trial with others, which this guarantee does not cover",
                fix="Use NopPruner, ThresholdPruner, or PatientPruner(None, patience=...). To "
                "spend less on bad settings, plan short pilots: plan_budget(pilots=(12, 3)).",
            )
        self._pruner = pruner

    def __repr__(self) -> str:
        return f"WithinTrialPruner({_name(self._pruner)})"

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        decision = self._pruner.prune(cast("Study", StudyOf(study, trial)), trial)
        if decision:
            PRUNED_BY.write(study, trial, type(self._pruner).__name__)
        return decision


class SilencedPruner(BasePruner):
    """Never prunes, and says once why, when first asked.

    Stands in for a pruner that compares trials (or may do so: nothing is known of it).
    """

    because = (
        "it may compare trials, which no guarantee here covers. Put optuna_dp.WithinTrialPruner "
        "around a pruner that looks at one trial only. To spend less on bad settings, plan short "
        "pilots: plan_budget(pilots=(12, 3))."
    )

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        if not self._told:
            self._told = True
            _logger.warning("%s does not prune in this study: %s", self._name, self.because)
        return False


def guarded(pruner: BasePruner) -> BasePruner:
    """Returns a pruner that cannot compare trials, standing in for ``pruner``."""
    if isinstance(pruner, WithinTrialPruner | SilencedPruner):
        return pruner
    if _known_to_decide_alone(pruner):
        return WithinTrialPruner(pruner)
    return SilencedPruner(type(pruner).__name__)


def _name(pruner: BasePruner) -> str:
    plain = type(pruner).__repr__ is object.__repr__
    return type(pruner).__name__ if plain else repr(pruner)


class StudyOf:
    """A study as a pruner may see it: its direction, and one trial."""

    def __init__(self, study: Study, trial: FrozenTrial) -> None:
        self.direction = study.direction
        self.directions = study.directions
        self.trials = [trial]

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """As of :meth:`optuna.study.Study.get_trials`."""
        return [t for t in self.trials if states is None or t.state in states]


def _known_to_decide_alone(pruner: BasePruner) -> bool:
    if type(pruner) is PatientPruner:
        wrapped = wrapped_pruner(pruner)
        return wrapped is None or _known_to_decide_alone(wrapped)
    return type(pruner) in (NopPruner, ThresholdPruner)


def _compares_trials(pruner: BasePruner) -> bool:
    wrapped = wrapped_pruner(pruner) if isinstance(pruner, PatientPruner) else None
    if wrapped is not None:
        return _compares_trials(wrapped)
    return isinstance(pruner, _CROSS_TRIAL)
