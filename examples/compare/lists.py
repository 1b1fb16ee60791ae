"""Short lists and their rivals on all landscapes, with tasks left out.

    python lists.py          # lists.json, and the tables of docs/explanation/searches.md

Plans are the package's own, at the same total (epsilon, 1e-5); runs are looked up, thousands of
searches at once. What a search takes from other tasks comes from those that share no records with
its own. A search is worth the test score of what it releases less that of one run at the good
default, in points. Intervals are over tasks (Student's t), of the means over their epsilons.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import constants
import numpy as np
from bench import DELTA, public
from kinds import names, place_of, short_list
from landscape import MEASURES, Landscape
from results import interval, read
from task import HERE, Array, Params, Task, load

import optuna_dp as odp
from optuna_dp.planning.calibration import profile_epsilon
from optuna_dp.runs.run import Run
from optuna_dp.runs.run_events import sgd_training

RESULTS = HERE / "lists.json"
SEARCHES = 2000
GUESSES = ("good", "poor", "none")
BOUNDS = (0.75, 2.0)
SCORE, TEST = MEASURES.index("score"), MEASURES.index("test")
# How an exponential mechanism is made to fit: shares of what it would take as a Gaussian score.
SHARES = np.exp(np.arange(0.0, -1.0, -0.04))
Known = tuple[tuple[str, Any], ...]


@cache
def planned(known: Known, **more: Any) -> odp.BudgetPlan:
    return odp.plan_budget(**dict(known), **more)


@cache
def selection(known: Known, steps: int, mean: int, bounds: tuple[float, float]) -> Run:
    """A run of the best of a secret number of them; the score takes a fifth of its budget.

    Its noise is that of an arm of ``run.py`` if it was calibrated there, else solved for here.
    """
    public_numbers = dict(known)
    records, batch = public_numbers["records"], public_numbers["batch_size"]
    rate = batch / records

    def paid(noise: float) -> Run:
        # The noise of a score with a quarter of the training's squared budget.
        score = 2.0 * noise / (rate * steps**0.5)
        training = sgd_training(noise, rate, steps)
        event = odp.compose(training, odp.scoring.score_event(score))
        last = planned(known, pilots=0, score_final=False).final
        return replace(last, noise_multiplier=noise, score_noise_multiplier=score, event=event)

    def fits(noise: float) -> bool:
        event = paid(noise).event
        whole = odp.selection_guarantee(event, odp.Geometric(mean), density_bounds=bounds)
        return profile_epsilon(whole, DELTA) <= public_numbers["epsilon"]

    stored = calibrated().get((public_numbers["epsilon"], rate, steps, mean, bounds))
    if stored is not None:
        return paid(stored)
    low = planned(known, pilots=0, score_final=False).final.noise_multiplier
    high = 4.0 * low
    while high / low > 1.003:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    assert fits(high)
    return paid(high)


@cache
def calibrated() -> dict[tuple[Any, ...], float]:
    """Noise multipliers of secret numbers of runs, by epsilon, rate, steps, mean and bounds."""
    found = {}
    for name, kept in json.loads((HERE / "guarantees.json").read_text()).items():
        event = kept["guarantee"]["event"]
        if event["type"] == "PrivateSelectionDpEvent":
            epsilon = float(name.split("epsilon ")[1].split(",")[0])
            training = event["run"]["events"][0]
            sampled, law = training["event"], event["trials"]
            key = (epsilon, sampled["sampling_probability"], training["count"])
            key += (round(law["mean"]), tuple(event["density_bounds"]))
            found[key] = sampled["event"]["noise_multiplier"]
    return found


@cache
def one_choice(known: Known, count: int) -> float:
    """The eta of one exponential mechanism over exact scores, in place of the plan's scores."""
    plan = planned(known, candidates=count)
    pilot, last = plan.pilot, plan.final
    assert pilot.score_noise_multiplier is not None
    training = sgd_training(pilot.noise_multiplier, pilot.sample_rate, pilot.steps)
    # It is about Gaussian noise of two over its range.
    alike = 2.0 * count**0.5 / pilot.score_noise_multiplier
    for share in SHARES:
        choice = odp.bounded_range(float(share * alike))
        whole = odp.compose(*[training] * count, choice, last.event)
        if profile_epsilon(odp.Guarantee(whole), DELTA) <= plan.epsilon:
            return float(share * alike)
    raise ValueError("no exponential mechanism fits")


