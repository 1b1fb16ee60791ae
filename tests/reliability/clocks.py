"""Time for tests of waiting."""

from __future__ import annotations

from optuna_dp.core import polling


class FakeClock(polling.Clock):
    """Time that passes when somebody sleeps, and lets things happen meanwhile."""

    def __init__(self, happenings=()):
        self.time, self._happenings = 0.0, list(happenings)

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += max(seconds, 0.5)
        assert self.time < 1e5, "waits for ever"
        while self._happenings and self._happenings[0][0] <= self.time:
            self._happenings.pop(0)[1]()
