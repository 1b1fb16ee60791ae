"""What a study's trials show: the plan, the slot of a run, and how a trial has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from optuna_dp.core.json_entries import Entry, stored
from optuna_dp.core.optuna_internals import CachedStorage, storage_of, study_id_of, trial_id_of
from optuna_dp.errors import InvalidArgumentError, Text
from optuna_dp.study import entries, entropy
from optuna_dp.study.plan import StudyPlan

TIE_BITS = 128
# Storages that give trials back by number. Sorting them again takes longer the more there are.
_BY_NUMBER = (InMemoryStorage, JournalStorage, CachedStorage)
# What Optuna writes to trials that are enqueued, and to copies of failed trials to be retried.
_NOT_DRAWN = frozenset(("fixed_params", "failed_trial", "retry_history"))
_CONSTRAINTS = "constraints"  # As it calls what Trial.set_constraint writes.
INSTEAD_OF_CONSTRAINTS = (
    "Where a setting is not allowed, write raise optuna.TrialPruned() in the objective, before "
    "the training if that is known before: a run without a score is never chosen. Leave it out of "
    "a list of candidates."
)


def _in_hexadecimal(bits: int) -> dict[str, object]:
    """A secret number of an entry: it is stored as digits, and no message quotes it."""

    def read(digits: str) -> int:
        try:
            value = int(digits, 16)
        except (TypeError, ValueError):
            value = -1
        if not 0 <= value < 2**bits:
            raise ValueError(f"{bits // 4} hexadecimal digits were expected")
        return value

    return stored(write=lambda value: f"{value:0{bits // 4}x}", read=read)


@dataclass(frozen=True)
class SlotEntry(Entry):
    """What a slot gets when it starts, before anything of the run is known.

    Attributes:
        number: The trial's number, so that a copy of a trial is recognised.
        nonce: The plan's nonce.
        fingerprint: Fingerprint of the design that this worker was configured with.
        tie_break: A uniform on ``[0, 2**128)``, drawn independently of everything else.
        sampler: Class name of the sampler that the study used at that moment.
        draws: A uniform on ``[0, 2**256)`` that fixes every parameter drawn by itself from the
            uniform prior (:func:`~optuna_dp.study.drawn_slots.draw_alone`). It spares an entry
            per parameter: the same value is drawn again whenever it is asked for.
        plan: Digest of the plan under which the run began, by which a plan that is damaged
            afterwards is noticed.
    """

    described_as: ClassVar[str] = "The slot entry of a run"

    number: int
    nonce: str
    fingerprint: str
    tie_break: int = field(repr=False, metadata=_in_hexadecimal(TIE_BITS))
    sampler: str
    draws: int = field(repr=False, metadata=_in_hexadecimal(entropy.KEY_BITS))
    plan: str = field(repr=False)


def checked_study(study: object) -> Study:
    """Returns ``study`` if it is an Optuna study; refuses anything else."""
    if not isinstance(study, Study):
        raise InvalidArgumentError(
            "study",
            study,
            allowed="it must be an Optuna study",
            fix="Load one with optuna.load_study(study_name=..., storage=...).",
        )
    return study


def trials_of(study: Study) -> list[FrozenTrial]:
    """Returns all trials by number, as the storage has them: not to be written to."""
    trials = storage_of(study).get_all_trials(study_id_of(study), deepcopy=False)
    if type(storage_of(study)) in _BY_NUMBER:
        return trials
    return sorted(trials, key=lambda trial: trial.number)


def from_number(trials: Sequence[FrozenTrial], lowest: int) -> Sequence[FrozenTrial]:
    """Returns the trials with numbers of at least ``lowest``, of all of a study's by number."""
    if trials and trials[-1].number == len(trials) - 1:
        return trials[lowest:]
    return [trial for trial in trials if trial.number >= lowest]


def below_number(trials: Sequence[FrozenTrial], end: int) -> Sequence[FrozenTrial]:
    """Returns the trials with numbers below ``end``, of all of a study's by number."""
    if trials and trials[-1].number == len(trials) - 1:
        return trials[:end]
    return [trial for trial in trials if trial.number < end]


def direction_of(study: Study) -> str:
    """Returns ``"maximize"`` or ``"minimize"``; with several objectives all, joined by commas."""
    return ",".join(direction.name.lower() for direction in study.directions)


