"""How the constants of a budget were chosen: many searches at once, on all landscapes.

    python constants.py

Plans are those of the central limit, and first-rung pilots are different configurations at
random; everything else is as in the package. A search is judged by the mean test score of what its
last run takes. Prints means over all tasks and epsilons, and what leaving a task out would choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from landscape import (
    CAPS,
    DELTA,
    FOLDER,
    MEASURES,
    Landscape,
    has_networks,
    noise_at,
    signal_at,
    stored_name,
)
from task import Array, Task, load

from optuna_dp.planning.batch import noise_of_training
from optuna_dp.planning.budget_split import squared_mu

SEARCHES = 300
GUESSES = ("good", "poor", "none")
MARGINS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
# From the pilots' places, rungs and scores, and the first guess, to what is run.
Choose = Callable[["Cell", Array, Array, Array, int | None], Array]


@dataclass(frozen=True)
class Design:
    """What a budget buys; the noise increase is the package's unless given."""

    sizes: tuple[int, ...] = (12, 3)
    length: float = 0.16
    share: float = 0.2
    increase: float | None = None
    measure: str = "score"

    @property
    def work(self) -> float:
        return 1.0 + sum(self.sizes) * self.length


@cache
def task_of(name: str) -> Task:
    return load(name)


@cache
def landscape_of(name: str) -> Landscape:
    return Landscape.read(stored_name(name), beyond=has_networks(name))


class Cell:
    """One task at one epsilon, with a design.

    Attributes:
        pilots: What scores are made of, by rung, (configurations, repetitions).
        spread: Of the noise of a score, by rung.
        test: Mean test score of a last run, by configuration, in per cent.
        alone: The same of one run that costs everything.
    """

    def __init__(self, name: str, epsilon: float, design: Design) -> None:
        self.task, self.land, self.design = task_of(name), landscape_of(name), design
        self.epsilon = epsilon
        task, found = self.task, self.land
        rate, at = task.batch / task.records, MEASURES.index(design.measure)
        noise = noise_of_training(epsilon, DELTA, rate, task.steps)
        increase = design.increase or (1.08 if epsilon >= 2.0 else 1.15)
        whole, signal = squared_mu(epsilon, DELTA), signal_at(noise, rate, task.steps)
        pilot_budget = whole * (1.0 - increase**-2)
        total = sum(count * 4.0**i for i, count in enumerate(design.sizes))
        steps = max(20, round(design.length * task.steps))
        reach = task.reach
        if design.measure != "score":
            reach *= float(design.measure.split()[1]) * math.log(task.classes)
        self.pilots, self.spread = [], []
        for i in range(len(design.sizes)):
            part = pilot_budget * 4.0**i / total
            mu = math.sqrt(part * (1.0 - design.share) / whole) * signal
            measure = found.at(noise_at(mu, rate, steps), steps)[:, :, at]
            self.pilots.append(measure if design.measure == "score" else -measure)
            self.spread.append(reach / (2.0 * task.records * math.sqrt(part * design.share)))
        test = MEASURES.index("test")
        self.test = 100.0 * found.at(noise * increase, task.steps)[:, :, test].mean(axis=1)
        self.alone = 100.0 * found.at(noise, task.steps)[:, :, test].mean(axis=1)

    def first(self, guess: str) -> int | None:
        return None if guess == "none" else self.land.place(getattr(self.task, guess))

    def reference(self, guess: str) -> float:
        """One run at the guess; of a random configuration without one."""
        first = self.first(guess)
        return float(self.alone.mean() if first is None else self.alone[first])

    def searches(self, guess: str) -> tuple[Array, Array, Array]:
        """Configurations (searches, pilots), rungs (pilots,), scores (searches, pilots)."""
        rng, first = np.random.default_rng(0), self.first(guess)
        every = len(self.test)
        places = np.argsort(rng.random((SEARCHES, every)), axis=1)
        if first is not None:
            there = (places == first).argmax(axis=1)
            places[np.arange(SEARCHES), there] = places[:, 0]
            places[:, 0] = first
        while places.shape[1] < self.design.sizes[0]:
            places = np.hstack([places, rng.integers(every, size=(SEARCHES, every))])
        found, rungs, scores = [], [], []
        for rung, count in enumerate(self.design.sizes):
            if rung:
                rank = scores[-1].copy()
                if first is not None:
                    rank[:, 0] = np.inf  # the first guess always climbs, to the first place
                best = np.argsort(-rank, axis=1)[:, :count]
                places = np.take_along_axis(found[-1], best, axis=1)
            found.append(places[:, :count])
            drawn = rng.integers(self.land.repetitions, size=found[-1].shape)
            noise = self.spread[rung] * rng.standard_normal(found[-1].shape)
            scores.append(self.pilots[rung][found[-1], drawn] + noise)
            rungs += [rung] * count
        return np.hstack(found), np.array(rungs), np.hstack(scores)

    def result(self, guess: str, choose: Choose) -> float:
        return float(self.test[choose(self, *self.searches(guess), self.first(guess))].mean())


def by_margin(
    cell: Cell, places: Array, rungs: Array, scores: Array, first: int | None, margin: float
) -> Array:
    """The best of the last rung, unless the first guess is within the margin.

    In standard deviations of the first rung's scores; 0 is ``choose="best"``.
    """
    top = rungs == rungs.max()
    best = np.take_along_axis(places[:, top], scores[:, top].argmax(axis=1)[:, None], axis=1)[:, 0]
    if first is None or margin == 0.0:
        return best
    ahead = scores[:, top].max(axis=1) - scores[:, top][:, 0]
    return np.where(ahead <= margin * scores[:, rungs == 0].std(axis=1, ddof=1), first, best)


