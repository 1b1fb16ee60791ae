"""Many small studies, each with faults drawn at random, and counts of what came of them.

A command. It prints the counts, and ends with 1 if one of the last four is not zero::

    PYTHONPATH=tests python -m reliability.faulted_studies --studies 500 --seed 0
    PYTHONPATH=tests python -m reliability.faulted_studies --studies 150 --kinds postgresql

Every study is on a storage of its own: SQLite, a journal, SQLite behind Optuna's gRPC proxy, or a
database of a PostgreSQL server. Workers come one after the other, or two at once. A worker may be
killed before or after any call to its storage, be told by the storage that it is gone, find the
disk full, lose or copy the file, or see its clock jump by months. A PostgreSQL server is
restarted, crashes or cuts its connections; backups are made; a database or the study in it is
deleted; a study moves to a copy of its database. Then runs of dead workers are marked, a worker
without faults ends the study, and it is released.

What is counted at the end: runs that were made twice; studies that can neither be released nor
begun anew; texts that name the number of runs; errors that are not this
package's own, except when a worker opens a storage by Optuna's ``load_study``. A fault that is
drawn for a step beyond a worker's last does not happen.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import optuna
from optuna.trial import TrialState
from support import tell

import optuna_dp as odp
from optuna_dp.errors import OptunaDPError, UnfinishedStudyError

from .checks import check_exactly_t, plan_of, release_of
from .faulted_places import (
    ENDS_IT,
    FAULTS,
    NAME,
    Fault,
    Place,
    Servers,
    fill_disk,
    forked,
    new_place,
)
from .storages import open_storage, opened
from .workers import BUDGET, SAMPLERS, Diary, make_mortal, started_by

FILES = ("sqlite", "journal", "sqlite", "journal", "grpc")
# Neither its mean nor its name is a whole number, so that no text has to name one.
LAW = odp.Poisson(mean=4.5)
_PATIENCE = 1.0  # seconds that workers with faults have, before they are killed
_LAST_PATIENCE = 420.0  # seconds that a worker without faults has; it takes a few
_WORKERS_AT_MOST = 12  # without a fault; a budget may fail several times to choose


@dataclass
class Counts:
    """What came of so many studies."""

    studies: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    made_twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.made_twice or self.lost or self.leaks or self.raw)


def error_note(error: BaseException) -> str:
    """A line for the diary about what a worker, or a call, ended with."""
    is_ours = isinstance(error, OptunaDPError)
    where = [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:3]
    text = f"{type(error).__name__}: {error} in {where}"
    # Optuna's own load_study is called by the user, before anything of this package.
    of_optuna = where[:1] in (["load_study"], ["open_storage"])
    kind = "ours" if is_ours else "of Optuna" if of_optuna else "raw"
    return f"raised {kind} {text}".replace("\n", " ")


def worker(place: Place, sampler: str, fault: Fault, diary: Path, free_bytes: int) -> None:
    """Works at a study until it ends or a fault ends the worker. Never returns."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(os.open(f"{diary}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    notes = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(text: str) -> None:
        os.write(notes, f"{os.getpid()} {text}\n".encode())

    try:
        if fault.kind == "full disk":
            # Notes are on the same disk: what is written there must stay possible.
            fill_disk(place.file, free_bytes)
        storage = open_storage(place.at_worker)
        make_mortal(storage, fault, lambda text: None)
        study = optuna.load_study(study_name=NAME, storage=storage, sampler=SAMPLERS[sampler](LAW))

        def objective(trial: optuna.Trial) -> float:
            started = started_by(trial)
            if started is not None:
                note(f"started {started}")
            x = trial.suggest_float("x", -1.0, 1.0)
            note(f"began {trial.number}")
            score: float = tell(trial, -((x - 0.3) ** 2))
            return score

        study.optimize(objective)
    except BaseException as error:  # All others are what is looked for.
        note(error_note(error))
    os._exit(0)