@dataclass(frozen=True)
class Cell:
    """One task at one epsilon."""

    task: Task
    land: Landscape
    epsilon: float

    @property
    def known(self) -> Known:
        return tuple(public(self.task, self.epsilon).items())

    @property
    def places(self) -> tuple[int]:
        return (place_of(self.task, self.epsilon),)

    @property
    def space(self) -> list[Params]:
        return self.task.configurations()

    def tests(self, noise: float) -> Array:
        """Mean test score of a whole run, by configuration."""
        return 100.0 * self.land.at(noise, self.task.steps)[:, :, TEST].mean(axis=1)

    def alone(self) -> Array:
        """Of one run that costs everything."""
        plan = planned(self.known, pilots=0, score_final=False)
        return self.tests(plan.final.noise_multiplier)

    def at(self, several: list[Params]) -> Array:
        return np.array([self.land.place(params) for params in several])

    def guess(self, name: str) -> Params | None:
        return None if name == "none" else getattr(self.task, name)

    def listed(self, guess: str, rng: Any) -> Array:
        """Places of candidates, (searches, candidates); what a kind leaves open is drawn."""
        found = self.candidates(self.guess(guess))
        return np.stack([rng.choice(self.at(those), SEARCHES) for those in found], axis=1)

    def candidates(self, guess: Params | None) -> list[list[Params]]:
        """The list; of each candidate the configurations that it may be."""
        return short_list(self.task, guess, self.places)

    def random(self, guess: str, count: int, rng: Any) -> Array:
        """The guess and different configurations at random, as many as the list has."""
        every, first = self.at(self.space), self.guess(guess)
        order = np.argsort(rng.random((SEARCHES, len(every))), axis=1)
        found = every[order[:, :count]]
        if first is not None:
            place = self.land.place(first)
            again = found == place
            found[again] = np.broadcast_to(found[:, :1], found.shape)[again]
            found[:, 0] = place
        return found

    def spread(self, noise: float) -> float:
        return noise * self.task.reach / (2.0 * self.task.records)

    def composed(self, places: Array, rng: Any, at_once: bool = False) -> float:
        """One pilot each, then the best, by noisy scores or by one exponential mechanism."""
        plan, count = planned(self.known, candidates=places.shape[1]), places.shape[1]
        pilot = plan.pilot
        assert pilot.score_noise_multiplier is not None
        found = self.land.at(pilot.noise_multiplier, pilot.steps)[:, :, SCORE]
        scores = found[places, rng.integers(self.land.repetitions, size=places.shape)]
        noise = self.spread(pilot.score_noise_multiplier) * rng.standard_normal(places.shape)
        if at_once:
            # Adding a record moves each sum by 0 to the reach: range bounded by eta.
            scale = self.task.reach / (one_choice(self.known, count) * self.task.records)
            noise = scale * rng.gumbel(size=places.shape)
        best = (scores + noise).argmax(axis=1)[:, None]
        tests = self.tests(plan.final.noise_multiplier)
        return float(tests[np.take_along_axis(places, best, axis=1)].mean())

    def selected(self, mean: int, law: Callable[[Array], Array], bounds: Any, rng: Any) -> float:
        """The best of a secret number of runs; ``law`` makes chances of the places' tests."""
        run = selection(self.known, self.task.steps, mean, bounds)
        measures = self.land.at(run.noise_multiplier, run.steps)
        chances = law(100.0 * measures[:, :, TEST].mean(axis=1))
        found = []
        for count in rng.geometric(1.0 / mean, SEARCHES):
            places = rng.choice(len(chances), count, p=chances)
            drawn = rng.integers(self.land.repetitions, size=count)
            assert run.score_noise_multiplier is not None
            noise = self.spread(run.score_noise_multiplier) * rng.standard_normal(count)
            best = (measures[places, drawn, SCORE] + noise).argmax()
            found.append(measures[places[best], drawn[best], TEST])
        return 100.0 * float(np.mean(found))

    def uniform(self, tests: Array) -> Array:
        chances = np.zeros(len(tests))
        chances[self.at(self.space)] = 1.0 / len(self.space)
        return chances

    def of_the_list(self, tests: Array) -> Array:
        """Every kind of the list without a guess as likely, and every configuration of a kind."""
        chances, kinds = np.zeros(len(tests)), self.candidates(None)
        for those in kinds:
            chances[self.at(those)] += 1.0 / (len(those) * len(kinds))
        return chances

    def oracle(self, tests: Array) -> Array:
        """The density within the bounds that a perfect knowledge of the tests would take."""
        low, high = BOUNDS
        base, left = self.uniform(tests), 1.0 - low
        chances = low * base
        for place in np.argsort(-tests):
            more = min((high - low) * base[place], left)
            chances[place] += more
            left -= more
        return chances / chances.sum()

    def free(self, rng: Any) -> float:
        plan = planned(self.known, pilots=0, score_final=False)
        found = self.land.at(plan.final.noise_multiplier, self.task.steps)[self.at(self.space)]
        drawn = rng.integers(self.land.repetitions, size=(SEARCHES, len(found)))
        every = np.arange(len(found))
        best = found[every, drawn, SCORE].argmax(axis=1)
        return 100.0 * float(found[best, drawn[np.arange(SEARCHES), best], TEST].mean())

    @property
    def name(self) -> str:
        """By which the harness knows the task: its name or its file."""
        return self.task.name

    def single_runs(self, alone: Array) -> dict[str, float]:
        """Test scores of one run without a search, in points."""
        chosen = self.candidates(None)
        return {
            "one run: poor default": alone[self.land.place(self.task.poor)],
            "one run: all maps joined": alone[self.at(chosen[0])].mean(),
            "one run: best kind of other tasks": alone[self.at(chosen[1])].mean(),
        }

    def best_members(self) -> dict[str, float]:
        """Points beyond the good default of one run of the list's best member, by guess."""
        alone = self.alone()
        good = alone[self.land.place(self.task.good)]
        return {
            guess: round(
                max(
                    float(alone[self.at(those)].mean())
                    for those in self.candidates(self.guess(guess))
                )
                - float(good),
                3,
            )
            for guess in GUESSES
        }

    def outcomes(self) -> dict[str, float]:
        """Points beyond one run at the good default, by arm."""
        rng, alone = np.random.default_rng(0), self.alone()
        found = self.single_runs(alone)
        design = constants.Cell(self.name, self.epsilon, constants.Design())
        for guess in GUESSES:
            places = self.listed(guess, rng)
            found[f"short list, {guess}"] = self.composed(places, rng)
            drawn = self.random(guess, places.shape[1], rng)
            found[f"random list, {guess}"] = self.composed(drawn, rng)
            found[f"one exponential mechanism, {guess}"] = self.composed(places, rng, True)
            margin = 0.0 if guess == "none" else 1.0
            found[f"budget, {guess}"] = design.result(
                guess,
                lambda *given, margin=margin: constants.by_margin(*given, margin=margin),
            )
        for mean in (2, 10, 30):
            found[f"RandTune {mean}"] = self.selected(mean, self.uniform, (1.0, 1.0), rng)
            prior = f"RandTune {mean}, the list as its base distribution"
            found[prior] = self.selected(mean, self.of_the_list, (1.0, 1.0), rng)
        found["DP-HyPO 10, perfect oracle"] = self.selected(10, self.oracle, BOUNDS, rng)
        found["free choice (not private)"] = self.free(rng)
        good = alone[self.land.place(self.task.good)]
        return {arm: float(value - good) for arm, value in found.items()}