def by_process(
    cell: Cell,
    places: Array,
    rungs: Array,
    scores: Array,
    first: int | None,
    bonus: float,
    fall: float = 0.3,
) -> Array:
    """A Gaussian process over all rungs: the greatest expected score of the last run.

    Matern 5/2 over differing hyperparameters; a correlation between rungs that falls with the
    logarithm of their signal; noise over signal from a grid, weighted by its likelihood. The first
    guess is expected to be better by so many standard deviations of a configuration.
    """
    names = list(cell.task.space)
    codes = np.array(
        [[str(params.get(name)) for name in names] for params in cell.land.configurations]
    )[places]
    apart = np.sqrt((codes[:, :, None] != codes[:, None]).sum(axis=3)) * math.sqrt(5.0)
    alike = (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)
    # Logarithm of the signal: doubled by every rung, and that of the last run beside them.
    logs = [math.log(1.0 / spread) for spread in cell.spread]
    last = logs[0] + math.log(4.0)
    at = np.array(logs)[rungs]
    kernel = alike * np.exp(-fall * np.abs(at[:, None] - at))
    across = alike * np.exp(-fall * np.abs(last - at))
    means = np.stack([(rungs == rung).astype(float) for rung in np.unique(rungs)], axis=1)
    better = np.zeros(places.shape) if first is None else bonus * (places == first)
    free = places.shape[1] - means.shape[1]
    expected, weights = [], []
    for noise in (0.03, 0.1, 0.3, 1.0, 3.0):
        whole = kernel + noise * np.diag(np.exp(-2.0 * (at - at[0])))
        inverse = np.linalg.inv(whole)
        levels = np.linalg.inv(means.T @ inverse @ means) @ (means.T @ inverse)

        def residual(values: Array, levels: Array = levels) -> Array:
            return values - np.einsum("npi,ni->np", levels, values) @ means.T

        left = residual(scores)
        scale = np.sqrt(np.einsum("ni,nij,nj->n", left, inverse, left) / free)[:, None]
        left = residual(scores - better * scale)
        solved = np.einsum("nij,nj->ni", inverse, left)
        expected.append(np.einsum("nij,nj->ni", across, solved) + better * scale)
        fit = (left * solved).sum(axis=1)
        logs_of = [np.linalg.slogdet(part)[1] for part in (whole, means.T @ inverse @ means)]
        weights.append(-0.5 * (sum(logs_of) + free * np.log(fit + 1e-14)))
    share = np.exp(np.array(weights) - np.max(weights, axis=0))
    mean = np.einsum("kn,kni->ni", share / share.sum(axis=0), np.array(expected))
    return np.take_along_axis(places, mean.argmax(axis=1)[:, None], axis=1)[:, 0]


Results = dict[tuple[str, float, str], float]


def results(design: Design, choose: Choose) -> Results:
    return {
        (name, epsilon, guess): Cell(name, epsilon, design).result(guess, choose)
        for name in NAMES
        for epsilon in task_of(name).epsilons
        for guess in GUESSES
    }


def short(name: str, epsilon: float, found: Results) -> bool:
    """Whether a good first guess lost more than it may."""
    cell = Cell(name, epsilon, Design())
    allowed = 1.5 if cell.task.records < 2000 and epsilon <= 1.0 else 1.0
    return found[name, epsilon, "good"] < cell.reference("good") - allowed


def line(title: str, found: Results) -> str:
    means = [np.mean([v for key, v in found.items() if key[2] == guess]) for guess in GUESSES]
    cells = {key[:2] for key in found}
    lost = sum(short(*cell, found) for cell in cells)
    parts = [title, *(f"{mean:.1f}" for mean in means), f"{lost} of {len(cells)}"]
    return "| " + " | ".join(parts) + " |"


NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))
HEAD = "| from a good guess | a poor one | none | good guesses that lose too much |\n" + "|---" * 5


def main() -> None:
    rules: dict[str, Choose] = {
        **{f"margin {m:g}": partial(by_margin, margin=m) for m in MARGINS},
        **{f"process, bonus {b:g}": partial(by_process, bonus=b) for b in (0.0, 0.5, 1.0, 2.0)},
    }
    chosen = {title: results(Design(), choose) for title, choose in rules.items()}
    print("| choice " + HEAD + "|")
    for title, found in chosen.items():
        print(line(title, found))
    for name in NAMES:
        rest = {
            m: sum(
                short(n, e, chosen[f"margin {m:g}"])
                for n in NAMES
                if n != name
                for e in task_of(n).epsilons
            )
            for m in MARGINS
        }
        least = min(rest.values())
        print(
            f"Without {name}: the least margin with fewest losses is",
            next(m for m in MARGINS if rest[m] == least),
        )
    best = partial(by_margin, margin=1.0)
    designs = {
        "the default": Design(),
        "(16, 4), length 1, score share 0.1": Design((16, 4), 1.0, 0.1),
        "(16, 4)": Design((16, 4)),
        "(8, 3)": Design((8, 3)),
        "(6,)": Design((6,)),
        "(12, 4, 2)": Design((12, 4, 2)),
        "length 0.4": Design(length=0.4),
        **{f"score share {share:g}": Design(share=share) for share in (0.1, 0.3, 0.45)},
        **{f"noise increase {x:g}": Design(increase=x) for x in (1.05, 1.1, 1.2, 1.3)},
        **{f"loss, cap {cap:g} ln(classes)": Design(measure=f"loss {cap:g}") for cap in CAPS},
    }
    print("\n| design " + HEAD + "|")
    for title, design in designs.items():
        print(line(f"{title}; {design.work:.1f} trainings", results(design, best)))


if __name__ == "__main__":
    main()
