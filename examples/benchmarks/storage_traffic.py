"""Storage calls of one trial after n finished ones, by sampler; they must not depend on n.

    python examples/benchmarks/storage_traffic.py                   # a PostgreSQL of its own
    python examples/benchmarks/storage_traffic.py --place memory    # what reaches any storage

A PostgreSQL of its own needs ``optuna-dp[test]`` (package pgserver). On a database, what counts is
what passes Optuna's cache; SQL statements (commits are not counted) say how much each call costs.
Counts, not times: a busy machine does not change them. Prints a table; ``--output`` writes JSON.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import FloatDistribution
from optuna.storages._cached_storage import _CachedStorage
from storage_load import own_postgres

import optuna_dp as odp

SPACE = {name: FloatDistribution(0.0, 1.0) for name in ("x", "y")}
SIZES = (10, 100, 1000)
# Trials that one count is the mean of.
BLOCK = 10
RUNS = odp.Geometric(mean=10**9)
# Calls as a caller makes them; what a storage calls on itself is part of the first call.
_NAMES = ("create_", "get_", "set_", "_get_trials", "_create_new_trial", "_set_trial_param")
# Its earlier trials cannot be added by hand: a proposer sees those that the study made only.
_NOT_FILLED = "BudgetSampler, pilots"


def _points(count: int) -> list[dict[str, float]]:
    return [{"x": i / count, "y": 1.0 - i / count} for i in range(count)]


def _budget(pilots: int) -> odp.BudgetPlan:
    return odp.plan_budget(
        epsilon=3.0, run=lambda noise, steps: odp.gaussian(noise), steps=1, pilots=pilots
    )


def samplers() -> dict[str, Callable[[], Any]]:
    """The samplers, each with more slots than the benchmark uses."""
    many = SIZES[-1] + 10 * BLOCK
    return {
        "RandomSampler": lambda: optuna.samplers.RandomSampler(seed=0),
        "TPESampler": lambda: optuna.samplers.TPESampler(seed=0),
        "RandTune": lambda: odp.RandTuneSampler(SPACE, trials=RUNS),
        "RandTune, define-by-run": lambda: odp.RandTuneSampler(trials=RUNS),
        "DP-HyPO, batch": lambda: odp.DPHyPOSampler(SPACE, trials=RUNS),
        "DP-HyPO, any": lambda: odp.DPHyPOSampler(SPACE, trials=RUNS, schedule="any"),
        "DP-HyPO, define-by-run": lambda: odp.DPHyPOSampler(trials=RUNS),
        "BudgetSampler, pilots": lambda: odp.BudgetSampler(_budget(many), search_space=SPACE),
        "NoisyMaxSampler": lambda: odp.NoisyMaxSampler(
            SPACE, candidates=_points(many), n_partitions=1000, epsilon=10.0
        ),
        "ProposeTestSampler": lambda: odp.ProposeTestSampler(
            SPACE, candidates=_points(many), n_partitions=1000, epsilon=10.0
        ),
    }


@dataclass
class Traffic:
    """What reached a storage.

    Attributes:
        calls: Calls by name.
        statements: SQL statements, none in memory.
    """

    calls: Counter[str] = field(default_factory=Counter)
    statements: int = 0


@contextmanager
def watched(storage: Any) -> Iterator[Traffic]:
    """Counts the calls of a storage from one thread, behind Optuna's cache if it has one."""
    found, depth = Traffic(), [0]
    inner = storage._backend if isinstance(storage, _CachedStorage) else storage

    def counted(name: str, method: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            found.calls[name] += depth[0] == 0
            depth[0] += 1
            try:
                return method(*args, **kwargs)
            finally:
                depth[0] -= 1

        return run

    names = [name for name in dir(inner) if name.startswith(_NAMES)]
    for name in names:
        setattr(inner, name, counted(name, getattr(inner, name)))

    def statement(*_: Any) -> None:
        found.statements += 1

    if hasattr(inner, "engine"):
        from sqlalchemy import event

        event.listen(inner.engine, "before_cursor_execute", statement)
    try:
        yield found
    finally:
        for name in names:
            delattr(inner, name)
        if hasattr(inner, "engine"):
            event.remove(inner.engine, "before_cursor_execute", statement)


def one_trial(study: optuna.Study) -> None:
    trial = study.ask()
    x, y = (trial.suggest_float(name, 0.0, 1.0) for name in SPACE)
    study.tell(trial, (x + y) / 2)


def traffic(name: str, sizes: tuple[int, ...], storage: Any, block: int = BLOCK) -> list[Traffic]:
    """Traffic of ``block`` trials after each of ``sizes`` finished ones (whole batches)."""
    study = optuna.create_study(storage=storage, sampler=samplers()[name](), direction="maximize")
    for _ in range(min(sizes[0], 5)):
        one_trial(study)  # The plan is the sampler's own.
    rng = optuna.samplers.RandomSampler(seed=7)
    done, found = min(sizes[0], 5), []
    for n in sizes:
        for _ in range(done, n):
            if name == _NOT_FILLED:
                one_trial(study)
                continue
            params = {
                key: rng.sample_independent(study, None, key, d)  # type: ignore[arg-type]
                for key, d in SPACE.items()
            }
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=SPACE, value=params["x"])
            )
        with watched(study._storage) as counted:
            for _ in range(block):
                one_trial(study)
        found.append(counted)
        done = n + block
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--place", choices=["postgresql", "memory"], default="postgresql")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="finished trials")
    parser.add_argument("--samplers", nargs="+", default=list(samplers()), help="names")
    parser.add_argument("--methods", action="store_true", help="show the calls by name")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore")
    sizes, results = tuple(options.sizes), {}
    heads = "".join(f"{f'n={n}: calls':>16}{'SQL':>7}" for n in sizes)
    print(f"{'per trial':30}{heads}")
    with own_postgres() if options.place == "postgresql" else nullcontext(None) as url:
        for name in options.samplers:
            storage: Any = optuna.storages.get_storage(url)
            found = traffic(name, sizes, storage)
            rows = [(sum(t.calls.values()) / BLOCK, t.statements / BLOCK) for t in found]
            print(f"{name:30}" + "".join(f"{c:16.1f}{s:7.1f}" for c, s in rows), flush=True)
            results[name] = [
                {"n": n, "calls": dict(t.calls), "statements": t.statements, "trials": BLOCK}
                for n, t in zip(sizes, found, strict=True)
            ]
            if options.methods:
                print("   ", {k: v / BLOCK for k, v in sorted(found[-1].calls.items())})
    if options.output is not None:
        options.output.write_text(json.dumps({options.place: results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
