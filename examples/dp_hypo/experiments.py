"""DP-HyPO's experiments (arXiv 2306.05734v2, section 4.2 and appendix E), and what it left out.

Each part can be run by itself, resumes where it stopped, and writes ``results/<part>.json``, which
``figures.py`` and the tables of ``README.md`` are made from::

    python examples/dp_hypo/experiments.py figure1     # Figure 1, Tables 1 and 2
    python examples/dp_hypo/experiments.py budgets     # what appendix E's settings cost
    python examples/dp_hypo/experiments.py equal       # truly equal total budgets
    python examples/dp_hypo/experiments.py choices     # projection, tau, beta, candidates, ...
    python examples/dp_hypo/experiments.py PART --quick --results FOLDER

Simulations on the landscapes of ``simulate.py``: seeded, private in no way. Noise multipliers and
numbers of runs come from the library's accounting, at delta 1e-5.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from landscapes import EPOCHS, NOISE_MULTIPLIERS, load
from simulate import (
    Floats,
    Landscape,
    adaptive,
    best_so_far,
    fashion,
    fashion_e2,
    interval,
    like_figure_2,
    like_figure_3,
    measured,
    over_t,
    uniform,
)

import optuna_dp as odp
from optuna_dp.errors import InvalidArgumentError
from optuna_dp.priors.densities.adaptive_density import AdaptiveDensity

DELTA = 1e-5
RESULTS = Path(__file__).with_name("results")
GAMMAS = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.025, 0.03)
AT = (1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64)
PAPER = AdaptiveDensity(bounds=(0.75, 2.0), projection="l2", tau=0.1, beta=1.0, standardize=False)
OURS = AdaptiveDensity(bounds=(0.75, 2.0))
LARGEST_NOISE = NOISE_MULTIPLIERS[-1]


class Results:
    """A JSON file of finished entries; an entry that is there is not computed again.

    Args:
        path: The file.
        quick: A fiftieth of the repetitions.
        only: Nothing is computed for entries whose names do not contain this.
    """

    def __init__(self, path: Path, quick: bool, only: str = "") -> None:
        self.path, self.quick, self.only = path, quick, only
        self.entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, name: str, compute: Callable[[np.random.Generator], Any]) -> Any:
        if name not in self.entries and self.only in name:
            start = time.process_time()
            self.entries[name] = compute(np.random.default_rng(zlib.crc32(name.encode())))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.entries, indent=0) + "\n")
            print(f"{name}: {time.process_time() - start:.0f} s", flush=True)
        return self.entries.get(name)

    def reps(self, full: int) -> int:
        return max(8, full // 50) if self.quick else full


def searches(
    landscape: Landscape,
    law: AdaptiveDensity,
    learning: int,
    length: int,
    reps: int,
    rng: Any,
    **kw: Any,
) -> Floats:
    runs = [adaptive(landscape, law, learning, length, rng, **kw) for _ in range(reps)]
    return best_so_far(np.array([s for s, _ in runs]), np.array([t for _, t in runs]))


# -- Figure 1, Tables 1 and 2 ---------------------------------------------------------------------


def curves_and_tables(curves: Callable[[int, int], Floats], reps: int, chunk: int) -> Any:
    """Means at fixed T, and over geometric laws of T, with 95 % intervals."""
    length = 8000
    fixed, laws = [], []
    for start in range(0, reps, chunk):
        found = curves(min(chunk, reps - start), length)
        fixed.append(found[:, np.array(AT) - 1])
        laws.append(np.stack([geometric_mean(found, gamma) for gamma in GAMMAS], axis=1))
    at, over = np.concatenate(fixed), np.concatenate(laws)
    return {
        "reps": reps,
        "fixed": {str(t): interval(at[:, i]) for i, t in enumerate(AT)},
        "geometric": {str(g): interval(over[:, i]) for i, g in enumerate(GAMMAS)},
    }


def geometric_mean(curves: Floats, gamma: float) -> Floats:
    """Expected outcome of each search over geometric T, (reps,)."""
    k = np.arange(curves.shape[1])
    weights = gamma * (1.0 - gamma) ** k
    weights[-1] += (1.0 - gamma) ** curves.shape[1]
    result: Floats = curves @ weights
    return result


def figure1(results: Results) -> None:
    many, few = results.reps(10_000), results.reps(400)

    def arms(
        panel: str,
        base: Landscape,
        searched: Landscape,
        laws: dict[str, AdaptiveDensity],
        learning: int = 64,
    ) -> None:
        results.add(
            f"{panel} | Uniform",
            lambda rng: curves_and_tables(lambda n, m: uniform(base, m, n, rng), many, 500),
        )
        for name, law in laws.items():
            results.add(
                f"{panel} | {name}",
                lambda rng, p=law: curves_and_tables(
                    lambda n, m: searches(searched, p, learning, m, n, rng), few, 100
                ),
            )

    # White box: less noise for Uniform, as in E.1 (0.64, 0.71) and E.2 (0.6, 0.65).
    both = {"GP, as published": PAPER, "GP, our defaults": OURS}
    arms(
        "left", measured("digits", 0.64).noisier(0.1), measured("digits", 0.71).noisier(0.1), both
    )
    arms("fashion", fashion(0.64).noisier(0.1), fashion(0.71).noisier(0.1), both)
    # One run of each setting: by chance the noisier landscape may be the better one.
    results.add(
        "fashion | Uniform, at the noise of GP",
        lambda rng: curves_and_tables(
            lambda n, m: uniform(fashion(0.71).noisier(0.1), m, n, rng), many, 500
        ),
    )
    # E.2, whose landscape is fitted to real runs.
    arms("fashion E.2", fashion_e2(0.6), fashion_e2(0.65), both, 32)
    results.add(
        "fashion E.2 | Uniform, at the noise of GP",
        lambda rng: curves_and_tables(
            lambda n, m: uniform(fashion_e2(0.65), m, n, rng), many, 500
        ),
    )
    # Black box: the same runs for all; losses, so the scores are negative.
    loss = like_figure_3()
    tables = {f"GP, as published, C={c}": (1 / c, c) for c in (1.25, 1.33, 1.5)}
    laws = {name: replace(PAPER, bounds=bounds) for name, bounds in tables.items()}
    laws["GP, our defaults, C=1.5"] = replace(OURS, bounds=(1 / 1.5, 1.5))
    arms("right", loss, loss, laws)
    arms("middle", like_figure_2(0.6), like_figure_2(0.65), both, learning=32)


# -- budgets --------------------------------------------------------------------------------------


# Settings of appendix E: records, batches of 256, 10 epochs; noise of GP and of Uniform.
APPENDIX_E = {"E.1": (60_000, 0.71, 0.64), "E.2": (50_000, 0.65, 0.6)}


def training_of_appendix_e(name: str, noise: float) -> Any:
    """The event of one run of a setting of appendix E."""
    records = APPENDIX_E[name][0]
    steps = -(-10 * records // 256)
    return odp.dp_sgd(noise_multiplier=noise, sample_rate=256 / records, steps=steps)


def budgets(results: Results) -> None:
    """Total epsilon of appendix E's settings, by every method."""
    for name, (_, adaptive_noise, uniform_noise) in APPENDIX_E.items():
        for gamma in GAMMAS[::3] if results.quick else GAMMAS:
            arms = ((adaptive_noise, (0.75, 2.0)), (uniform_noise, (1.0, 1.0)))
            for noise, bounds in arms:
                guarantee = odp.selection_guarantee(
                    training_of_appendix_e(name, noise),
                    odp.Geometric(1.0 / gamma),
                    density_bounds=bounds,
                )
                results.add(
                    f"{name}, noise {noise}, (c, C)={bounds}, gamma {gamma}",
                    lambda rng, guarantee=guarantee: {
                        method: round(epsilon, 3)
                        for method, epsilon in guarantee.by_method(DELTA).items()
                    },
                )


