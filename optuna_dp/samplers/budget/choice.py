"""Chooses which pilots are promoted to the next rung, and the hyperparameters of the last run.

Both are functions of the pilots' private outputs (and of tie-breaks drawn beforehand), which is
all that the guarantee asks: docs/explanation/budget.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from optuna_dp.core.value_types import Params
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.given_points import to_internal
from optuna_dp.priors.scores import clean_scores
from optuna_dp.runs.run import Run
from optuna_dp.study.draws import stored_form
from optuna_dp.study.entries import SLOT
from optuna_dp.study.trials import SlotEntry, began, output, was_enqueued

Outputs = list[tuple[dict[str, Any], tuple[float, ...]]]
ChoosesFrom = Callable[[Outputs], Params]
Choose = Literal["evidence", "best"] | ChoosesFrom

# By how many standard deviations of the first rung's scores something else has to be ahead of the
# first guess (docs/explanation/searches.md).
_MARGIN = 1.0


@dataclass(frozen=True)
class Pilot:
    """A pilot that has ended with an output.

    Attributes:
        rung: Its rung, from 0.
        params: Its hyperparameters.
        distributions: Their ranges.
        values: Its scores, one per objective.
        tie_break: Drawn before it began.
        enqueued: Whether its hyperparameters, or some of them, were given by hand.
    """

    rung: int
    params: Params
    distributions: dict[str, BaseDistribution]
    values: tuple[float, ...]
    tie_break: int = field(repr=False)
    enqueued: bool = False


# Hyperparameters to be run (again), and ranges that contain them.
Chosen = tuple[Params, dict[str, BaseDistribution]]


def with_outputs(trials: Sequence[FrozenTrial], run_of: Callable[[int], Run]) -> list[Pilot]:
    """Returns the pilots that have an output, by number."""
    pilots = []
    for trial in trials:
        values = output(trial)
        if values is None or not began(trial):
            continue
        entry = SlotEntry.from_json(SLOT.of(trial))
        params, distributions = stored_form(trial)
        pilots.append(
            Pilot(
                rung=run_of(trial.number).rung,
                params=params,
                distributions=distributions,
                values=values,
                tie_break=entry.tie_break,
                enqueued=was_enqueued(trial),
            )
        )
    return pilots


def ranked(pilots: Sequence[Pilot], signs: Sequence[float]) -> list[Pilot]:
    """Returns pilots by how many others are better in every way; ties by the tie-breaks.

    With one objective that is the order of the scores. With several, those that nobody betters
    come first. ``signs`` has for each objective 1 if more is better, -1 if less is.
    """
    scores = np.array([pilot.values for pilot in pilots]).reshape(len(pilots), len(signs))
    scores = scores * np.asarray(signs)
    as_good = (scores[None, :, :] >= scores[:, None, :]).all(axis=2)  # [i, j]: j as good as i
    better = as_good & (scores[None, :, :] > scores[:, None, :]).any(axis=2)
    places = better.sum(axis=1)
    order = sorted(range(len(pilots)), key=lambda i: (places[i], -pilots[i].tie_break))
    return [pilots[i] for i in order]


def promoted(pilots: Sequence[Pilot], rung: int, signs: Sequence[float]) -> list[Pilot]:
    """Returns the pilots that a rung repeats, best first: of the highest rung below with outputs.

    The first guess, the first pilot that was enqueued, always comes first. If there are fewer
    pilots than places, they take turns: a score more of the same.
    """
    lower_rungs = [pilot.rung for pilot in pilots if pilot.rung < rung]
    if not lower_rungs:
        return []
    order = ranked([pilot for pilot in pilots if pilot.rung == max(lower_rungs)], signs)
    guess = _repeats_of_first_guess(pilots, order)[:1]
    return [*guess, *(pilot for pilot in order if pilot not in guess)]


def chosen(choose: Choose, pilots: Sequence[Pilot], signs: Sequence[float]) -> Chosen:
    """Returns what the last run is run with.

    Scores of different rungs come from different noise and are not compared: all ways look at the
    highest rung that has outputs. ``pilots`` are those with outputs, at least one; ``signs`` as
    for :func:`ranked`.

    Raises:
        InvalidArgumentError: If the user's function returns what no run can be run with.
    """
    top = ranked([pilot for pilot in pilots if pilot.rung == max(p.rung for p in pilots)], signs)
    if choose == "evidence":
        best = _first_guess_or_better(pilots, top, signs[0])
        return best.params, best.distributions
    if choose == "best":
        return top[0].params, top[0].distributions
    answer = choose([(dict(pilot.params), pilot.values) for pilot in top])
    return _checked(answer, pilots)


def _repeats_of_first_guess(pilots: Sequence[Pilot], among: Sequence[Pilot]) -> list[Pilot]:
    """Returns those with the hyperparameters of the first pilot that was enqueued."""
    first_guess = next((pilot for pilot in pilots if pilot.enqueued), None)
    if first_guess is None:
        return []
    return [pilot for pilot in among if pilot.params == first_guess.params]


def _first_guess_or_better(pilots: Sequence[Pilot], top: Sequence[Pilot], sign: float) -> Pilot:
    """Returns the best, unless the first guess is within the margin of noise and differences.

    The scores of the first rung spread by both, whatever the unit of a score.
    """
    guesses = _repeats_of_first_guess(pilots, top)
    if not guesses:
        return top[0]
    scores = clean_scores([p.values[0] for p in pilots if p.rung == pilots[0].rung], sign)
    lead = sign * (top[0].values[0] - guesses[0].values[0])
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    return guesses[0] if lead <= _MARGIN * deviation else top[0]


def _checked(answer: object, pilots: Sequence[Pilot]) -> Chosen:
    if not isinstance(answer, Mapping) or not answer:
        raise InvalidArgumentError(
            "choose",
            answer,
            allowed="it must return the last run's hyperparameters, a dict by name",
        )
    distributions: dict[str, BaseDistribution] = {}
    for name, value in answer.items():
        ranges = [p.distributions[name] for p in pilots if name in p.distributions]
        if not ranges:
            raise InvalidArgumentError(
                "choose", answer, problem=f"it returned a value for {name!r}, which no pilot has"
            )
        # A value that was enqueued may lie outside the range.
        is_of_a_pilot = any(p.params.get(name) == value for p in pilots)
        if to_internal(ranges[0], value) is None and not is_of_a_pilot:
            raise InvalidArgumentError(
                "choose",
                answer,
                problem=f"it returned {value!r} for {name!r}, outside {ranges[0]}",
            )
        distributions[name] = ranges[0]
    return dict(answer), distributions