def leading_trial(storage: BaseStorage, study_id: int) -> FrozenTrial | None:
    """Returns trial number 0, which holds the plan; None if there is no trial yet."""
    try:
        trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, 0)
    except KeyError:
        return None
    return storage.get_trial(trial_id)


def read_plan(study: Study) -> StudyPlan | None:
    """Returns the plan of a study; None if none is there (yet)."""
    leader = leading_trial(storage_of(study), study_id_of(study))
    entry = None if leader is None else entries.PLAN.of(leader)
    return None if entry is None else StudyPlan.from_json(entry)


def was_enqueued(trial: FrozenTrial) -> bool:
    """Returns whether the parameters of a trial were given by hand instead of drawn."""
    return not _NOT_DRAWN.isdisjoint(trial.system_attrs)


def is_constrained(trial: FrozenTrial) -> bool:
    """Returns whether the objective has set a constraint, by ``trial.set_constraint``."""
    return any(name.split(":")[0] == _CONSTRAINTS for name in trial.system_attrs)


def refuse_constraints(trial: FrozenTrial) -> None:
    """Refuses a trial with constraints: what is chosen might be one that violates them."""
    if is_constrained(trial):
        raise InvalidArgumentError(
            "trial.set_constraint",
            Text("a constraint"),
            problem="the choice of a study here looks at scores only, so it might be a run that "
            "violates the constraint",
            fix=f"{INSTEAD_OF_CONSTRAINTS} Start a new study.",
        )


def own_slot(trial: FrozenTrial) -> entries.StoredValue:
    """Returns the slot entry of a trial as stored; None if it has none or a copied trial's."""
    entry = entries.SLOT.of(trial)
    is_copy = isinstance(entry, dict) and entry.get("number") != trial.number
    return None if is_copy else entry


def fail_unstarted(study: Study, trial: FrozenTrial) -> None:
    """Tells a trial to have failed, and vouches that it was this package that did so.

    A trial without a slot entry that failed is a run whose worker died before it began; a failed
    trial that was added by hand looks the same but for this mark.
    """
    entries.UNSTARTED.write(study, trial)
    storage_of(study).set_trial_state_values(trial_id_of(trial), TrialState.FAIL)


def did_nothing(trial: FrozenTrial) -> bool:
    """Whether a trial shows no sign of a run: it is open or failed, and holds nothing of one."""
    return (
        trial.state in (TrialState.RUNNING, TrialState.FAIL)
        and not was_enqueued(trial)
        and not trial.params
        and not trial.values
        and not trial.intermediate_values
        and not trial.user_attrs
        and not entries.DRAW.is_in(trial)
    )


def ended(trial: FrozenTrial) -> bool:
    """Returns whether a trial has ended, however it ended."""
    return trial.state.is_finished()


def give_back_end(storage: BaseStorage, trial: FrozenTrial) -> bool:
    """Returns whether a trial has ended; gives it its end back if the storage has lost that.

    On SQLite the update that gives a worker a waiting trial may come so late that another worker
    has ended it already. The file then has it as running, with the time at which it was completed
    and the values that it had; Optuna's cache may have it as ended. The worker that was given it
    does this; if it dies before, ``recover`` does.

    Raises:
        UpdateFinishedTrialError: If it has ended in the storage too, so nothing was lost.
    """
    state = trial.state
    if not ended(trial):
        if trial.datetime_complete is None:
            return False
        pruned = entries.WAS_PRUNED.is_in(trial)
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        if trial.values is None:  # Failed, or pruned without a value: the same outcome.
            state = TrialState.FAIL
    storage.set_trial_state_values(trial_id_of(trial), state, trial.values)
    return True


def score(trial: FrozenTrial) -> float | None:
    """The score of an ended run with one objective; None is the lowest outcome."""
    values = output(trial)
    return values[0] if values is not None and len(values) == 1 else None


def began(trial: FrozenTrial) -> bool:
    """Returns whether a trial has begun: its objective may have been called."""
    return own_slot(trial) is not None


def output(trial: FrozenTrial) -> tuple[float, ...] | None:
    """Returns the scores of a run that has ended, one per objective; None if it has none.

    A pruned trial keeps the last value it reported, so ``trial.values`` alone is not the output.
    """
    if trial.state != TrialState.COMPLETE or not trial.values:
        return None
    values = tuple(float(value) for value in trial.values)
    return None if any(value != value for value in values) else values