# -- equal total budgets --------------------------------------------------------------------------


def run_of(name: str, epochs: float = EPOCHS) -> Callable[[float], Any]:
    task = load(name)
    return lambda noise: odp.dp_sgd(
        noise_multiplier=noise, sample_rate=task.sample_rate, steps=task.steps(epochs)
    )


def noise_for(name: str, epsilon: float, mean: float, bounds: Any, policy: str) -> float:
    found = odp.calibrate(
        target_epsilon=epsilon,
        delta=DELTA,
        run=run_of(name),
        trials=odp.Geometric(mean),
        density_bounds=bounds,
        policy=policy,
    )
    return float(found.value)


def equal(results: Results) -> None:
    """Accuracy when every arm spends the same total epsilon, by noise or by numbers of runs."""
    few = results.reps(150)
    places = (("digits", 3.0), ("digits", 1.0), ("breast_cancer", 1.0))
    for name, epsilon in places[:1] if results.quick else places:
        head = f"{name}, epsilon {epsilon:g}"
        for mean in (3, 10, 30, 100):

            def plain(rng: Any, name: str = name, e: float = epsilon, m: int = mean) -> Any:
                noise = noise_for(name, e, m, (1.0, 1.0), "history")
                curves = uniform(score_of(name, noise), 8 * m, results.reps(10_000), rng)
                return outcome(noise, m, over_t(curves, odp.Geometric(m)))

            results.add(f"{head} | RandTune, mean {mean}", plain)
        cases = [
            ("as published (data bound)", 10, (0.75, 2.0), "data"),
            ("C=2, c=0.75", 10, (0.75, 2.0), "history"),
            ("C=1.25, c=0.9", 10, (0.9, 1.25), "history"),
            ("C=4, c=0.5", 10, (0.5, 4.0), "history"),
            ("C=2, c=0.75", 30, (0.75, 2.0), "history"),
        ]
        for label, mean, bounds, kind in cases:

            def search(
                rng: Any,
                name: str = name,
                e: float = epsilon,
                m: int = mean,
                bounds: Any = bounds,
                kind: str = kind,
            ) -> Any:
                try:
                    noise = noise_for(name, e, m, bounds, kind)
                except InvalidArgumentError:
                    return {"runs": m, "impossible": "these densities cost more by themselves"}
                if noise > LARGEST_NOISE:
                    return {"runs": m, "noise": round(noise, 2)}
                curves = searches(
                    score_of(name, noise), replace(OURS, bounds=bounds), 40, 5 * m, few, rng
                )
                return outcome(noise, m, over_t(curves, odp.Geometric(m)))

            results.add(f"{head} | DP-HyPO {label}, mean {mean}", search)

    # The same runs for everyone (black box), the budget spent on runs instead.
    run, bounds = run_of("digits")(2.0), (0.75, 2.0)
    both = odp.selection_guarantee(run, odp.Geometric(10), density_bounds=bounds)
    total = results.add("black box | epsilon", lambda rng: round(both.epsilon(DELTA), 4))
    landscape = score_of("digits", 2.0)

    def more_runs(rng: Any) -> Any:
        found = odp.calibrate(
            target_epsilon=total, delta=DELTA, run=run, trials=lambda m: odp.Geometric(m)
        )
        m = float(found.value)
        curves = uniform(landscape, int(8 * m), results.reps(5_000), rng)
        return outcome(2.0, m, over_t(curves, odp.Geometric(m)))

    results.add("black box | RandTune, as many runs as that buys", more_runs)
    results.add(
        "black box | RandTune, mean 10",
        lambda rng: outcome(
            2.0,
            10,
            over_t(uniform(landscape, 100, results.reps(10_000), rng), odp.Geometric(10)),
        ),
    )
    results.add(
        "black box | DP-HyPO C=2, c=0.75, mean 10",
        lambda rng: outcome(
            2.0, 10, over_t(searches(landscape, OURS, 40, 80, few, rng), odp.Geometric(10))
        ),
    )

    # Laws of T, without adaptivity, same run and same total epsilon as geometric with mean 10.
    target = odp.selection_guarantee(run, odp.Geometric(10)).epsilon(DELTA)
    laws: dict[str, Callable[[float], Any]] = {
        "logarithmic": lambda m: odp.Logarithmic(m),
        "shape 0.5": lambda m: odp.NegativeBinomial(shape=0.5, mean=m),
        "geometric": lambda m: odp.Geometric(m),
        "shape 3": lambda m: odp.NegativeBinomial(shape=3.0, mean=m),
        "Poisson": lambda m: odp.Poisson(m),
    }
    for label, law in laws.items():

        def of_law(rng: Any, law: Callable[[float], Any] = law) -> Any:
            found = odp.calibrate(target_epsilon=target, delta=DELTA, run=run, trials=law)
            trials = found.trials
            curves = uniform(landscape, 400, results.reps(10_000), rng)
            # Nothing is released if T = 0: counted as guessing one digit in ten.
            none = float(trials.pmf(0)) if may_be_zero(trials) else 0.0
            spread = over_t(curves, trials) - none * curves[:, -1] + none * 0.1
            at_most_3 = float(trials.cdf(3))
            return {**outcome(2.0, found.value, spread), "P[T <= 3]": round(at_most_3, 3)}

        results.add(f"law of T | {label}", of_law)


