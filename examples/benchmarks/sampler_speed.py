"""What a sampler adds to a trial: ask and tell, with n finished trials in the study.

Every sampler is measured in this one process on the same storage, in short turns, so that a busy
machine slows all of them alike; what counts is the ratios, medians of the ratios within a turn::

    python examples/benchmarks/sampler_speed.py                       # about 6 minutes
    python examples/benchmarks/sampler_speed.py --quick               # seconds
    python examples/benchmarks/sampler_speed.py --part candidates     # 512 to 1e6 candidates
    python examples/benchmarks/sampler_speed.py --part memory

Every sampler gets a study of its own with n finished trials and two warm-up trials; a turn times
the CPU of a block of trials of each. One trial in many refits hyperparameters (DP-HyPO when the
history has doubled, GPSampler every time); ``--part refit`` shows what that one costs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

import optuna_dp as odp

Space = dict[str, BaseDistribution]
SIZES = (10, 100, 300, 1000, 3000)
MANY = 10**9
QUICK_ONES = ("RandomSampler", "RandTune", "RandTune, define-by-run")
PAIRS = (
    ("RandTune", "RandomSampler"),
    ("RandTune, define-by-run", "RandomSampler"),
    ("DP-HyPO", "TPESampler"),
    ("DP-HyPO", "GPSampler"),
)


def spaces() -> dict[str, Space]:
    def cube(d: int) -> Space:
        return {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(d)}

    mixed: Space = {
        "rate": FloatDistribution(1e-5, 1.0, log=True),
        "momentum": FloatDistribution(0.0, 0.99),
        "layers": IntDistribution(1, 6),
        "units": IntDistribution(8, 512, log=True),
        "optimizer": CategoricalDistribution(["sgd", "adam", "rmsprop"]),
        "schedule": CategoricalDistribution(["constant", "cosine"]),
    }
    return {"2-D": cube(2), "6-D": cube(6), "20-D": cube(20), "mixed": mixed}


def score(params: dict[str, Any]) -> float:
    numbers = [v for v in params.values() if isinstance(v, float | int)]
    return float(sum(np.sin(3.0 * v / (1.0 + abs(v))) for v in numbers))


def samplers(space: Space) -> dict[str, Callable[[], Any]]:
    """The samplers; those here must have slots left, so T is fixed far beyond the benchmark."""
    trials = odp.Geometric(mean=MANY)
    return {
        "RandomSampler": lambda: optuna.samplers.RandomSampler(seed=0),
        "RandTune": lambda: odp.RandTuneSampler(space, trials=trials),
        "RandTune, define-by-run": lambda: odp.RandTuneSampler(trials=trials),
        "TPESampler": lambda: optuna.samplers.TPESampler(seed=0),
        "DP-HyPO": lambda: odp.DPHyPOSampler(space, trials=trials),
        "GPSampler": lambda: optuna.samplers.GPSampler(seed=0),
    }


def one_trial(study: optuna.Study, space: Space) -> None:
    """Asks for a trial with all its parameters and tells its score."""
    trial = study.ask()
    study.tell(trial, score({name: trial._suggest(name, d) for name, d in space.items()}))


def trials_ms(study: optuna.Study, space: Space, count: int) -> float:
    """CPU milliseconds per trial over a block of trials (reading the clock is not free)."""
    start = time.process_time()
    for _ in range(count):
        one_trial(study, space)
    return 1e3 * (time.process_time() - start) / count


def prepared(make: Callable[[], Any], space: Space, n: int) -> optuna.Study:
    """A study of this sampler with n finished trials (the first one its own, for the plan)."""
    study = optuna.create_study(sampler=make(), direction="maximize")
    one_trial(study, space)
    rng = optuna.samplers.RandomSampler(seed=7)
    for _ in range(1, n):
        params = {
            name: rng.sample_independent(study, None, name, d)  # type: ignore[arg-type]
            for name, d in space.items()
        }
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=space, value=score(params))
        )
    return study


def compare(
    space: Space, n: int, names: tuple[str, ...], turns: int, repeats: int
) -> dict[str, list[float]]:
    """CPU milliseconds per trial by sampler, one number per turn."""
    every = samplers(space)
    studies = {name: prepared(every[name], space, n) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        trials_ms(studies[name], space, 2)
    for _ in range(turns):
        for name in names:
            few = 1 if name == "GPSampler" else repeats * (8 if name in QUICK_ONES else 1)
            found[name].append(trials_ms(studies[name], space, few))
    return found


def ratio(found: dict[str, list[float]], name: str, other: str) -> float:
    """Median over the turns of what one sampler takes by what another takes in the same turn."""
    return statistics.median(a / b for a, b in zip(found[name], found[other], strict=True))


def speed(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {}
    sizes = (10, 100) if options.quick else options.sizes
    print(f"{'space':6}{'n':>6}" + "".join(f"{s:>24}" for s in samplers({})))
    for label, space in spaces().items():
        if (options.quick and label == "20-D") or label not in options.spaces:
            continue
        for n in sizes:
            names = tuple(samplers(space))
            if n > options.gp_up_to or importlib.util.find_spec("torch") is None:
                names = tuple(name for name in names if name != "GPSampler")
            found = compare(space, n, names, options.turns, 3)
            ms = {name: statistics.median(values) for name, values in found.items()}
            for name, other in PAIRS:
                if other in found:
                    ms[f"{name} / {other}"] = ratio(found, name, other)
            results[f"{label} {n}"] = {name: round(v, 3) for name, v in ms.items()}
            print(
                f"{label:6}{n:6}"
                + "".join(f"{ms.get(s, float('nan')):24.2f}" for s in samplers({}))
                + "".join(f"   {pair} {ms[pair]:.2f}" for pair in ms if " / " in pair),
                flush=True,
            )
    return results


def refit(options: argparse.Namespace) -> dict[str, Any]:
    """CPU milliseconds of a trial that refits hyperparameters, and its share per trial."""
    from optuna_dp.priors import surrogate

    results = {}
    for label, space in spaces().items():
        for n in (16, 128) if options.quick else (16, 64, 128, 256, 512, 1024):
            study = prepared(samplers(space)["DP-HyPO"], space, n)
            surrogate.most_probable.cache_clear()
            ms = trials_ms(study, space, 1)
            results[f"{label} {n}"] = round(ms, 1)
            print(f"{label:6}{n:6} {ms:8.1f} ms, {ms / (n / 2):.2f} per trial", flush=True)
    return results


def candidates(options: argparse.Namespace) -> dict[str, Any]:
    results = {}
    trials = odp.Geometric(mean=MANY)
    for label in ("2-D", "20-D"):
        space = spaces()[label]
        for count in (512, 10_000) if options.quick else (512, 2_500, 10_000, 100_000, 1_000_000):
            for n in (30,) if options.quick or count == 1_000_000 else (30, 300):
                study = prepared(
                    lambda count=count, space=space: odp.DPHyPOSampler(
                        space, trials=trials, candidates=count
                    ),
                    space,
                    n,
                )
                one_trial(study, space)
                ms = trials_ms(study, space, 5 if count <= 10_000 else 1)
                results[f"{label}, {count} candidates, n={n}"] = round(ms, 1)
                print(f"{label:6}{count:9} candidates, n={n:4}: {ms:10.1f} ms", flush=True)
    return results


def memory(options: argparse.Namespace) -> dict[str, Any]:
    """Peak of what one trial allocates beyond what the study holds."""
    results = {}
    space, trials = spaces()["6-D"], odp.Geometric(mean=MANY)
    cases = [(512, 300), (512, 1000), (512, 3000), (100_000, 300), (1_000_000, 30)]
    for count, n in cases[:2] if options.quick else cases:
        sampler = odp.DPHyPOSampler(space, trials=trials, candidates=count)
        study = prepared(lambda sampler=sampler: sampler, space, n)
        one_trial(study, space)
        tracemalloc.start()
        one_trial(study, space)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        results[f"{count} candidates, n={n}"] = round(peak, 1)
        print(f"6-D, {count} candidates, n={n}: {peak:.1f} MB", flush=True)
    return results


PARTS = {
    "speed": speed,
    "refit": refit,
    "candidates": candidates,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=sorted(PARTS), default="speed")
    parser.add_argument("--quick", action="store_true", help="few sizes, for checking")
    parser.add_argument("--spaces", nargs="+", default=list(spaces()), help="names of spaces")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="finished trials")
    parser.add_argument("--turns", type=int, default=15, help="blocks of trials per sampler")
    parser.add_argument(
        "--gp-up-to",
        type=int,
        default=300,
        help="n beyond which GPSampler (which needs torch) rests",
    )
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore")
    results = PARTS[options.part](options)
    if options.output is not None:
        options.output.write_text(json.dumps({options.part: results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
