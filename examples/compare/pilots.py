"""Where pilots at random rank settings, and where a short list or one run is better.

    python pilots.py           # the tables of docs/explanation/searches.md; two minutes
    python pilots.py --judge   # the same comparison on the tasks of networks, which had no say

The coordinate is the signal of a first pilot's training, batch * sqrt(steps) / noise multiplier, a
public number of the default plan: (12, 3) pilots of a sixth of the length. For every task epsilons
are chosen so that it has certain values. Searches are replayed as in ``constants.py``; lists come
from the other tasks, as in ``kinds.py``. A search is worth the test score of its last run less
that of one run at the good guess, in points, by what was enqueued: the good guess, the poor one,
or none.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import constants
import numpy as np
from constants import GUESSES, NAMES, Cell, Design, by_margin, task_of
from kinds import place_of, short_list
from landscape import DELTA, NETWORK_TASKS, Landscape, noise_at, signal_at, stored_name
from task import Array, Params, Task, from_file

from optuna_dp.planning.batch import noise_of_training
from optuna_dp.planning.budget import AUTO_CANDIDATES, CANDIDATE_LENGTH

SIGNALS = (3, 5, 8, 12, 20, 30, 45, 60, 80, 110, 150, 200, 280, 400)
# Points that pilots may be behind one run at the good guess, from a poor guess and from none.
MAY_LOSE = 0.5
# Beyond a task's largest epsilon by so much a landscape still holds.
BEYOND = 1.3
PILOTS = Design()
LISTED = Design((AUTO_CANDIDATES,), CANDIDATE_LENGTH)
BEST = partial(by_margin, margin=0.0)
EVIDENCE = partial(by_margin, margin=1.0)
ARMS = ("one run", "pilots", "six at random", "list", "one run, first of the list")


@dataclass(frozen=True)
class Found:
    """What came of the searches of one task at one epsilon.

    Attributes:
        task: Its name.
        epsilon: The epsilon.
        signal: Of a first pilot's training.
        alike: Correlation over configurations of a pilot's noisy score with the test score of the
            last run, on the first rung and on the second, means over 200 draws.
        points: Beyond one run at the good guess, by arm and guess.
    """

    task: str
    epsilon: float
    signal: float
    alike: tuple[float, ...]
    points: dict[tuple[str, str], float]


def signal_of(task: Task, epsilon: float) -> float:
    """The signal of a first pilot's training, in the plan of the central limit."""
    rate = task.batch / task.records
    increase = 1.08 if epsilon >= 2.0 else 1.15
    shares = sum(count * 4**i for i, count in enumerate(PILOTS.sizes))
    part = (1.0 - increase**-2) / shares * (1.0 - PILOTS.share)
    alone = signal_at(noise_of_training(epsilon, DELTA, rate, task.steps), rate, task.steps)
    steps = max(20, round(PILOTS.length * task.steps))
    return task.batch * math.sqrt(steps) / noise_at(math.sqrt(part) * alone, rate, steps)


def epsilon_of(task: Task, signal: float) -> float:
    low, high = 1e-3, 100.0
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if signal_of(task, middle) > signal else (middle, high)
    return low


def alike(cell: Cell) -> tuple[float, ...]:
    rng, own = np.random.default_rng(0), len(cell.task.configurations())
    found = []
    for measures, spread in zip(cell.pilots, cell.spread, strict=True):
        drawn = rng.integers(measures.shape[1], size=(200, own))
        scores = measures[np.arange(own), drawn] + spread * rng.standard_normal((200, own))
        found.append(np.mean([np.corrcoef(one, cell.test[:own])[0, 1] for one in scores]))
    return tuple(map(float, found))


def proposed(name: str, epsilon: float, guess: Params | None) -> list[list[Params]]:
    """The candidates of a list; of each the configurations that it may be."""
    task = task_of(name)
    if not name.endswith(".py"):
        return short_list(task, guess, (place_of(task, epsilon),))
    others = [one for one in from_file(Path(name)).listed() if one != guess]
    return [[one] for one in ([] if guess is None else [guess]) + others]


@cache
def whole_landscape(name: str) -> Landscape:
    return Landscape.read(stored_name(name), beyond=True)