def may_be_zero(trials: Any) -> bool:
    return float(trials.pmf(0)) > 0.0


def score_of(name: str, noise: float, epochs: float = EPOCHS) -> Landscape:
    """Measured runs, scored with noise of one point of accuracy."""
    return measured(name, noise, epochs).noisier(0.01)


def outcome(noise: float, runs: float, values: Floats) -> dict[str, Any]:
    return {"noise": round(noise, 3), "runs": round(float(runs), 1), "accuracy": interval(values)}


# -- choices --------------------------------------------------------------------------------------


def choices(results: Results) -> None:
    """One change at a time from the defaults; T geometric with mean 20."""
    reps = results.reps(120)
    trials = odp.Geometric(20)
    grounds = {
        "tuning: like Figure 2": like_figure_2(0.65, 18).noisier(0.02),
        "tuning: like Figure 3": like_figure_3(),
        "held out: digits": measured("digits", 2.0).noisier(0.02),
        "held out: breast_cancer": measured("breast_cancer", 2.0).noisier(0.01),
    }
    variants: dict[str, tuple[AdaptiveDensity, bool]] = {
        "defaults, fresh candidates": (OURS, True),
        "grid": (OURS, False),
        "L2": (replace(OURS, projection="l2"), False),
        "tau 0": (replace(OURS, tau=0.0), False),
        "tau 1.5": (replace(OURS, tau=1.5), False),
        "beta 1": (replace(OURS, beta=1.0), False),
        "beta 16": (replace(OURS, beta=16.0), False),
        "beta 16, L2": (replace(OURS, beta=16.0, projection="l2"), False),
        "as published": (PAPER, False),
        "as published, standardised": (replace(PAPER, standardize=True), False),
        "C=1.25, c=0.9": (replace(OURS, bounds=(0.9, 1.25)), False),
        "C=4, c=0.5": (replace(OURS, bounds=(0.5, 4.0)), False),
    }
    for ground, landscape in grounds.items():
        for fresh in (False, True):
            results.add(
                f"{ground} | uniform{', off the grid' if fresh else ''}",
                lambda rng, x=landscape, fresh=fresh: interval(
                    over_t(uniform(x, 160, results.reps(10_000), rng, fresh), trials)
                ),
            )
        for name, (law, fresh) in variants.items():
            results.add(
                f"{ground} | {name}",
                lambda rng, x=landscape, p=law, fresh=fresh: interval(
                    over_t(searches(x, p, 60, 60, reps, rng, fresh=fresh), trials)
                    if fresh
                    else over_t(searches(x, p, 32, 100, reps, rng), trials)
                ),
            )


PARTS: dict[str, Callable[[Results], None]] = {
    "figure1": figure1,
    "budgets": budgets,
    "equal": equal,
    "choices": choices,
}


def run_parts(parts: dict[str, Callable[[Results], None]], description: str | None) -> None:
    """The command line of every script of experiments."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("part", choices=[*parts, "all"])
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the repetitions")
    parser.add_argument("--only", default="", metavar="TEXT", help="entries with TEXT in the name")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    names = list(parts) if options.part == "all" else [options.part]
    if options.quick and options.results == RESULTS:
        parser.error("--quick needs --results, so that it does not mix with the full results")
    for name in names:
        parts[name](Results(options.results / f"{name}.json", options.quick, options.only))


if __name__ == "__main__":
    run_parts(PARTS, __doc__)
