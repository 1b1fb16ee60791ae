"""``Study.ask`` goes on with the next trial where another worker has won the one it was given.

Optuna has no hook for this. ``before_trial`` is the first of ours that is called, and by then the
trial is chosen; an exception from it ends ``study.optimize``. So importing this module wraps
``Study.ask``: it asks again after :class:`TakenByAnother`, which only a sampler of optuna-dp
raises, so for other samplers nothing changes. ``study.optimize`` calls ``ask`` for each trial. It
has a heartbeat and calls the objective only for what ``ask`` returns, so a worker that lost a
trial leaves it as it is and makes as many runs as it was told to.

If another library replaces ``Study.ask``, the exception ends the worker instead. A trial that has
begun and is given to a second worker then passes for one that is continued, which no storage shows
(``docs/limitations.md``).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

from optuna.study import Study
from optuna.trial import Trial

from optuna_dp.errors import PlanError

_logger = logging.getLogger("optuna_dp")
_thread = threading.local()


class TakenByAnother(PlanError):
    """Another worker has won the trial that this one was given."""


def is_asked_for() -> bool:
    """Returns whether the trial that begins in this thread comes from ``study.ask``.

    Otherwise somebody who knows a running trial has made a ``Trial`` from it, to continue it.
    """
    return getattr(_thread, "asking", 0) > 0


def _going_on(ask: Callable[..., Trial]) -> Callable[..., Trial]:
    @functools.wraps(ask)
    def asks_until_it_has_one(self: Study, *args: Any, **kwargs: Any) -> Trial:
        while True:
            _thread.asking = getattr(_thread, "asking", 0) + 1
            try:
                return ask(self, *args, **kwargs)
            except TakenByAnother as error:
                _logger.debug("%s It goes on with the next.", error)
            finally:
                _thread.asking -= 1

    return asks_until_it_has_one


Study.ask = _going_on(Study.ask)  # type: ignore[method-assign]