def listed(name: str, epsilon: float, guess: Params | None) -> tuple[float, float]:
    """Test scores of a short list, and of one run of its first candidate but the guess."""
    candidates, rng = proposed(name, epsilon, guess), np.random.default_rng(1)
    plain, constants.landscape_of = constants.landscape_of, whole_landscape
    cell = Cell(name, epsilon, Design((len(candidates),), CANDIDATE_LENGTH))
    constants.landscape_of = plain
    sets = [[cell.land.place(params) for params in those] for those in candidates]
    places = np.stack([rng.choice(those, constants.SEARCHES) for those in sets], axis=1)
    drawn = rng.integers(cell.land.repetitions, size=places.shape)
    noise = cell.spread[0] * rng.standard_normal(places.shape)
    best = (cell.pilots[0][places, drawn] + noise).argmax(axis=1)
    found = cell.test[places[np.arange(len(places)), best]].mean()
    return float(found), float(cell.alone[sets[0 if guess is None else 1]].mean())


def found_at(name: str, epsilon: float) -> Found:
    task, points = task_of(name), {}
    pilots, six = Cell(name, epsilon, PILOTS), Cell(name, epsilon, LISTED)
    good = pilots.reference("good")
    for guess in GUESSES:
        params = None if guess == "none" else getattr(task, guess)
        rule: Callable[..., Array] = BEST if guess == "none" else EVIDENCE
        tests = (
            pilots.reference(guess),
            pilots.result(guess, rule),
            six.result(guess, BEST),
            *listed(name, epsilon, params),
        )
        points.update({(arm, guess): test - good for arm, test in zip(ARMS, tests, strict=True)})
    return Found(task.name, epsilon, signal_of(task, epsilon), alike(pilots), points)


def mean(rows: Sequence[Found], arm: str, guesses: Sequence[str] = GUESSES) -> float:
    return float(np.mean([row.points[arm, guess] for row in rows for guess in guesses]))


def at(rows: Sequence[Found], signal: float) -> list[Found]:
    return [row for row in rows if abs(math.log(row.signal / signal)) < 0.02]


def least_that_ranks(rows: Sequence[Found]) -> float:
    """The smallest signal from which on pilots lose little, from a poor guess and from none."""
    found = math.inf
    for signal in reversed(SIGNALS):
        if mean(at(rows, signal), "pilots", ("poor", "none")) < -MAY_LOSE:
            break
        found = signal
    return found


def least_that_sees(rows: Sequence[Found]) -> float:
    """The smallest signal from which on a list is ahead of one run, over both guesses."""
    found = math.inf
    for signal in reversed(SIGNALS):
        own, guesses = at(rows, signal), ("good", "poor")
        if mean(own, "list", guesses) < mean(own, "one run", guesses):
            break
        found = signal
    return found


def row_of(title: Sequence[str], own: Sequence[Found]) -> str:
    ranks = [np.mean([row.alike[rung] for row in own]) for rung in (0, 1)]
    parts = [*title, " / ".join(f"{rank:.2f}" for rank in ranks)]
    for arm in ARMS:
        parts.append(" / ".join(f"{mean(own, arm, (guess,)):+.1f}" for guess in GUESSES))
    return "| " + " | ".join(parts) + " |"


def head(*titles: str) -> str:
    columns = (*titles, "alike, by rung", *ARMS)
    return "| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|"


def choose() -> None:
    """Prints the table by signal, and the limits, also with a task left out."""
    rows = []
    for name in NAMES:
        for signal in SIGNALS:
            epsilon = epsilon_of(task_of(name), signal)
            if epsilon <= BEYOND * max(task_of(name).epsilons):
                rows.append(found_at(name, epsilon))
    print(head("signal", "epsilon x records", "tasks"))
    for signal in SIGNALS:
        own = at(rows, signal)
        sizes = [row.epsilon * task_of(row.task).records for row in own]
        between = f"{min(sizes):,.0f} to {max(sizes):,.0f}"
        print(row_of((f"{signal}", between, f"{len(own)}"), own))
    for words, limit in (("rank", least_that_ranks), ("see", least_that_sees)):
        print(f"Pilots {words} from a signal of {limit(rows)} on.")
        for name in NAMES:
            rest = limit([row for row in rows if row.task != name])
            print(f"Without {name}: {rest}.")


def judge() -> None:
    """Prints the same of the tasks of networks, at their epsilons and at a third of the least."""
    print(head("task", "epsilon", "signal"))
    for path in sorted(NETWORK_TASKS.glob("*.py")):
        try:
            task = task_of(str(path))
        except FileNotFoundError as error:
            print(f"{path.stem}: {error}")
            continue
        for epsilon in (min(task.epsilons) / 3.0, *task.epsilons):
            row = found_at(str(path), epsilon)
            print(row_of((task.name, f"{epsilon:.2g}", f"{row.signal:.0f}"), [row]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--judge", action="store_true", help="tasks that had no say")
    judge() if parser.parse_args().judge else choose()


if __name__ == "__main__":
    main()
