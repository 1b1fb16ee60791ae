"""Chooses the leader when trial 0 ended before it wrote the plan.

Optuna's storages cannot compare and set an attribute, and a database may let an attribute be
written to a trial that is marked as failed at the very same moment. What every storage does in
one step is to create a trial together with its attributes and its final state, under the next
number. So the plan that replaces a lost one is created as a finished trial of its own: nobody can
change it afterwards, and of several, everybody takes the one with the lowest number.

Interleavings (``docs/how-to/resume-and-recover.md`` tells the user's side):

* *Trial 0 is marked as failed and its worker wakes up.* Its write is refused by the storage
  (a finished trial cannot be written to), and its worker ends. No run of it takes place.
* *The write was under way in the database when trial 0 was marked as failed* (PostgreSQL,
  MySQL, SQLite; not Journal or memory). Then trial 0 has failed and has a plan. Workers who saw
  it use it until there is a successor, and the successor's afterwards: slots with two different
  nonces, which the release refuses. Nothing is released that was not planned; the study is lost.
* *Several workers succeed at once.* All of them take the lowest number. Another successor among
  the slots takes the place of a run for certain, and the release refuses the study.
* *The new number of runs is drawn afresh* and depends on nothing that happened before. Trial 0 and
  the one that holds the plan are passed over (:func:`optuna_dp.protocol.records.read_plan`), so
  that T runs take place without them. Further slots that were lost in between stay lost: they
  count as failed runs.
"""

from __future__ import annotations

from collections.abc import Callable

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.protocol.plan import PLAN_KEY, StudyPlan
from optuna_dp.protocol.records import did_nothing, ended, holds_new_plan, read_plan


def plan_in_place(
    storage: BaseStorage,
    study_id: int,
    leader: FrozenTrial,
    number: int,
    new_plan: Callable[[], StudyPlan],
) -> StudyPlan | str | None:
    """Returns the plan in place of one that a leader did not write, if this trial may make it.

    Returns:
        The plan that holds; or why there can be none; or None if another worker makes it.
    """
    trials = storage.get_all_trials(study_id, deepcopy=False)
    untouched = all(did_nothing(trial) or holds_new_plan(trial) for trial in trials)
    if leader.state != TrialState.FAIL or not untouched:
        return (
            "trial 0 ended without writing it (it was added by hand, or made by another sampler)"
        )
    # The worker of the open trial with the lowest number makes it: one successor is enough. Two
    # can only come of a worker that is marked as failed while it makes its plan; the release
    # refuses what they leave.
    if all(ended(trial) for trial in trials if trial.number < number):
        return succeed(storage, study_id, new_plan())
    return None


def succeed(storage: BaseStorage, study_id: int, plan: StudyPlan) -> StudyPlan:
    """Creates a trial that holds ``plan``; returns the plan that holds, this one or an earlier."""
    storage.create_new_trial(
        study_id,
        template_trial=optuna.trial.create_trial(
            state=TrialState.FAIL, system_attrs={PLAN_KEY: plan.to_json()}
        ),
    )
    found, _ = read_plan(storage, study_id)
    assert found is not None  # A finished trial holds one.
    return found
