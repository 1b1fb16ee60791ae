"""A study as its storage had it at one moment.

A release reads the storage once and judges what it has read. So its plan, its runs and its records
are those of one moment, and a large study is not read three times. A snapshot does not know what
another worker has done since. What a release writes, a choice or its mark, is therefore looked for
in the storage again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.optuna_internals import storage_of, study_id_of
from optuna_dp.protocol.plan import PLAN_KEY, StudyPlan
from optuna_dp.protocol.records import trials_of


@dataclass(frozen=True)
class StudySnapshot:
    """A study's trials and system attributes. For the curator only, and not to be written to.

    Attributes:
        study: The study.
        trials: All its trials, by number.
        attributes: The system attributes of the study.
    """

    study: Study
    trials: tuple[FrozenTrial, ...] = field(repr=False)
    attributes: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, study: Study) -> StudySnapshot:
        """Reads a study: its trials first, then its attributes, each once."""
        trials = tuple(trials_of(study))
        attributes = storage_of(study).get_study_system_attrs(study_id_of(study))
        # A copy: a storage in memory gives away its own dictionary.
        return cls(study, trials, dict(attributes))

    @functools.cached_property
    def plan(self) -> StudyPlan | None:
        """The plan beside trial 0; None if none is there.

        Raises:
            PlanError: If its record is damaged.
        """
        leader = self.trials[0] if self.trials and self.trials[0].number == 0 else None
        record = None if leader is None else leader.system_attrs.get(PLAN_KEY)
        return None if record is None else StudyPlan.from_json(record)
