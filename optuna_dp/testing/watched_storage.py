"""A storage in memory that notes which trials are read: a run may read its own only."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial


class WatchedStorage(InMemoryStorage):
    """Notes which trials are read.

    Attributes:
        asked: Whether :func:`optuna_dp.fidelity` was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = False
        self._own: int | None = None
        self._seen: set[str] = set()

    @contextmanager
    def watching(self, own: int) -> Iterator[set[str]]:
        """Yields the names of methods by which trials other than ``own`` are read meanwhile."""
        self._own, self._seen = own, set()
        try:
            yield self._seen
        finally:
            self._own = None

    def _note(self, name: str, trial_id: int | None = None) -> None:
        if self._own is None:
            return
        ours = _functions_of_this_package()
        self.asked |= "fidelity" in ours
        if not ours and trial_id != self._own:
            self._seen.add(name)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        self._note("get_trial", trial_id)
        return super().get_trial(trial_id)

    def get_all_trials(self, *args: Any, **kwargs: Any) -> list[FrozenTrial]:
        self._note("get_all_trials")
        return super().get_all_trials(*args, **kwargs)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        self._note("get_best_trial")
        own, self._own = self._own, None  # It reads trials in its turn.
        try:
            return super().get_best_trial(study_id)
        finally:
            self._own = own

    def get_n_trials(self, *args: Any, **kwargs: Any) -> int:
        self._note("get_n_trials")
        return super().get_n_trials(*args, **kwargs)


def _functions_of_this_package() -> list[str]:
    """Returns which of our functions asked Optuna: ``fidelity`` reads the plan at trial 0."""
    found = []
    for frame, _ in traceback.walk_stack(sys._getframe(2)):
        package = str(frame.f_globals.get("__name__", "")).split(".")[0]
        if frame.f_globals.get("__name__") == __name__ or package == "optuna":
            continue
        if package != "optuna_dp":
            break
        found.append(frame.f_code.co_name)
    return found
