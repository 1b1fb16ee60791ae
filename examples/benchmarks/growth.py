"""What a trial costs when its study has grown, beside Optuna's own sampler of the same kind.

Every study runs by ``study.optimize`` of a function that does nothing. The studies of a group,
each sampler at each size, are advanced by one trial in turn, in an order drawn for each round, so
that whatever else the machine does hits all alike. What is printed is the median over many such
rounds, in milliseconds of the processor, its ratio to the first size, and the same ratio of the
time that passed. The processor's time is that of this process: a database server's is in the time
that passed only. ::

    python examples/benchmarks/growth.py                       # in memory, two minutes
    python examples/benchmarks/growth.py --place sqlite        # and in SQLite
    python examples/benchmarks/growth.py --place postgresql    # and in a PostgreSQL of its own
    python examples/benchmarks/growth.py --quick               # seconds

A study first runs in memory to its size. A database, one for each study, is given its trials as
rows.

"ours" is what a sampler costs beyond the plain one of its group, at each size.

Pilots are measured with a random proposer, and with the default one, which is TPE and is itself
linear in the number of pilots.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import FloatDistribution, distribution_to_json
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from storage_load import own_postgres

import optuna_dp as odp

RUN = odp.gaussian(4.0)
MANY = odp.Geometric(mean=1e9)
SPACE: dict[str, Any] = {name: FloatDistribution(0, 1) for name in ("x", "y")}


def plan(pilots: int) -> Any:
    return odp.plan_budget(
        epsilon=3.0,
        run=lambda noise, steps: odp.gaussian(noise),
        steps=1,
        pilots=pilots,
        noise_increase=10.0,
    )


def objective(trial: optuna.Trial) -> float:
    if isinstance(trial.study.sampler, odp.BudgetSampler):
        odp.start_run(trial)
    return trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1)


@dataclass(frozen=True)
class Case:
    """A sampler and its callbacks."""

    name: str
    sampler: Callable[[], Any]
    callbacks: Callable[[], list[Any]] = list


@dataclass(frozen=True)
class Group:
    """Cases that are advanced in turn, the plain one first, and after how many trials."""

    name: str
    cases: tuple[Case, ...]
    sizes: tuple[int, ...]


def pilots(number: int, proposer: Callable[[], Any] | None = None) -> Case:
    words = "random" if proposer is not None else "default"
    made = plan(number)
    return Case(
        f"{number:,} pilots, {words}, callback",
        lambda: odp.BudgetSampler(
            made, search_space=SPACE, proposer=None if proposer is None else proposer()
        ),
        lambda: [odp.PrivacyCallback()],
    )


def groups(names: list[str]) -> Iterator[Group]:
    uniform, tpe = optuna.samplers.RandomSampler, optuna.samplers.TPESampler
    plain = Case("RandomSampler", uniform)
    makers: dict[str, Callable[[], Group]] = {
        "selection": lambda: Group(
            "selection",
            (
                plain,
                Case("RandTune", lambda: odp.RandTuneSampler(trials=MANY)),
                Case(
                    "RandTune, callback",
                    lambda: odp.RandTuneSampler(trials=MANY, run=RUN),
                    lambda: [odp.PrivacyCallback()],
                ),
            ),
            (500, 8000),
        ),
        "many pilots": lambda: Group("many pilots", (plain, pilots(9000, uniform)), (500, 8000)),
        "pilots": lambda: Group("pilots", (plain, pilots(1000, uniform)), (100, 500, 850)),
        "proposer": lambda: Group(
            "proposer",
            (
                Case("TPESampler, random for 500", lambda: tpe(n_startup_trials=500)),
                pilots(1000),
            ),
            (100, 500, 850),
        ),
        "DP-HyPO": lambda: Group(
            "DP-HyPO",
            (
                Case("TPESampler", tpe),
                Case("DP-HyPO", lambda: odp.DPHyPOSampler(SPACE, trials=MANY)),
            ),
            (50, 300, 2000),
        ),
    }
    for name in names or makers:
        yield makers[name]()


def with_rows_of(source: optuna.Study, url: str, sampler: Any) -> optuna.Study:
    """A study in a database, with all that another one holds.

    Its trials are written as rows: one by one through Optuna they would take hours.
    """
    storage = RDBStorage(url)
    study = optuna.create_study(storage=storage, sampler=sampler)
    for key, value in source._storage.get_study_system_attrs(source._study_id).items():
        study._storage.set_study_system_attr(study._study_id, key, value)
    rows: dict[Any, list[dict[str, Any]]] = {}
    for trial_id, trial in enumerate(source.get_trials(deepcopy=False), 1):
        rows.setdefault(models.TrialModel, []).append(
            {
                "trial_id": trial_id,
                "number": trial.number,
                "study_id": study._study_id,
                "state": trial.state,
                "datetime_start": trial.datetime_start,
                "datetime_complete": trial.datetime_complete,
            }
        )
        rows.setdefault(models.TrialValueModel, []).append(
            {"trial_id": trial_id, "objective": 0, "value": trial.value, "value_type": "FINITE"}
        )
        rows.setdefault(models.TrialParamModel, []).extend(
            {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": trial.distributions[name].to_internal_repr(value),
                "distribution_json": distribution_to_json(trial.distributions[name]),
            }
            for name, value in trial.params.items()
        )
        rows.setdefault(models.TrialSystemAttributeModel, []).extend(
            {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
            for key, value in trial.system_attrs.items()
        )
    with storage.engine.begin() as connection:
        for table, values in rows.items():
            if values:
                connection.execute(sqlalchemy.insert(table), values)
        if storage.engine.name == "postgresql":
            sequence = "SELECT setval(pg_get_serial_sequence('trials', 'trial_id'), :last)"
            connection.execute(sqlalchemy.text(sequence), {"last": len(source.trials)})
    return study


@dataclass
class Grown:
    """A study at a size, and what its further trials took, in milliseconds."""

    study: optuna.Study
    callbacks: list[Any]
    processor: list[float] = field(default_factory=list)
    passed: list[float] = field(default_factory=list)

    def advance(self) -> None:
        began, passed = time.process_time(), time.perf_counter()
        self.study.optimize(objective, n_trials=1, callbacks=self.callbacks)
        self.processor.append(1e3 * (time.process_time() - began))
        self.passed.append(1e3 * (time.perf_counter() - passed))


def measured(
    group: Group, new_database: Callable[[], str] | None, rounds: int
) -> dict[tuple[str, int], Grown]:
    """All studies of a group, advanced by one trial in turn for so many rounds."""
    found = {}
    for case in group.cases:
        source = optuna.create_study(sampler=case.sampler())
        of_source = case.callbacks()
        for size in group.sizes:
            study, called = source, of_source
            if new_database is None:  # Each size needs a study of its own.
                study, called = optuna.create_study(sampler=case.sampler()), case.callbacks()
            study.optimize(objective, n_trials=size - len(study.trials), callbacks=called)
            if new_database is not None:
                study = with_rows_of(source, new_database(), case.sampler())
                called = case.callbacks()
            found[case.name, size] = Grown(study, called)
    for grown in found.values():
        grown.study.optimize(objective, n_trials=2, callbacks=grown.callbacks)  # It reads all.
    for number in range(rounds):
        # In another order each time: what ran just before leaves caches behind.
        for grown in random.Random(number).sample([*found.values()], len(found)):
            grown.advance()
    return found


@contextmanager
def databases_at(place: str) -> Iterator[Callable[[], str] | None]:
    """What makes the URL of a new database; None in memory."""
    with ExitStack() as stack:
        if place == "memory":
            yield None
            return
        count = iter(range(1_000))
        if place == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield lambda: f"sqlite:///{Path(folder) / str(next(count))}.db"
            return
        server = sqlalchemy.make_url(stack.enter_context(own_postgres()))

        def database() -> str:
            name = f"growth{next(count)}"
            engine = sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
            engine.dispose()
            return server.set(database=name).render_as_string(hide_password=False)

        yield database


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few trials, for checking")
    parser.add_argument("--place", choices=("memory", "sqlite", "postgresql"), default="memory")
    parser.add_argument("--rounds", type=int, default=0, help="how often each study is advanced")
    parser.add_argument("--groups", nargs="+", default=[], help="names of groups")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna_dp").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    rounds = options.rounds or (4 if options.quick else 100)
    print(f"medians of {rounds} trials: processor ms (ratio; ratio of the time that passed)")
    for group in groups(options.groups):
        sizes = tuple(range(20, 20 * len(group.sizes) + 1, 20)) if options.quick else group.sizes
        group = Group(group.name, group.cases, sizes)
        with databases_at(options.place) as new_database:
            found = measured(group, new_database, rounds)
        medians = {
            key: (statistics.median(g.processor), statistics.median(g.passed))
            for key, g in found.items()
        }
        for case in group.cases:
            first = medians[case.name, sizes[0]]
            shown = []
            for size in sizes:
                processor, passed = medians[case.name, size]
                ratios = f"({processor / first[0]:.2f}; {passed / first[1]:.2f})"
                shown.append(f"{size}: {processor:.2f} {ratios}")
            ours = [medians[case.name, n][0] - medians[group.cases[0].name, n][0] for n in sizes]
            beside = ", ".join(f"{ms:.2f}" for ms in ours) if case is not group.cases[0] else ""
            print(f"{case.name:32}{'  '.join(shown)}  {beside and 'ours: '}{beside}", flush=True)


if __name__ == "__main__":
    main()