def live_through(seed: int, kinds: Sequence[str], servers: Servers, counts: Counts) -> None:
    """Runs the study of a seed through its faults and adds what came of it."""
    rng = random.Random(seed)
    kind, sampler = rng.choice(kinds), rng.choice(sorted(SAMPLERS))
    label = f"seed {seed}, {sampler}, {kind}"
    with tempfile.TemporaryDirectory(prefix="odp-faults-") as name, ExitStack() as stack:
        folder = Path(name)
        diary = folder / "diary"
        place = stack.enter_context(new_place(kind, folder, servers))
        faults: list[str] = []
        for _ in range(rng.randint(1, 3)):
            pair = [rng.choice(FAULTS[kind]) for _ in range(rng.choice((1, 1, 2)))]
            step, before = rng.randint(1, rng.choice((8, 30, 80))), rng.random() < 0.5
            free_bytes = rng.randint(0, 12_000)
            pids = [
                forked(
                    worker,
                    place,
                    sampler,
                    Fault(step + 7 * i, before, kind=fault, place=place),
                    diary,
                    free_bytes,
                )
                for i, fault in enumerate(pair)
            ]
            await_ends(pids, _PATIENCE, place)
            faults += pair
            if set(pair) & {*ENDS_IT}:
                break
            place.mark_the_dead()
            if "move" in pair:
                place.move()
        counts.studies += 1
        counts.faults.update(faults)
        label += f" ({', '.join(faults)})"
        slots = None
        ends = [fault for fault in faults if fault in ENDS_IT]
        if ends:
            outcome = ends[0]
        else:
            try:
                outcome, slots = ended(place, sampler, diary)
            except Exception as error:
                outcome = "lost"
                where = traceback.extract_tb(error.__traceback__)[-1]
                counts.lost.append(f"{label}: {type(error).__name__}: {error} at {where.line}")
        counts.outcomes[outcome] += 1
        notes = Diary.read(diary)
        twice = [number for number, times in Counter(notes.began).items() if times > 1]
        if twice:
            counts.made_twice.append(f"{label}: {twice}")
        errors = Path(f"{diary}.err").read_text() if Path(f"{diary}.err").exists() else ""
        raw = [text for text in notes.raised if text.startswith("raw")]
        raw += [line for line in errors.splitlines() if line.startswith("Traceback")]
        raw += [place.reading_of_backup(release_of)]
        counts.raw += [f"{label}: {text}" for text in raw if text]
        if slots is not None:
            texts = [text.replace(str(folder), "") for text in [*notes.raised, errors]]
            named = re.compile(rf"(?<![\d.]){slots}(?![\d.])")
            counts.leaks += [f"{label}, T={slots}: {t}" for t in texts if named.search(t)]


def await_ends(pids: list[int], seconds: float, place: Place) -> int:
    """Waits for processes and kills those that still run then; returns how many these were.

    A worker may wait for one that has died.
    """
    deadline, running = time.monotonic() + seconds, list(pids)
    late = 0
    while running:
        if place.is_busy():
            deadline = time.monotonic() + seconds
        if time.monotonic() > deadline:
            late = late or len(running)
            for pid in running:
                os.kill(pid, signal.SIGKILL)
        running = [pid for pid in running if os.waitpid(pid, os.WNOHANG)[0] == 0]
        time.sleep(0.005)
    return late


def ended(place: Place, sampler: str, diary: Path) -> tuple[str, int | None]:
    """Ends a study as an operator does; returns what it came to, and the secret number of runs."""
    for _ in range(_WORKERS_AT_MOST):
        place.mark_the_dead()
        with opened(place.at_operator) as storage:
            study = optuna.load_study(study_name=NAME, storage=storage)
            trials = study.get_trials(deepcopy=False)
            if plan_of(study) is None and trials and trials[0].state == TrialState.FAIL:
                assert not Diary.read(diary).began, "a run began without a plan"
                return "begun anew", None
            try:
                # Without a plan nothing has begun, so there is nothing to release yet.
                release = release_of(study) if plan_of(study) is not None else None
            except UnfinishedStudyError:
                release = None
                if sampler == "budget" and all(t.value is None for t in trials[: BUDGET.pilots]):
                    study.enqueue_trial({"x": 0.3})  # As the error tells a person to.
            if release is not None:
                slots = check_exactly_t(study, Diary.read(diary).began, crashes=True)
                return "released", None if sampler == "budget" else slots
        pid = forked(worker, place, sampler, Fault(None, place=place), diary, 0)
        assert not await_ends([pid], _LAST_PATIENCE, place), "a worker without a fault hangs"
    raise AssertionError(f"not finished by {_WORKERS_AT_MOST} workers: {Diary.read(diary).raised}")


def run(studies: int, seed: int, kinds: Sequence[str] = FILES, progress: bool = False) -> Counts:
    """Runs so many studies, with the seeds from ``seed`` on, on storages of these kinds."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    counts, servers = Counts(), Servers()
    try:
        for number in range(seed, seed + studies):
            live_through(number, kinds, servers, counts)
            if progress:
                print(counts, flush=True)
    finally:
        servers.stop()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=FILES, choices=sorted(FAULTS))
    parser.add_argument("--progress", action="store_true", help="prints the counts so far")
    options = parser.parse_args()
    counts = run(options.studies, options.seed, options.kinds, options.progress)
    print(f"{counts.studies} studies; faults drawn {dict(counts.faults)}")
    print(f"outcomes {dict(counts.outcomes)}")
    for name in ("made_twice", "lost", "leaks", "raw"):
        found = getattr(counts, name)
        print(f"{name}: {len(found)}")
        for text in found[:20]:
            print(f"  {text[:600]}")
    sys.exit(not counts.is_clean)


if __name__ == "__main__":
    main()
