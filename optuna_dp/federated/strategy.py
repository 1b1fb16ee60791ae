"""A vote as a strategy of Flower: first the clients agree on hyperparameters, then they train."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from optuna_dp.errors import InvalidArgumentError
from optuna_dp.federated.query import Params
from optuna_dp.federated.server import FederatedVote
from optuna_dp.releasing.release import Release


class VoteStrategy(Strategy):
    """Holds a vote before the first round, and trains with the winner by another strategy.

    The winner's parameters are added to the configuration of every message for training and
    evaluation, by their names. The vote is held once: a strategy that is started again trains with
    the same winner, which costs nothing more.

    Guarantees:
        * The release of the vote is that of :class:`FederatedVote`. The training is not covered by
          it, unless ``release.with_training`` adds what it costs.
        * If the vote fails, nobody is asked to train.

    Args:
        vote: The vote.
        strategy: The strategy that trains. A strategy that adds noise goes here too:
            ``VoteStrategy(vote, DifferentialPrivacyServerSideFixedClipping(FedAvg(), ...), ...)``.
        context: The context of the server app.

    Attributes:
        release: What the vote released; None before the first round.

    Raises:
        InvalidArgumentError: If a candidate has a value that Flower's messages cannot carry.

    Example:
        >>> strategy = VoteStrategy(vote, FedAvg(), context)  # doctest: +SKIP
        >>> strategy.start(grid, initial_arrays=arrays, num_rounds=3)  # doctest: +SKIP
        >>> strategy.release.params  # doctest: +SKIP
    """

    def __init__(self, vote: FederatedVote, strategy: Strategy, context: Context) -> None:
        for params in vote.candidates:
            for name, value in params.items():
                if not isinstance(value, int | float | str):
                    raise InvalidArgumentError(
                        f"candidates[{name!r}]",
                        value,
                        problem="a strategy sends numbers, words and truth values only",
                        fix="Give the choices names, and look their values up on the client.",
                    )
        self.vote = vote
        self.strategy = strategy
        self.release: Release | None = None
        self._context = context

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Holds the vote if there was none yet; then as the other strategy, with the winner.

        Raises:
            VoteFailedError: If no sum of votes could be released.
            InvalidArgumentError: If ``config`` has an entry of a parameter's name.
        """
        config_with_winner = self._with_winner(config, self._winner(grid))
        return self.strategy.configure_train(server_round, arrays, config_with_winner, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As the other strategy."""
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the other strategy, with the winner; holds the vote if there was none yet.

        Raises:
            VoteFailedError: If no sum of votes could be released.
            InvalidArgumentError: If ``config`` has an entry of a parameter's name.
        """
        config_with_winner = self._with_winner(config, self._winner(grid))
        return self.strategy.configure_evaluate(server_round, arrays, config_with_winner, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """As the other strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Logs the configuration of the other strategy."""
        self.strategy.summary()

    def _winner(self, grid: Grid) -> Params:
        if self.release is None:
            self.release = self.vote.start(grid, self._context)
        return dict(self.release.params or {})

    @staticmethod
    def _with_winner(config: ConfigRecord, winner: Params) -> ConfigRecord:
        clash = sorted(set(config) & set(winner))
        if clash:
            raise InvalidArgumentError(
                "train_config",
                clash,
                problem="the vote chooses these parameters",
                fix="Give the entries of the configuration other names.",
            )
        return ConfigRecord({**config, **winner})