def shipped_dp_hypo(name: str, epsilon: float) -> float:
    """DP-HyPO as shipped, of mean 10: real studies of the package, from searches.csv."""
    cell = read_once()[name, f"{epsilon:g}"]
    means = [np.mean(list(cell[arm].values())) for arm in ("dp_hypo", "one_good")]
    return float(means[0] - means[1])


@cache
def read_once() -> Any:
    return read(HERE / "searches.csv")


def by_task(rows: list[dict[str, Any]], arm: str, less: str | None = None) -> Array:
    """Means over the epsilons of each task, of an arm or of its difference to another."""
    values = []
    for name in names():
        own = [row["points"] for row in rows if row["task"] == name]
        values.append(np.mean([one[arm] - (one[less] if less else 0.0) for one in own]))
    return np.array(values)


def summary(rows: list[dict[str, Any]]) -> str:
    """Markdown: means by size and epsilon, over all cells with their interval, and the worst."""
    heads = [f"small, {e}" for e in (1, 3, 8)] + [f"large, {e}" for e in (0.1, 0.3, 1)]
    lines = ["| arm | " + " | ".join(heads) + " | mean | worst |", "|---" * 9 + "|"]
    for arm in rows[0]["points"]:
        parts = []
        for large in (False, True):
            for place in range(3):
                some = [
                    row["points"][arm]
                    for row in rows
                    if (row["records"] > 2000, row["place"]) == (large, place)
                ]
                parts.append(f"{np.mean(some):+.1f}")
        mean, half = interval(by_task(rows, arm))
        worst = min(row["points"][arm] for row in rows)
        lines.append(
            f"| {arm} | " + " | ".join(parts) + f" | {mean:+.2f} ± {half:.1f} | {worst:+.1f} |"
        )
    return "\n".join(lines)


