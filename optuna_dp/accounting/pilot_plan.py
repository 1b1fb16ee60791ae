"""What pilots would cost, beside what density bounds would: the planner's rows for pilots.

Both buy adaptivity. Pilots buy it once, before the selection, and the prior they teach may be as
sharp as one likes (docs/explanation/pilots.md); density bounds buy it within every run of the
selection. What a pilot at a given noise tells about the real run is a question for experiments,
not for this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dp_accounting import dp_event

from optuna_dp import validation
from optuna_dp.accounting.guarantee import pilots_guarantee, selection_guarantee
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.trial_counts import TrialCount

Bounds = tuple[float, float]


@dataclass(frozen=True)
class PilotRow:
    """One way to be adaptive. Epsilons are at the plan's delta.

    Attributes:
        pilots: B; 0 in rows of density bounds.
        noise_ratio: Noise of a pilot over that of a run, None without pilots.
        density_bounds: (c, C); (1, 1) in rows of pilots.
        epsilon: Of pilots and selection together.
        price: What adaptivity adds to the selection alone.
    """

    pilots: int
    noise_ratio: float | None
    density_bounds: Bounds
    epsilon: float
    price: float

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; an infinite epsilon is the string "inf"."""
        return {
            name: list(value)
            if isinstance(value, tuple)
            else ("inf" if value == float("inf") else value)
            for name, value in asdict(self).items()
        }


def pilot_rows(
    run: Callable[[float], Any],
    noise_multiplier: float,
    trials: TrialCount,
    *,
    pilots: Sequence[int] = (5, 10, 20),
    noise_ratios: Sequence[float] = (2.0, 4.0),
    density_bounds: Sequence[Bounds] = ((0.9, 1.25), (0.75, 2.0)),
    delta: float = 1e-5,
    neighboring_relation: str = "add_or_remove_one",
) -> tuple[PilotRow, ...]:
    """Returns a row for every number of pilots and noise ratio, then one for each (c, C).

    Args:
        run: Function noise multiplier -> event of one run at that noise.
        noise_multiplier: Of a selection run.
        trials: The law of the number of selection runs.
        pilots: Numbers of pilots.
        noise_ratios: Noise of a pilot over that of a selection run.
        density_bounds: Pairs (c, C), for selections without pilots under the history policy.
        delta: In (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Guarantees:
        Every ``epsilon`` is the guarantee's own.

    Example:
        >>> import optuna_dp as odp
        >>> from optuna_dp.accounting.pilot_plan import pilot_rows
        >>> (row,) = pilot_rows(
        ...     odp.gaussian, 4.0, odp.Geometric(10), pilots=[10], noise_ratios=[4.0],
        ...     density_bounds=[],
        ... )
        >>> round(row.price, 2)
        0.3
    """
    validation.open_unit("delta", delta)
    noise = validation.positive("noise_multiplier", noise_multiplier)
    counts = [validation.whole("pilots", count, 1) for count in pilots]
    ratios = [validation.positive("noise_ratios", ratio) for ratio in noise_ratios]
    bounds = [validation.density_bounds(pair) for pair in density_bounds]
    if isinstance(run, dp_event.DpEvent) or not callable(run):
        raise InvalidArgumentError(
            "run",
            run,
            "it must be a function that makes the event of a run at a noise multiplier",
            "For example lambda noise: dp_sgd(noise_multiplier=noise, ...).",
        )
    event = run(noise)
    relation = neighboring_relation
    alone = selection_guarantee(event, trials, neighboring_relation=relation).epsilon(delta)
    rows = []
    for ratio in ratios:
        for count in counts:
            both = pilots_guarantee(
                run(noise * ratio), count, event, trials, neighboring_relation=relation
            )
            epsilon = both.epsilon(delta)
            rows.append(PilotRow(count, ratio, (1.0, 1.0), epsilon, epsilon - alone))
    for pair in bounds:
        bounded = selection_guarantee(
            event, trials, density_bounds=pair, neighboring_relation=relation
        )
        epsilon = bounded.epsilon(delta)
        rows.append(PilotRow(0, None, pair, epsilon, epsilon - alone))
    return tuple(rows)
