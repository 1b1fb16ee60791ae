"""A trial in each of the processes that make its run together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optuna.trial import Trial

from optuna_dp.errors import PlanError
from optuna_dp.training.ranks import Ranks


class RanksTrial:
    """A trial of rank 0, with the same answers in all ranks.

    It has the methods and attributes of Optuna's trial, but not its study. As in Optuna's own
    ``TorchDistributedTrial``, rank 0 answers, so all ranks must ask the same, in the same order.

    Args:
        trial: The trial; None in ranks other than 0.
        ranks: The processes.
    """

    def __init__(self, trial: Trial | None, ranks: Ranks) -> None:
        self.ranks = ranks
        self._trial = trial

    def answered(self, ask: Callable[[Trial], Any]) -> Any:
        """Returns in all ranks what rank 0 answers for its trial, or raises its error."""

        def of_rank_0() -> Any:
            assert self._trial is not None
            return ask(self._trial)

        return self.ranks.shared(of_rank_0)

    def __getattr__(self, name: str) -> Any:
        kind = getattr(Trial, name)
        if name == "study":
            raise PlanError(
                "Only rank 0 has the study. What an objective of several ranks does may depend on "
                "the trial only."
            )
        if not callable(kind):
            return self.answered(lambda trial: getattr(trial, name))

        def method(*args: Any, **kwargs: Any) -> Any:
            return self.answered(lambda trial: getattr(trial, name)(*args, **kwargs))

        return method
