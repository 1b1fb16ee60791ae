"""The price of drawing ranges with noise, known before a record is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from optuna_dp.core import validation
from optuna_dp.core.json_entries import Entry
from optuna_dp.core.numbers_shown import significant_up
from optuna_dp.errors import InvalidArgumentError

if TYPE_CHECKING:
    from dp_accounting import dp_event

# Strength from which trained models are near those of a scaler fitted on the records: 0.2 points
# behind, 1.6 in the worst of 53 cells. From 15 to 25: 0.0, worst 1.5. Below 15: 1.5, worst 9.1.
STRENGTH_THAT_WORKS = 25.0
# Strength from which a third round gains more than its noise costs: on made-up columns 14 % of the
# ranges are bad with three rounds and 16 % with two; at 25 it is 54 % and 32 %.
STRENGTH_OF_THIRD_ROUND = 75.0
_LEAST_NOISE, _MOST_NOISE = 1e-3, 1e9


@dataclass(frozen=True)
class RangeQuery(Entry):
    """What :func:`optuna_dp.draw_ranges` costs; made of public numbers, before a record is read.

    Attributes:
        columns: How many columns are asked about, at least 1.
        records: The public number of records, at least 1.
        noise_multipliers: For each round the standard deviation of a count's noise over
            ``sqrt(columns)``, the L2 norm of one record's contribution; from 0.001 to 1e9.

    Raises:
        InvalidArgumentError: If a number is not allowed.
    """

    described_as: ClassVar[str] = "The entry of how ranges are drawn"

    columns: int
    records: int
    noise_multipliers: tuple[float, ...]

    def __post_init__(self) -> None:
        validation.whole("columns", self.columns, 1)
        validation.whole("records", self.records, 1)
        if len(self.noise_multipliers) < 2:
            raise InvalidArgumentError(
                "noise_multipliers",
                self.noise_multipliers,
                allowed="it must have two rounds or more",
            )
        for noise in self.noise_multipliers:
            if not _LEAST_NOISE <= validation.number("noise_multipliers", noise) <= _MOST_NOISE:
                raise InvalidArgumentError(
                    "noise_multipliers",
                    noise,
                    allowed=f"each must lie between {_LEAST_NOISE:g} and {_MOST_NOISE:g}",
                )

    @classmethod
    def within(
        cls,
        *,
        columns: int,
        records: int,
        squared_mu: float,
        neighboring_relation: str = "add_or_remove_one",
    ) -> RangeQuery:
        """Returns the query that costs this much: rounds with equal noise.

        Args:
            columns: How many columns are asked about, at least 1.
            records: The public number of records, at least 1.
            squared_mu: The square of ``mu`` of all rounds together. Noise is rounded up, so the
                query costs slightly less.
            neighboring_relation: "add_or_remove_one" or "replace_one", which moves twice as much.

        Raises:
            InvalidArgumentError: If a number is not allowed.
        """
        validation.whole("columns", columns, 1)
        validation.whole("records", records, 1)
        budget = validation.positive("squared_mu", squared_mu)
        budget /= _squared_sensitivity(neighboring_relation)
        strength = _strength(columns, records, math.sqrt(budget))
        rounds = 3 if strength >= STRENGTH_OF_THIRD_ROUND else 2
        noise = float(significant_up(math.sqrt(rounds / budget), digits=5))
        return cls(columns, records, (noise,) * rounds)

    @property
    def mu(self) -> float:
        """The rounds together are ``mu``-Gaussian-DP, under adding or removing a record."""
        return math.sqrt(sum(noise**-2 for noise in self.noise_multipliers))

    def squared_mu(self, neighboring_relation: str) -> float:
        """Returns what the rounds take of a squared budget, under a relation."""
        return float(self.mu**2 * _squared_sensitivity(neighboring_relation))

    @property
    def strength(self) -> float:
        """The public number that says whether the ranges will be good: the larger, the better.

        It is ``records * mu / sqrt(columns)``, about the number of records over the noise of one
        count.
        """
        return _strength(self.columns, self.records, self.mu)

    @property
    def works(self) -> bool:
        """Whether the ranges will be good enough; if not, ask a person for typical ranges."""
        return self.strength >= STRENGTH_THAT_WORKS

    @property
    def event(self) -> dp_event.DpEvent:
        """The rounds, composed. The accounting doubles contributions if records are replaced."""
        # Start-up time: samplers hold plans; dp-accounting is slow.
        from optuna_dp.accounting import events

        return events.compose(*map(events.gaussian, self.noise_multipliers))

    def in_words(self) -> str:
        """Returns what is drawn, and the public number that says how well it will work."""
        return (
            f"The range of {self.columns} column{'s' * (self.columns != 1)} is drawn with noise, "
            f"in {len(self.noise_multipliers)} rounds of noise {self.noise_multipliers[0]:.4g}; "
            f"records x mu / sqrt(columns) is {self.strength:.3g}, and from "
            f"{STRENGTH_THAT_WORKS:g} on it works"
        )


def _strength(columns: int, records: int, mu: float) -> float:
    return records * mu / math.sqrt(columns)


def _squared_sensitivity(neighboring_relation: str) -> float:
    """Returns how much more a replaced record moves than one that is added, squared."""
    return 4.0 if neighboring_relation == "replace_one" else 1.0
