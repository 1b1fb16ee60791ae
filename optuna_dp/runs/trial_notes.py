"""What a run asked for and did, as its trial records it.

Each note is an entry beside the trial and holds the trial's number, so that a copied trial
has none of its own. Trainings and scores are *claimed*: the note is written before the first step,
or before the score is computed, and finished afterwards. So a training that was interrupted, and a
second training or score of the same trial, are seen by whoever reads the trial.

A claim is written under a key of its own, made with a random token, and then all claims of the
trial are read. Of several callers in several threads or processes each sees the others' or is seen
by them, so at most one goes on. If two claim at the same moment, neither does.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import optuna
from optuna.trial import FrozenTrial

from optuna_dp.core.value_types import JsonObject
from optuna_dp.errors import PlanError
from optuna_dp.study import entries
from optuna_dp.study.entries import RANGES, SCORES, SPENT, TRAININGS, TrialEntries, TrialEntry

# Who did what a claim is about.
BY_ENGINE = "odp.train"
BY_OPACUS = "odp.opacus.make_private"
BY_RUN_SCORE = "run.score"
# How a score was computed that is neither the accuracy nor the closeness.
BY_FUNCTION = "function"
_TOKEN_BYTES = 8
# What trials of this process have claimed. A copy of a study in memory has a storage of its own,
# and no claim of one storage is seen in the other; but it is the same trial.
_claiming = threading.Lock()
_claimed: set[tuple[str, int, str, str]] = set()


def note(trial: optuna.Trial, entry: TrialEntry, **facts: object) -> None:
    """Writes a note into a trial that is under way."""
    entry.write(trial.study, trial, {"number": trial.number, **facts})


def noted(trial: FrozenTrial, entry: TrialEntry) -> JsonObject | None:
    """Returns a trial's own note, None if there is none."""
    return _own(trial, entry.of(trial))


def _own(trial: FrozenTrial, entry: object) -> JsonObject | None:
    if isinstance(entry, Mapping) and entry.get("number") == trial.number:
        return entry
    return None


def stored_trial(trial: optuna.Trial) -> FrozenTrial:
    """Returns a trial that is under way as its storage has it now."""
    return entries.stored_trial(trial.study, trial)


@dataclass
class Claim:
    """A training or a score that a trial has begun.

    Attributes:
        trial: The trial.
        entry: Under which the claim is written.
        facts: What the claim says.
    """

    trial: optuna.Trial
    entry: TrialEntry
    facts: dict[str, object] = field(default_factory=dict)

    def finish(self, **facts: object) -> None:
        """Records that what was claimed has ended, and how.

        Args:
            facts: What is to be recorded with it, as JSON values.
        """
        self.facts = {**self.facts, **facts, "finished": True}
        note(self.trial, self.entry, **self.facts)

    def withdraw(self) -> None:
        """Records that nothing was done under this claim: it was refused before it began."""
        note(self.trial, self.entry, **self.facts, withdrawn=True)


def claim(trial: optuna.Trial, kind: TrialEntries, *, by: str, **facts: object) -> Claim:
    """Records that a trial begins its training, or its score, and refuses a second one.

    Args:
        trial: The trial, under way.
        kind: ``TRAININGS`` or ``SCORES``.
        by: Who does it: one of the names above.
        facts: What is to be recorded with the claim, as JSON values.

    Returns:
        The claim, to be finished.

    Raises:
        PlanError: If the trial or a copy of it has claimed one already, or its storage shows
            another claim.
    """
    with _claiming:
        if _identity(trial, kind) in _claimed:
            raise PlanError(_SECOND[kind].format(number=trial.number))
        _claimed.add(_identity(trial, kind))
    token = secrets.token_hex(_TOKEN_BYTES)
    new_claim = Claim(trial, kind.named(token), {"by": by, **facts})
    note(trial, new_claim.entry, **new_claim.facts)
    if claims(stored_trial(trial), kind).keys() - {token}:
        new_claim.withdraw()
        raise PlanError(_SECOND[kind].format(number=trial.number))
    return new_claim


def refuse_second(trial: optuna.Trial, kind: TrialEntries) -> None:
    """Refuses a training or a score of a trial that has claimed one; see :func:`claim`."""
    if claims(stored_trial(trial), kind) or _identity(trial, kind) in _claimed:
        raise PlanError(_SECOND[kind].format(number=trial.number))


def _identity(trial: optuna.Trial, kind: TrialEntries) -> tuple[str, int, str, str]:
    """Returns what a trial and its copies in this process have in common, for a kind of claim."""
    return trial.study.study_name, trial.number, str(trial.datetime_start), kind.name


def claims(trial: FrozenTrial, kind: TrialEntries) -> dict[str, JsonObject]:
    """Returns the claims of a trial by token: those that were not withdrawn.

    Args:
        trial: The trial, as its storage has it.
        kind: ``TRAININGS`` or ``SCORES``.
    """
    entries = {token: _own(trial, entry) for token, entry in kind.of(trial).items()}
    return {
        token: entry
        for token, entry in entries.items()
        if entry is not None and not entry.get("withdrawn")
    }


def used_records(trial: FrozenTrial) -> bool:
    """Returns whether a run is known to have begun a training or a score, or to have spent."""
    has_claim = claims(trial, TRAININGS) or claims(trial, SCORES)
    return bool(has_claim) or any(noted(trial, entry) is not None for entry in (SPENT, RANGES))


_SECOND = {
    TRAININGS: (
        "Trial {number} has begun its training already. The plan charges for one training in each "
        "trial, and one call of odp.train takes all epochs of the plan. Two models are trained as "
        "one: a torch.nn.ModuleDict with both, and record_loss= with the sum of their losses."
    ),
    SCORES: (
        "Trial {number} had its score already. The plan charges for one score per run: keep the "
        "first."
    ),
}