def differences(rows: list[dict[str, Any]]) -> str:
    """Markdown: a short list less its rivals, paired by task."""
    lines = ["| short list less | good guess | poor one | none |", "|---" * 4 + "|"]
    rivals = ["budget, {}", "random list, {}", "one exponential mechanism, {}"]
    arms = rows[0]["points"]
    rivals += [arm for arm in arms if arm.startswith(("RandTune", "DP-HyPO", "free", "one run"))]
    for rival in rivals:
        parts = []
        for guess in GUESSES:
            found = by_task(rows, f"short list, {guess}", rival.format(guess))
            parts.append("{:+.1f} ± {:.1f}".format(*interval(found)))
        lines.append(f"| {rival.replace(', {}', '')} | " + " | ".join(parts) + " |")
    return "\n".join(lines)


def by_records(rows: list[dict[str, Any]]) -> str:
    """Markdown: the short list by epsilon times the records."""
    edges = (0, 1300, 4000, 10_000, np.inf)
    heads = "| epsilon x records | cells | good guess | poor one | none | best cell, good guess |"
    lines = [heads, "|---" * 6 + "|"]
    for low, high in itertools.pairwise(edges):
        own = [row for row in rows if low <= row["epsilon"] * row["records"] < high]
        parts = [
            f"{np.mean([row['points'][f'short list, {guess}'] for row in own]):+.1f}"
            for guess in GUESSES
        ]
        parts.append(f"{max(row['points']['short list, good'] for row in own):+.1f}")
        title = f"{low:,} to {high:,.0f}" if np.isfinite(high) else f"{low:,} and more"
        lines.append(f"| {title} | {len(own)} | " + " | ".join(parts) + " |")
    return "\n".join(lines)


def behind(rows: list[dict[str, Any]]) -> str:
    """Markdown: the cells where a list is more than four points behind the good default."""
    found = [
        f"* {row['task']}, {row['epsilon']:g}, guess {guess}: {row['points'][arm]:+.1f}"
        for row in rows
        for guess in GUESSES
        if row["points"][arm := f"short list, {guess}"] < -4.0
    ]
    return "\n".join(found) or "None."


def behind_members(rows: list[dict[str, Any]]) -> str:
    """Markdown: the cells where a list is more than four points behind its best member."""
    found = []
    for row in rows:
        for guess in GUESSES:
            points = row["points"][f"short list, {guess}"] - row["best_members"][guess]
            if points < -4.0:
                found.append(f"* {row['task']}, {row['epsilon']:g}, guess {guess}: {points:+.1f}")
    return "\n".join(found) or "None."


def in_secret(rows: list[dict[str, Any]]) -> str:
    """Markdown: what an oracle and a prior add to ten secret runs on average, paired by task."""
    lines = ["| beyond uniform RandTune of mean 10 | points |", "|---" * 2 + "|"]
    prior = "RandTune 10, the list as its base distribution"
    for arm in ("DP-HyPO 10, as shipped", "DP-HyPO 10, perfect oracle", prior):
        mean, half = interval(by_task(rows, arm, "RandTune 10"))
        lines.append(f"| {arm} | {mean:+.1f} ± {half:.1f} |")
    return "\n".join(lines)


def pages(rows: list[dict[str, Any]]) -> list[str]:
    return [
        summary(rows),
        differences(rows),
        by_records(rows),
        behind(rows),
        behind_members(rows),
        in_secret(rows),
    ]


def main() -> None:
    rows, start = [], time.process_time()
    for name in names():
        task, land = load(name), Landscape.read(name, beyond=True)
        for place, epsilon in enumerate(task.epsilons):
            cell = Cell(task, land, epsilon)
            points = cell.outcomes()
            points["DP-HyPO 10, as shipped"] = shipped_dp_hypo(name, epsilon)
            row = {"task": name, "epsilon": epsilon, "place": place, "records": task.records}
            row["best_members"] = cell.best_members()
            rows.append(row | {"points": {arm: round(v, 3) for arm, v in points.items()}})
            print(name, epsilon, f"{time.process_time() - start:.0f} s", flush=True)
    found = {"made_by": "python examples/compare/lists.py", "searches": SEARCHES, "cells": rows}
    RESULTS.write_text(json.dumps(found, indent=0) + "\n")
    print("\n\n".join(pages(rows)))


if __name__ == "__main__":
    main()
