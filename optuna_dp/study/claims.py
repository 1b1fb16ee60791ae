"""Claims: of several workers that hold the same trial, exactly one begins it.

Optuna gives a waiting trial (enqueued, retried, or added by hand) to the worker that sets its
state to running. On SQLite that update may be lost: the driver opens no transaction for the
SELECT before it, and SQLite ignores ``FOR UPDATE``. Two workers are then told that the trial is
theirs. A gRPC proxy has what its own storage has. So every trial is claimed before anything else
is done with it, on every storage, also by the worker whose ``ask`` created it. Nothing in the
trial shows that it never waited. What the thread noted of its last ``ask`` did not show it either:
a sampler that asks another study first, or a ``_pop_waiting_trial_id`` that another library has
replaced, made a run twice (``tests/study/test_claims.py``). The claim is five storage calls.

What every storage does in one step is to write and to read one attribute of a trial. Each worker
writes under a key of its own, made of the trial's number (copies of a trial keep its attributes)
and a random token:

==========  ====================================================================================
``here``    written first; the worker then reads all claims on the trial
``out``     another worker stood already when it read: this worker leaves
``stands``  none did. It reads until no claim is ``here``; then the lowest standing token wins
``won``     written by the winner before it begins; ``release`` refuses a trial with two of them.
            A winner that gives its run back (:mod:`optuna_dp.study.given_back`) writes ``out``
==========  ====================================================================================

*Never two winners.* Let t be the moment of the first ``stands``. A worker that begins to read
after t sees it and leaves. Every worker that stands began to read before t, so it had written
``here`` before t. A worker that stands reads again after t, finds every one of them, waits until
each has written what it does, and takes the same minimum as the others.

*Never none.* The first to write ``stands`` or ``out`` has seen nobody stand, so it stands. The
lowest of those who stand wins.

*Deaths* only remove steps, so there are never two winners. If a worker dies while it is ``here``,
others that hold the same trial wait; if it dies later, the trial stays open. Both end when the
trial is marked as failed (``optuna-dp recover``).

*Stale reads.* A storage that answers with old values can give two winners. Each has then written
``won`` under its own key, which no later write removes.

``tests/study/test_claims_model.py`` plays every interleaving of two to four workers, also with
the keys read one after the other, and two sabotaged variants, which give two winners.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping

from optuna.exceptions import UpdateFinishedTrialError
from optuna.study import Study
from optuna.trial import FrozenTrial

from optuna_dp.core.optuna_internals import storage_of
from optuna_dp.core.polling import poll
from optuna_dp.study.entries import CLAIMS, GIVEN_BACK, TrialEntry, stored_trial
from optuna_dp.study.trials import fail_unstarted, give_back_end, own_slot
from optuna_dp.study.waiting import Waiting

HERE, STANDS, WON, OUT = "here", "stands", "won", "out"
_TOKEN_BYTES = 8

# What a release says of a trial that was won twice, and the way out.
CLAIMED_TWICE = "two workers began it, so it may have run twice, but it is charged once."
SPENT_TWICE = (
    "Release nothing of this study. It spent its guarantee and one run more (Guarantee.compose). "
    "Start a new study on a storage that always returns what was written last, such as "
    "PostgreSQL."
)


def next_state(token: str, own_state: str, other_states: Mapping[str, str]) -> str:
    """Returns what a worker writes next; what it wrote last, ``own_state``, if it has to wait.

    Args:
        token: The worker's own token.
        own_state: Its own state.
        other_states: The states of the other workers that have claimed the trial, by token.
    """
    candidates = [rival for rival, state in other_states.items() if state in (STANDS, WON)]
    if own_state == HERE:
        return OUT if candidates else STANDS
    if own_state == STANDS and HERE not in other_states.values():
        return WON if token < min(candidates, default="~") else OUT
    return own_state


def claim(study: Study, trial: FrozenTrial) -> bool:
    """Returns whether this worker may begin a trial; waits for others that are about to decide.

    Guarantees:
        * Of all workers that claim one trial, one at most is told True, and one is unless it dies.
        * A trial that is another worker's is not changed, except for this worker's claim on it.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    own_claim = CLAIMS.named(f"{trial.number}:{token}")
    state = HERE

    def look() -> str | None:
        frozen = stored_trial(study, trial)
        is_begun = own_slot(frozen) is not None and not GIVEN_BACK.of(frozen)
        if give_back_end(storage_of(study), frozen) or is_begun:
            return OUT
        rivals = {rival: of for rival, of in claims_on(frozen).items() if rival != token}
        new_state = next_state(token, state, rivals)
        return None if new_state == state else new_state

    waiting = Waiting(study, "for a worker that holds the same trial", below=trial.number + 1)
    try:
        own_claim.write(study, trial, state)
        while state not in (WON, OUT):
            state = poll(look, waiting.pause)
            own_claim.write(study, trial, state)
    except UpdateFinishedTrialError:
        return False  # Another worker has ended it, or it was marked as failed.
    except BaseException:
        _withdraw(study, trial, own_claim)
        raise
    return state == WON


def claims_on(trial: FrozenTrial) -> dict[str, str]:
    """Returns the claims on a trial by token; those on a trial that it is a copy of are left out.

    A claim that is damaged counts as won: release then refuses what it cannot tell.
    """
    prefix = f"{trial.number}:"
    claims = {
        name.removeprefix(prefix): state
        for name, state in CLAIMS.of(trial).items()
        if name.startswith(prefix)
    }
    return {token: s if s in (HERE, STANDS, OUT) else WON for token, s in claims.items()}


def claimed_twice(trial: FrozenTrial) -> bool:
    """Returns whether two workers have won the same trial, so that it may have run twice."""
    return list(claims_on(trial).values()).count(WON) > 1


def _withdraw(study: Study, trial: FrozenTrial, own_claim: TrialEntry) -> None:
    """Leaves a trial because of an error, and marks it as failed if nobody else has claimed it.

    Optuna would leave it running. A worker that claims it only now either finds that it has
    ended, or has written its slot entry before: then the run counts, as a failed one.
    """
    with contextlib.suppress(Exception):  # The storage may be what has failed.
        own_claim.write(study, trial, OUT)
        claims = claims_on(stored_trial(study, trial))
        if all(state == OUT for state in claims.values()):
            fail_unstarted(study, trial)
