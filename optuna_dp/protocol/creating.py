"""Which trials need no claim: those that the worker that asks has created itself.

``Study.ask`` takes a waiting trial if there is one, and creates one otherwise. What it creates is
running from its first moment, in every storage, and Optuna gives nobody a running trial: so nobody
else can be about to begin it (:mod:`optuna_dp.protocol.claims`), and five storage calls are saved.

Optuna does not say which it was, and a waiting trial that was added without parameters looks the
same. So importing this module wraps ``Study._pop_waiting_trial_id``, which takes the waiting ones,
and notes for the thread whether it took one. Where nothing is noted (another library's
``Study.ask``, or a later Optuna's), every trial is claimed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from optuna.study import Study

from optuna_dp.protocol.asking import is_asked_for

_thread = threading.local()


def was_created_here() -> bool:
    """Returns whether the trial that begins in this thread was created by this call of ask.

    To be asked once for each trial, when it begins: the answer is forgotten then.
    """
    none_waited = getattr(_thread, "none_waited", False)
    _thread.none_waited = False
    return none_waited and is_asked_for()


def _noting(pop: Callable[[Study], int | None]) -> Callable[[Study], int | None]:
    @functools.wraps(pop)
    def pops_and_notes(self: Study) -> int | None:
        _thread.none_waited = False
        trial_id = pop(self)
        _thread.none_waited = trial_id is None
        return trial_id

    return pops_and_notes


if hasattr(Study, "_pop_waiting_trial_id"):
    Study._pop_waiting_trial_id = _noting(  # type: ignore[method-assign, assignment]
        Study._pop_waiting_trial_id
    )
