"""Gives a first run back that failed in its own set-up, so that a first mistake costs no run.

A first run often ends with a wrong argument, a shape that does not fit, or inputs that are
missing. :func:`optuna_dp.train` finds most of these before it reads a record. Such an error is a
function of the script and of shapes, so nothing is spent, and nothing about the records is known
by it. The trial then waits again, with its number, its slot and the draws that it had. The next
worker that asks for a trial gets it.

It is given back only if all of this is true:

* The error that leaves the objective is one that ``odp.train`` marked (:func:`set_up_of`).
* The trial holds nothing but what the sampler and ``start_run`` wrote: no training, no score, no
  ranges, no report and no attribute.
* No other run of the study has begun, so none waits for it. A later run that fails in its set-up
  was given hyperparameters that do not fit, and counts as a failed run.
* Nobody asked Optuna to catch the error: who does so wants it to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from optuna_dp.core.optuna_internals import storage_of, trial_id_of
from optuna_dp.study import entries
from optuna_dp.study.claims import OUT, WON, claims_on
from optuna_dp.study.trials import began, trials_of

NOT_BEGUN = (
    "odp.train raised an error before its first step. So the run has not begun: it costs "
    "nothing and waits, with its hyperparameters. Mend the objective and call study.optimize "
    "again, with this study. To change ranges as well, start a new study."
)
# Says on an error in the set-up of which trial it was raised.
_MARK = "optuna_dp_set_up_of"
# What a trial may hold that has done nothing yet.
_BEGINNING = (
    entries.PLAN,
    entries.SLOT,
    entries.GIVEN_BACK,
    entries.DRAW,
    entries.PROPOSER,
    entries.ASKED,
    entries.WORKER,
)


@contextmanager
def set_up_of(trial: Trial) -> Iterator[None]:
    """Marks errors of what is done before a record is read: they depend on nothing private."""
    try:
        yield
    except Exception as error:
        setattr(error, _MARK, (trial.study.study_name, trial.number))
        raise


def give_back(study: Study, trial: FrozenTrial, error: Exception) -> bool:
    """Lets a run wait again if it has done nothing (see the module), and returns whether.

    Whoever gets it next claims it as any other trial.

    Args:
        study: The study.
        trial: The run, as its storage has it.
        error: What its objective raised.
    """
    is_of_set_up = getattr(error, _MARK, None) == (study.study_name, trial.number)
    if not is_of_set_up or not _has_done_nothing(trial):
        return False
    entries.GIVEN_BACK.write(study, trial)
    # Afterwards, so that of two runs which begin and fail together neither misses the other.
    if any(began(other) and other.number != trial.number for other in trials_of(study)):
        entries.GIVEN_BACK.write(study, trial, False)
        return False
    entries.ASKED.write(study, trial, None)  # It says which script asked: that is mended now.
    for token, state in claims_on(trial).items():
        if state == WON:
            entries.CLAIMS.named(f"{trial.number}:{token}").write(study, trial, OUT)
    storage_of(study).set_trial_state_values(trial_id_of(trial), TrialState.WAITING)
    return True


def _has_done_nothing(trial: FrozenTrial) -> bool:
    allowed = {entry.key for entry in _BEGINNING}
    prefixes = (entries.CLAIMS.prefix, entries.SINGLE_DRAWS.prefix)
    return (
        not trial.intermediate_values
        and not trial.user_attrs
        and list(claims_on(trial).values()).count(WON) == 1
        and all(
            key in allowed or key.startswith(prefixes)
            for key in entries.own_entries(trial.system_attrs)
        )
    )
